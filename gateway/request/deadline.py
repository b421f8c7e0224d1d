"""How long one request waits, for whatever it waits for: a deadline per wait, and an end from outside (draining).

A timer per wait would cost more than most waits are worth. One timer serves a whole request: it is armed when the
first wait needs it and, having fired too early, asks again for the time that is left. As it never sleeps for long, a
wait that is to end far away, like most, need not move it.
"""

import asyncio
import time
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from gateway.core.errors import GatewayError

__all__ = ["Deadline"]

T = TypeVar("T")

LONGEST_SLEEP_S = 5.0


class Deadline:
    """The waits of the task that made it, on the monotonic clock."""

    __slots__ = ("_due", "_expired", "_fires_at", "_future", "_loop", "_timer", "interruption", "task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline belongs to a task")
        self.task = task
        """Whose waits these are."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0
        self._due: float | None = None
        self._expired = False
        self._future: asyncio.Future[Any] | None = None
        """What is waited for, where that is told of its end itself."""
        self.interruption: GatewayError | None = None
        """What the next wait raises."""

    now = staticmethod(time.monotonic)
    """The clock by which `due` is told; finer than the event loop's own, which stands still within a turn."""

    async def within(self, due: float, waiting: Awaitable[T]) -> T:
        """What is awaited, or `TimeoutError` once the clock says `due`, or the error of an interruption."""
        if self.interruption is not None:
            interruption, self.interruption = self.interruption, None
            # Python warns of one that was never awaited.
            if isinstance(waiting, Coroutine):
                waiting.close()
            raise interruption
        self._due, self._future = due, None
        # A timer that fires too early is cheaper than one that is moved with each wait.
        if self._timer is None or self._fires_at > due:
            self._arm(due)
        try:
            return await waiting
        except asyncio.CancelledError:
            if not self._expired:
                raise
            self._expired = False
            # Somebody else has cancelled it as well, and that must not be lost.
            if self.task.uncancel() > 0:
                raise
            error, self.interruption = self.interruption, None
            raise (error or TimeoutError()) from None
        finally:
            self._due = None

    def on(self, due: float, future: "asyncio.Future[T]") -> "asyncio.Future[T]":
        """The same for a future, to be awaited at once: it is given its end itself, and no task is cancelled."""
        if self.interruption is not None:
            error, self.interruption = self.interruption, None
            raise error
        self._due, self._future = due, future
        if self._timer is None or self._fires_at > due:
            self._arm(due)
        return future

    def interrupt(self, error: GatewayError) -> None:
        """Make the present wait, or else the next one, raise `error`, once."""
        self.interruption = error
        if self._is_waiting():
            self._expire()

    def close(self) -> None:
        """No further waits: the timer goes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = time.monotonic()
        self._fires_at = min(due, now + LONGEST_SLEEP_S)
        self._timer = self._loop.call_later(max(0.0, self._fires_at - now), self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._due is None or not self._is_waiting():
            return
        if self.now() < self._due:
            self._arm(self._due)
        else:
            self._expire()

    def _is_waiting(self) -> bool:
        if self._future is not None:
            return not self._future.done()
        return self._due is not None and not self._expired

    def _expire(self) -> None:
        if self._future is not None:
            error, self.interruption = self.interruption, None
            self._future.set_exception(error or TimeoutError())
            return
        # Only ever called while the task waits within `within`, so the cancellation lands there and nowhere else.
        self._expired = True
        self.task.cancel()
