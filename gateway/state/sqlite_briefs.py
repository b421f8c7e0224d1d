"""Beside the records of the store's file, in a few numbers each: what requests are looked for and counted by.

A request has a glance, with the number of its brief, which many others share; an outcome has a row of what it said.
Whoever looks for something asks about each brief once, and SQLite goes through the glances. Keys of conversations are
kept as checksums: two may have the same one, so who finds a request by its glance looks at the record too.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from heapq import nlargest
from itertools import chain
from math import ceil
from typing import Any

import aiosqlite
import msgspec
from attrs import frozen

from gateway.core.ports import NEXT, Counted, Glance
from gateway.core.records import RECORDS, Brief, BriefCall, OutcomeRecord, Record, RequestRecord
from gateway.state.record_codec import unpack
from gateway.state.sqlite_connection import BRIEFS

__all__ = [
    "bodies",
    "counted",
    "fared",
    "fill",
    "forget_shapes",
    "glanced",
    "has_briefs",
    "idle_shapes",
    "insert",
    "is_whole",
    "keep_briefs",
    "last_numbers",
    "rows_beside",
]

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Brief)
_TABLES = {"requests": "glances", "outcomes": "fared"}
_UNREADABLE: Mapping[str, Callable[[float], tuple[Any, ...]]] = {
    "requests": lambda at: (at, "", 0, None, ""),
    "outcomes": lambda at: (at, 0, "", "", ""),
}
"""What stands beside a record that this version cannot read."""
_PAGE = 2000
_LIST = 20_000
"""Numbers in one statement, which may be a million characters long: https://www.sqlite.org/limits.html"""
_VARIABLES = 500
"""SQLite before 3.32 binds no more than 999: https://www.sqlite.org/limits.html#max_variable_number"""
# Of few sizes: all of the statements stay in the connection's cache.
_TOGETHER = (1, 8, 64, 512)
"""Rows in one statement, as many as the library lets it have values."""
_ALL = frozenset(NEXT)
_SHARE = 0.95
_MIGRATED = 500

_NEXT = """
coalesce((SELECT CASE
WHEN EXISTS (SELECT 1 FROM fared s WHERE s.key = f.key AND s.at BETWEEN f.at AND f.at + 60 AND s.reporter = f.reporter
             AND s.outcome = 'rejected') THEN 'rejected'
WHEN EXISTS (SELECT 1 FROM fared s WHERE s.key = f.key AND s.at BETWEEN f.at AND f.at + 60 AND s.reporter = f.reporter
             AND s.outcome = 'no_tool_used') THEN 'complained'
ELSE 'accepted' END FROM fared f WHERE f.key = g.key AND f.at > g.at AND f.reporter <> g.request
          ORDER BY f.at, f.id LIMIT 1), '')
"""
"""What the first turn behind a request says of its answer; what the request itself told is of the one before it."""
_SAID_OF = {"rejected": "'rejected'", "complained": "'no_tool_used'"}
_HAVE_TABLES = "SELECT count(*) FROM sqlite_master WHERE name IN ('glances', 'fared')"
_COUNTS = (
    "SELECT (SELECT count(*) FROM requests) = (SELECT count(*) FROM glances),"
    " (SELECT count(*) FROM outcomes) = (SELECT count(*) FROM fared)"
)
_BEFORE = (
    "SELECT (SELECT coalesce(max(id), 0) FROM requests), (SELECT coalesce(max(id), 0) FROM outcomes),"
    " (SELECT count(*) FROM sqlite_master WHERE name IN ('glances', 'fared', 'shapes', 'glances_key', 'fared_turns',"
    " 'requests_gone', 'outcomes_gone')) = 7"
)
_MISSING = "SELECT id FROM requests WHERE id < ? AND id NOT IN (SELECT id FROM glances) ORDER BY id DESC LIMIT ?"


