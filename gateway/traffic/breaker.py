"""The state machine that stops asking an upstream which only fails. Time is an argument; nothing is awaited.

closed -> open      five failures in a row, or half of the last window's requests when there were enough of them
open -> half open   after a wait that doubles with each opening in a row
half open -> closed one probe succeeds; -> open when it fails. Others are turned away meanwhile.

The waits are short, as for the last upstream of a pool: it is never put aside for long, there is nobody else to ask.
"""

from typing import Literal

from attrs import define, field, frozen

from gateway.core.errors import BreakerOpen, Cause

__all__ = ["Breaker", "BreakerPolicy"]


@frozen(kw_only=True)
class BreakerPolicy:
    """When to open and for how long."""

    # As Envoy has it: https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/outlier
    failures_in_row: int = 5
    failure_share: float = 0.5
    window_s: float = 10.0
    window_minimum: int = 20
    open_s: float = 1.0
    max_open_s: float = 5.0


@define
class Breaker:
    """One upstream's health as this worker sees it: `admit` before each attempt, `report` after it."""

    policy: BreakerPolicy = field(factory=BreakerPolicy)
    state: Literal["closed", "open", "half_open"] = "closed"
    cause: Cause | None = None
    """Of the last failure, as far as its connection told."""
    told: str | None = None
    """The state that somebody was told of last."""
    _in_row: int = 0
    _openings: int = 0
    _open_until: float = 0.0
    _probing: bool = False
    _window_start: float = 0.0
    _window_total: int = 0
    _window_failed: int = 0

    def admit(self, now: float) -> bool:
        """Whether the attempt is the probe; raises `BreakerOpen` when it must not be made."""
        if self.state == "closed":
            return False
        # One probe at a time: a server that comes back must not be met by all who wait.
        if now < self._open_until or self._probing:
            # Told less, SDKs come back at once and meet the same.
            wait_s = max(1.0, self._open_until - now)
            said = "the model server has failed again and again and is left alone for a moment"
            raise BreakerOpen(said, retry_after_s=wait_s, cause=self.cause)
        self.state = "half_open"
        self._probing = True
        return True

    def report(self, now: float, *, probe: bool, healthy: bool | None) -> None:
        """How the attempt went; `None` when it told nothing of the upstream (its client left)."""
        if healthy is None:
            # The probe's client has left: the next one may try.
            self._probing &= not probe
            return
        is_fresh = healthy and probe
        if is_fresh or now - self._window_start >= self.policy.window_s:
            # What was before it failed says nothing about the server that is back.
            self._window_start, self._window_total, self._window_failed = now, 0, 0
        if is_fresh:
            self.state = "closed"
            self._in_row = self._openings = 0
            self._probing = False
            return
        self._window_total += 1
        if healthy:
            self._in_row = 0
            return
        self._in_row += 1
        self._window_failed += 1
        if probe or (self.state == "closed" and self._is_outlier()):
            self._open(now)

    def _is_outlier(self) -> bool:
        policy = self.policy
        if self._in_row >= policy.failures_in_row:
            return True
        return (
            self._window_total >= policy.window_minimum
            and self._window_failed >= policy.failure_share * self._window_total
        )

    def _open(self, now: float) -> None:
        policy = self.policy
        self.state = "open"
        self._probing = False
        self._open_until = now + min(policy.open_s * 2.0**self._openings, policy.max_open_s)
        # Bounded, as two to its power is taken before the longest wait is.
        self._openings = min(self._openings + 1, 16)
