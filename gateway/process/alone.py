"""The gateway as one process without a supervisor: it tells systemd and its pid file itself how it fares."""

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from attrs import define, field

from gateway.app import Gateway, Orders
from gateway.config.load import Settings
from gateway.front.server import Server
from gateway.process.banner import WONDERING_AFTER_S, greet, still_ending
from gateway.process.first_look import look_around
from gateway.process.notify import Notifier
from gateway.process.status import PidFile, target_of, write_targets
from gateway.request.shared import Shared

__all__ = ["LonePost"]

log = structlog.get_logger("toolgate")


@define(kw_only=True, eq=False)
class LonePost:
    """Where a lone process serves."""

    _notifier: Notifier
    _pid_file: PidFile
    _targets_file: str | None
    _url: str = ""
    _watchdog: asyncio.TimerHandle | None = None
    _wondering: asyncio.TimerHandle | None = None
    _gateway: Gateway | None = None
    fields: Mapping[str, Any] = field(factory=dict)

    @classmethod
    def of(cls, settings: Settings, environ: Mapping[str, str]) -> "LonePost":
        """As the settings and systemd say."""
        return cls(
            notifier=Notifier.from_environ(environ),
            pid_file=PidFile(settings.pid_file),
            targets_file=settings.metrics_sd_file,
        )

    def own(self, settings: Settings) -> Settings:
        """The settings of all are its own."""
        return settings

    def server(self, shared: Shared) -> Server:
        """The plain server."""
        return Server(shared)

    def begin(self, gateway: Gateway, orders: Orders) -> None:
        """Say so to whoever started it."""
        settings = gateway.settings
        self._url, self._gateway = gateway.url, gateway
        for warning in settings.warnings:
            log.warning("setting_doubtful", warning=warning)
        greet(settings, gateway.url)
        loop = asyncio.get_running_loop()
        # Without a handler the signal ends the process, and all its streams.
        loop.add_signal_handler(signal.SIGUSR2, self._refuse_restart)
        self._pid_file.write()
        if (target := target_of(gateway.metrics_url)) is not None:
            write_targets(self._targets_file, [(0, target)])
        self._notifier.ready(f"listens on {self._url}")
        orders.look(look_around(gateway))
        if self._notifier.watchdog_s is not None:
            # systemd recommends half of its period, and a busy loop may be late:
            # https://www.freedesktop.org/software/systemd/man/latest/sd_watchdog_enabled.html
            self._beat(loop, self._notifier.watchdog_s / 3)

    def reloaded(self, faults: Sequence[str]) -> None:
        """The pid file says how it went."""
        self._notifier.reloading()
        self._pid_file.write(self._pid_file.status.reloaded(faults))
        self._notifier.ready(f"listens on {self._url}")

    def leaving(self) -> None:
        """Nothing new is accepted."""
        self._notifier.stopping()
        if self._gateway is not None and sys.stderr.isatty():
            loop = asyncio.get_running_loop()
            self._wondering = loop.call_later(
                WONDERING_AFTER_S, sys.stderr.write, still_ending(self._gateway.settings.drain_s)
            )

    def end(self) -> None:
        """Nothing is left to tell."""
        for timer in (self._watchdog, self._wondering):
            if timer is not None:
                timer.cancel()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR2)
        self._pid_file.remove()

    def _refuse_restart(self) -> None:
        fault = "a lone process has nobody to hand over to: set GATEWAY_WORKERS to 2 or more, or restart the service"
        log.error("restart_failed", faults=[fault])
        self._pid_file.write(self._pid_file.status.restarted([fault]))

    def _beat(self, loop: asyncio.AbstractEventLoop, period_s: float) -> None:
        self._notifier.alive()
        self._watchdog = loop.call_later(period_s, self._beat, loop, period_s)
