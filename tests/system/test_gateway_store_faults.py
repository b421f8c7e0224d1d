"""A gateway that serves while its store fails in every way: no request fails or waits, and what is kept goes on after.

The rows O6 and O7 of deploy/FAULTS.md, through the real program.
"""

import asyncio
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest
from attrs import define, field

from gateway.core.ports import StoreError
from gateway.core.records import RequestRecord
from gateway.state.opening import open_store
from tests.support.client import TOOLS, ask, chat, get
from tests.support.cost import Pulse
from tests.support.faulty_upstream import DONE, FaultyUpstream, event, stream, text
from tests.support.processes import Program
from tests.support.stores import RedisServer, needs_redis

CALL = "I will look.\n<read_file>\n<path>a.py</path>\n</read_file>"
CLIENTS = 10
"""Of each gateway."""
PAUSE_S = 0.1
WINDOW_S = 0.5
WINDOWS = 4
ADDED_S = 0.005
RECOVERY_S = 5.0
SLACK_S = 1.0
"""For a machine that has other things to do."""
PAGES = 400
"""How large the file may become in which there is no room."""


@define
class Load:
    """Clients of one gateway, at a bounded pace, and what becomes of their requests."""

    program: Program
    client: aiohttp.ClientSession
    asked: int = 0
    faults: list[str] = field(factory=list)
    took: list[tuple[float, float]] = field(factory=list)
    """When each request began, and how long it took."""
    _ending: asyncio.Event = field(factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(factory=list)

    async def __aenter__(self) -> Self:
        self._tasks += [asyncio.ensure_future(self._ask_without_end(number)) for number in range(CLIENTS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending.set()
        await asyncio.gather(*self._tasks)

    def windows(self, begun: float) -> list[list[float]]:
        """How long requests took, in some successive windows from then on; empty ones are left out."""
        found: list[list[float]] = [[] for _ in range(WINDOWS)]
        for began, seconds in self.took:
            number = int((began - begun) // WINDOW_S)
            if 0 <= number < WINDOWS:
                found[number].append(seconds)
        return [window for window in found if window]

    async def _ask_without_end(self, number: int) -> None:
        await asyncio.sleep(number * PAUSE_S / CLIENTS)
        while not self._ending.is_set():
            self.asked += 1
            messages = [{"role": "user", "content": f"conversation {self.asked}"}]
            began = time.monotonic()
            try:
                answer = await ask(self.client, self.program.url, chat(model="m", tools=TOOLS, messages=messages))
            except (aiohttp.ClientError, TimeoutError) as error:
                self.faults.append(repr(error))
                continue
            self.took.append((began, time.monotonic() - began))
            if answer.status != 200 or not answer.is_done or b"tool_calls" not in answer.body:
                self.faults.append(f"{answer.status} {answer.body[-200:]!r}")
            await asyncio.sleep(PAUSE_S)


Windows = list[list[float]]


@define
class Serving:
    """A gateway whose store is made to fail, and what it says of itself."""

    program: Program
    client: aiohttp.ClientSession
    store_url: str
    loads: tuple[Load, ...] = ()
    """Of this gateway, and of another one at the same time that has no such store."""

    async def windows(self) -> list[Windows]:
        """How long requests take, from now on for a while."""
        begun = time.monotonic()
        await asyncio.sleep(WINDOW_S * WINDOWS)
        return [load.windows(begun) for load in self.loads]

    async def metric(self, series: str) -> float:
        """The value of one series; 0 for one that is not there."""
        for line in (await get(self.client, f"{self.program.url}/metrics")).body.decode().splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    async def is_up(self) -> bool:
        return await self.metric("toolgate_shared_state_up") == 1

    async def readiness(self) -> Any:
        answer = await get(self.client, f"{self.program.url}/readyz")
        assert answer.status == 200, "a store is no reason to take the gateway away"
        return answer.json

    async def kept(self) -> list[str]:
        """The requests in the store."""
        store = open_store(self.store_url, prefix="toolgate:", timeout_ms=2000)
        try:
            return [record.id async for record in store.scan(RequestRecord)]
        except StoreError:
            return []
        finally:
            await store.close()

    async def fails(self, seconds: float = 3.0) -> None:
        """It is noticed, and told."""
        await eventually(self._is_degraded, seconds)
        assert not await self.is_up()

    async def recovers(self) -> None:
        """Metrics and readiness say so, and records arrive, among them those of now."""

        async def is_well() -> bool:
            return await self.is_up() and await self.readiness() == {"status": "ready"}

        async with Pulse() as pulse:
            await eventually(is_well, RECOVERY_S + SLACK_S)
            await ask(self.client, self.program.url, chat(model="m"), headers={"X-Request-Id": "the-last"})
            await eventually(lambda: self._has_kept("the-last"), RECOVERY_S + SLACK_S)
        assert pulse.seconds < RECOVERY_S + SLACK_S

    async def lost(self) -> float:
        reasons = ("queue_full", "write_failed")
        each = [await self.metric(f'toolgate_store_records_lost_total{{reason="{reason}"}}') for reason in reasons]
        return sum(each)

    async def _is_degraded(self) -> bool:
        return bool(await self.readiness() == {"status": "ready", "store": "degraded"})

    async def _has_kept(self, name: str) -> bool:
        return name in await self.kept()


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float) -> None:
    async with Pulse() as pulse:
        while not await condition():
            assert pulse.seconds < seconds, "too late"
            await asyncio.sleep(0.05)


def assert_no_slower(before: list[Windows], during: list[Windows]) -> None:
    """Nobody waited for the store: what was added the other gateway felt, too, or is what windows differ by.

    The machine has other things to do, now and then for a whole window: the quietest window of each tells. A store
    that is waited for is waited for in all of them.
    """
    for share in (0.5, 0.95, 0.99):
        (own_before, other_before), (own_during, other_during) = (
            [[quantile(window, share) for window in windows] for windows in one] for one in (before, during)
        )
        added = min(own_during) - min(own_before)
        felt = max(0.0, min(other_during) - min(other_before))
        undisturbed = (own_before, other_before, other_during)
        noise = max(max(times) - min(times) for times in undisturbed)
        assert added <= felt + noise + ADDED_S, (share, own_before, own_during, other_before, other_during)


def quantile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * share))]


