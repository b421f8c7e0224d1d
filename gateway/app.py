"""The wiring: settings in, a running gateway out; signals drain, reload and end it."""

import gateway.upstream.certificates  # noqa: F401 - before anything loads the library of its connections

# isort: split

import asyncio
import gc
import linecache
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Protocol

import structlog
from attrs import define, frozen

from gateway.background.garbage import Garbage
from gateway.background.pulse import Pulse
from gateway.background.tick import Upkeep
from gateway.config import load as config
from gateway.config.load import Settings
from gateway.config.urls import in_url, listening_url
from gateway.core.errors import ConfigError
from gateway.core.ports import Tracing
from gateway.core.version import __version__
from gateway.demo.server import DemoServer, start_demo
from gateway.front.listening import cannot_listen
from gateway.front.server import MetricsServer, Server
from gateway.request.deadline import Deadline
from gateway.request.shared import Configuration, Shared, Telemetry
from gateway.telemetry.logs import LineWriter, configure_logging, ready_lines
from gateway.telemetry.metrics import Metrics
from gateway.traffic.admission import Admission
from gateway.upstream.certificates import read_ahead
from gateway.upstream.client import UpstreamClient
from strategies.base import ToolExecutionStrategy
from strategies.dialects.rows import TABLE
from strategies.factory import load_strategies

__all__ = ["GC_THRESHOLDS", "Gateway", "Orders", "Post", "build", "load_ahead", "run", "tell_lasting"]

LASTING_S = 5.0
"""A request that is older has a line in the log while it still goes on."""
LASTING_AGAIN = 6.0
"""And another one whenever it is so many times as old as at the last: 5 s, 30 s, 3 min, 18 min."""
GC_THRESHOLDS = (10_000, 5, 2_000)
"""A request makes few cycles: looking for them at each 700 objects costs more than what they hold. One look must not be
long, either: at a million young objects it is 80 ms."""
DIALECTS = frozenset(row.id for row in TABLE)

log = structlog.get_logger("toolgate")


@define(kw_only=True)
class Gateway:
    """A running gateway; `close` it."""

    url: str
    settings: Settings
    shared: Shared
    upkeep: Upkeep
    metrics_url: str | None = None
    pulse: Pulse
    _server: Server
    _demo: DemoServer | None
    _strategies: Mapping[str, ToolExecutionStrategy]
    _closing: AsyncExitStack

    async def drain(self) -> None:
        """Take nothing new and let what runs end, for as long as the settings allow."""
        await self._server.drain(self.shared.configuration.settings.drain_s)

    def reload(self, settings: Settings) -> None:
        """Use new settings from the next request on; raises `ConfigError` and keeps the old ones when they fail."""
        upstream_url = settings.upstream_url or (self._demo.url if self._demo is not None else None)
        # The demo is started by `build`: it cannot appear while the gateway runs.
        if upstream_url is None and settings.is_demo:
            raise ConfigError(["UPSTREAM_URL: cannot be taken away while the gateway runs"])
        # Built before anything is replaced: what fails leaves the old ones whole.
        self.shared.configuration = Configuration.build(
            settings, self._strategies, upstream_url=upstream_url if settings.is_demo else None
        )
        _read_certificates(self.shared.configuration)
        # Moved and not made anew: it counts those that are being answered.
        self.shared.admission.limit = settings.max_concurrency
        self.upkeep.follow(settings)
        self.settings, waiting = config.within_reach(settings, self.settings, "reload")
        for name in waiting:
            log.warning("setting_needs_restart", setting=name)

    async def close(self) -> None:
        """End everything that `build` began."""
        await self._closing.aclose()


