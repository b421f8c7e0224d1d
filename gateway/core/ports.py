"""What the inside asks of the world. The edge implements these; tests pass fakes."""

from collections.abc import AsyncIterator, Callable, Collection, Hashable, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from attrs import frozen

from gateway.core.records import Brief, OutcomeRecord, Record, RequestRecord

__all__ = [
    "NEXT",
    "Attributes",
    "BadRecord",
    "Block",
    "Counted",
    "Fed",
    "Glance",
    "Happening",
    "Lines",
    "Memory",
    "Meter",
    "RequestSpan",
    "Sink",
    "Store",
    "StoreError",
    "Taken",
    "Tracing",
    "Written",
]

R = TypeVar("R", bound=Record)
V = TypeVar("V")


class Meter(Protocol):
    """Counts and observes by metric name; labels are bounded by whoever implements it."""

    def count(self, name: str, labels: Mapping[str, str], amount: float = 1) -> None: ...

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None: ...


@frozen
class Fed:
    """One metric, and the labels under which it is fed."""

    name: str
    labels: Mapping[str, str]


class Lines(Protocol):
    """Writes lines of the log that have much in common: what a key stands for is asked for once.

    `told` is written as it is, unless one of the `foreign` words in it, which are of clients and model servers, looks
    like a secret; `rest` is looked through in any case.
    """

    def write(
        self,
        event: str,
        key: Hashable | None,
        begin: Callable[[], Mapping[str, Any]],
        told: Mapping[str, object],
        foreign: Sequence[str],
        rest: Mapping[str, object],
    ) -> None: ...


Attributes = Mapping[str, str | int | float | bool | Sequence[str]]
Happening = tuple[str, Attributes]
"""Something that happened within a span, and its facts."""


class RequestSpan(Protocol):
    """The span of one request; `ask` begins another one within it, which ends with the next, or with the request."""

    @property
    def trace(self) -> str:
        """The id of its trace."""
        ...

    def ask(self, name: str, attributes: Attributes) -> Mapping[str, str]:
        """A model server is asked: with these headers it can go on with the trace."""
        ...

    def answered(self, status: int) -> None: ...

    def failed(self, error: str) -> None: ...

    def end(
        self, attributes: Attributes, asked: Attributes, happenings: tuple[Happening, ...], error: str | None
    ) -> None:
        """What the request came to, and what was asked last."""
        ...


class Tracing(Protocol):
    """Where spans are begun."""

    def begin(self, headers: Mapping[str, str], name: str, attributes: Attributes) -> RequestSpan | None: ...

    def close(self) -> None: ...


class Taken(Enum):
    """What a sink has made of the bytes that it was given."""

    PASSED = "passed"
    """They have gone on: whoever waits for more may go on waiting."""
    WAKE = "wake"
    """They were taken, and there is something to do that cannot be done at once."""
    LEFT = "left"
    """They were not: they are for whoever waits."""


class Sink(Protocol):
    """Takes the bytes of an answer in the call chain of the connection that has read them, while its reader waits."""

    def take(self, data: bytes, chunk: bytes = b"") -> Taken:
        """More of the answer, and the same as the chunk of HTTP in which it came, where it did.

        What this raises is raised where the answer is waited for.
        """
        ...


class StoreError(Exception):
    """The store could not do what it was asked; the message names no address and no secret."""


class BadRecord(StoreError):
    """One of the records can never be kept, however often it is tried; the others can, without it."""


@frozen(kw_only=True)
class Memory:
    """What the store shall keep of a conversation for its later requests, whichever worker they reach."""

    key: str
    value: bytes
    ttl_s: float


@frozen(kw_only=True)
class Block:
    """What all processes counted within one second of the store's clock."""

    number: int
    """The second, since the epoch."""
    counts: Mapping[str, int]
    marks: frozenset[str]


NEXT = ("", "accepted", "rejected", "complained")
"""How the next turn of a conversation can take an answer; empty while that is unknown."""


@frozen(kw_only=True)
class Glance:
    """What requests are looked for by without opening their records. Some pass that are not looked for, and all that
    are."""

    brief: Callable[[Brief], Collection[str]] | None = None
    """How the next turn must have taken an answer with this brief: some of `NEXT`, and where it is none of them the
    answer is not looked for. It is asked once for all that have the same brief."""
    ids: Collection[str] | None = None
    """Only requests with one of these ids."""
    has_id: Callable[[str], bool] | None = None
    """Only requests whose id passes."""
    also: Collection[str] = ()
    """Ids of requests that are looked for whatever their brief says."""
    key: str | None = None
    """Only requests of this conversation."""


