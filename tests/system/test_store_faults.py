"""Stores that fail in earnest: whatever happens to them, requests do not notice, and what is lost is counted."""

import asyncio
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import pytest

from gateway.background import recorder as recorder_module
from gateway.background.recorder import Recorder
from gateway.core.ports import StoreError
from gateway.core.records import FeedbackRecord
from gateway.state import sqlite_connection as sqlite_line
from gateway.state.backoff import LONGEST_S
from gateway.state.metered import WatchedStore
from gateway.state.opening import open_store
from tests.support.cost import Pulse
from tests.support.stores import Gauges, RedisServer, needs_redis, rating

RECOVERY_S = 5.0
TIMEOUT_S = 0.2


class Bench:
    """A recorder at work on a store that is about to fail."""

    def __init__(self, url: str) -> None:
        self.gauges = Gauges()
        self.store = WatchedStore(open_store(url, prefix="toolgate:", timeout_ms=int(TIMEOUT_S * 1000)), self.gauges)
        self.recorder = Recorder(store=self.store, telemetry=self.gauges, max_queue=2000)
        self.accepted = 0

    def put(self, count: int = 50) -> None:
        """Put records as requests do, and see that none of them was held up."""
        took: list[float] = []
        for _ in range(count):
            begun = time.thread_time()
            self.recorder.put(rating(float(self.accepted)))
            took.append(time.thread_time() - begun)
            self.accepted += 1
        assert statistics.median(took) < 100e-6

    async def fails(self) -> None:
        """Records are not written, operations fail in good time, and soon at once."""
        self.put()
        async with asyncio.timeout(10):
            while self.recorder.healthy:  # noqa: ASYNC110 - the recorder's own time must pass
                await asyncio.sleep(0.01)
        self.put()
        for operation in (self.store.tally({"n": 1}, []), self.store.put("k", b"v")):
            async with Pulse() as pulse:
                with suppress(StoreError):
                    await operation
            assert pulse.seconds < 2 * TIMEOUT_S + 0.3
        assert not self.store.is_up
        assert self.gauges.gauges["toolgate_shared_state_up"] == 0
        assert self.gauges.counts["toolgate_shared_state_errors_total", "write"] > 0
        await asyncio.sleep(0)
        assert self.recorder.lag_s > 0

    async def recovers(self) -> None:
        """All that waits is written, and every operation works again."""
        async with Pulse() as pulse, asyncio.timeout(4 * RECOVERY_S):
            assert await self.recorder.flush(4 * RECOVERY_S)
            while not await self._works():  # noqa: ASYNC110 - the store's own time must pass
                await asyncio.sleep(0.05)
        assert pulse.seconds < RECOVERY_S
        assert self.recorder.healthy
        assert self.store.is_up
        self.put()
        assert await self.recorder.flush(RECOVERY_S)

    async def written(self) -> list[float]:
        return [record.at async for record in self.store.scan(FeedbackRecord)]

    async def is_complete(self) -> bool:
        """Every record is there, and none twice."""
        return await self.written() == [float(number) for number in range(self.accepted)] and not self.gauges.lost

    async def _works(self) -> bool:
        try:
            await self.store.tally({"n": 1}, ["m"])
            await self.store.put("k", b"v")
            return await self.store.get("k") == {"k": b"v"}
        except StoreError:
            return False


@asynccontextmanager
async def bench(url: str) -> AsyncIterator[Bench]:
    """A bench that worked before anything failed."""
    ready = Bench(url)
    running = asyncio.get_running_loop().create_task(ready.recorder.run())
    try:
        ready.put()
        assert await ready.recorder.flush(5)
        yield ready
    finally:
        await ready.recorder.close(0.1)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await ready.store.close()


@pytest.fixture
async def server(tmp_path: Path, no_leaks: None) -> AsyncIterator[RedisServer]:
    server = await RedisServer(tmp_path).start()
    yield server
    await server.close()