@pytest.fixture
async def upstream_of_calls(upstream: FaultyUpstream) -> FaultyUpstream:
    upstream.script = stream(text(CALL[:20]), text(CALL[20:]), event(finish="stop"), DONE)
    return upstream


@asynccontextmanager
async def serving(
    folder: Path, upstream: FaultyUpstream, store_url: str, *, ready: bool = True, **more: Any
) -> AsyncIterator[Serving]:
    """A gateway under load, warm, and another one beside it."""
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240 - nothing else goes on yet
    other_folder = folder / "other"
    other_folder.mkdir()
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as client,
        Program(folder, STORE_URL=store_url, UPSTREAM_URL=upstream.url, **more) as program,
        Program(other_folder, STORE_URL="memory://", UPSTREAM_URL=upstream.url) as other,
    ):
        await program.serving()
        await other.serving()
        async with Load(program, client) as load, Load(other, client) as beside:
            work = Serving(program, client, store_url, (load, beside))
            if ready:
                await eventually(work.is_up, 5)
            await asyncio.sleep(2 * WINDOW_S)
            yield work
        assert load.asked > CLIENTS
        assert load.faults == []
        for failure in ("upkeep_failed", "rollout_tick_failed", "recorder_failed"):
            assert program.events(failure) == []


@pytest.fixture
async def redis(tmp_path: Path, no_leaks: None) -> AsyncIterator[RedisServer]:
    server = await RedisServer(tmp_path).start()
    yield server
    await server.close()


@pytest.fixture
async def on_redis(tmp_path: Path, upstream_of_calls: FaultyUpstream, redis: RedisServer) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "gateway", upstream_of_calls, redis.url) as work:
        yield work


# Redis


@needs_redis
async def test_redis_is_killed_and_started_again(on_redis: Serving, redis: RedisServer) -> None:
    before = await on_redis.windows()
    await redis.kill()
    during = await on_redis.windows()
    await on_redis.fails()
    await redis.start()
    await on_redis.recovers()
    assert_no_slower(before, during)
    assert await on_redis.lost() == 0, "there is room for all that came meanwhile"


@needs_redis
async def test_redis_is_frozen(on_redis: Serving, redis: RedisServer) -> None:
    before = await on_redis.windows()
    redis.freeze()
    during = await on_redis.windows()
    await on_redis.fails()
    redis.thaw()
    await on_redis.recovers()
    assert_no_slower(before, during)
    kept = await on_redis.kept()
    assert len(kept) == len(set(kept)), "nothing is written twice"
    assert await on_redis.lost() == 0


