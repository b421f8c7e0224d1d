"""The supervisor's decisions, with workers of a few lines that do as a file tells them."""

import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from gateway.config.load import load
from gateway.process.child import worker_command
from gateway.process.lanes import open_lanes
from gateway.process.status import PidFile, Status, read_status, target_of, write_targets
from gateway.process.supervisor import Pacing
from gateway.process.worker import WorkerShare
from tests.support.processes import Program, is_alive, takes_connections, until

WORKER = """
import json, os, select, signal, socket, sys, time
part = json.loads(sys.argv[1])
mode = open("{mode}").read().split() + ["fine"]
mode = mode[part["lane"]] if len(mode) > 2 else mode[0]
channel = socket.socket(fileno=part["channel"])
def say(**word):
    channel.send(json.dumps(word).encode() + b"\\n")
if mode == "crash":
    sys.exit(3)
if mode == "faulty":
    say(**{{"is": "faulty", "faults": ["SOME_SETTING: is wrong"]}})
    sys.exit(78)
if mode == "mute":
    time.sleep(600)
if mode == "slow":
    time.sleep(0.3)
own = [socket.socket(fileno=number) for number in part["lanes"][part["lane"]]]
for sock in own:
    sock.listen()
say(**{{"is": "ready", "metrics": "127.0.0.1:%d" % (9000 + part["slot"])}})
if mode == "hung":
    time.sleep(600)
orders = open("{orders}", "a", buffering=1)
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
while True:
    if select.select([channel], [], [], 0.05)[0]:
        data = channel.recv(65536)
        if not data:
            sys.exit(0)
        for line in data.splitlines():
            order = json.loads(line)
            print(part["slot"], *order.values(), file=orders)
            if order["do"] == "reload":
                say(**{{"is": "reloaded", "faults": ["it cannot be"] if "refuses" in mode else []}})
            if order["do"] in ("stop", "retire") and mode not in ("stubborn", "refuses-and-stays"):
                sys.exit(0)
    say(**{{"is": "alive"}})
"""

SUPERVISOR = """
import json, os, sys, time
from gateway.config.load import load
from gateway.process.supervisor import Pacing, Supervisor
from gateway.process.lanes import open_lanes
from gateway.process.zygote import Zygote
from gateway.telemetry.logs import configure_logging
writer = configure_logging()
settings = load(os.environ)
lanes = open_lanes(settings.host, settings.port, settings.workers)
forking = [sys.executable, "-c", *sys.argv[3:]]
code = Supervisor(
    settings,
    os.environ,
    lanes=lanes,
    pace=Pacing(**json.loads(sys.argv[1])),
    command=[sys.executable, sys.argv[2]],
    zygote=Zygote.fresh(forking, os.environ, [], time.monotonic() + 1) if sys.argv[3:] else None,
).run()
writer.close()
sys.exit(code)
"""


class Fake(Program):
    """A supervisor whose workers do as `mode` says: one word for all, or one per lane."""

    def __init__(
        self, folder: Path, *, mode: str, pace: dict[str, float], forking: Sequence[str] = (), **environ: str
    ) -> None:
        self.mode = folder / "mode"
        self.orders_file = folder / "orders"
        self.mode.write_text(mode)
        self.orders_file.touch()
        worker = folder / "worker.py"
        worker.write_text(WORKER.format(mode=self.mode, orders=self.orders_file))
        command = (sys.executable, "-c", SUPERVISOR, json.dumps(pace), str(worker), *forking)
        super().__init__(folder, command=command, GATEWAY_WORKERS="2", GATEWAY_DRAIN_S="1", **environ)

    @property
    def orders(self) -> list[str]:
        return self.orders_file.read_text().splitlines()


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Fake]:
    def made(mode: str = "fine", *, pace: dict[str, float] | None = None, **more: Any) -> Fake:
        return Fake(tmp_path, mode=mode, pace={"tick_s": 0.02, **(pace or {})}, **more)

    return made


def test_the_wait_before_a_start_grows_from_nothing_to_its_limit() -> None:
    pace = Pacing()
    assert [pace.backoff_s(failures) for failures in range(1, 9)] == [0, 1, 2, 4, 8, 16, 30, 30]
    assert pace.backoff_s(10_000) == 30


@pytest.mark.system
async def test_a_worker_that_hangs_is_relieved_at_once_and_killed_in_time(fake: Callable[..., Fake]) -> None:
    async with fake("fine hung", pace={"late_s": 0.2, "hung_s": 1.0}) as program:
        await program.logged("supervisor_started")
        await until(lambda: "0 listen 1" in program.orders)
        assert program.events("worker_hung") == []
        hung = (await program.logged("worker_hung"))["pid"]
        program.mode.write_text("fine")
        assert (await program.logged("worker_ready", count=3))["lane"] == 1
        assert not is_alive(hung)
        await until(lambda: "0 leave 1" in program.orders)


