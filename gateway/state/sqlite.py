"""The store in a file, which all processes of one machine share.

Four connections, so that neither a long transaction of the journal nor a writer that waits for another one holds up
those who read: SQLite lets readers read while one writes, and writers wait for each other as long as `timeout_s`. The
blocks wait twice as long, the journal longer still: no request waits for them.
Times are those of the machine's clock; a block is closed once its second is over and nobody is writing, which the
writer's lock proves.
"""

import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from gateway.core.ports import Block, Counted, Glance, Written
from gateway.core.records import RECORDS, Brief, OutcomeRecord, Record, RequestRecord
from gateway.state.blocks import BLOCK_SECONDS, MAX_BLOCKS, behind, current
from gateway.state.cursors import places, told
from gateway.state.record_codec import KINDS, kind_of, pack, unpack, view_of
from gateway.state.sqlite_briefs import (
    bodies,
    counted,
    fared,
    fill,
    forget_shapes,
    glanced,
    has_briefs,
    idle_shapes,
    insert,
    is_whole,
    keep_briefs,
    last_numbers,
    rows_beside,
)
from gateway.state.sqlite_connection import FileWatch, Line
from gateway.state.trimming import trimmed

__all__ = ["SqliteStore"]

R = TypeVar("R", bound=Record)
V = TypeVar("V")

# Beyond every clock, and a number that SQLite still compares exactly enough.
_FOR_EVER = 1e18
_LAST_ID = (1 << 63) - 1
_LARGE_OPERATION_S = 5.0
"""Least time for batches, pages and trimming: none of them is waited for by a request."""
_PATIENT_S = 1.0
"""How long a batch waits for other writers: no request waits for it."""
_WORK_S = 0.1
"""What a small operation may take beside waiting for the lock."""
_PAGE = 200
_LAST = "SELECT coalesce(max(id), 0) FROM {kind}"
_TRIM_ROWS = 1000
_WITH_BRIEFS = ("requests", "outcomes")
_VACUUM_PAGES = 1000
_OLDEST = " UNION ALL ".join(f"SELECT '{kind}' AS kind, id, at FROM {kind}" for kind in KINDS)  # noqa: S608 - our names