def insert(
    connection: sqlite3.Connection, into: str, rows: Sequence[tuple[Any, ...]], *, select: str | None = None
) -> None:
    """Add rows, many in one statement: after each the thread has to ask for the interpreter, which others are using.

    `select` says what is added, where that is not the rows as they are: of `column1`, `column2` and so on.
    """
    if not rows:
        return
    width, room = len(rows[0]), connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
    sizes = [size for size in _TOGETHER if size * width <= room]
    place = 0
    while place < len(rows):
        some = rows[place : place + sizes[-1]]
        size = next(size for size in sizes if size >= len(some))
        values = list(chain.from_iterable(some))
        # Numbers: for whatever is no number and no text an adapter is looked for, which takes longer than the row.
        values += [0] * (size * width - len(values))
        connection.execute(_inserting(into, select, width, size), (*values, len(some)))
        place += len(some)


@cache
def _inserting(into: str, select: str | None, width: int, size: int) -> str:
    """Few texts, as each is prepared once; the rows beyond the limit are empty."""
    columns = select or ",".join(f"column{number}" for number in range(1, width + 1))
    row = f"({','.join('?' * width)})"
    return f"INSERT {into} SELECT {columns} FROM (VALUES {','.join([row] * size)}) LIMIT ?"  # noqa: S608 - our names


def _checksum(text: str) -> int:
    """Of a key; a whole number that SQLite can hold."""
    # In place of the key itself: a number of eight bytes makes for a small index; who reads compares the keys.
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True)


def _brief(record: RequestRecord) -> str:
    calls = tuple(
        BriefCall(call.dialect, call.tool, call.score, call.decision, call.reason, call.meant) for call in record.calls
    )
    has_native, has_error = min(record.native_calls, 1), bool(record.error)
    brief = Brief(
        *(record.model, record.arm, record.healthy, has_error),
        *(has_native, record.native_tools, calls, min(record.tools, 1)),
    )
    return _ENCODER.encode(brief).decode()


Beside = Mapping[str, Sequence[tuple[Any, ...]]]
"""What stands beside records, by their kind and in their order, but for their numbers."""


def rows_beside(records: Iterable[Record]) -> Beside:
    """What is kept of these records."""
    rows: dict[str, list[tuple[Any, ...]]] = {"requests": [], "outcomes": []}
    for record in records:
        if isinstance(record, RequestRecord):
            # None marks requests without tools: they are counted nowhere, and still have to be found.
            added = round(record.overhead_s * 1e6) if record.tools else None
            found = (record.at, _text(record.id), _checksum(record.key), added, _text(_brief(record)))
            rows["requests"].append(found)
        elif isinstance(record, OutcomeRecord):
            said = (_checksum(record.key), _text(record.reported_by), record.arm, record.outcome)
            rows["outcomes"].append((record.at, *said))
    return rows


def keep_briefs(connection: sqlite3.Connection, last: Mapping[str, int], beside: Beside) -> None:
    """Keep those of the records that have just been written behind the ones of these numbers."""
    for kind, rows in beside.items():
        _keep(connection, kind, [(number, *row) for number, row in enumerate(rows, last[kind] + 1)])


def last_numbers(connection: sqlite3.Connection) -> dict[str, int]:
    """The last record of each kind that has briefs; there is room for them then."""
    requests, outcomes, has_room = connection.execute(_BEFORE).fetchone()
    if not has_room:  # a file that an older version began has no tables yet
        _make_room(connection)
    return {"requests": int(requests), "outcomes": int(outcomes)}


def _make_room(connection: sqlite3.Connection) -> None:
    for statement in BRIEFS:
        connection.execute(statement)


