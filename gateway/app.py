"""The wiring: settings in, a running gateway out; signals drain, reload and end it."""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog
from attrs import define, field

from gateway import __version__, config
from gateway.cli_banner import banner, listening_url
from gateway.config import Settings
from gateway.core.errors import ConfigError
from gateway.demo import DemoServer, start_demo
from gateway.net.context import Configuration, Shared, Telemetry
from gateway.net.server import MetricsServer, Server
from gateway.net.upstream import UpstreamClient
from gateway.policy.admission import Admission
from gateway.telemetry.logs import LineWriter, configure_logging
from gateway.telemetry.metrics import Metrics
from strategies.base import ToolExecutionStrategy
from strategies.factory import load_strategies

__all__ = ["Gateway", "build", "serve"]

LAG_PERIOD_S = 0.5
_FIXED = (
    "host",
    "port",
    "log_format",
    "metrics_host",
    "metrics_port",
    "metrics_models",
    "metrics_tools",
    "metrics_label_cap",
)
"""Settings that a reload cannot change."""

log = structlog.get_logger("toolgate")


@define(kw_only=True)
class Gateway:
    """A running gateway; `close` it."""

    url: str
    settings: Settings
    shared: Shared
    metrics_url: str | None = None
    _server: Server
    _metrics_server: MetricsServer | None = None
    _demo: DemoServer | None = None
    _strategies: Mapping[str, ToolExecutionStrategy]
    _lag: asyncio.Task[None]
    _closed: bool = field(default=False, init=False)

    async def drain(self) -> None:
        """Take nothing new and let what runs end, for as long as the settings allow."""
        await self._server.drain(self.shared.configuration.settings.drain_s)

    def reload(self, settings: Settings) -> None:
        """Use new settings from the next request on; raises `ConfigError` and keeps the old ones when they fail."""
        upstream_url = settings.upstream_url or (self._demo.url if self._demo is not None else None)
        if upstream_url is None:
            raise ConfigError(["UPSTREAM_URL: cannot be taken away while the gateway runs"])
        self.shared.configuration = Configuration.build(settings, self._strategies, upstream_url=upstream_url)
        self.shared.admission.limit = settings.max_concurrency
        for name in _FIXED:
            if getattr(settings, name) != getattr(self.settings, name):
                log.warning("setting_needs_restart", setting=name)
        self.settings = settings

    async def close(self) -> None:
        """End everything that `build` began."""
        if self._closed:
            return
        self._closed = True
        self._lag.cancel()
        with suppress(asyncio.CancelledError):
            await self._lag
        await self._server.close()
        if self._metrics_server is not None:
            await self._metrics_server.close()
        await self.shared.client.close()
        if self._demo is not None:
            await self._demo.close()


async def build(settings: Settings, *, metrics: Metrics | None = None) -> Gateway:
    """Start a gateway on the running loop; raises `OSError` for a port that is taken, `ConfigError` for bad rules."""
    loaded = load_strategies()
    for fault in loaded.faults:
        log.warning("strategy_left_out", fault=fault)
    demo = await start_demo() if settings.upstream_url is None else None
    upstream_url = settings.upstream_url if demo is None else demo.url
    telemetry = metrics or _metrics(settings)
    client = UpstreamClient.create()
    try:
        shared = Shared(
            configuration=Configuration.build(settings, loaded.strategies, upstream_url=upstream_url or ""),
            client=client,
            telemetry=telemetry,
            admission=Admission(limit=settings.max_concurrency),
        )
        server = Server(shared)
        port = await server.start(settings.host, settings.port)
    except BaseException:
        await client.close()
        if demo is not None:
            await demo.close()
        raise
    metrics_server, metrics_url = await _start_metrics(settings, shared)
    return Gateway(
        url=listening_url(settings, port),
        settings=settings,
        shared=shared,
        server=server,
        metrics_server=metrics_server,
        metrics_url=metrics_url,
        demo=demo,
        strategies=loaded.strategies,
        lag=asyncio.get_running_loop().create_task(_observe_lag(telemetry), name="loop-lag"),
    )


def serve(settings: Settings, *, environ: Mapping[str, str] | None = None) -> int:
    """Run until a signal ends it; returns the exit code."""
    metrics = _metrics(settings)
    journal = _Journal(settings, metrics)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, os.environ if environ is None else environ, metrics, journal))
    finally:
        journal.close()
    return 0


class _Journal:
    """The log of this process; new settings may bring new secrets to hide and another level."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._metrics = metrics
        self._writer = self._configured(settings)

    def follow(self, settings: Settings) -> None:
        """Log by these settings from now on."""
        old, self._writer = self._writer, self._configured(settings)
        asyncio.get_running_loop().run_in_executor(None, old.close)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()

    def _configured(self, settings: Settings) -> LineWriter:
        return configure_logging(
            level=settings.log_level, form=settings.log_format, secrets=settings.secrets(), on_drop=self._dropped
        )

    def _dropped(self, reason: str, lines: int) -> None:
        self._metrics.count("toolgate_log_events_dropped_total", {"reason": reason}, lines)


async def _serve(settings: Settings, environ: Mapping[str, str], metrics: Metrics, journal: _Journal) -> None:
    gateway = await build(settings, metrics=metrics)
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    draining: asyncio.Task[None] | None = None

    def interrupted() -> None:
        if draining is not None:
            draining.cancel()
        ending.set()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, ending.set)
    loop.add_signal_handler(signal.SIGHUP, _reload, gateway, environ, journal)
    gc.collect()
    gc.freeze()  # what start-up made lives as long as the process: the collector need not look at it again
    _announce(gateway)
    try:
        await ending.wait()
        draining = loop.create_task(gateway.drain(), name="drain")
        with suppress(asyncio.CancelledError):
            await draining
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        await gateway.close()
        log.info("gateway_stopped")


def _announce(gateway: Gateway) -> None:
    settings = gateway.settings
    for warning in settings.warnings:
        log.warning("setting_doubtful", warning=warning)
    log.info("gateway_started", url=gateway.url, metrics_url=gateway.metrics_url, settings=settings.digest())
    if settings.log_format == "console" or settings.is_demo or sys.stderr.isatty():
        sys.stderr.write(banner(settings, gateway.url))
        sys.stderr.flush()


def _reload(gateway: Gateway, environ: Mapping[str, str], journal: _Journal) -> None:
    telemetry = gateway.shared.telemetry
    try:
        settings = config.reload(environ, default_log_format=gateway.settings.log_format)
        gateway.reload(settings)
    except ConfigError as error:
        log.error("reload_failed", faults=error.faults)
        telemetry.set("toolgate_config_last_reload_successful", {}, 0)
        return
    journal.follow(settings)
    log.info("reloaded", settings=settings.digest())
    _inform(telemetry, settings)


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


async def _start_metrics(settings: Settings, shared: Shared) -> tuple[MetricsServer | None, str | None]:
    server = MetricsServer(shared)
    try:
        port = await server.start(settings.metrics_host, settings.metrics_port)
    except OSError as error:
        await server.close()
        if settings.is_set("METRICS_PORT"):
            log.warning("metrics_port_unavailable", port=settings.metrics_port, fault=error.strerror)
        return None, None
    return server, f"http://{_in_url(settings.metrics_host)}:{port}/metrics"


async def _observe_lag(metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_PERIOD_S
        await asyncio.sleep(LAG_PERIOD_S)
        metrics.observe("toolgate_event_loop_lag_seconds", {}, max(0.0, loop.time() - due))


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