async def build(
    settings: Settings, *, metrics: Metrics | None = None, server: Callable[[Shared], Server] = Server
) -> Gateway:
    """Start a gateway on the running loop; raises `OSError` for a taken port, `ConfigError` for bad settings."""
    loaded = load_strategies()
    for fault in loaded.faults:
        log.warning("strategy_left_out", fault=fault)
    telemetry = metrics or _metrics(settings)
    async with AsyncExitStack() as closing:
        demo = await start_demo() if settings.is_demo else None
        if demo is not None:
            closing.push_async_callback(demo.close)
        configuration = Configuration.build(
            settings, loaded.strategies, upstream_url=None if demo is None else demo.url
        )
        _read_certificates(configuration)
        # Pushed in the order in which they begin, so that each is closed before what it stands on.
        client = UpstreamClient.create()
        closing.push_async_callback(client.close)
        tracing = _tracing() if settings.traces == "otel" else None
        if tracing is not None:
            closing.push_async_callback(asyncio.to_thread, tracing.close)
        upkeep = await Upkeep.begin(settings, telemetry, names=frozenset(loaded.strategies) | DIALECTS)
        closing.push_async_callback(upkeep.close)
        shared = Shared(
            configuration=configuration,
            client=client,
            telemetry=telemetry,
            tracing=tracing,
            admission=Admission(limit=settings.max_concurrency),
            rollout=upkeep.agent,
            keeps=upkeep.recorder,
            answered=upkeep.store,
            sessions=upkeep.sessions,
            quotas=upkeep.quotas,
            mask=upkeep.mask,
            lines=ready_lines,
            secret=upkeep.secret,
            call_ids=upkeep.call_ids,
            lessons=upkeep.lessons,
        )
        upkeep.on_secret = shared.take_secret
        # Held by the stack, and ended before the store is closed that it writes to.
        work = asyncio.get_running_loop().create_task(upkeep.run(), name="upkeep")
        closing.push_async_callback(_ended, work)
        # Behind the task on the stack, so before its end: the last records need the one that writes them.
        closing.push_async_callback(upkeep.finish)
        # Before the gateway listens, so that the first request is in what is scraped.
        metrics_url = await _start_metrics(settings, shared, closing)
        listening = server(shared)
        closing.push_async_callback(listening.close)
        port = await listening.start(settings.host, settings.port)
        pulse = Pulse(
            upkeep.look_up,
            Garbage(),
            lambda: tell_lasting(shared, Deadline.now()),
            on_lag=lambda late_s: telemetry.observe("toolgate_event_loop_lag_seconds", {}, late_s),
        )
        closing.callback(pulse.end)
        return Gateway(
            url=listening_url(settings, port),
            metrics_url=metrics_url,
            settings=settings,
            shared=shared,
            upkeep=upkeep,
            server=listening,
            demo=demo,
            strategies=loaded.strategies,
            pulse=pulse,
            # Only now that all has begun: a fault above closes what had.
            closing=closing.pop_all(),
        )


@frozen(kw_only=True)
class Orders:
    """What may be asked of a gateway that runs."""

    stop: Callable[[], None]
    """Drain and end."""
    reload: Callable[[], None]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    """Run something on the gateway's loop, for as long as the gateway runs."""
    look: Callable[[Coroutine[Any, Any, None]], object]
    """The same for something that nobody waits for: it is given up once the gateway is told to end."""


