"""One connection to a SQLite file that mends itself, and the schema of that file.

A connection is given up after any failure, and after a caller was cancelled in the middle of a transaction: a new one
costs a millisecond, and whatever was begun is rolled back. It is also given up when the file is no longer the one
that it was opened on, as SQLite would go on writing into the deleted one.

Whether others have written is told from outside of the file, without a connection, a lock or a turn of the loop.
"""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import aiosqlite
from attrs import define, field

from gateway.core.ports import BadRecord, StoreError
from gateway.state.backoff import Pause
from gateway.state.record_codec import KINDS

__all__ = ["BRIEFS", "FileWatch", "Line"]

W = TypeVar("W")

# A look at the file costs a thread's turn; for so long a store that was moved away may be written in vain.
_LOOK_AGAIN_S = 0.5
LOOK_S = 0.9
"""How often it is looked whether others wrote: `toolgate rollout kill` promises that all obey within a second."""
_JOURNAL = "-wal"
_MIGRATION_S = 5.0
_ENDING_S = 30.0
"""How long the end of a connection is waited for: longer than any disk that will still answer takes."""
# On a disk that hangs every operation would otherwise leave one more thread behind.
_MAX_ENDINGS = 4
_RETRY_S = 0.02
# In WAL mode a lost power supply costs the last transactions at most, never the file:
# https://www.sqlite.org/pragma.html#pragma_synchronous
_PRAGMAS = ("synchronous=NORMAL", "journal_size_limit=4194304")
"""Of each connection; the second keeps the journal from staying at its largest."""
_FILE_PRAGMAS = ("auto_vacuum=INCREMENTAL", "journal_mode=WAL")
"""Of a new file, the first before anything is in it. Both write: they must not be needed to open a locked file."""

BRIEFS = (
    "CREATE TABLE IF NOT EXISTS shapes (id INTEGER PRIMARY KEY, brief TEXT NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS glances (id INTEGER PRIMARY KEY, at REAL NOT NULL, request TEXT NOT NULL,"
    " key INTEGER NOT NULL, shape INTEGER NOT NULL, added INTEGER)",
    "CREATE INDEX IF NOT EXISTS glances_key ON glances (key)",
    "CREATE TABLE IF NOT EXISTS fared (id INTEGER PRIMARY KEY, at REAL NOT NULL, key INTEGER NOT NULL,"
    " reporter TEXT NOT NULL, arm TEXT NOT NULL, outcome TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS fared_turns ON fared (key, at, reporter, outcome)",
    "CREATE TRIGGER IF NOT EXISTS requests_gone AFTER DELETE ON requests"
    " BEGIN DELETE FROM glances WHERE id = old.id; END",
    "CREATE TRIGGER IF NOT EXISTS outcomes_gone AFTER DELETE ON outcomes"
    " BEGIN DELETE FROM fared WHERE id = old.id; END",
)
"""Beside the schema and not in its version, as whoever does not know them reads and writes the rest all the same:
records that an older version wrote have none until the next trimming, and those that it deletes leave none. `shapes`
holds each brief once, `added` the microseconds added to an answer, of requests with tools."""

_FIRST_SCHEMA = (
    *(
        statement
        for kind in KINDS
        for statement in (
            f"CREATE TABLE {kind} (id INTEGER PRIMARY KEY, at REAL NOT NULL, completion_id TEXT, body TEXT NOT NULL)",
            f"CREATE INDEX {kind}_at ON {kind} (at)",
        )
    ),
    "CREATE INDEX requests_completion_id ON requests (completion_id) WHERE completion_id IS NOT NULL",
    "CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB NOT NULL, until REAL NOT NULL) WITHOUT ROWID",
    "CREATE INDEX kept_until ON kept (until)",
    "CREATE TABLE counts (number INTEGER, name TEXT, value INTEGER NOT NULL, PRIMARY KEY (number, name)) WITHOUT ROWID",
    "CREATE TABLE marks (number INTEGER, name TEXT, PRIMARY KEY (number, name)) WITHOUT ROWID",
    *BRIEFS,
)
_MIGRATIONS = (_FIRST_SCHEMA,)
"""What leads from each version of the schema to the next; the file's version is `PRAGMA user_version`."""

