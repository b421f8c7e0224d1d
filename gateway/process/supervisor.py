"""Several worker processes as one gateway: started, watched, replaced, drained and reloaded by one small process.

The supervisor answers no request and runs no event loop: it waits on its workers' channels and its own signals, and
decides. It is our own and not gunicorn's, whose aiohttp worker closes idle connections after two seconds, has no notion
of a request that ends with an error event instead of a cut, and starts a replacement only after the old worker went.

- A worker is a fork of a process that has loaded all and done nothing (`zygote`), so that it shares what is loaded with
  the others; or a fresh interpreter (0.4 s), in the place of one that failed. It gets the settings in force from here,
  not from the files: those may have changed, or be wrong, since the last reload.
- A lane is a listening socket that the supervisor keeps (`lanes` says why); a slot is the place of a
  worker's metrics port. A replacement takes the lane of its predecessor at once, and the lowest slot that is free:
  of a worker of ours and, as far as can be told, of other programs.
- While the worker of a lane is away, or says nothing for `late_s`, another one accepts what comes on that lane too.
- The end of a worker's channel tells the supervisor that the worker has gone, and the worker that the supervisor has:
  it then ends by itself.
"""

import gc
import linecache
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import structlog
from attrs import define, field, frozen

from gateway.config import load as config
from gateway.config.load import Settings
from gateway.config.urls import listening_url
from gateway.core.errors import ConfigError
from gateway.process.banner import WONDERING_AFTER_S, greet, still_ending
from gateway.process.channel import emptied
from gateway.process.child import Worker, worker_command
from gateway.process.exits import EXIT_FAILED, EXIT_SETTINGS
from gateway.process.lanes import Lanes, is_taken, open_lanes
from gateway.process.notify import Notifier
from gateway.process.status import PidFile, Status, write_targets
from gateway.process.zygote import Zygote, can_adopt
from gateway.telemetry.logs import configure_logging

__all__ = ["Pacing", "Supervisor", "supervise"]

# Slots beyond it have no port of their own.
_LAST_PORT = 65535
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD)

log = structlog.get_logger("toolgate")


@frozen(kw_only=True)
class Pacing:
    """How patient the supervisor is, in seconds."""

    tick_s: float = 0.5
    late_s: float = 3.0
    """Without a word for so long a worker's lane is served by another one as well."""
    hung_s: float = 30.0
    """Without a word for so long a worker is killed and replaced."""
    start_s: float = 60.0
    stable_s: float = 10.0
    """After so long a worker that ends begins its lane's count of failures anew."""
    longest_backoff_s: float = 30.0
    hopeless: int = 3
    """So many failures on every lane, with no worker ever ready, and the supervisor gives up."""
    end_s: float = 10.0
    """How long after its drain time a worker is given to end."""
    reload_s: float = 10.0

    def backoff_s(self, failures: int) -> float:
        """Before the next start: none after a first failure, then 1, 2, 4 ... seconds."""
        return 0.0 if failures <= 1 else min(self.longest_backoff_s, 2.0 ** min(failures - 2, 10))


@define(kw_only=True)
class Lane:
    """What the supervisor remembers of a lane while its workers come and go."""

    failures: int = 0
    start_at: float | None = None


@define(kw_only=True)
class _Restart:
    """A rolling restart under way: the workers still to be replaced, and the settings of their successors."""

    settings: Settings
    left: list[Worker]


@define(kw_only=True)
class _Reload:
    """A reload under way: who has not answered yet, and what those who did found wrong."""

    candidate: Settings | None
    """The settings as they are read here; a later replacement gets them once a worker has taken them."""
    due: float
    waiting: list[Worker]
    faults: list[str] = field(factory=list)