@pytest.mark.system
async def test_what_never_starts_ends_the_supervisor(fake: Callable[..., Fake]) -> None:
    async with fake("crash", pace={"longest_backoff_s": 0.05}) as program:
        assert await program.exit_code() == 1
        assert len(program.events("worker_started")) >= 6
        assert program.events("no_worker_starts")
        assert not program.pid_file.exists()


@pytest.mark.system
async def test_a_lane_that_never_starts_is_served_by_another(fake: Callable[..., Fake]) -> None:
    async with fake("fine crash", pace={"longest_backoff_s": 0.05}) as program:
        await program.logged("worker_replaced", count=5)
        assert "0 listen 1" in program.orders
        program.mode.write_text("fine")
        await program.logged("supervisor_started")
        await until(lambda: "0 leave 1" in program.orders)


@pytest.mark.system
async def test_one_lane_that_never_starts_keeps_nobody_waiting(fake: Callable[..., Fake]) -> None:
    async with fake("fine crash") as program:
        assert await program.serving()


@pytest.mark.system
async def test_without_descriptors_nothing_is_started_and_nothing_lost(fake: Callable[..., Fake]) -> None:
    async with fake(pace={"longest_backoff_s": 0.05}) as program:
        await program.logged("supervisor_started")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (3, hard))
        program.signal(signal.SIGUSR2)
        await program.logged("restart_failed")
        os.kill(program.workers[0], signal.SIGKILL)
        await program.logged("worker_not_started", count=3)
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (1024, hard))
        await program.logged("worker_ready", count=3)
        await program.restarted(1)


@pytest.fixture
def neighbour() -> Iterator[int]:
    """The first of three ports, the second of which another program has."""
    while True:
        with ExitStack() as opened:
            sockets = [opened.enter_context(socket.socket()) for _ in range(3)]
            try:
                sockets[0].bind(("127.0.0.1", 0))
                first = sockets[0].getsockname()[1]
                for number in (1, 2):
                    sockets[number].bind(("127.0.0.1", first + number))
            except (OSError, OverflowError):
                continue
            sockets[0].close()
            sockets[2].close()
            sockets[1].listen()
            yield first
            return


@pytest.mark.system
async def test_a_metrics_port_that_another_program_has_is_passed_over(
    fake: Callable[..., Fake], neighbour: int
) -> None:
    async with fake(METRICS_PORT=str(neighbour)) as program:
        await program.logged("supervisor_started")
        assert sorted(each["slot"] for each in program.events("worker_ready")) == [0, 2]
        [told] = program.events("metrics_port_taken")
        assert told["port"] == neighbour + 1


@pytest.mark.system
async def test_why_a_worker_was_replaced_is_told(fake: Callable[..., Fake]) -> None:
    async with fake("fine", pace={"longest_backoff_s": 0.05}) as program:
        await program.logged("supervisor_started")
        program.mode.write_text("faulty")
        os.kill(program.workers[0], signal.SIGKILL)
        assert (await program.logged("worker_replaced", count=2))["faults"] == ["SOME_SETTING: is wrong"]


@pytest.mark.system
async def test_a_fault_in_the_settings_ends_the_start_with_its_words(fake: Callable[..., Fake]) -> None:
    async with fake("faulty") as program:
        assert await program.exit_code() == 78
        assert "fault: SOME_SETTING: is wrong" in program.lines


@pytest.mark.system
async def test_a_worker_that_is_never_ready_is_killed_and_started_again(fake: Callable[..., Fake]) -> None:
    async with fake("mute", pace={"start_s": 0.3}) as program:
        await program.logged("worker_never_ready")
        program.mode.write_text("fine")
        await program.logged("supervisor_started")


@pytest.mark.system
async def test_a_worker_that_does_not_end_is_killed(fake: Callable[..., Fake]) -> None:
    async with fake("stubborn", pace={"end_s": 0.1}) as program:
        await program.logged("supervisor_started")
        begun = time.monotonic()
        program.signal(signal.SIGTERM)
        assert await program.exit_code() == 0
        assert time.monotonic() - begun > 1.0, "its drain time is its own"
        assert program.events("worker_does_not_end")


@pytest.mark.system
async def test_a_restart_whose_first_worker_fails_leaves_the_old_ones(fake: Callable[..., Fake]) -> None:
    async with fake() as program:
        await program.logged("supervisor_started")
        before = program.workers
        program.mode.write_text("faulty")
        program.signal(signal.SIGUSR2)
        await until(lambda: program.status["restarts"] == 1)
        assert program.status["faults"] == ["SOME_SETTING: is wrong"]
        assert program.targets == {"0": "127.0.0.1:9000", "1": "127.0.0.1:9001"}
        assert all(map(is_alive, before.values()))
        assert not any("retire" in order for order in program.orders)
        program.mode.write_text("fine")
        await program.restarted(2)
        assert not set(before.values()) & set(program.workers.values())


