"""The briefs in the store's file: what requests are looked for by, so small that all of them can be gone through.

Beside a brief stand checksums of the request's id and of its conversation's key. Two of them may have the same one, so
who finds a request by its brief looks at the record too.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import aiosqlite
import msgspec

from gateway.core.ports import Glance
from gateway.core.records import Brief, BriefCall, RequestRecord
from gateway.state.sqlite_connection import BRIEFS

__all__ = ["bodies", "brief_row", "checksum", "glanced", "has_briefs", "keep_briefs"]

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Brief)
_PAGE = 4000
_JOINED = """
SELECT group_concat(id || ' ' || request || ' ' || key || ' ' || brief, char(10))
FROM (SELECT * FROM briefs WHERE id < ? ORDER BY id DESC LIMIT ?)
"""
"""As one text: between two rows the connection's thread lets go of the interpreter, and waits until it gets it back.
JSON has no line break of its own."""
_MOST_KNOWN = 20_000
_VARIABLES = 500
"""SQLite before 3.32 binds no more than 999: https://www.sqlite.org/limits.html#max_variable_number"""


def checksum(text: str) -> int:
    """Of an id or a key; a whole number that takes little room."""
    return crc32(text.encode("utf-8", "replace"))


def brief_row(record: RequestRecord) -> tuple[int, int, str]:
    """What is kept of a record, in the order of the table's columns."""
    calls = tuple(
        BriefCall(call.dialect, call.tool, call.score, call.decision, call.reason, call.meant) for call in record.calls
    )
    native = record.native_tools or ("",) * (record.native_calls > 0)
    brief = Brief(record.model, record.arm, record.healthy, bool(record.error), native, calls)
    return checksum(record.id), checksum(record.key), _ENCODER.encode(brief).decode()


def keep_briefs(connection: sqlite3.Connection, last: int, rows: Sequence[tuple[int, int, str]]) -> None:
    """Keep those of the requests that have just been written behind the one of that number."""
    for statement in BRIEFS:  # a file that an older version began has no table yet
        connection.execute(statement)
    numbered = [(last + place, *row) for place, row in enumerate(rows, 1)]
    connection.executemany("INSERT OR REPLACE INTO briefs VALUES (?, ?, ?, ?)", numbered)


async def has_briefs(connection: aiosqlite.Connection) -> bool:
    """Whether anybody has kept any in this file."""
    found = await connection.execute_fetchall("SELECT 1 FROM sqlite_master WHERE name = 'briefs'")
    return bool(list(found))


async def glanced(connection: aiosqlite.Connection, until: int, limit: int, glance: Glance) -> list[int]:
    """The numbers below `until` of requests whose briefs pass, and of those that have none, the highest first."""
    passes = _once(glance)
    found: list[int] = []
    is_last = False
    while not is_last and len(found) < limit:
        [[joined]] = await connection.execute_fetchall(_JOINED, (until, _PAGE))
        page = joined.split("\n") if joined else []
        is_last = len(page) < _PAGE
        for line in page:
            place, request, key, brief = line.split(" ", 3)
            number = int(place)
            if number < until - 1:
                found += await _between(connection, number, until, limit - len(found))
            if passes(brief, int(request), int(key)):
                found.append(number)
            if len(found) >= limit:
                return found[:limit]
            until = number
    return found + await _between(connection, 0, until, limit - len(found))


async def _between(connection: aiosqlite.Connection, low: int, high: int, limit: int) -> list[int]:
    """Requests without a brief: those that an older version has written."""
    sql = "SELECT id FROM requests WHERE id > ? AND id < ? ORDER BY id DESC LIMIT ?"
    return [number for (number,) in await connection.execute_fetchall(sql, (low, high, limit))]


def _once(glance: Glance) -> Callable[[str, int, int], bool]:
    """The same, asked once for each brief; one that this version cannot read passes."""
    known: dict[str, Callable[[int, int], bool] | bool] = {}

    def passes(text: str, request: int, key: int) -> bool:
        said = known.get(text)
        if said is None:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            try:
                said = glance(_DECODER.decode(text))
            except ValueError:
                said = True
            known[text] = said
        return said if isinstance(said, bool) else said(request, key)

    return passes


async def bodies(connection: aiosqlite.Connection, numbers: Sequence[int]) -> list[Any]:
    """The records of these numbers as they are kept, each behind its number, in the same order."""
    found: list[Any] = []
    for start in range(0, len(numbers), _VARIABLES):
        some = numbers[start : start + _VARIABLES]
        sql = f"SELECT id, body FROM requests WHERE id IN ({','.join('?' * len(some))}) ORDER BY id DESC"  # noqa: S608
        found += await connection.execute_fetchall(sql, some)
    return found
