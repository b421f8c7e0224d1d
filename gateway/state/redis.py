"""The store that several machines share: Redis 5 or later.

The library's own patience is switched off: its retries made one command on a frozen server take seconds. Here every
operation has one deadline, and a server that missed it is left alone for a moment (`pause`). What `redis_scripts` does
happens in one step, by the server's clock where time matters.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.core.ports import Block, Counted, Glance, StoreError, Written
from gateway.core.records import RECORDS, Brief, OutcomeRecord, Record, RequestRecord
from gateway.state import redis_scripts
from gateway.state.backoff import Pause
from gateway.state.blocks import BLOCK_SECONDS, LONGEST_JUMP_S, MAX_BLOCKS
from gateway.state.cursors import places, told
from gateway.state.record_codec import KINDS, kind_of, pack, unpack, view_of
from gateway.state.trimming import trimmed

__all__ = ["RedisStore"]

R = TypeVar("R", bound=Record)
V = TypeVar("V")

MAX_RECORDS = 5_000_000
"""Of each kind, should nobody trim them."""
_ANSWER_S = 30 * 86400
_BATCH_S = 300
_LARGE_OPERATION_S = 2.0
"""Least time for batches, pages and trimming: none of them is waited for by a request."""
# So that no single answer holds the server, or this process, for long.
_PAGE = 200
_TRIM_RECORDS = 500
# More wait for one: a Redis works off one command after the other anyway.
_CONNECTIONS = 16

_AWAY = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.InvalidResponse, OSError, EOFError)
_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.AuthenticationError, "the store refuses the credentials"),
    (exceptions.AuthorizationError, "the store refuses the credentials"),
    (exceptions.NoPermissionError, "the store's user may not do this"),
    # With `noeviction`: https://redis.io/docs/latest/develop/reference/eviction/
    (exceptions.OutOfMemoryError, "the store's memory is full"),
    (exceptions.ReadOnlyError, "the store is a replica that can only be read"),
    (exceptions.InvalidResponse, "what answers is no Redis"),
    (exceptions.ResponseError, "the store refused: its keys hold something else, or it is set up otherwise"),
    (TimeoutError, "the store did not answer in time"),
)


class RedisStore:
    """The server at `url`; everything there is kept under keys that begin with `prefix`."""

    def __init__(self, url: str, *, prefix: str = "toolgate:", timeout_s: float = 0.2) -> None:
        self._pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=None,
            # By default it tries again several times, which held one command of a frozen Redis for seconds:
            # https://redis.readthedocs.io/en/stable/retry.html
            retry=Retry(NoBackoff(), 0),
            # The deadline of the whole operation bounds it: one of the socket's begins anew with each read.
            socket_timeout=None,
            socket_connect_timeout=None,
            # RESP3 needs Redis 6 (https://redis.io/docs/latest/develop/reference/protocol-spec/), and nothing of it is
            # used.
            protocol=2,
            # Looking up the library's version reads files, for every connection anew, while all others wait:
            # https://github.com/redis/redis-py/blob/master/redis/driver_info.py
            driver_info=None,
            decode_responses=False,
        )
        self._client = Redis(connection_pool=self._pool)
        self._prefix = prefix
        self._small_s = timeout_s
        self._large_s = max(_LARGE_OPERATION_S, timeout_s)
        self._pause = Pause()
        self._scripts = {
            script: self._client.register_script(script)
            for script in (getattr(redis_scripts, name) for name in redis_scripts.__all__)
        }

    async def open(self) -> None:
        """See whether the server is there."""
        await self._within(self._small_s, self._client.ping)

    async def close(self) -> None:
        """Give up all connections; a later operation makes new ones."""
        try:
            async with asyncio.timeout(self._large_s):
                await self._pool.disconnect()
        except (exceptions.RedisError, OSError):
            return

    async def append(self, records: Sequence[Record]) -> None:
        """Keep all of these, or none."""
        # A batch whose answer was lost is sent again: by its digest the script knows that it has it.
        digest = blake2b(digest_size=16)
        arguments: list[str | bytes | int | float] = []
        for packed in pack(records):
            digest.update(b"%s %d " % (packed.kind.encode(), len(packed.body)) + packed.body)
            answer = "" if packed.completion_id is None else _digest(packed.completion_id)
            arguments += (packed.kind, packed.at, answer, packed.body)
        if arguments:
            head = (MAX_RECORDS, _ANSWER_S, digest.hexdigest(), _BATCH_S)
            await self._run(redis_scripts.APPEND, *head, *arguments, limit_s=self._large_s)

    async def scan(self, kind: type[R], *, since: float = 0.0, until: float = float("inf")) -> AsyncIterator[R]:
        """The records of a kind with `since <= at < until`, oldest first."""
        # Records of one instant are told apart by how many of them were seen: scores have no other place to go on from.
        at, seen = since, 0
        while True:
            head = (kind_of(kind), repr(at), f"({until!r}", seen, _PAGE)
            page = await self._run(redis_scripts.SCAN, *head, limit_s=self._large_s)
            for score, body in zip(page[::2], page[1::2], strict=True):
                seen = seen + 1 if float(score) == at else 1
                at = float(score)
                record = unpack(kind, body)
                if record is not None:
                    yield record
            if len(page) < 2 * _PAGE:
                return

    async def since(self, cursor: str, limit: int) -> list[Written[Record]]:
        """The next records of all kinds behind a cursor, in the order in which they were written."""
        at = places(cursor)
        found: list[Written[Record]] = []
        # An empty page would mean the end to whoever asked.
        while not found:  # what no version can read is passed over
            pages = [await self._range(kind, _next_id(at[kind]), limit) for kind in KINDS]
            entries = sorted(
                (_order(number), place, kind, number, body)
                for place, kind in enumerate(KINDS)
                for number, body in pages[place]
            )
            for _, _, kind, number, body in entries[:limit]:
                at[kind] = number
                record = unpack(RECORDS[kind], body)
                if record is not None:
                    found.append(Written(told(at), record))
            if not entries or limit < 1:
                break
        return found

    async def _range(self, kind: str, first: str, limit: int) -> list[tuple[str, bytes]]:
        log = f"{self._prefix}log:{kind}"
        found = await self._within(self._large_s, lambda: self._client.xrange(log, first, "+", count=limit))
        return [(number.decode(), body[b"r"]) for number, body in found]

    async def end(self) -> str:
        """The cursor behind all records that there are."""
        logs = {kind: f"{self._prefix}log:{kind}" for kind in KINDS}
        last = {
            kind: await self._within(self._large_s, partial(self._client.xrevrange, log, "+", "-", 1))
            for kind, log in logs.items()
        }
        return told({kind: found[0][0].decode() if found else "" for kind, found in last.items()})

    async def latest(
        self, view: type[V], before: str, limit: int, holding: Collection[str] = (), glance: Glance | None = None
    ) -> list[Written[V]]:
        """The requests that were written last, the last one first."""
        log, texts, last = (
            f"{self._prefix}log:requests",
            [_bytes(text) for text in holding],
            _id_before(places(before)["requests"]),
        )
        found: list[Written[V]] = []
        while last and len(found) < limit:
            page = await self._within(self._large_s, partial(self._client.xrevrange, log, last, "-", _PAGE))
            for number, fields in page:
                body = fields[b"r"]
                record = view_of(view, body) if all(text in body for text in texts) else None
                if record is not None and len(found) < limit:
                    found.append(Written(number.decode(), record))
            last = _id_before(page[-1][0].decode()) if len(page) == _PAGE else ""
        return found

    async def fared(self, keys: Collection[str]) -> list[OutcomeRecord] | None:
        """There is nothing to find them by."""
        return None

    async def counted(self, since: float, add: Callable[[Brief, int], None]) -> Counted | None:
        """There is nothing to count by."""
        return None

    async def find_answer(self, completion_id: str) -> RequestRecord | None:
        """The request kept last of those whose answer had this id."""
        body = await self._run(redis_scripts.FIND_ANSWER, _digest(completion_id))
        return None if body is None else unpack(RequestRecord, body)

    async def trim(self, *, before: float, max_bytes: int) -> int:
        """Forget records older than `before`, and the oldest ones while all take more room; says how many."""
        return await trimmed(
            self._forget, before=before, max_bytes=max_bytes, step=_TRIM_RECORDS, size=self._size, count=self._count
        )

    async def get(self, *keys: str) -> dict[str, bytes]:
        """The values of those keys that have one."""
        if not keys:
            return {}
        names = [self._value(key) for key in keys]
        values = await self._within(self._small_s, lambda: self._client.mget(names))
        return {key: value for key, value in zip(keys, values, strict=True) if value is not None}

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> None:
        """Keep a value, for ever or for a while."""
        ttl_ms = None if ttl_s is None else max(1, int(ttl_s * 1000))
        await self._within(self._small_s, lambda: self._client.set(self._value(key), value, px=ttl_ms))

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Put `new` if the value is still `old`."""
        has_old = "0" if old is None else "1"
        return bool(await self._run(redis_scripts.SWAP, _bytes(key), has_old, old or b"", new))

    def watch(self, hear: Callable[[], None]) -> Callable[[], None] | None:
        """Only asking tells."""
        return None

    async def tally(self, counts: Mapping[str, int], marks: Collection[str]) -> None:
        """Add counts and marks to the block of this second."""
        amounts = [part for name, count in counts.items() for part in (_bytes(name), count)]
        head = (BLOCK_SECONDS + LONGEST_JUMP_S, LONGEST_JUMP_S, len(counts))
        await self._run(redis_scripts.TALLY, *head, *amounts, *map(_bytes, marks))

    async def blocks(self, after: int) -> list[Block]:
        """The blocks behind number `after` that nobody adds to any more, oldest first."""
        return [
            Block(
                number=int(number),
                counts={_text(name): int(count) for name, count in zip(counts[::2], counts[1::2], strict=True)},
                marks=frozenset(map(_text, marks)),
            )
            for number, counts, marks in await self._run(redis_scripts.BLOCKS, after, MAX_BLOCKS, LONGEST_JUMP_S)
        ]

    async def _forget(self, before: float, most: int) -> int:
        """Forget the oldest of all kinds: Redis does nothing else meanwhile."""
        return int(await self._run(redis_scripts.FORGET, f"({before!r}", most, *KINDS, limit_s=self._large_s))

    async def _size(self) -> int:
        """About how many bytes the records take."""
        # `MEMORY USAGE` samples what is nested, which is enough to know when to forget.
        keys = [f"{self._prefix}{part}:{kind}" for kind in KINDS for part in ("log", "at")]
        return sum([await self._within(self._large_s, partial(self._client.memory_usage, key)) or 0 for key in keys])

    async def _count(self) -> int:
        keys = [f"{self._prefix}at:{kind}" for kind in KINDS]
        return sum([await self._within(self._large_s, partial(self._client.zcard, key)) for key in keys])

    async def run_script(self, script: str, *arguments: str | bytes | float) -> Any:
        """Run one of another module's scripts in the time of a small operation."""
        if script not in self._scripts:
            # Sent by its digest from then on: https://redis.io/docs/latest/commands/evalsha/
            self._scripts[script] = self._client.register_script(script)
        return await self._run(script, *arguments)

    async def _run(self, script: str, *arguments: str | bytes | float, limit_s: float | None = None) -> Any:
        run = self._scripts[script]
        return await self._within(limit_s or self._small_s, lambda: run(args=[self._prefix, *arguments]))

    async def _within(self, limit_s: float, call: Callable[[], Awaitable[Any]]) -> Any:
        """What the server answers; raises `StoreError` for whatever goes wrong."""
        self._pause.check()
        try:
            async with asyncio.timeout(limit_s):
                answer = await call()
        except (exceptions.RedisError, OSError, EOFError) as error:
            if isinstance(error, _AWAY):
                self._pause.failed()
            else:
                self._pause.succeeded()
            raise _translated(error) from error
        self._pause.succeeded()
        return answer

    def _value(self, key: str) -> bytes:
        return _bytes(f"{self._prefix}value:{key}")


