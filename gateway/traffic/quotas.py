"""What single keys may use in a minute, and how many streams at a time: counted exactly, the time being an argument.

Within no sixty seconds are more admitted than a key may, and what it has not used up is never refused: neither a window
that begins anew each minute (twice as many over its edge) nor a bucket (its burst on top) can promise both. So every
use is remembered for a minute; equal times share an entry.
"""

from collections import deque
from collections.abc import Iterator

from attrs import define, evolve, field

from gateway.core.rules import LEASE_S, WINDOW_S, Quota, Standing, refusal

__all__ = ["Quotas"]

MAX_KEYS = 10_000


@define
class _Log:
    """Uses of one kind within the last minute, oldest first."""

    _entries: deque[tuple[float, int]] = field(factory=deque)
    used: int = 0

    def forget(self, now: float) -> None:
        """Leave out what is older than a minute, and what a clock that was set back has put into the future."""
        entries = self._entries
        # A clock that is set back would have kept them in the future, and so for ever.
        while entries and not now - WINDOW_S < entries[0][0] <= now:
            self.used -= entries.popleft()[1]

    def add(self, now: float, amount: int) -> None:
        entries = self._entries
        if entries and entries[-1][0] == now:
            amount, self.used = amount + entries[-1][1], self.used - entries.pop()[1]
        entries.append((now, amount))
        self.used += amount

    def standing(self, limit: int, now: float) -> Standing:
        if not self._entries:
            return Standing(limit=limit, used=0)
        reset_s = self._entries[-1][0] + WINDOW_S - now
        left, wait_s = self.used, 0.0
        for at, amount in self._entries:
            if left < limit:
                break
            left, wait_s = left - amount, at + WINDOW_S - now
        return Standing(limit=limit, used=self.used, reset_s=reset_s, wait_s=wait_s)

    @property
    def is_empty(self) -> bool:
        return not self._entries


@define
class _Use:
    """What one key uses."""

    requests: _Log = field(factory=_Log)
    tokens: _Log = field(factory=_Log)
    streams: dict[str, float] = field(factory=dict)
    """By the id of each stream when its lease ends."""

    def is_over(self, now: float) -> bool:
        """Nothing of it counts any more."""
        for log in (self.requests, self.tokens):
            log.forget(now)
        self.streams = {id: until for id, until in self.streams.items() if until > now}
        return self.requests.is_empty and self.tokens.is_empty and not self.streams


@define
class Quotas:
    """The uses of all keys, as far as this process knows of them."""

    _uses: dict[str, _Use] = field(factory=dict)

    def enter(self, key: str, quota: Quota, now: float) -> dict[str, Standing]:
        """Admit a request, and say how the key stands then; raises `RateLimited`."""
        use = self._use(key, now)
        standings = dict(_standings(use, quota, now))
        for what, standing in standings.items():
            if standing.used >= standing.limit:
                raise refusal(what, standings)
        use.requests.add(now, 1)
        if (requests := standings.get("requests")) is not None:
            standings["requests"] = evolve(requests, used=requests.used + 1, reset_s=WINDOW_S)
        return standings

    def admitted(self, key: str, now: float) -> None:
        """Somebody else has admitted a request here: it counts, should this process be alone next."""
        self._use(key, now).requests.add(now, 1)

    def spend(self, key: str, tokens: int, now: float) -> None:
        """Count what an answer has cost."""
        # Known only at the end, so a minute's tokens may be overdrawn by the answers that are under way.
        self._use(key, now).tokens.add(now, tokens)

    def lease(self, key: str, quota: Quota, id: str, now: float) -> None:
        """Take one of a key's places for streams; raises `RateLimited`."""
        use = self._use(key, now)
        use.streams = {one: until for one, until in use.streams.items() if until > now}
        if quota.streams is not None and len(use.streams) >= quota.streams:
            raise refusal("streams", {"streams": Standing(limit=quota.streams, used=len(use.streams))})
        use.streams[id] = now + LEASE_S

    def renew(self, key: str, id: str, now: float) -> None:
        """The stream goes on."""
        self._use(key, now).streams[id] = now + LEASE_S

    def release(self, key: str, id: str) -> None:
        """The stream has ended."""
        if (use := self._uses.get(key)) is not None:
            use.streams.pop(id, None)

    def _use(self, key: str, now: float) -> _Use:
        use = self._uses.get(key)
        if use is None:
            if len(self._uses) >= MAX_KEYS:
                # Keys are changed in a file while the gateway runs, so those of old ones pile up.
                self._uses = {name: each for name, each in self._uses.items() if not each.is_over(now)}
            use = self._uses[key] = _Use()
        return use


def _standings(use: _Use, quota: Quota, now: float) -> Iterator[tuple[str, Standing]]:
    use.requests.forget(now)
    use.tokens.forget(now)
    if quota.requests is not None:
        yield "requests", use.requests.standing(quota.requests, now)
    if quota.tokens is not None:
        yield "tokens", use.tokens.standing(quota.tokens, now)