def _keep(connection: sqlite3.Connection, kind: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if kind == "requests":
        insert(connection, "OR IGNORE INTO shapes (brief)", sorted({(row[-1],) for row in rows}))
        # Replaced, as a migration and the writer may come to the same record.
        glances = "OR REPLACE INTO glances (id, at, request, key, added, shape)"
        shape = "(SELECT id FROM shapes WHERE brief = column6)"
        insert(connection, glances, rows, select=f"column1,column2,column3,column4,column5,{shape}")
    else:
        insert(connection, "OR REPLACE INTO fared", rows)


def _text(text: str) -> str:
    # Half a character cannot be stored, and a NUL stands between rows that come as one text.
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")


async def has_briefs(connection: aiosqlite.Connection) -> bool:
    """Whether anybody has kept any in this file."""
    [[tables]] = await connection.execute_fetchall(_HAVE_TABLES)
    return int(tables) == 2


async def is_whole(connection: aiosqlite.Connection) -> tuple[bool, bool]:
    """Whether each request has its glance, and each outcome what it said."""
    if not await has_briefs(connection):
        return False, False
    [[requests, outcomes]] = await connection.execute_fetchall(_COUNTS)
    return bool(requests), bool(outcomes)


def fill(connection: sqlite3.Connection, after: Mapping[str, int]) -> dict[str, int]:
    """Give some records of an older version what they lack; says how far that came, of the kinds that are not done."""
    _make_room(connection)
    reached: dict[str, int] = {}
    for kind, number in after.items():
        sql = (
            f"SELECT id, at, body FROM {kind} WHERE id > ? AND id NOT IN (SELECT id FROM {_TABLES[kind]})"  # noqa: S608
            " ORDER BY id LIMIT ?"
        )
        rows = connection.execute(sql, (number, _MIGRATED)).fetchall()
        _keep(connection, kind, [(place, *_row_beside(kind, at, body)) for place, at, body in rows])
        # A page that is not full was the last of its kind.
        if len(rows) == _MIGRATED:
            reached[kind] = rows[-1][0]
    return reached


def _row_beside(kind: str, at: float, body: str) -> tuple[Any, ...]:
    record: Record | None = unpack(RECORDS[kind], body)
    return _UNREADABLE[kind](at) if record is None else rows_beside([record])[kind][0]


async def idle_shapes(connection: aiosqlite.Connection) -> tuple[list[int], int]:
    """The briefs of requests that are gone, and the last glance that was looked at."""
    [[last]] = await connection.execute_fetchall("SELECT coalesce(max(id), 0) FROM glances")
    sql = "SELECT id FROM shapes WHERE id NOT IN (SELECT shape FROM glances)"
    return [number for (number,) in await connection.execute_fetchall(sql)], int(last)


def forget_shapes(connection: sqlite3.Connection, idle: Sequence[int], last: int) -> None:
    """Forget these, but for those that requests behind the last one that was looked at have."""
    # Requests are written between the look and this step, and may have taken one of them up again.
    used = {number for (number,) in connection.execute("SELECT shape FROM glances WHERE id > ?", (last,))}
    connection.executemany("DELETE FROM shapes WHERE id = ?", [(number,) for number in idle if number not in used])


async def glanced(connection: aiosqlite.Connection, until: int, limit: int, glance: Glance) -> list[int]:
    """The numbers below `until` of requests that pass, and of those that have no glance, the highest first."""
    requests_whole, outcomes_whole = await is_whole(connection)
    found: set[int] = set()
    if not requests_whole:
        # What has no glance may pass: it is shown by its body, as long as the file is not filled up.
        found.update(number for (number,) in await connection.execute_fetchall(_MISSING, (until, limit)))
    wanted = await _Wanted.of(connection, glance)
    for sql, values in wanted.statements(until, has_outcomes=outcomes_whole):
        if wanted.has_id is None:
            rows = await connection.execute_fetchall(f"{sql} ORDER BY g.id DESC LIMIT ?", (*values, limit))
            found.update(number for number, _ in rows)
        else:
            found.update(await _named(connection, sql, values, limit, wanted.has_id))
    return nlargest(limit, found)


async def _named(
    connection: aiosqlite.Connection, sql: str, values: Sequence[Any], limit: int, has_id: Callable[[str], bool]
) -> list[int]:
    found: list[int] = []
    # By number and not by an offset, which SQLite would count off anew with each page.
    beyond, rest = values[0], values[1:]
    while True:
        rows = await _joined(
            connection, f"{sql} ORDER BY g.id DESC LIMIT {_PAGE}", "id || ' ' || request", beyond, *rest
        )
        for each in rows:
            number, _, name = each.partition(" ")
            if has_id(name):
                found.append(int(number))
                if len(found) == limit:
                    return found
        if len(rows) < _PAGE:
            return found
        beyond = int(number)


async def _joined(connection: aiosqlite.Connection, sql: str, row: str, *values: Any) -> list[str]:
    """Rows as texts. They come as one: between two rows the connection's thread lets go of the interpreter, and waits
    until it gets it back."""
    whole = f"SELECT group_concat({row}, char(0)) FROM ({sql})"  # noqa: S608 - our own statements
    [[joined]] = await connection.execute_fetchall(whole, values)
    return joined.split("\0") if joined else []


@frozen
class _Wanted:
    """What a glance asks for, in numbers of briefs."""

    glance: Glance
    by_words: Mapping[frozenset[str], Sequence[int]]
    """The briefs that may pass, by how the next turn must have gone."""
    left_out: Sequence[int] = ()

    @classmethod
    async def of(cls, connection: aiosqlite.Connection, glance: Glance) -> "_Wanted":
        if glance.brief is None:
            return cls(glance, {_ALL: ()})
        known: dict[frozenset[str], list[int]] = {}
        async for number, brief in _shapes(connection):
            words = _ALL if brief is None else frozenset(glance.brief(brief))
            known.setdefault(words, []).append(number)
        return cls(glance, known, known.pop(frozenset(), []))

    @property
    def has_id(self) -> Callable[[str], bool] | None:
        """What ids are asked where SQLite is not."""
        ids, has_id = self.glance.ids, self.glance.has_id
        if ids is None or len(ids) <= _VARIABLES:
            return has_id
        return lambda name: name in ids and (has_id is None or has_id(name))

    def statements(self, until: int, *, has_outcomes: bool) -> Iterator[tuple[str, Sequence[Any]]]:
        """Each finds some of them."""
        begin = "SELECT g.id, g.request FROM glances g WHERE g.id < ?"
        values: list[Any] = [until]
        if self.glance.key is not None:
            begin, values = f"{begin} AND g.key = ?", [*values, _checksum(self.glance.key)]
        # These pass in any case, and so stand in front of all that narrows.
        for also in _parts(self.glance.also, _VARIABLES):
            yield f"{begin} AND g.request IN ({_marks(also)})", [*values, *map(_text, also)]
        if self.glance.ids is not None and len(self.glance.ids) <= _VARIABLES:
            begin = f"{begin} AND g.request IN ({_marks(list(self.glance.ids))})"
            values = [*values, *map(_text, self.glance.ids)]
        for words, shapes in self.by_words.items():
            fared = "" if words == _ALL or not has_outcomes else _having(words)
            for clause in self._clauses(shapes):
                yield f"{begin}{clause}{fared}", values

    def _clauses(self, shapes: Sequence[int]) -> Iterator[str]:
        """By the numbers of those that may pass, or of those that may not, whichever are fewer."""
        if len(self.by_words) == 1 and len(self.left_out) <= min(len(shapes), _LIST):
            yield f" AND g.shape NOT IN ({_listed(self.left_out)})" if self.left_out else ""
        else:
            yield from (f" AND g.shape IN ({_listed(some)})" for some in _parts(shapes, _LIST))


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _having(words: Collection[str]) -> str:
    listed = ",".join(f"'{word}'" for word in words)
    said = [_SAID_OF[word] for word in words if word in _SAID_OF]
    # First the conversations in which it was ever said: few, where the look at the next turn is dear.
    may = f" AND g.key IN (SELECT key FROM fared WHERE outcome IN ({','.join(said)}))"  # noqa: S608 - our words
    return f"{may if len(said) == len(words) else ''} AND {_NEXT} IN ({listed})"


def _parts(values: Collection[Any], size: int) -> Iterator[Sequence[Any]]:
    listed = list(values)
    return (listed[start : start + size] for start in range(0, len(listed), size))


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))