@pytest.fixture
def path(tmp_path: Path, no_leaks: None) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder / "store.db"


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The address of a healthy store of this sort."""
    if request.param == "sqlite":
        return url_of(request.getfixturevalue("path"))
    server: RedisServer = request.getfixturevalue("server")
    return server.url


# Redis


@needs_redis
async def test_redis_is_killed_and_comes_back_empty(server):
    async with bench(server.url) as work:
        await server.kill()
        await work.fails()
        await server.start()
        await work.recovers()
        assert await work.written() == [float(number) for number in range(50, work.accepted)]
        assert work.gauges.lost == {}


@needs_redis
async def test_redis_is_frozen_and_nothing_is_written_twice(server):
    async with bench(server.url) as work:
        server.freeze()
        await work.fails()
        refused = 0
        for _ in range(20):
            async with Pulse() as pulse:
                with pytest.raises(StoreError):
                    await work.store.get("k")
            refused += not pulse.seconds
        assert refused >= 19
        server.thaw()
        await work.recovers()
        assert await work.is_complete()


@needs_redis
async def test_answers_of_a_slow_redis_never_reach_the_wrong_caller(server):
    await server.command("SET", "toolgate:value:a", "A")
    await server.command("SET", "toolgate:value:b", "B")
    async with slow(server, 0.3) as url:
        store = open_store(url, prefix="toolgate:", timeout_ms=200)
        for _ in range(2):
            with pytest.raises(StoreError):
                await store.get("a")
        await store.close()
    patient = open_store(server.url, prefix="toolgate:", timeout_ms=200)
    for delay in (0.0, 0.0005, 0.001, 0.002):
        cut = asyncio.ensure_future(patient.get("a"))
        await asyncio.sleep(delay)
        cut.cancel()
        await asyncio.gather(cut, return_exceptions=True)
        assert await patient.get("b") == {"b": b"B"}
    await patient.close()


@needs_redis
async def test_redis_is_slow(server):
    async with slow(server, 0.3) as url, slow(server, 0.0):
        work = Bench(url)
        work.put()
        running = asyncio.get_running_loop().create_task(work.recorder.run())
        assert await work.recorder.flush(10)  # batches have time: nobody waits for them
        with pytest.raises(StoreError, match="in time"):
            await work.store.get("k")
        async with Pulse() as pulse:
            with pytest.raises(StoreError):
                await work.store.get("k")
        assert not pulse.seconds, "refused at once"
        await work.recorder.close(0.1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await work.store.close()


@needs_redis
async def test_redis_is_flushed(server):
    async with bench(server.url) as work:
        await server.command("FLUSHALL")
        await server.command("SCRIPT", "FLUSH")
        await work.recovers()
        assert len(await work.written()) == work.accepted - 50
        assert work.gauges.lost == {}


@needs_redis
async def test_the_memory_of_redis_is_full(server):
    async with bench(server.url) as work:
        await server.command("CONFIG", "SET", "maxmemory", "1")
        await work.fails()
        assert await work.store.get("k") == {}
        assert await work.written() == [float(number) for number in range(50)]
        await server.command("CONFIG", "SET", "maxmemory", "0")
        await work.recovers()
        assert await work.is_complete()


@needs_redis
@pytest.mark.parametrize("key", ["log:feedback", "at:feedback"])
async def test_keys_of_redis_hold_something_else(server, key):
    async with bench(server.url) as work:
        await server.command("RENAME", f"toolgate:{key}", "saved")
        await server.command("SET", f"toolgate:{key}", "rubbish")
        await server.command("SET", "toolgate:blocks", "rubbish")
        work.put()
        with pytest.raises(StoreError):
            await work.store.tally({"n": 1}, [])
        assert not await work.recorder.flush(0.5)
        await server.command("DEL", "toolgate:blocks")
        await server.command("RENAME", "saved", f"toolgate:{key}")
        await work.recovers()
        assert await work.is_complete()


@needs_redis
async def test_what_an_error_says_names_neither_address_nor_password(server):
    await server.command("CONFIG", "SET", "requirepass", "right")
    store = open_store(f"unix://u:hunter22@{server.path}", prefix="toolgate:", timeout_ms=200)
    with pytest.raises(StoreError, match="refuses the credentials") as failed:
        await store.open()
    assert "hunter22" not in "".join(traceback.format_exception(failed.value))
    await server.kill()
    await asyncio.sleep(LONGEST_S / 4)
    with pytest.raises(StoreError, match="cannot be reached") as failed:
        await store.open()
    assert "hunter22" not in "".join(traceback.format_exception(failed.value))
    assert str(server.path) not in str(failed.value)
    await store.close()


@needs_redis
async def test_what_answers_is_no_redis(no_leaks):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = open_store(f"redis://127.0.0.1:{port}/0", prefix="p:", timeout_ms=200)
    with pytest.raises(StoreError):
        await store.open()
    await store.close()
    server.close()
    await server.wait_closed()


@asynccontextmanager
async def slow(server: RedisServer, delay_s: float) -> AsyncIterator[str]:
    """The server behind a network that takes its time with every answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis_reader, redis_writer = await asyncio.open_unix_connection(str(server.path))
        with suppress(ConnectionError):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(relay(reader, redis_writer, 0.0))
                tasks.create_task(relay(redis_reader, writer, delay_s))

    proxy = await asyncio.start_unix_server(serve, str(server.path.with_name(f"slow{delay_s}.sock")))
    yield f"unix://{server.path.with_name(f'slow{delay_s}.sock')}"
    proxy.close()
    await proxy.wait_closed()


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    try:
        while data := await reader.read(1 << 16):
            await asyncio.sleep(delay_s)
            writer.write(data)
    finally:
        writer.close()