# https://www.sqlite.org/rescode.html
_WORDS = {
    sqlite3.SQLITE_BUSY: "the store is locked by another process",
    sqlite3.SQLITE_LOCKED: "the store is locked by another process",
    sqlite3.SQLITE_READONLY: "the store's file can only be read",
    sqlite3.SQLITE_IOERR: "the store's disk fails",
    sqlite3.SQLITE_CORRUPT: "the store's file is damaged: move it away to begin a new one",
    sqlite3.SQLITE_NOTADB: "the store's file is damaged or no SQLite file: move it away to begin a new one",
    sqlite3.SQLITE_FULL: "the store is full",
    sqlite3.SQLITE_CANTOPEN: "the store's file cannot be opened",
}
_OLDER = "no gateway of this version has written the store yet"
_NEWER = "the store was written by a newer version"
_Stamp = tuple[int, int, int, int]
_ANSWERS = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG})
"""Failures that cost no time and leave the rest usable: no reason to leave the store alone."""


@define
class _Transaction(Generic[W]):
    """One piece of work in the connection's thread."""

    work: Callable[[sqlite3.Connection], W]
    has_begun: bool = False
    is_given_up: bool = False
    """Nobody waits for it any more, so that nobody would know that it stays."""

    def run(self, connection: sqlite3.Connection) -> W:
        # A reader that becomes a writer later is refused at once, whatever the timeout:
        # https://www.sqlite.org/lang_transaction.html
        connection.execute("BEGIN IMMEDIATE")
        self.has_begun = True
        try:
            done = self.work(connection)
            if self.is_given_up:
                raise TimeoutError
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a failure may have ended it already
                connection.execute("ROLLBACK")
            raise
        return done