async def _shapes(
    connection: aiosqlite.Connection, wanted: Collection[int] | None = None
) -> AsyncIterator[tuple[int, Brief | None]]:
    """The briefs, or some of them, each with its number; what this version cannot read is `None`."""
    is_few = wanted is not None and len(wanted) <= _VARIABLES
    only = f" AND id IN ({_listed(list(wanted))})" if wanted is not None and is_few else ""
    # In pages: other work of this connection comes in between them.
    number, rows = 0, [""]
    while rows:
        sql = f"SELECT id, brief FROM shapes WHERE id > ?{only} ORDER BY id LIMIT {_PAGE}"  # noqa: S608 - our numbers
        rows = await _joined(connection, sql, "id || ' ' || brief", number)
        for row in rows:
            place, _, text = row.partition(" ")
            number = int(place)
            if wanted is None or number in wanted:
                yield number, _decoded(text)


def _decoded(text: str) -> Brief | None:
    try:
        return _DECODER.decode(text)
    except ValueError:
        return None


async def fared(connection: aiosqlite.Connection, keys: Collection[str]) -> list[OutcomeRecord]:
    """The outcomes of these conversations."""
    found: list[OutcomeRecord] = []
    for some in _parts(keys, _VARIABLES):
        sql = f"SELECT body FROM outcomes WHERE id IN (SELECT id FROM fared WHERE key IN ({_marks(some)})) ORDER BY id"  # noqa: S608
        for (body,) in await connection.execute_fetchall(sql, [_checksum(key) for key in some]):
            record = unpack(OutcomeRecord, body)
            # Two keys may have one checksum.
            if record is not None and record.key in keys:
                found.append(record)
    return found