class SqliteStore:
    """A file at `path`, made if its folder is there; `wall` tells the seconds since the epoch.

    `read_only`: it is neither made nor migrated, and whoever would write is refused.
    """

    def __init__(
        self,
        path: Path,
        *,
        timeout_s: float = 0.2,
        wall: Callable[[], float] = time.time,
        read_only: bool = False,
    ) -> None:
        self._large_s = max(_LARGE_OPERATION_S, 2 * timeout_s)
        self._small_s = timeout_s + _WORK_S
        self._tick_s = 2 * timeout_s + _WORK_S
        self._timeout_s = timeout_s
        self._wall = wall
        self._path = path
        self._journal = Line(path=path, timeout_s=timeout_s, read_only=read_only)
        self._values = Line(path=path, timeout_s=timeout_s, read_only=read_only)
        self._blocks = Line(path=path, timeout_s=timeout_s, read_only=read_only)
        self._reads = Line(path=path, timeout_s=timeout_s, read_only=read_only)
        self._lines = (self._journal, self._values, self._blocks, self._reads)

    async def open(self) -> None:
        """Make or migrate the file."""
        for line in self._lines:
            async with line.use(2 * self._large_s):
                pass

    async def close(self) -> None:
        """Close the file; a later operation opens it again."""
        for line in self._lines:
            await line.close()

    async def append(self, records: Sequence[Record]) -> None:
        """Keep all of these, or none."""
        packed = pack(records)
        rows: dict[str, list[tuple[float, str | None, str]]] = {}
        for each in packed:
            # Packed before the lock is asked for: nobody else can write while it is held.
            rows.setdefault(each.kind, []).append((each.at, each.completion_id, each.body.decode()))
        beside = rows_beside(each.record for each in packed)
        if not rows:
            return

        def work(connection: sqlite3.Connection) -> None:
            last = last_numbers(connection)
            for kind, values in rows.items():
                insert(connection, f"INTO {kind} (at, completion_id, body)", values)
            keep_briefs(connection, last, beside)

        await self._journal.write(self._large_s, work, patience_s=_PATIENT_S)

    async def scan(self, kind: type[R], *, since: float = 0.0, until: float = float("inf")) -> AsyncIterator[R]:
        """The records of a kind with `since <= at < until`, oldest first."""
        # A page at a time, each a reading of its own: one long one would keep the journal from being shortened.
        sql = (
            f"SELECT at, id, body FROM {kind_of(kind)} WHERE (at, id) > (?, ?) AND at < ?"  # noqa: S608 - our names
            f" ORDER BY at, id LIMIT {_PAGE}"
        )
        at, number = since, -1
        while True:
            async with self._journal.use(self._large_s) as connection:
                page = list(await connection.execute_fetchall(sql, (at, number, until)))
            for _, _, body in page:
                record = unpack(kind, body)
                if record is not None:
                    yield record
            if len(page) < _PAGE:
                return
            at, number, _ = page[-1]

    async def since(self, cursor: str, limit: int) -> list[Written[Record]]:
        """The next records of all kinds behind a cursor, those of each kind in the order in which they were written."""
        found: list[Written[Record]] = []
        at, has_more = places(cursor), True
        async with self._reads.use(self._large_s) as connection:
            while has_more and not found:  # what no version can read is passed over
                has_more = False
                for kind in KINDS:
                    for number, body in await self._behind(connection, kind, at[kind], limit - len(found)):
                        at[kind], has_more = str(number), True
                        record = unpack(RECORDS[kind], body)
                        if record is not None:
                            found.append(Written(told(at), record))
        return found

    async def _behind(self, connection: aiosqlite.Connection, kind: str, place: str, limit: int) -> list[Any]:
        sql = f"SELECT id, body FROM {kind} WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608 - our names
        # A cursor may come from a Redis that was the store before: its ids have two parts.
        after = int(place.partition("-")[0] or 0)
        rows = list(await connection.execute_fetchall(sql, (after, limit)))
        if not rows and after and limit and await self._last(connection, kind) < after:  # begun anew: ids start again
            rows = list(await connection.execute_fetchall(sql, (0, limit)))
        return rows

    async def _last(self, connection: aiosqlite.Connection, kind: str) -> int:
        [[last]] = await connection.execute_fetchall(_LAST.format(kind=kind))
        return int(last)

    async def end(self) -> str:
        """The cursor behind all records that there are."""
        async with self._reads.use(self._large_s) as connection:
            return told({kind: str(await self._last(connection, kind) or "") for kind in KINDS})

    async def latest(
        self, view: type[V], before: str, limit: int, holding: Collection[str] = (), glance: Glance | None = None
    ) -> list[Written[V]]:
        """The requests that were written last, the last one first."""
        place = places(before)["requests"]
        until = int(place.partition("-")[0]) if place else _LAST_ID
        async with self._reads.use(self._large_s) as connection:
            if glance is not None and await has_briefs(connection):
                rows = await bodies(connection, await glanced(connection, until, limit, glance))
            else:
                rows = await self._holding(connection, until, limit, holding)
        return [Written(str(number), each) for number, body in rows if (each := view_of(view, body)) is not None]

    async def fared(self, keys: Collection[str]) -> list[OutcomeRecord] | None:
        """The outcomes of these conversations."""
        async with self._reads.use(self._large_s) as connection:
            _, outcomes_whole = await is_whole(connection)
            return await fared(connection, keys) if outcomes_whole else None

    async def counted(self, since: float, add: Callable[[Brief, int], None]) -> Counted | None:
        """The requests since then, counted."""
        async with self._reads.use(self._large_s) as connection:
            return await counted(connection, since, add)

    async def _holding(
        self, connection: aiosqlite.Connection, until: int, limit: int, holding: Collection[str]
    ) -> list[Any]:
        clauses = "".join(" AND instr(body, ?)" for _ in holding)
        sql = f"SELECT id, body FROM requests WHERE id < ?{clauses} ORDER BY id DESC LIMIT ?"  # noqa: S608
        return list(await connection.execute_fetchall(sql, (until, *map(_bindable, holding), limit)))

    async def find_answer(self, completion_id: str) -> RequestRecord | None:
        """The request kept last of those whose answer had this id."""
        sql = "SELECT body FROM requests WHERE completion_id = ? ORDER BY id DESC LIMIT 1"
        async with self._reads.use(self._small_s) as connection:
            rows = list(await connection.execute_fetchall(sql, (_bindable(completion_id),)))
        return unpack(RequestRecord, rows[0][0]) if rows else None

    async def trim(self, *, before: float, max_bytes: int) -> int:
        """Forget records older than `before`, and the oldest ones while all take more room; says how many."""
        now = self._wall()

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM kept WHERE until <= ?", (now,))
            for table in ("counts", "marks"):
                connection.execute(f"DELETE FROM {table} WHERE number < ?", (now - BLOCK_SECONDS,))  # noqa: S608

        await self._journal.write(self._large_s, work)
        forgotten = await trimmed(
            self._forget, before=before, max_bytes=max_bytes, step=_TRIM_ROWS, size=self._size, count=self._count
        )
        if forgotten:
            async with self._reads.use(self._large_s) as connection:
                idle, last = await idle_shapes(connection)
            await self._journal.write(self._large_s, partial(forget_shapes, idle=idle, last=last))
        await self._fill()
        await self._vacuum()
        return forgotten

    async def _fill(self) -> None:
        """Give what an older version wrote what it is looked for by."""
        async with self._journal.use(self._large_s) as connection:
            whole = dict(zip(_WITH_BRIEFS, await is_whole(connection), strict=True))
        after = {kind: 0 for kind, is_so in whole.items() if not is_so}
        while after:
            after = await self._journal.write(self._large_s, partial(fill, after=after))

    async def get(self, *keys: str) -> dict[str, bytes]:
        """The values of those keys that have one."""
        if not keys:
            return {}
        marks = ",".join("?" * len(keys))
        sql = f"SELECT key, value FROM kept WHERE key IN ({marks}) AND until > ?"  # noqa: S608 - question marks alone
        async with self._reads.use(self._small_s) as connection:
            rows = await connection.execute_fetchall(sql, (*map(_bindable, keys), self._wall()))
        found = {key: bytes(value) for key, value in rows}
        return {key: found[_bindable(key)] for key in keys if _bindable(key) in found}

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> None:
        """Keep a value, for ever or for a while."""
        until = _FOR_EVER if ttl_s is None else self._wall() + ttl_s
        await self._values.write(self._small_s, lambda connection: _put(connection, key, value, until))

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Put `new` if the value is still `old`."""
        sql = "SELECT value FROM kept WHERE key = ? AND until > ?"

        def work(connection: sqlite3.Connection) -> bool:
            row = connection.execute(sql, (_bindable(key), self._wall())).fetchone()
            is_same = (bytes(row[0]) if row else None) == old
            if is_same:
                _put(connection, key, new, _FOR_EVER)
            return is_same

        return await self._values.write(self._small_s, work)

    async def tally(self, counts: Mapping[str, int], marks: Collection[str]) -> None:
        """Add counts and marks to the block of this second."""
        add = "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"
        mark = "INSERT OR IGNORE INTO marks VALUES (?, ?)"

        def work(connection: sqlite3.Connection) -> None:
            number = self._number(connection)
            connection.executemany(add, [(number, _bindable(name), count) for name, count in counts.items()])
            connection.executemany(mark, [(number, _bindable(name)) for name in marks])

        await self._blocks.write(self._tick_s, work, patience_s=self._timeout_s)

    async def blocks(self, after: int) -> list[Block]:
        """The blocks behind number `after` that nobody adds to any more, oldest first."""
        numbers = (
            "SELECT number FROM counts WHERE number > :after AND number < :now"
            " UNION SELECT number FROM marks WHERE number > :after AND number < :now ORDER BY number LIMIT :most"
        )
        rows = "SELECT number, name{} FROM {} WHERE number BETWEEN ? AND ? ORDER BY number"

        def work(connection: sqlite3.Connection) -> tuple[list[Any], list[Any], list[Any]]:
            now = int(self._wall())
            bounds = {"after": behind(after, now), "now": now, "most": MAX_BLOCKS}
            found = connection.execute(numbers, bounds).fetchall()
            ends = (found[0][0], found[-1][0]) if found else (0, -1)
            of_counts = connection.execute(rows.format(", value", "counts"), ends).fetchall()
            return found, of_counts, connection.execute(rows.format("", "marks"), ends).fetchall()

        found, counts, marks = await self._blocks.write(self._tick_s, work, patience_s=self._timeout_s)
        counted = {number: {row[1]: row[2] for row in group} for number, group in groupby(counts, lambda row: row[0])}
        marked = {number: frozenset(row[1] for row in group) for number, group in groupby(marks, lambda row: row[0])}
        return [
            Block(number=number, counts=counted.get(number, {}), marks=marked.get(number, frozenset()))
            for (number,) in found
        ]

    def watch(self, hear: Callable[[], None]) -> Callable[[], None] | None:
        """Have `hear` called soon after anybody wrote; this process is one of them."""
        return FileWatch(self._path, hear).end

    def _number(self, connection: sqlite3.Connection) -> int:
        """The block that is added to; those of a future that will not be are dropped."""
        sql = "SELECT max(coalesce((SELECT max(number) FROM counts), 0), coalesce((SELECT max(number) FROM marks), 0))"
        [[last]] = connection.execute(sql)
        # A clock that was set back must not add to a block that others have read already.
        number = current(int(self._wall()), int(last))
        if number < last:
            for table in ("counts", "marks"):
                connection.execute(f"DELETE FROM {table} WHERE number > ?", (number,))  # noqa: S608 - our names
        return number

    async def _forget(self, before: float, most: int) -> int:
        # Over all kinds together: each by itself would forget its youngest while another kept older ones.
        sql = f"SELECT kind, id FROM ({_OLDEST}) WHERE at < ? ORDER BY at LIMIT ?"  # noqa: S608 - our names

        def work(connection: sqlite3.Connection) -> int:
            rows = connection.execute(sql, (before, most)).fetchall()
            for kind in {kind for kind, _ in rows}:
                doomed = [(number,) for name, number in rows if name == kind]
                connection.executemany(f"DELETE FROM {kind} WHERE id = ?", doomed)  # noqa: S608 - our names
            return len(rows)

        return await self._journal.write(self._large_s, work)

    async def _count(self) -> int:
        sql = f"SELECT count(*) FROM ({_OLDEST})"  # noqa: S608 - our names
        async with self._journal.use(self._large_s) as connection:
            [[count]] = await connection.execute_fetchall(sql)
        return int(count)

    async def _size(self) -> int:
        """Bytes that are in use, without those pages of the file that wait to be given back."""
        async with self._journal.use(self._large_s) as connection:
            pages, free, size = [
                next(iter(await connection.execute_fetchall(f"PRAGMA {name}")))[0]
                for name in ("page_count", "freelist_count", "page_size")
            ]
        return int((pages - free) * size)

    async def _vacuum(self) -> None:
        """Give back to the disk what is free."""
        while True:
            async with self._journal.use(self._large_s) as connection:
                [[free]] = await connection.execute_fetchall("PRAGMA freelist_count")
                if not free:
                    break
                await connection.execute_fetchall(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
                [[left]] = await connection.execute_fetchall("PRAGMA freelist_count")
                # https://www.sqlite.org/pragma.html#pragma_auto_vacuum
                if left >= free:  # a file that was made without it
                    break
        async with self._journal.use(self._large_s) as connection:
            # Every other kind holds the writers' lock while the disk writes, for longer than a tally waits. This one
            # gives the file's end back too, once nobody reads from the journal, and `journal_size_limit` bounds that:
            # https://www.sqlite.org/pragma.html#pragma_wal_checkpoint
            await connection.execute_fetchall("PRAGMA wal_checkpoint(PASSIVE)")


def _put(connection: sqlite3.Connection, key: str, value: bytes, until: float) -> None:
    sql = "INSERT INTO kept VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value, until = excluded.until"
    connection.execute(sql, (_bindable(key), value, until))


def _bindable(text: str) -> str:
    """SQLite takes no half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")