@pytest.mark.system
async def test_a_second_restart_waits_for_none(fake: Callable[..., Fake]) -> None:
    async with fake() as program:
        await program.logged("supervisor_started")
        program.mode.write_text("mute")
        program.signal(signal.SIGUSR2)
        await program.logged("worker_started", count=3)
        program.signal(signal.SIGUSR2)
        await program.logged("restart_under_way")
        program.signal(signal.SIGTERM)
        assert await program.exit_code() == 0
        assert len(program.events("worker_started")) == 3


@pytest.mark.system
async def test_what_new_workers_cannot_change_is_named_and_stays(fake: Callable[..., Fake], tmp_path: Path) -> None:
    settings = tmp_path / "env"
    settings.touch()
    async with fake(GATEWAY_ENV_FILE=str(settings)) as program:
        await program.logged("supervisor_started")
        settings.write_text("GATEWAY_WORKERS=3\n")
        await program.restarted(1)
        assert [event["setting"] for event in program.events("setting_needs_restart")] == ["GATEWAY_WORKERS"]
        assert len(program.events("worker_ready")) == 4


@pytest.mark.system
async def test_a_reload_while_workers_are_replaced_counts_for_those_to_come(
    fake: Callable[..., Fake], tmp_path: Path
) -> None:
    settings = tmp_path / "env"
    settings.touch()
    async with fake(GATEWAY_ENV_FILE=str(settings)) as program:
        await program.logged("supervisor_started")
        program.mode.write_text("slow")
        program.signal(signal.SIGUSR2)
        begun = await program.logged("restart_begun")
        settings.write_text("REPAIR_ATTEMPTS=0\n")
        program.signal(signal.SIGHUP)
        await until(lambda: program.status["reloads"] == 1)
        ended = await program.logged("restarted")
        assert program.status["faults"] == []
        assert ended["settings"] != begun["settings"]


@pytest.mark.system
async def test_what_workers_refuse_to_reload_is_told_once(fake: Callable[..., Fake]) -> None:
    async with fake("refuses") as program:
        await program.logged("supervisor_started")
        program.signal(signal.SIGHUP)
        await until(lambda: program.status["reloads"] == 1)
        assert program.status["faults"] == ["it cannot be"]


@pytest.mark.system
async def test_what_a_worker_refused_before_it_left_is_not_told_again(fake: Callable[..., Fake]) -> None:
    async with fake("refuses-and-stays") as program:
        await program.logged("supervisor_started")
        program.signal(signal.SIGHUP)
        await until(lambda: program.status["faults"] == ["it cannot be"])
        program.mode.write_text("fine")
        await program.restarted(1)
        program.signal(signal.SIGHUP)
        await until(lambda: program.status["reloads"] == 2)
        assert program.events("worker_ended") == [], "the old ones drain all the while"
        assert program.status["faults"] == []


@pytest.mark.system
async def test_a_worker_that_does_not_answer_a_reload_is_named(fake: Callable[..., Fake]) -> None:
    async with fake("fine hung", pace={"reload_s": 0.2}) as program:
        await program.logged("supervisor_started")
        program.signal(signal.SIGHUP)
        await until(lambda: program.status["reloads"] == 1)
        assert program.status["faults"] == ["the worker in slot 1 has not answered"]


def test_targets_of_all_workers_are_where_prometheus_looks(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    write_targets(str(path), [(1, "127.0.0.1:9465"), (0, "127.0.0.1:9464")])
    assert json.loads(path.read_text()) == [
        {"targets": ["127.0.0.1:9464"], "labels": {"slot": "0"}},
        {"targets": ["127.0.0.1:9465"], "labels": {"slot": "1"}},
    ]
    write_targets(None, [(0, "nowhere:1")])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["targets.json"]


def test_prometheus_may_read_them_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    before = os.umask(0o077)
    try:
        write_targets(str(path), [(0, "127.0.0.1:9464")])
        PidFile(str(tmp_path / "pid"), Status(pid=os.getpid())).write()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "pid").stat().st_mode & 0o777 == 0o600


@pytest.mark.system
async def test_systemd_hears_of_every_turn(fake: Callable[..., Fake], tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)
        listening.setblocking(False)
        heard: list[str] = []

        def is_heard(*wanted: str) -> bool:
            try:
                while True:
                    heard.append(listening.recv(4096).decode())
            except BlockingIOError:
                return all(any(word in message for message in heard) for word in wanted)

        async with fake(NOTIFY_SOCKET=address, WATCHDOG_USEC="90000") as program:
            await until(lambda: is_heard("READY=1", "WATCHDOG=1", "STATUS=2 workers on http://"))
            heard.clear()
            program.signal(signal.SIGHUP)
            await until(lambda: is_heard("RELOADING=1\nMONOTONIC_USEC=", "READY=1"))
            program.signal(signal.SIGTERM)
            await until(lambda: is_heard("STOPPING=1"))
            assert await program.exit_code() == 0


