"""The wiring: settings in, a running gateway out; signals drain, reload and end it."""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress

import structlog
from attrs import define

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
    _demo: DemoServer | None
    _strategies: Mapping[str, ToolExecutionStrategy]
    _closing: AsyncExitStack

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
        await self._closing.aclose()


async def build(settings: Settings, *, metrics: Metrics | None = None) -> Gateway:
    """Start a gateway on the running loop; raises `OSError` for a taken port, `ConfigError` for bad settings."""
    loaded = load_strategies()
    for fault in loaded.faults:
        log.warning("strategy_left_out", fault=fault)
    telemetry = metrics or _metrics(settings)
    async with AsyncExitStack() as closing:
        demo = await start_demo() if settings.upstream_url is None else None
        if demo is not None:
            closing.push_async_callback(demo.close)
        upstream_url = settings.upstream_url if demo is None else demo.url
        client = UpstreamClient.create()
        closing.push_async_callback(client.close)
        shared = Shared(
            configuration=Configuration.build(settings, loaded.strategies, upstream_url=upstream_url or ""),
            client=client,
            telemetry=telemetry,
            admission=Admission(limit=settings.max_concurrency),
        )
        metrics_url = await _start_metrics(settings, shared, closing)
        server = Server(shared)
        closing.push_async_callback(server.close)
        port = await server.start(settings.host, settings.port)
        lag = asyncio.get_running_loop().create_task(_observe_lag(telemetry), name="loop-lag")
        closing.push_async_callback(_ended, lag)
        return Gateway(
            url=listening_url(settings, port),
            metrics_url=metrics_url,
            settings=settings,
            shared=shared,
            server=server,
            demo=demo,
            strategies=loaded.strategies,
            closing=closing.pop_all(),
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


async def _start_metrics(settings: Settings, shared: Shared, closing: AsyncExitStack) -> str | None:
    server = MetricsServer(shared)
    closing.push_async_callback(server.close)
    try:
        port = await server.start(settings.metrics_host, settings.metrics_port)
    except OSError as error:
        where = f"{settings.metrics_host}:{settings.metrics_port}"
        if settings.is_set("METRICS_PORT"):
            raise ConfigError([f"METRICS_PORT: cannot listen on {where}: {error.strerror}"]) from error
        log.warning("metrics_port_unavailable", address=where, fault=error.strerror)
        return None
    return f"http://{_in_url(settings.metrics_host)}:{port}/metrics"


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


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
