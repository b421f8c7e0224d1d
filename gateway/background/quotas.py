"""What keys use, counted for all processes where the store is Redis, and by this process alone where it is not there.

A request waits for one operation of the store at most, and only if its key has a limit; what answers cost and which
streams have ended is told behind their backs. Each process counts what it admits itself all the time, so that one
that is suddenly alone does not begin at nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from attrs import define, field

from gateway.core.errors import RateLimited
from gateway.core.ports import Meter, StoreError
from gateway.core.rules import LEASE_S, Quota, Standing
from gateway.traffic.quotas import Quotas

if TYPE_CHECKING:
    from gateway.state.redis_quotas import RedisQuotas

__all__ = ["KeyQuotas"]

# One telling may fail, and the next still comes before the stream is taken for ended.
RENEW_S = LEASE_S / 3
MAX_UNTOLD = 10_000
"""Costs and ends that wait to be told: a store that is away must not fill the memory."""


@define(kw_only=True)
class KeyQuotas:
    """The quotas of keys, as requests ask for them."""

    shared: "RedisQuotas | None"
    telemetry: Meter
    clock: Callable[[], float] = time.monotonic
    _own: Quotas = field(init=False, factory=Quotas)
    _leases: dict[str, tuple[str, Quota]] = field(init=False, factory=dict)
    """By the id of each stream under way its key and that key's quota."""
    _untold: dict[str, int] = field(init=False, factory=dict)
    """What answers have cost since it was last told, by key."""
    _ended: dict[str, str] = field(init=False, factory=dict)
    """Streams that have ended since then, with their keys."""
    _news: asyncio.Event = field(init=False, factory=asyncio.Event)

    async def enter(self, key: str, quota: Quota) -> Mapping[str, Standing]:
        """Admit a request, and say how its key stands then; raises `RateLimited`."""
        if self.shared is not None:
            try:
                standings = await self.shared.enter(key, quota)
            except StoreError:
                self._alone()
            else:
                self._own.admitted(key, self.clock())
                return standings
        return self._own.enter(key, quota, self.clock())

    async def lease(self, key: str, quota: Quota, id: str) -> None:
        """Take one of the key's places for streams, until `release`; raises `RateLimited`."""
        if quota.streams is None:
            return
        if self.shared is not None:
            try:
                await self.shared.lease(key, quota, id)
            except StoreError:
                self._alone()
            else:
                self._own.renew(key, id, self.clock())
                self._leases[id] = key, quota
                return
        self._own.lease(key, quota, id, self.clock())
        self._leases[id] = key, quota

    def release(self, id: str) -> None:
        """The stream has ended, however it did."""
        lease = self._leases.pop(id, None)
        if lease is None:
            return
        key, _ = lease
        self._own.release(key, id)
        if self.shared is not None and len(self._ended) < MAX_UNTOLD:
            self._ended[id] = key
            self._news.set()

    def spend(self, key: str, tokens: int) -> None:
        """Count what an answer has cost."""
        if tokens <= 0:
            return
        self._own.spend(key, tokens, self.clock())
        # A key that waits already takes no more room, so that nothing of its costs is left out.
        if self.shared is not None and (key in self._untold or len(self._untold) < MAX_UNTOLD):
            self._untold[key] = self._untold.get(key, 0) + tokens
            self._news.set()

    async def run(self) -> None:
        """Tell the store what has changed, and that streams go on, until cancelled."""
        if self.shared is None:
            return
        renewed = self.clock()
        while True:
            wait_s = max(0.0, renewed + RENEW_S - self.clock())
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                renewed = self.clock()
                await self._renew(self.shared)
            self._news.clear()
            await self._tell(self.shared)

    async def close(self) -> None:
        """Tell what is left, and give up all connections."""
        if self.shared is not None:
            await self._tell(self.shared)
            await self.shared.close()

    async def _renew(self, shared: "RedisQuotas") -> None:
        # A copy, looked up again at each: streams end while another one is told.
        for id, (key, quota) in list(self._leases.items()):
            self._own.renew(key, id, self.clock())
            if id in self._leases:
                await self._tried(shared.lease(key, quota, id))

    async def _tell(self, shared: "RedisQuotas") -> None:
        # Taken away before anything is awaited: what comes meanwhile is told the next time.
        untold, self._untold = self._untold, {}
        ended, self._ended = self._ended, {}
        for key, tokens in untold.items():
            await self._tried(shared.spend(key, tokens))
        for id, key in ended.items():
            await self._tried(shared.release(key, id))

    async def _tried(self, telling: Awaitable[None]) -> None:
        """What cannot be told is lost: a lease ends by itself, and costs are this process's own meanwhile."""
        try:
            await telling
        except StoreError:
            self._alone()
        except RateLimited:
            return  # others have more streams than there may be, since this process was alone: it keeps what it has

    def _alone(self) -> None:
        self.telemetry.count("toolgate_limits_unshared_total", {})