async def counted(connection: aiosqlite.Connection, since: float, add: Callable[[Brief, int], None]) -> Counted | None:
    """The requests with tools since then."""
    # Half a count would be told as a whole one: the records themselves are read instead.
    if await is_whole(connection) != (True, True):
        return None

    async def rows(sql: str, *values: Any) -> list[Any]:
        return list(await connection.execute_fetchall(sql, values))

    # Records are numbered in the order in which they came, so the first number bounds every search below.
    [[first]] = await rows("SELECT min(id) FROM requests WHERE at >= ?", since)
    [[first_outcome]] = await rows("SELECT min(id) FROM outcomes WHERE at >= ?", since)
    of_period = "g.id >= ? AND g.at >= ? AND g.added IS NOT NULL"
    grouped = await rows(f"SELECT shape, count(*) FROM glances g WHERE {of_period} GROUP BY shape", first, since)  # noqa: S608
    [[keys]] = await rows(f"SELECT count(DISTINCT key) FROM glances g WHERE {of_period}", first, since)  # noqa: S608
    count = sum(number for _, number in grouped)
    # No list of all values is made here: SQLite finds the one at the share's place.
    slowest = await rows(
        f"SELECT added FROM glances g WHERE {of_period} ORDER BY added DESC LIMIT 1 OFFSET ?",  # noqa: S608
        *(first, since, count - ceil(_SHARE * count)),
    )
    fared_ = await rows(
        "SELECT arm, outcome, count(*) FROM fared WHERE id >= ? AND at >= ? GROUP BY arm, outcome", first_outcome, since
    )
    rejected = await rows(
        "SELECT (SELECT g.shape FROM glances g WHERE g.key = f.key AND g.at >= ? AND g.added IS NOT NULL"
        " ORDER BY g.at DESC, g.id DESC LIMIT 1), count(*) FROM fared f"
        " WHERE f.id >= ? AND f.at >= ? AND f.outcome = 'rejected' GROUP BY 1",
        *(since, first_outcome, since),
    )
    many, models = dict(grouped), {number: "" for number, _ in rejected if number is not None}
    async for number, brief in _shapes(connection, many.keys() | models.keys()):
        if brief is not None and number in many:
            add(brief, many[number])
        if brief is not None and number in models:
            models[number] = brief.model
    return Counted(
        conversations=keys,
        added_s=slowest[0][0] / 1e6 if slowest else None,
        fared=[(arm, outcome, number) for arm, outcome, number in fared_],
        rejected=[(models[number], hits) for number, hits in rejected if models.get(number)],
    )


async def bodies(connection: aiosqlite.Connection, numbers: Sequence[int]) -> list[Any]:
    """The records of these numbers as they are kept, each behind its number, in the same order."""
    found: list[Any] = []
    for some in _parts(numbers, _VARIABLES):
        sql = f"SELECT id, body FROM requests WHERE id IN ({_marks(some)}) ORDER BY id DESC"  # noqa: S608
        found += await connection.execute_fetchall(sql, some)
    return found