class Post(Protocol):
    """Where a process serves: alone, or under a supervisor as one of several."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """What every line of the log says."""
        ...

    def own(self, settings: Settings) -> Settings:
        """The settings of all as they are for this process."""
        ...

    def server(self, shared: Shared) -> Server:
        """What listens."""
        ...

    def begin(self, gateway: Gateway, orders: Orders) -> None:
        """Requests are answered from now on."""
        ...

    def reloaded(self, faults: Sequence[str]) -> None:
        """The settings were read anew; with faults, the old ones stay."""
        ...

    def leaving(self) -> None:
        """Nothing new is accepted from now on."""
        ...

    def end(self) -> None:
        """The gateway has ended."""
        ...


def load_ahead() -> None:
    """Load what is else loaded when a gateway begins; nothing begins."""
    load_strategies()
    _loop_factory()


def run(settings: Settings, environ: Mapping[str, str], post: Post) -> int:
    """Be one process of the gateway until a signal or an order ends it."""
    # The methods that attrs has written for its classes wait there for a debugger: 1.3 MiB that all else can have.
    linecache.clearcache()
    metrics = _metrics(settings)
    journal = _Journal(settings, metrics, post.fields)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, environ, metrics, journal, post))
    finally:
        journal.close()
    return 0


class _Journal:
    """The log of this process; new settings may bring new secrets to hide and another level."""

    def __init__(self, settings: Settings, metrics: Metrics, fields: Mapping[str, Any]) -> None:
        self._metrics = metrics
        self._fields = fields
        self._writer = self._configured(settings)

    def follow(self, settings: Settings) -> None:
        """Log by these settings from now on."""
        old, self._writer = self._writer, self._configured(settings)
        # Closing waits for what is still to be written.
        asyncio.get_running_loop().run_in_executor(None, old.close)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()

    def _configured(self, settings: Settings) -> LineWriter:
        return configure_logging(
            level=settings.log_level,
            form=settings.log_format,
            secrets=settings.secrets(),
            on_drop=self._dropped,
            fields=self._fields,
        )

    def _dropped(self, reason: str, lines: int) -> None:
        self._metrics.count("toolgate_log_events_dropped_total", {"reason": reason}, lines)


async def _serve(
    settings: Settings, environ: Mapping[str, str], metrics: Metrics, journal: _Journal, post: Post
) -> None:
    # Without handlers yet: a signal while it starts ends the process as it does any other.
    gateway = await build(post.own(settings), metrics=metrics, server=post.server)
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    draining: asyncio.Task[None] | None = None
    looking: list[asyncio.Task[None]] = []

    def interrupted() -> None:
        if draining is not None:
            draining.cancel()
        ending.set()

    def reload() -> None:
        _reload(gateway, environ, journal, post)

    # A second Ctrl-C ends the patience of whoever pressed the first.
    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, ending.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    # The youngest alone before the freeze: of all else that was made 100 KB is garbage, and to find it takes 45 ms.
    gc.collect(0)
    gc.freeze()  # what start-up made lives as long as the process: the collector need not look at it again
    gc.set_threshold(*GC_THRESHOLDS)
    log.info("gateway_started", url=gateway.url, metrics_url=gateway.metrics_url, settings=settings.digest())
    try:
        async with asyncio.TaskGroup() as tasks:
            orders = Orders(
                stop=ending.set,
                reload=reload,
                spawn=tasks.create_task,
                look=lambda work: looking.append(tasks.create_task(work)),
            )
            post.begin(gateway, orders)
            await ending.wait()
            for task in looking:
                task.cancel()
            # Told first: whoever hands out connections sends the next ones elsewhere while these end.
            post.leaving()
            draining = loop.create_task(gateway.drain(), name="drain")
            with suppress(asyncio.CancelledError):
                await draining
    finally:
        post.end()
        # Given back before the rest is closed, so that a signal can still end what hangs.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        await gateway.close()
        log.info("gateway_stopped")


def _reload(gateway: Gateway, environ: Mapping[str, str], journal: _Journal, post: Post) -> None:
    telemetry = gateway.shared.telemetry
    try:
        settings = config.reload(environ, default_log_format=gateway.settings.log_format)
        gateway.reload(post.own(settings))
    except ConfigError as error:
        log.error("reload_failed", faults=error.faults)
        telemetry.set("toolgate_config_last_reload_successful", {}, 0)
        post.reloaded(error.faults)
        return
    # The settings as they are in force, some of which may wait for a restart.
    journal.follow(gateway.settings)
    log.info("reloaded", settings=settings.digest())
    _inform(telemetry, settings)
    post.reloaded(())


def _read_certificates(configuration: Configuration) -> None:
    if any(upstream.base_url.scheme == "https" for upstream in configuration.upstreams.values()):
        read_ahead()


def _inform(telemetry: Telemetry, settings: Settings) -> None:
    telemetry.inform("toolgate_config_info", {"hash": settings.digest(), "mode": settings.transform_mode})
    telemetry.set("toolgate_config_last_reload_successful", {}, 1)
    telemetry.set("toolgate_config_last_reload_timestamp_seconds", {}, time.time())


def _metrics(settings: Settings) -> Metrics:
    metrics = Metrics(
        models=settings.metrics_models,
        tools=settings.metrics_tools,
        label_cap=settings.metrics_label_cap,
        thresholds=(settings.min_confidence / 100,),
    )
    metrics.inform_build(__version__)
    _inform(metrics, settings)
    return metrics


def _tracing() -> Tracing:
    from gateway.telemetry.tracing import opened  # here: it needs the extra, and nobody else waits for its import

    return opened()


async def _start_metrics(settings: Settings, shared: Shared, closing: AsyncExitStack) -> str | None:
    server = MetricsServer(shared)
    closing.push_async_callback(server.close)
    host, port = settings.metrics_host, settings.metrics_port
    try:
        return f"http://{in_url(host)}:{await server.start(host, port)}/metrics"
    except OSError as error:
        fault = cannot_listen(error, "METRICS", host, port) or f"METRICS_PORT: {os.strerror(error.errno or 0)}"
        # A port that somebody asked for is a fault; the usual one may be another gateway's.
        if settings.is_set(fault.partition(":")[0]):
            raise ConfigError([fault]) from error
        log.warning("metrics_port_unavailable", address=f"{in_url(host)}:{port}", fault=fault)
        return None


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def tell_lasting(shared: Shared, now: float) -> None:
    """Have those requests told of that go on for long."""
    for request in shared.under_way.lasting(now - LASTING_S):
        age_s = now - request.started
        if age_s >= LASTING_AGAIN * request.told_at_s:
            request.lasts(age_s)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