# SQLite


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the right to write."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_sqlite_is_locked(path):
    async with bench(url_of(path)) as work:
        with locked(path):
            await work.fails()
            assert len(await work.written()) == 50  # reading goes on
        await work.recovers()
        assert await work.is_complete()


async def test_sqlite_is_full(path, monkeypatch):
    async with bench(url_of(path)) as work:
        [[pages]] = run(path, "PRAGMA page_count")
        with monkeypatch.context() as small:
            small.setattr(sqlite_line, "_PRAGMAS", (*sqlite_line._PRAGMAS, f"max_page_count={pages}"))
            await work.store.close()
            with pytest.raises(StoreError, match="full"):
                await work.store.put("large", b"x" * 100_000)
            while work.recorder.healthy:
                work.put(100)
                await asyncio.sleep(0.05)
            await work.fails()
            assert await work.written()
        await work.recovers()
        assert await work.is_complete()


async def test_the_folder_of_sqlite_is_gone_and_comes_back(path):
    async with bench(url_of(path)) as work:
        path.parent.rename(path.parent.with_name("away"))
        await asyncio.sleep(sqlite_line._LOOK_AGAIN_S)
        await work.fails()
        path.parent.with_name("away").rename(path.parent)
        await work.recovers()
        assert await work.is_complete()


async def test_sqlite_is_deleted_and_begins_anew(path):
    async with bench(url_of(path)) as work:
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        await asyncio.sleep(sqlite_line._LOOK_AGAIN_S)
        await work.recovers()
        assert path.exists()
        assert await work.written() == [float(number) for number in range(50, work.accepted)]
        assert work.gauges.lost == {}


async def test_only_the_file_of_sqlite_is_deleted_and_its_journal_stays(path):
    async with bench(url_of(path)) as work:
        path.unlink()
        await asyncio.sleep(sqlite_line._LOOK_AGAIN_S)
        await work.recovers()
        assert await work.written() == [float(number) for number in range(50, work.accepted)]


@pytest.mark.parametrize("damage", [(0, 100), (0, None), (100, None), (4096, None)])
async def test_sqlite_is_damaged_until_it_is_moved_away(path, damage):
    begin, end = damage
    async with bench(url_of(path)) as work:
        await work.store.trim(before=0.0, max_bytes=1 << 30)  # everything is in the file itself
        await work.store.close()
        content = bytearray(path.read_bytes())
        end = len(content) if end is None else end
        content[begin:end] = b"\xa5" * (end - begin)
        path.write_bytes(content)
        for journal in path.parent.glob("store.db-*"):
            journal.unlink()
        await work.fails()
        with pytest.raises(StoreError, match=r"damaged|away"):
            await work.store.append([rating(1.0)])
        path.rename(path.with_name("damaged.db"))
        await work.recovers()
        assert await work.written() == [float(number) for number in range(50, work.accepted)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
async def test_sqlite_can_only_be_read(no_leaks):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - the other user must come in
        path = Path(folder) / "store.db"
        async with bench(url_of(path)) as work:
            await work.store.close()
            path.chmod(0o444)
            os.seteuid(65534)
            try:
                await work.fails()
            finally:
                os.seteuid(0)
            await work.recovers()
            assert await work.is_complete()


async def test_what_finds_no_room_during_an_outage_is_counted(path, monkeypatch):
    monkeypatch.setattr(recorder_module, "LONGEST_RETRY_S", 0.05)
    async with bench(url_of(path)) as work:
        with locked(path):
            work.put(3000)
            await asyncio.sleep(0.5)
            work.put(1000)
            assert work.gauges.lost == {"queue_full": 2000}
        await work.recovers()
        assert len(await work.written()) == work.accepted - 2000


def run(path: Path, sql: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize(
    ("url", "batches"), [("sqlite", 0), pytest.param("redis", 1, marks=needs_redis)], indirect=["url"]
)
async def test_small_operations_go_on_beside_large_batches(url, batches):
    """Reads end within the batch that is being written, of a server that does one thing at a time with the next one."""
    store = open_store(url, prefix="p:", timeout_ms=20_000)
    await store.open()
    written, beside = 0, 0

    async def write() -> None:
        nonlocal written
        while beside < 5:
            await store.append([rating(float(written * 500 + number)) for number in range(500)])
            written += 1

    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write())
        while not writing.done():
            before = written
            await store.get("k")
            await store.get("k")
            beside += written - before <= batches
            await store.tally({"n": 1}, ["m"])
    await store.close()
    assert written >= 1