@frozen(kw_only=True)
class Counted:
    """What became of the requests with tools of a period, as far as a store can count it."""

    conversations: int
    added_s: float | None
    """The time added to an answer, which 95 of 100 stayed within."""
    fared: Sequence[tuple[str, str, int]]
    """How many outcomes there were by arm and word."""
    rejected: Sequence[tuple[str, int]]
    """How many of them were rejected, by the model that the conversation asked last."""


@frozen
class Written(Generic[V]):
    """A record, or a view of it, and where it stands among all that was written."""

    cursor: str
    """The place behind it: what is asked for next."""
    record: V


class Store(Protocol):
    """Where state outlives a process. Every method raises `StoreError`, and nothing else, when it fails.

    A store that failed heals by itself: the next operation connects anew. For a moment (two seconds at most) after it
    was found to be away it refuses at once, so that nobody waits for it.
    """

    async def open(self) -> None:
        """Connect; create or migrate what is kept there. Where it fails, later operations try again."""
        ...

    async def close(self) -> None: ...

    async def append(self, records: Sequence[Record]) -> None:
        """Keep all of these, or none; `BadRecord` if one of them is at fault."""
        ...

    def scan(self, kind: type[R], *, since: float = 0.0, until: float = float("inf")) -> AsyncIterator[R]:
        """The records of a kind with `since <= at < until`, oldest first; one that cannot be read is left out."""
        ...

    async def since(self, cursor: str, limit: int) -> list[Written[Record]]:
        """The next records of all kinds behind a cursor, those of each kind in the order in which they were written.

        An empty cursor stands before the first record. Who asks again with the last cursor misses none and gets none
        twice; a cursor of a store that was begun anew since stands before the first record too.
        """
        ...

    async def end(self) -> str:
        """The cursor behind all records that there are."""
        ...

    async def latest(
        self, view: type[V], before: str, limit: int, holding: Collection[str] = (), glance: Glance | None = None
    ) -> list[Written[V]]:
        """The requests that were written last, the last one first; each one's cursor goes on before it.

        `view` is `RequestRecord`, or a class with some of its fields: nothing else of a record is looked at. `before`
        is such a cursor, or empty. `holding`: only those whose JSON text holds all of these. `glance`: a store that
        keeps briefs leaves out those that it says no to, and need not look at `holding` then; others do not ask it.
        """
        ...

    async def fared(self, keys: Collection[str]) -> list[OutcomeRecord] | None:
        """The outcomes of these conversations; `None` where the store has nothing to find them by."""
        ...

    async def counted(self, since: float, add: Callable[[Brief, int], None]) -> Counted | None:
        """The requests with tools since then: to `add` each brief is told, with how many of them have it.

        `None`, and nothing is told, where the store has nothing to count them by.
        """
        ...

    async def find_answer(self, completion_id: str) -> RequestRecord | None:
        """The request kept last of those whose answer had this id."""
        ...

    async def trim(self, *, before: float, max_bytes: int) -> int:
        """Forget records older than `before`, and the oldest ones while all take more room; says how many."""
        ...

    async def get(self, *keys: str) -> dict[str, bytes]:
        """The values of those keys that have one."""
        ...

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> None:
        """Keep a value, for ever or for a while."""
        ...

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Put `new` if the value is still `old` (`None`: there is none); of all who race exactly one succeeds.

        The new value stays for ever.
        """
        ...

    async def tally(self, counts: Mapping[str, int], marks: Collection[str]) -> None:
        """Add counts and marks to the block of this second; a mark that is there stays one mark."""
        ...

    async def blocks(self, after: int) -> list[Block]:
        """The blocks behind number `after` that nobody adds to any more, oldest first; kept for two days.

        At most some hundreds at once: who has fallen behind asks again with the last number. All there are, where
        that number lies in the future because the store's clock was set back.
        """
        ...

    def watch(self, hear: Callable[[], None]) -> Callable[[], None] | None:
        """Have `hear` called soon after another process may have written, until the answer is called.

        `None` where only asking tells; it is called once too often rather than once too seldom.
        """
        ...