@define(kw_only=True)
class Line:
    """A connection that is opened when it is needed; one caller at a time has it."""

    path: Path
    timeout_s: float
    read_only: bool = False
    _connection: aiosqlite.Connection | None = field(init=False, default=None)
    _identity: tuple[int, int] | None = field(init=False, default=None)
    _looked_at: float = field(init=False, default=0.0)
    _endings: set[asyncio.Future[Any]] = field(init=False, factory=set)
    _lock: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _pause: Pause = field(init=False, factory=Pause)
    _write_pause: Pause = field(init=False, factory=Pause)

    @asynccontextmanager
    async def use(self, limit_s: float) -> AsyncIterator[aiosqlite.Connection]:
        """The connection, for as long as the block takes; raises `StoreError` for whatever goes wrong in it."""
        self._pause.check()
        try:
            async with asyncio.timeout(limit_s), self._lock:
                try:
                    yield await self._opened()
                except BaseException:
                    self._give_up()
                    raise
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            code = _code(error)
            # Only writers meet it: those who read go on.
            if code == sqlite3.SQLITE_BUSY:
                self._write_pause.failed()
            # A number too large for SQLite is the record's fault and not the store's.
            elif code not in _ANSWERS and not isinstance(error, OverflowError):
                self._pause.failed()
            raise _translated(error, code) from error
        self._pause.succeeded()

    async def write(self, limit_s: float, work: Callable[[sqlite3.Connection], W], *, patience_s: float = 0.0) -> W:
        """What `work` gives, with the right to write; all that it does stays, or nothing of it.

        It runs in the connection's thread from one end to the other: with a way back to the loop between its
        statements, a busy machine would hold the writers' lock for ten of its turns, and all other processes with it.
        Who is patient asks for the lock for so long: in pieces, since a thread that waits cannot be stopped.
        """
        self._write_pause.check()
        due = time.monotonic() + patience_s
        async with self.use(limit_s) as connection:
            while True:
                transaction = _Transaction(work)
                try:
                    # Private, and the only way to the thread for more than one statement.
                    in_thread: Any = connection._execute
                    done: W = await in_thread(transaction.run, connection._conn)
                    break
                except sqlite3.OperationalError as error:
                    # Once it has begun the lock was there: what is busy then is something else, and part of the work
                    # may be done.
                    if _code(error) != sqlite3.SQLITE_BUSY or transaction.has_begun or time.monotonic() >= due:
                        raise
                except BaseException:
                    transaction.is_given_up = True
                    raise
        self._write_pause.succeeded()
        return done

    async def close(self) -> None:
        """Close the connection, waiting for what it is doing.

        Its thread tells the loop when it has ended, and the process ends no sooner than the thread: who ended the loop
        before would not be quicker, and the thread would have nobody to tell.
        """
        self._give_up()
        with suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_S):
                while self._endings:  # one that was being opened is closed as soon as it is open
                    await asyncio.wait(self._endings)

    def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._stop(connection)

    def _stop(self, connection: aiosqlite.Connection) -> None:
        ending = connection.stop()
        if ending is not None:
            self._endings.add(ending)
            ending.add_done_callback(self._ended)

    async def _connected(self) -> aiosqlite.Connection:
        """A new connection. Who waits for it no longer leaves it to be closed: aiosqlite would lose it, open."""
        if self.read_only:
            # https://www.sqlite.org/uri.html#urimode
            address = f"{self.path.absolute().as_uri()}?mode=ro"
            connection = aiosqlite.connect(address, timeout=self.timeout_s, isolation_level=None, uri=True)
        else:
            connection = aiosqlite.connect(self.path, timeout=self.timeout_s, isolation_level=None)
        opening = asyncio.gather(connection)
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._endings.add(opening)
            opening.add_done_callback(lambda _: self._stop(connection))
            opening.add_done_callback(self._ended)
            raise
        except Exception:
            # What could not be opened has a thread as well, which aiosqlite ends by itself; it tells the loop too.
            if isinstance(thread := getattr(connection, "_thread", None), threading.Thread):
                await asyncio.to_thread(thread.join, _ENDING_S)
            raise
        return connection

    def _ended(self, ending: asyncio.Future[Any]) -> None:
        self._endings.discard(ending)
        if not ending.cancelled():
            ending.exception()  # closing may fail as well, and nothing follows from it

    async def _opened(self) -> aiosqlite.Connection:
        if self._connection is not None and not await self._is_there():
            self._give_up()
        if self._connection is None:
            if len(self._endings) >= _MAX_ENDINGS:  # each holds a thread until the disk answers
                raise TimeoutError
            # Before the connection: were the file exchanged in between, the next look finds it out, and not never.
            self._identity = await asyncio.to_thread(_identity if self.read_only else _create, self.path)
            self._looked_at = time.monotonic()
            self._connection = await self._connected()
            if self.read_only:
                await _recognise(self._connection)
            else:
                await _prepare(self._connection, self.timeout_s)
        return self._connection

    async def _is_there(self) -> bool:
        """Whether the path still leads to the file that is open."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_AGAIN_S:
            return True
        self._looked_at = now
        try:
            return self._identity == await asyncio.to_thread(_identity, self.path)
        except OSError:
            return False


class FileWatch:
    """Has `hear` called on the running loop soon after somebody wrote, until `end`.

    A commit goes to the journal beside the file, and a checkpoint to the file: both move a time or a size. To ask
    SQLite would wake three threads each time, here one wakes up, looks, and sleeps again. It has a thread of its own,
    as a look at a disk that hangs lasts for as long as that hangs. It is half of what an idle process does, so that
    it waits by the bare lock, which is one call, and names files by their text.
    """

    def __init__(self, path: Path, hear: Callable[[], None]) -> None:
        self._file, self._journal = str(path), str(path) + _JOURNAL
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._is_ended = False
        self._goes_on = threading.Lock()
        """Held for as long as it goes on."""
        self._goes_on.acquire()
        threading.Thread(target=self._run, name="store-watch", daemon=True).start()

    def end(self) -> None:
        """Look no more. Nobody waits for the thread: its disk may hang."""
        if not self._is_ended:
            self._is_ended = True
            self._goes_on.release()

    def _run(self) -> None:
        seen = _stamp(self._file), _stamp(self._journal)
        while not self._goes_on.acquire(timeout=LOOK_S):
            now = _stamp(self._file), _stamp(self._journal)
            if now == seen:
                continue
            seen = now
            with suppress(RuntimeError):  # the loop may have ended without a word
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self._is_ended:
            self._hear()


def _stamp(path: str) -> _Stamp | None:
    # Two commits within one step of the file system's clock may look like one: whoever hears of the first goes on
    # reading for longer than that.
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _create(path: Path) -> tuple[int, int]:
    """A new file is for its owner alone; SQLite gives its journal the same mode.

    A file that is there is not opened here: closing it again would drop every lock that this process has on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return _identity(path)