@needs_redis
async def test_redis_is_flushed(on_redis: Serving, redis: RedisServer) -> None:
    before = await on_redis.windows()
    await redis.command("FLUSHALL")
    await redis.command("SCRIPT", "FLUSH")
    during = await on_redis.windows()
    await on_redis.recovers()
    assert_no_slower(before, during)
    assert await on_redis.lost() == 0


@needs_redis
async def test_the_memory_of_redis_is_full(on_redis: Serving, redis: RedisServer) -> None:
    before = await on_redis.windows()
    await redis.command("CONFIG", "SET", "maxmemory", "1")
    during = await on_redis.windows()
    await on_redis.fails()
    await redis.command("CONFIG", "SET", "maxmemory", "0")
    await on_redis.recovers()
    assert_no_slower(before, during)
    assert await on_redis.lost() == 0


@needs_redis
@pytest.mark.parametrize("key", ["log:requests", "value:rollout", "blocks"])
async def test_a_key_of_redis_holds_something_else(on_redis: Serving, redis: RedisServer, key: str) -> None:
    before = await on_redis.windows()
    await redis.command("RENAME", f"toolgate:{key}", "saved")
    await redis.command("HSET", f"toolgate:{key}", "rubbish", "1")
    during = await on_redis.windows()
    await on_redis.fails()
    await redis.command("DEL", f"toolgate:{key}")
    await redis.command("RENAME", "saved", f"toolgate:{key}")
    await on_redis.recovers()
    assert_no_slower(before, during)
    assert await on_redis.lost() == 0


