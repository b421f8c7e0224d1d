"""What conversations with stateful upstreams need from one request to the next, in the store and in this process.

The store has the last word, as another process may have gone on with a conversation. While it is away this process
goes by its own memory, and what could not be written is written by a later `sync`.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from attrs import define, field, frozen

from gateway.core.ports import Store, StoreError

__all__ = ["Sessions"]

MAX_SESSIONS = 10_000
MAX_BYTES = 16 << 20
_PREFIX = "session:"
_OVERHEAD_BYTES = 200


@frozen
class _Session:
    value: bytes
    until: float

    @property
    def size(self) -> int:
        return len(self.value) + _OVERHEAD_BYTES


@define(kw_only=True)
class Sessions:
    """Values of conversations by key, each for a while."""

    store: Store
    max_sessions: int = MAX_SESSIONS
    max_bytes: int = MAX_BYTES
    now: Callable[[], float] = time.monotonic
    _sessions: OrderedDict[str, _Session] = field(init=False, factory=OrderedDict)
    _unwritten: OrderedDict[str, None] = field(init=False, factory=OrderedDict)
    _bytes: int = field(init=False, default=0)

    async def recall(self, *keys: str) -> dict[str, bytes]:
        """The values of those keys that have one."""
        own = {key: session.value for key in keys if (session := self._fresh(key)) is not None}
        # What is not written yet is newer here than what the store has.
        asked = [key for key in keys if key not in self._unwritten]
        if not asked:
            return own
        try:
            found = await self.store.get(*(_PREFIX + key for key in asked))
        except StoreError:
            return own
        return {**own, **{key.removeprefix(_PREFIX): value for key, value in found.items()}}

    async def remember(self, values: Mapping[str, bytes], ttl_s: float) -> None:
        """Keep these values; never fails."""
        for key, value in values.items():
            self._keep(key, _Session(value, self.now() + ttl_s))
        await self._write(*values)

    @property
    def is_still(self) -> bool:
        """All of it is written."""
        return not self._unwritten

    async def sync(self) -> None:
        """Write what could not be written, if the store is back."""
        await self._write(*self._unwritten)

    async def _write(self, *keys: str) -> None:
        for key in keys:
            session = self._fresh(key)
            if session is None:
                continue
            try:
                await self.store.put(_PREFIX + key, session.value, ttl_s=session.until - self.now())
            except StoreError:
                # The store is away: the others would fail as well, each after a wait of its own.
                return
            if self._sessions.get(key) is session:  # not remembered anew while it was written
                self._unwritten.pop(key, None)

    def _keep(self, key: str, session: _Session) -> None:
        # Taken out first, so that it stands behind all others: the one in front goes when there are too many.
        self._forget(key)
        self._sessions[key] = session
        self._unwritten[key] = None
        self._bytes += session.size
        now = self.now()
        while self._sessions and (
            next(iter(self._sessions.values())).until <= now  # nobody may ever ask for it again
            or len(self._sessions) > self.max_sessions
            or self._bytes > self.max_bytes
        ):
            self._forget(next(iter(self._sessions)))

    def _fresh(self, key: str) -> _Session | None:
        session = self._sessions.get(key)
        if session is not None and session.until <= self.now():
            self._forget(key)
            return None
        return session

    def _forget(self, key: str) -> None:
        session = self._sessions.pop(key, None)
        self._unwritten.pop(key, None)
        if session is not None:
            self._bytes -= session.size