async def _prepare(connection: aiosqlite.Connection, timeout_s: float) -> None:
    """Set up the connection and bring the file to this version's schema; of several processes one does it."""
    deadline = time.monotonic() + _MIGRATION_S
    while True:
        try:
            await _set(connection, _PRAGMAS)
            # Most processes meet a file that is ready, and it may be locked: then nothing has to be written.
            if await _version(connection) != len(_MIGRATIONS):
                await _set(connection, _FILE_PRAGMAS)
                await _migrate(connection)
            return
        except sqlite3.OperationalError as error:  # changing the journal's mode does not wait for others by itself
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() + timeout_s > deadline:
                raise
        await asyncio.sleep(_RETRY_S)


async def _recognise(connection: aiosqlite.Connection) -> None:
    """Of a file that is only read: whether it is a store of this version."""
    version = await _version(connection)
    if version != len(_MIGRATIONS):
        raise StoreError(_OLDER if version < len(_MIGRATIONS) else _NEWER)


async def _set(connection: aiosqlite.Connection, pragmas: Iterable[str]) -> None:
    for pragma in pragmas:
        await connection.execute_fetchall(f"PRAGMA {pragma}")


async def _migrate(connection: aiosqlite.Connection) -> None:
    # Workers start at the same time and find the same old file.
    await connection.execute("BEGIN EXCLUSIVE")
    try:
        version = await _version(connection)  # another process may just have done it
        if version > len(_MIGRATIONS):
            raise StoreError(
                f"the store was written by a newer version (schema {version}; this one knows {len(_MIGRATIONS)})"
            )
        for statements in _MIGRATIONS[version:]:
            for statement in statements:
                await connection.execute(statement)
        await connection.execute(f"PRAGMA user_version={len(_MIGRATIONS)}")
    except BaseException:
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


async def _version(connection: aiosqlite.Connection) -> int:
    [[version]] = await connection.execute_fetchall("PRAGMA user_version")
    return int(version)


def _code(error: Exception) -> int:
    """SQLite's own code, without what is only detail."""
    # The upper bytes are the extended code: https://www.sqlite.org/rescode.html#extrc
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _translated(error: Exception, code: int) -> StoreError:
    if code == sqlite3.SQLITE_TOOBIG or isinstance(error, OverflowError):
        return BadRecord("a record is too large for the store")
    if isinstance(error, TimeoutError):
        return StoreError("the store did not answer in time")
    if code in _WORDS:
        return StoreError(_WORDS[code])
    if isinstance(error, OSError):
        return StoreError(f"the store's file cannot be opened: {error.strerror or 'the system refused'}")
    return StoreError("the store failed")