def test_a_worker_finds_modules_where_its_supervisor_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/opt/toolgate/bin", "/opt/toolgate/lib"])
    assert worker_command() == (sys.executable, "-P", "-m", "gateway.process.worker")
    for folder in ("", os.getcwd()):
        monkeypatch.setattr(sys, "path", [folder])
        assert worker_command() == (sys.executable, "-m", "gateway.process.worker")


def test_a_lane_that_was_left_keeps_what_waits_in_it() -> None:
    lanes = open_lanes("127.0.0.1", 0, 1)
    with socket.socket(fileno=os.dup(lanes.sockets[0][0].fileno())) as first:
        first.listen()
        waiting = socket.create_connection(("127.0.0.1", lanes.port), timeout=5)
    with waiting, socket.socket(fileno=os.dup(lanes.sockets[0][0].fileno())) as second:
        accepted, _ = second.accept()
        with accepted:
            accepted.sendall(b"taken")
            assert waiting.recv(5) == b"taken"
    lanes.close()
    assert not takes_connections(f"http://127.0.0.1:{lanes.port}")


def test_nothing_is_listened_to_before_a_worker_does() -> None:
    lanes = open_lanes("127.0.0.1", 0, 3)
    try:
        assert not takes_connections(f"http://127.0.0.1:{lanes.port}")
        assert [len(lane) for lane in lanes.filenos()] == [1, 1, 1]
    finally:
        lanes.close()


def test_a_taken_port_is_told_even_if_it_would_be_shared() -> None:
    lanes = open_lanes("127.0.0.1", 0, 2)
    try:
        lanes.sockets[0][0].listen()
        with pytest.raises(OSError, match="in use"):
            open_lanes("127.0.0.1", lanes.port, 2)
    finally:
        lanes.close()


def test_a_worker_has_its_own_metrics_port_and_its_share_of_the_places() -> None:
    settings = load({"GATEWAY_WORKERS": "3", "METRICS_PORT": "9000", "GATEWAY_MAX_CONCURRENCY": "10"})
    part = WorkerShare(lane=0, slot=2, workers=3, channel=0, lanes=[])
    own = part.own(settings)
    assert (own.metrics_port, own.max_concurrency) == (9002, 4)
    assert evolve(own, metrics_port=9000, max_concurrency=10) == settings
    assert part.own(load({"METRICS_PORT": "0"})).metrics_port == 0
    assert part.own(load({})).is_set("METRICS_PORT"), "its port is the only way to the metrics: it must be free"


def test_metrics_that_listen_everywhere_are_sought_under_the_name_of_the_machine() -> None:
    assert target_of("http://127.0.0.1:9464/metrics") == "127.0.0.1:9464"
    assert target_of("http://[::1]:9464/metrics") == "[::1]:9464"
    for everywhere in ("0.0.0.0", "[::]"):  # noqa: S104 - not bound
        assert target_of(f"http://{everywhere}:9464/metrics") == f"{socket.gethostname()}:9464"
    assert target_of(None) is None


def test_the_pid_file_holds_the_pid_and_how_it_went(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    file = PidFile(str(path), Status(pid=1234, workers=2))
    file.write()
    assert path.read_text().splitlines()[0] == "1234"
    file.write(file.status.reloaded(["A: is wrong"]))
    assert read_status(str(path)) == Status(pid=1234, workers=2, reloads=1, faults=("A: is wrong",))
    file.remove()
    assert not path.exists()


def test_the_pid_file_of_a_successor_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_text("4321\n")
    PidFile(str(path), Status(pid=1234)).remove()
    assert path.read_text() == "4321\n"


@pytest.mark.parametrize("content", ["", "no number\n", "0\n", "-1\n", "1\n"])
def test_a_pid_file_without_a_pid_is_an_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_text(content)
    with pytest.raises(ValueError, match="holds no process id"):
        read_status(str(path))


@pytest.mark.parametrize("rest", ["", "\n", "not json", "[]", '{"reloads": "x"}', "[" * 100_000, '{"faults": 5}'])
def test_of_a_pid_file_with_another_second_line_the_pid_counts(rest: str, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_text(f"1234\n{rest}")
    assert read_status(str(path)) == Status(pid=1234, workers=0)


def test_a_file_that_cannot_be_written_harms_nothing(tmp_path: Path) -> None:
    missing: Any = tmp_path / "no" / "such" / "folder"
    PidFile(str(missing)).write()
    write_targets(str(missing), [])