def _translated(error: Exception) -> StoreError:
    """Words of our own: the library's may name the address. What failed while connecting is the cause of its error."""
    # What the library raises while it connects says less than what it met.
    for one in (error.__cause__, error):
        for kind, words in _WORDS:
            if isinstance(one, kind):
                return StoreError(words)
    return StoreError("the store cannot be reached")


def _digest(completion_id: str) -> str:
    """A model server may choose any id: of this a key is made that has a bound."""
    return blake2b(_bytes(completion_id), digest_size=16).hexdigest()


def _order(number: str) -> tuple[int, int]:
    """An id of a stream: milliseconds and a number among those of one millisecond."""
    at, _, sequence = number.partition("-")
    return int(at or 0), int(sequence or 0)


def _next_id(place: str) -> str:
    """The least id behind this one; ranges without their begin need Redis 6.2."""
    at, sequence = _order(place)
    return f"{at}-{sequence + 1}" if place else "-"


def _id_before(place: str) -> str:
    """The largest id before this one; empty where there is none."""
    if not place:
        return "+"
    at, sequence = _order(place)
    return f"{at}-{sequence - 1}" if sequence else f"{at - 1}" if at else ""


def _bytes(text: str) -> bytes:
    # Keys may come from clients, with half a character in them; a key that cannot be written would be an error of ours.
    return text.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")
