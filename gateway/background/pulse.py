"""What is done every second, also where nothing is asked."""

import asyncio
from collections.abc import Callable

import structlog

__all__ = ["Pulse"]

PULSE_S = 1.0

log = structlog.get_logger("toolgate")


class Pulse:
    """Calls those who hear it once a second, on the running loop, until `end`.

    A timer and no task: an idle process wakes up for this and little else, so that what it costs is what that costs.
    """

    def __init__(self, *hears: Callable[[], None], on_lag: Callable[[float], None]) -> None:
        self.hears = list(hears)
        self._on_lag = on_lag
        self._loop = asyncio.get_running_loop()
        self._wait()

    def end(self) -> None:
        """Beat no more."""
        self._timer.cancel()

    def _wait(self) -> None:
        self._due = self._loop.time() + PULSE_S
        self._timer = self._loop.call_later(PULSE_S, self._beat)

    def _beat(self) -> None:
        # By the loop's own clock: what is late here is late for every request.
        late_s = max(0.0, self._loop.time() - self._due)
        self._wait()
        self._on_lag(late_s)
        for each in self.hears:
            try:
                each()
            # Whatever it is: a supervisor that hears no more of this process would end it.
            except Exception:
                log.exception("pulse_failed")
