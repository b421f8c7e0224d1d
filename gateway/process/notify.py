"""Tells systemd how the service fares: the datagrams of sd_notify(3), which nobody reads where systemd is not."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

from attrs import frozen

__all__ = ["Notifier"]


@frozen(kw_only=True)
class Notifier:
    """Where to tell it; without an address everything is told to nobody."""

    address: str | None = None
    watchdog_s: float | None = None
    """How often at least systemd wants to hear that the service lives."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Notifier":
        """As `Type=notify` and `WatchdogSec=` of a unit set it up."""
        address = environ.get("NOTIFY_SOCKET", "")
        # `vsock:` is for machines inside of machines, and whatever else stands there was not set by systemd.
        if not address.startswith(("/", "@")):
            return cls()
        return cls(address=address, watchdog_s=_watchdog_s(environ))

    def ready(self, status: str) -> None:
        """The service answers, for the first time or after a reload."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Settings are being read anew; `ready` ends it."""
        # systemd wants the time beside it, to tell a reload from one before:
        # https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The service takes nothing new."""
        self._send("STOPPING=1", "STATUS=draining")

    def alive(self) -> None:
        """The service does not hang."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if self.address is None:
            return
        # An `@` stands for the zero byte of an abstract socket.
        name = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        # Whoever started us may be gone, or its queue full: that harms no request.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
            out.sendto("\n".join(lines).encode(), name)


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    pid = environ.get("WATCHDOG_PID", "")
    period = environ.get("WATCHDOG_USEC", "")
    # The variables are inherited: a child of the service must not keep it alive.
    if not period.isdecimal() or not int(period) or (pid and pid != str(os.getpid())):
        return None
    return int(period) / 1_000_000