class Supervisor:
    """Keeps `settings.workers` workers on as many lanes; `run` returns the exit code."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        lanes: Lanes,
        pace: Pacing | None = None,
        command: Sequence[str] | None = None,
        zygote: Zygote | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        """What is in force, and what a replacement gets."""
        self._environ = dict(environ)
        self._open = lanes
        self._pace = pace or Pacing()
        self._command = command or worker_command()
        self._now = clock
        self._zygote = zygote
        """Who forks the workers while all are started."""
        self._has_forked = zygote is not None
        self._lanes = [Lane(start_at=0.0) for _ in lanes.sockets]
        self._workers: list[Worker] = []
        self._passed_over: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._restart: _Restart | None = None
        self._reload: _Reload | None = None
        self._stopping = False
        self._explain_at: float | None = None
        self._ever_ready = False
        self._announced = False
        self._exit_code = 0
        self._notifier = Notifier.from_environ(self._environ)
        self._alive_at = 0.0
        self._pid_file = PidFile(settings.pid_file, Status(pid=os.getpid(), workers=settings.workers))

    def run(self) -> int:
        """Until a signal ends it, or no worker can be started."""
        self._pid_file.write()
        try:
            # Only taken down in the handler: what a signal asks for is done between two turns, when nothing is half
            # done.
            with self._signals() as pending:
                if self._zygote is not None:
                    self._selector.register(self._zygote.channel, selectors.EVENT_READ, self._zygote)
                while not (self._stopping and not self._workers):
                    self._turn(pending)
        finally:
            for worker in self._workers:
                worker.channel.close()  # after a fault of ours: they end by themselves
            self._end_zygote()
            self._open.close()
            self._selector.close()
            self._pid_file.remove()
        log.info("supervisor_stopped", code=self._exit_code)
        return self._exit_code

    def _turn(self, pending: list[int]) -> None:
        self._start_due()
        for key, _ in self._selector.select(self._patience_s()):
            if isinstance(key.data, Worker):
                self._listen_to(key.data)
            elif isinstance(key.data, Zygote):
                key.data.listen()
            elif isinstance(key.fileobj, socket.socket):
                emptied(key.fileobj)
        while pending:
            self._obey(pending.pop(0))
        self._reap()
        self._judge()
        self._go_on_restarting()
        self._end_reload()
        self._share_lanes()
        self._announce_once()
        self._explain_once()
        self._tell_systemd()

    def _patience_s(self) -> float:
        if self._waits_for_zygote:
            return self._pace.tick_s
        due = [lane.start_at - self._now() for lane in self._lanes if lane.start_at is not None]
        return max(0.0, min(self._pace.tick_s, *due)) if due else self._pace.tick_s

    # Signals ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[list[int]]:
        """Signals as a list that fills up, and that wakes the selector."""
        pending: list[int] = []
        ours, woken = socket.socketpair()
        for end in (ours, woken):
            end.setblocking(False)
        # A signal between two turns would else wait until the selector's time is over:
        # https://peps.python.org/pep-0475/
        old_fd = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        old = {number: signal.signal(number, lambda number, _: pending.append(number)) for number in _SIGNALS}
        self._selector.register(ours, selectors.EVENT_READ, None)
        try:
            yield pending
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old_fd)
            ours.close()
            woken.close()

    def _obey(self, number: int) -> None:
        match number:
            case signal.SIGHUP:
                self._begin_reload()
            case signal.SIGUSR2:
                self._begin_restart()
            case signal.SIGTERM:
                self._stop()
            case signal.SIGINT if self._stopping:
                self._cut()
            case signal.SIGINT:
                self._stop()

    def _stop(self) -> None:
        """Take nothing new and let every worker drain."""
        if self._stopping:
            return
        self._stopping = True
        self._explain_at = self._now() + WONDERING_AFTER_S if sys.stderr.isatty() else None
        self._notifier.stopping()
        self._open.close()
        self._end_zygote()
        log.info("supervisor_stopping", workers=len(self._workers))
        for lane in self._lanes:
            lane.start_at = None
        for worker in self._workers:
            self._dismiss(worker, patient=False)

    def _cut(self) -> None:
        for worker in self._workers:
            worker.kill(signal.SIGINT)
            worker.kill_at = self._now() + 2.0

    def _dismiss(self, worker: Worker, *, patient: bool) -> None:
        """Let it drain: patiently while others serve, so that idle connections end by themselves too."""
        if worker.state == "starting":
            worker.kill(signal.SIGKILL)  # it has no request yet, and no handler for anything milder
        else:
            worker.channel.say(do="retire" if patient else "stop")
        worker.state = "leaving"
        if worker.kill_at is None:
            worker.kill_at = self._now() + worker.settings.drain_s + self._pace.end_s

    # Workers ------------------------------------------------------------------------------------------------------

    def _start_due(self) -> None:
        if self._waits_for_zygote:
            return
        for number, lane in enumerate(self._lanes):
            if lane.start_at is None or lane.start_at > self._now():
                continue
            lane.start_at = None
            if not any(worker.lane == number and worker.state != "leaving" for worker in self._workers):
                self._start(number, self._settings)
        if self._zygote is not None and self._restart is None:
            self._end_zygote()  # from now on workers are replaced one at a time, and share nothing

    @property
    def _waits_for_zygote(self) -> bool:
        """It is still loading; one that cannot is given up."""
        zygote = self._zygote
        if zygote is None or (zygote.is_ready and not zygote.is_gone):
            return False
        if not zygote.is_gone and self._now() < zygote.due:
            return True
        log.error("zygote_lost", pid=zygote.pid)
        self._end_zygote()
        return False

    def _begin_zygote(self) -> None:
        """What it forks is of the code that is installed now."""
        self._end_zygote()
        inherited = [number for lane in self._open.filenos() for number in lane]
        try:
            due = self._now() + self._pace.start_s
            self._zygote = Zygote.fresh(worker_command("gateway.process.zygote"), self._environ, inherited, due)
        except OSError as error:
            log.error("zygote_not_started", fault=error.strerror)
            return
        self._selector.register(self._zygote.channel, selectors.EVENT_READ, self._zygote)

    def _end_zygote(self) -> None:
        if self._zygote is not None:
            with suppress(KeyError, ValueError):  # one that did not answer is closed already
                self._selector.unregister(self._zygote.channel)
            self._zygote.end()
            self._zygote = None

    def _start(self, lane: int, settings: Settings, *, replaces: Worker | None = None) -> bool:
        """Whether there is a process; without room for one the lane waits, as after a failure."""
        # Before the process: it has to be told its metrics port with its settings.
        slot = self._free_slot(settings)
        lanes = self._open.filenos()
        try:
            worker = Worker.start(
                self._command,
                self._environ,
                settings,
                self._zygote,
                lane=lane,
                slot=slot,
                lanes=lanes,
                now=self._now(),
            )
        except OSError as error:
            log.error("worker_not_started", slot=slot, lane=lane, fault=error.strerror)
            if replaces is None:
                self._wait_longer(self._lanes[lane])
            return False
        worker.replaces = replaces
        self._workers.append(worker)
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        log.info("worker_started", slot=slot, lane=lane, pid=worker.pid)
        return True

    def _free_slot(self, settings: Settings) -> int:
        """The lowest whose metrics port nobody has; a port that another program took is passed over, and told once."""
        used = {worker.slot for worker in self._workers}
        slot = 0
        while slot in used or self._is_passed_over(settings, slot):
            slot += 1
        return slot

    def _is_passed_over(self, settings: Settings, slot: int) -> bool:
        port = settings.metrics_port + slot
        if not settings.metrics_port or port > _LAST_PORT or not is_taken(settings.metrics_host, port):
            return False
        if slot not in self._passed_over:
            self._passed_over.add(slot)
            log.warning("metrics_port_taken", host=settings.metrics_host, port=port)
        return True

    def _wait_longer(self, lane: Lane) -> float:
        lane.failures += 1
        wait_s = self._pace.backoff_s(lane.failures)
        lane.start_at = self._now() + wait_s
        return wait_s

    def _listen_to(self, worker: Worker) -> None:
        if worker.channel.is_closed:
            return
        words = worker.channel.words()
        if worker.channel.is_closed:
            self._selector.unregister(worker.channel)
        for word in words:
            worker.heard = self._now()
            match word["is"]:
                case "ready":
                    self._is_ready(worker, word["metrics"])
                case "faulty":
                    worker.faults = tuple(word["faults"])
                case "leaving" if worker.state == "serving":
                    self._leaves_unasked(worker)
                case "reloaded":
                    self._has_reloaded(worker, word["faults"])

    def _is_ready(self, worker: Worker, metrics: str | None) -> None:
        if worker.state != "starting":
            return
        worker.state, worker.served_since, worker.target = "serving", self._now(), metrics
        self._ever_ready = True
        log.info("worker_ready", slot=worker.slot, lane=worker.lane, pid=worker.pid)
        # The lane has its old worker still: only now that the new one answers may that one go.
        if worker.replaces is not None:
            self._settings = worker.settings
            self._dismiss(worker.replaces, patient=True)
            worker.replaces = None
        if self._reload is not None and worker in self._reload.waiting:
            worker.channel.say(do="reload")
        self._publish()

    def _leaves_unasked(self, worker: Worker) -> None:
        """Somebody told it to end; its streams go on, and its lane gets another one at once."""
        log.warning("worker_leaves_unasked", slot=worker.slot, lane=worker.lane, pid=worker.pid)
        worker.state = "leaving"
        worker.kill_at = self._now() + worker.settings.drain_s + self._pace.end_s
        self._lanes[worker.lane].start_at = self._now()

    def _reap(self) -> None:
        for worker in list(self._workers):
            code = worker.process.poll()
            if code is None:
                continue
            self._listen_to(worker)
            self._workers.remove(worker)
            if not worker.channel.is_closed:
                self._selector.unregister(worker.channel)
            worker.channel.close()
            self._publish()
            expected = worker.state == "leaving"
            report = log.info if expected else log.error
            report("worker_ended", slot=worker.slot, lane=worker.lane, pid=worker.pid, code=code)
            if not expected:
                self._has_failed(worker, code)

    def _has_failed(self, worker: Worker, code: int) -> None:
        if worker.replaces is not None:
            if self._owner(worker.lane) is None:
                self._lanes[worker.lane].start_at = self._now()
            self._give_up_restart(worker.faults or (f"a new worker ended with {code} before it was ready",))
            return
        # Settings that no worker ever took will not get better by waiting; later the old ones still serve.
        if code == EXIT_SETTINGS and not self._ever_ready:
            self._give_up(EXIT_SETTINGS, worker.faults)
            return
        lane = self._lanes[worker.lane]
        served_s = self._now() - worker.served_since if worker.served_since is not None else 0.0
        if served_s >= self._pace.stable_s:
            lane.failures = 0
        wait_s = self._wait_longer(lane)
        log.warning(
            "worker_replaced", lane=worker.lane, failures=lane.failures, wait_s=wait_s, faults=list(worker.faults)
        )
        # Whoever started it, systemd or a container, should see it fail, and not a process that listens to nobody.
        if not self._ever_ready and all(lane.failures >= self._pace.hopeless for lane in self._lanes):
            self._give_up(EXIT_FAILED, worker.faults)

    def _give_up(self, code: int, faults: Sequence[str]) -> None:
        if self._stopping:
            return
        self._exit_code = code
        log.error("no_worker_starts", faults=list(faults))
        for fault in faults:
            sys.stderr.write(f"fault: {fault}\n")
        sys.stderr.flush()
        self._stop()

    def _judge(self) -> None:
        """Kill what hangs, what never gets ready, and what does not end."""
        now = self._now()
        for worker in self._workers:
            if worker.kill_at is not None and now >= worker.kill_at:
                self._kill(worker, "worker_does_not_end")
            elif worker.state == "starting" and now - worker.started >= self._pace.start_s:
                self._kill(worker, "worker_never_ready")
            elif worker.state == "serving" and now - worker.heard >= self._pace.hung_s:
                self._kill(worker, "worker_hung")

    def _kill(self, worker: Worker, why: str) -> None:
        if worker.process.poll() is None:
            log.error(why, slot=worker.slot, lane=worker.lane, pid=worker.pid)
            worker.kill(signal.SIGKILL)

    def _owner(self, lane: int) -> Worker | None:
        return next((worker for worker in self._workers if worker.lane == lane and worker.state == "serving"), None)

    def _share_lanes(self) -> None:
        """Have every lane without an attentive worker of its own served by another one."""
        now = self._now()
        attentive = [
            worker for worker in self._workers if worker.state == "serving" and now - worker.heard < self._pace.late_s
        ]
        wanted: dict[int, Worker] = {}
        for lane in range(len(self._lanes)):
            if attentive and not any(worker.lane == lane for worker in attentive):
                # Who does so already goes on doing it.
                wanted[lane] = next((worker for worker in attentive if lane in worker.also), attentive[0])
        for worker in attentive:
            lanes = {lane for lane, other in wanted.items() if other is worker}
            for lane in lanes - worker.also:
                worker.channel.say(do="listen", lane=lane)
            for lane in worker.also - lanes:
                worker.channel.say(do="leave", lane=lane)
            worker.also = lanes

    # Reload and restart -------------------------------------------------------------------------------------------

    def _begin_reload(self) -> None:
        """Every worker reads the settings anew, in place; one that is not ready yet does so then."""
        if self._stopping:
            return
        self._notifier.reloading()
        candidate = None
        with suppress(ConfigError):  # the workers say so
            candidate = config.reload(self._environ, default_log_format=self._settings.log_format)
        waiting = [worker for worker in self._workers if worker.state != "leaving"]
        self._reload = _Reload(candidate=candidate, due=self._now() + self._pace.reload_s, waiting=waiting)
        for worker in waiting:
            if worker.state == "serving":
                worker.channel.say(do="reload")

    def _has_reloaded(self, worker: Worker, faults: Sequence[str]) -> None:
        reload = self._reload
        if reload is None or worker not in reload.waiting:
            return
        reload.waiting.remove(worker)
        reload.faults += faults
        if not faults and reload.candidate is not None:
            self._settings, _ = config.within_reach(reload.candidate, self._settings, "restart")
            worker.settings = self._settings
            if self._restart is not None:
                self._restart.settings = self._settings

    def _end_reload(self) -> None:
        reload = self._reload
        if reload is None:
            return
        waiting = [worker for worker in reload.waiting if worker in self._workers and worker.state != "leaving"]
        if waiting and self._now() < reload.due:
            return
        self._reload = None
        faults = reload.faults + [f"the worker in slot {worker.slot} has not answered" for worker in waiting]
        self._pid_file.write(self._pid_file.status.reloaded(tuple(dict.fromkeys(faults))))
        self._notifier.ready(self._summary())

    def _begin_restart(self) -> None:
        """Replace all workers, one after the other; settings with a fault, and nothing happens."""
        if self._stopping:
            return
        if self._restart is not None:
            log.warning("restart_under_way")
            return
        try:
            settings = config.reload(self._environ, default_log_format=self._settings.log_format)
        except ConfigError as error:
            self._end_restart(error.faults)
            return
        settings, waiting = config.within_reach(settings, self._settings, "restart")
        for name in waiting:
            log.warning("setting_needs_restart", setting=name)
        self._notifier.reloading()
        if self._has_forked:
            self._begin_zygote()
        log.info("restart_begun", settings=settings.digest())
        left = [worker for worker in self._workers if worker.state == "serving"]
        self._restart = _Restart(settings=settings, left=sorted(left, key=lambda worker: worker.lane))

    def _go_on_restarting(self) -> None:
        """The next one, when the last has been replaced, and not with settings that are just being read anew."""
        restart = self._restart
        if restart is None or self._stopping or self._reload is not None or self._waits_for_zygote:
            return
        if any(worker.replaces is not None for worker in self._workers):
            return
        while restart.left:
            old = restart.left.pop(0)
            if old.state != "serving":
                continue
            if not self._start(old.lane, restart.settings, replaces=old):
                self._give_up_restart(["a new worker cannot be started: see the log"])
            return
        self._restart = None
        self._settings = restart.settings
        self._end_restart(())

    def _give_up_restart(self, faults: Sequence[str]) -> None:
        """The workers that are there stay, and so do the settings that they have."""
        self._restart = None
        self._end_restart(faults)

    def _end_restart(self, faults: Sequence[str]) -> None:
        if faults:
            log.error("restart_failed", faults=list(faults))
        else:
            log.info("restarted", settings=self._settings.digest())
        self._pid_file.write(self._pid_file.status.restarted(faults))
        self._notifier.ready(self._summary())

    # What others are told -----------------------------------------------------------------------------------------

    def _announce_once(self) -> None:
        """When every lane has its worker; one that does not start keeps nobody waiting, as others serve its lane."""
        if self._announced or self._stopping or not self._ever_ready:
            return
        if not all(self._owner(number) or lane.failures for number, lane in enumerate(self._lanes)):
            return
        self._announced = True
        url = listening_url(self._settings, self._open.port)
        for warning in self._settings.warnings:
            log.warning("setting_doubtful", warning=warning)
        log.info("supervisor_started", url=url, workers=len(self._lanes), settings=self._settings.digest())
        greet(self._settings, url)
        self._notifier.ready(self._summary())

    def _explain_once(self) -> None:
        if self._explain_at is not None and self._workers and self._now() >= self._explain_at:
            self._explain_at = None
            sys.stderr.write(still_ending(self._settings.drain_s))
            sys.stderr.flush()

    def _summary(self) -> str:
        return f"{len(self._lanes)} workers on {listening_url(self._settings, self._open.port)}"

    def _publish(self) -> None:
        targets = [(worker.slot, worker.target) for worker in self._workers if worker.target is not None]
        write_targets(self._settings.metrics_sd_file, targets)

    def _tell_systemd(self) -> None:
        """The watchdog is content while requests can be served."""
        period = self._notifier.watchdog_s
        if period is None or self._now() < self._alive_at:
            return
        # Draining may take minutes, in which nothing hangs.
        if self._stopping or not self._ever_ready or any(worker.state == "serving" for worker in self._workers):
            self._alive_at = self._now() + period / 3
            self._notifier.alive()


def supervise(settings: Settings, environ: Mapping[str, str]) -> int:
    """Run `settings.workers` workers until a signal ends them; returns the exit code."""
    linecache.clearcache()  # the methods that attrs has written wait there for a debugger
    lanes = open_lanes(settings.host, settings.port, settings.workers)
    # Before anything of ours has a thread.
    zygote = Zygote.forked(environ, time.monotonic() + Pacing().start_s) if can_adopt() else None
    gc.set_threshold(700, 10, 10)  # Python's own: what was loaded is not looked at any more
    writer = configure_logging(level=settings.log_level, form=settings.log_format, secrets=settings.secrets())
    try:
        return Supervisor(settings, environ, lanes=lanes, zygote=zygote).run()
    finally:
        writer.close()