@needs_redis
async def test_redis_is_away_at_the_start_and_its_state_is_taken_up_when_it_is_back(
    tmp_path: Path, upstream_of_calls: FaultyUpstream, redis: RedisServer
) -> None:
    rollback = (sys.executable, "-m", "gateway", "rollout", "rollback", "--yes")
    environ = {"PATH": os.environ["PATH"], "STORE_URL": redis.url}
    process = await asyncio.create_subprocess_exec(*rollback, env=environ, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0
    redis.freeze()
    async with aiohttp.ClientSession() as client:
        async with Program(tmp_path, STORE_URL=redis.url, UPSTREAM_URL=upstream_of_calls.url) as program:
            await program.serving()
            work = Serving(program, client, redis.url)
            await work.fails(0.5)
            answer = await ask(client, program.url, chat(model="m", tools=TOOLS))
            assert answer.headers["X-Toolgate-Arm"] == "live", "nobody can know"
            assert "did not answer" in program.events("store_unavailable")[0]["fault"]
            redis.thaw()
            await work.recovers()
            answer = await ask(client, program.url, chat(model="m", tools=TOOLS))
            assert answer.headers["X-Toolgate-Arm"] == "dry_run"


# SQLite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder / "store.db"


@pytest.fixture
async def on_sqlite(tmp_path: Path, upstream_of_calls: FaultyUpstream, path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "gateway", upstream_of_calls, f"sqlite:///{path}") as work:
        yield work


async def test_sqlite_is_locked_by_another_process(on_sqlite: Serving, path: Path) -> None:
    before = await on_sqlite.windows()
    with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as other:
        other.execute("BEGIN IMMEDIATE")
        during = await on_sqlite.windows()
        await on_sqlite.fails()
        other.execute("ROLLBACK")
    await on_sqlite.recovers()
    assert_no_slower(before, during)
    assert await on_sqlite.lost() == 0


async def test_sqlite_is_deleted(on_sqlite: Serving, path: Path) -> None:
    before = await on_sqlite.windows()
    for file in path.parent.iterdir():
        file.unlink()
    during = await on_sqlite.windows()
    await on_sqlite.recovers()
    assert_no_slower(before, during)


async def test_the_folder_of_sqlite_is_gone_for_a_while(on_sqlite: Serving, path: Path) -> None:
    before = await on_sqlite.windows()
    shutil.rmtree(path.parent)
    during = await on_sqlite.windows()
    await on_sqlite.fails()
    path.parent.mkdir()
    await on_sqlite.recovers()
    assert_no_slower(before, during)


async def test_sqlite_is_damaged_until_it_is_moved_away(on_sqlite: Serving, path: Path) -> None:
    before = await on_sqlite.windows()
    with closing(sqlite3.connect(path, timeout=5)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage(path)
    during = await on_sqlite.windows()
    await on_sqlite.fails()
    for file in path.parent.iterdir():
        file.rename(file.with_name(f"damaged-{file.name}"))
    await on_sqlite.recovers()
    assert_no_slower(before, during)


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xa5" * path.stat().st_size)


async def test_sqlite_is_full(tmp_path: Path, upstream_of_calls: FaultyUpstream, path: Path) -> None:
    program = (
        "import gateway.state.sqlite_connection as line; "
        f"line._PRAGMAS += ('max_page_count={PAGES}',); "
        "from gateway.cli.root import main; main()"
    )
    command = (sys.executable, "-c", program, "serve")
    url = f"sqlite:///{path}"
    async with serving(tmp_path / "gateway", upstream_of_calls, url, command=command) as work:
        before = await work.windows()
        with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as other:
            other.execute("INSERT INTO kept VALUES ('large', zeroblob(?), 1e18)", (PAGES * 4096,))
            during = await work.windows()
            await work.fails()
            assert any("full" in line["fault"] for line in work.program.events("store_failed"))
            other.execute("DELETE FROM kept WHERE key = 'large'")
            other.execute("PRAGMA incremental_vacuum").fetchall()
        await work.recovers()
        assert_no_slower(before, during)
        assert await work.lost() == 0


async def test_what_finds_no_room_is_counted(upstream_of_calls: FaultyUpstream, path: Path, tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as client:
        environ = {"STORE_URL": f"sqlite:///{path}", "UPSTREAM_URL": upstream_of_calls.url, "AUDIT_BODIES": "full"}
        small = "import gateway.background.recorder as recorder; recorder.MAX_QUEUE_CHARS = 1 << 20; "
        command = (sys.executable, "-c", f"{small} from gateway.cli.root import main; main()", "serve")
        async with Program(tmp_path, command=command, **environ) as program:
            await program.serving()
            work = Serving(program, client, environ["STORE_URL"])
            with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as other:
                other.execute("BEGIN IMMEDIATE")
                large = [{"role": "user", "content": "word " * 10_000}]
                for _ in range(3):
                    asked = [ask(client, program.url, chat(model="m", messages=large)) for _ in range(10)]
                    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
                lost = await work.lost()
                assert lost == 10, "the queue has a bound"
                other.execute("ROLLBACK")
            await work.recovers()
            assert await work.lost() == lost
            assert len(await work.kept()) == 31 - lost


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
async def test_sqlite_can_only_be_read(upstream_of_calls: FaultyUpstream, tmp_path: Path) -> None:
    folder = Path("/tmp") / f"toolgate-{os.getpid()}-{time.monotonic_ns()}"  # not below a folder that is for us alone
    folder.mkdir(mode=0o755)
    program = (
        "import concurrent.futures.thread, encodings.idna, os; import gateway.app; from gateway.cli.root import main; "
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); main()"
    )
    command = (sys.executable, "-c", program, "serve")
    try:
        path = folder / "store.db"
        store = open_store(f"sqlite:///{path}", prefix="", timeout_ms=2000)
        await store.open()
        await store.close()
        path.chmod(0o444)
        url = f"sqlite:///{path}"
        os.chown(folder, 65534, 65534)
        async with serving(folder, upstream_of_calls, url, ready=False, command=command) as work:
            await work.fails()
            assert any("only be read" in line["fault"] for line in work.program.events("store_failed"))
            os.chown(path, 65534, 65534)
            path.chmod(0o644)
            await work.recovers()
            assert await work.lost() == 0
    finally:
        shutil.rmtree(folder)


async def test_a_store_that_cannot_be_made_is_told_in_clear_words(
    upstream_of_calls: FaultyUpstream, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/missing/store.db"
    async with aiohttp.ClientSession() as client:
        async with Program(tmp_path, STORE_URL=url, UPSTREAM_URL=upstream_of_calls.url) as program:
            await program.serving()
            work = Serving(program, client, url)
            await work.fails(0.5)
            answer = await ask(client, program.url, chat(model="m", tools=TOOLS))
            assert (answer.status, answer.headers["X-Toolgate-Arm"]) == (200, "live")
            [line] = program.events("store_unavailable")
            assert line["level"] == "error"
            assert line["fault"] == "the store's file cannot be opened: No such file or directory"
            (tmp_path / "missing").mkdir()
            await work.recovers()
            with suppress(FileNotFoundError):
                assert (tmp_path / "missing" / "store.db").stat().st_mode & 0o777 == 0o600
