"""Several workers as real processes, under load: the rows O1 to O5 of deploy/FAULTS.md."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.client import answer_to, ask, chat, get, post_bytes, status_of
from tests.support.cost import Pulse
from tests.support.faulty_upstream import FaultyUpstream, answer_json, completion
from tests.support.processes import Load, Program, SlowAnswers, free_port, is_alive, takes_connections, until


@pytest.fixture
async def answers(upstream: FaultyUpstream) -> SlowAnswers:
    slow = SlowAnswers()
    upstream.script = slow.script
    return slow


@pytest.fixture
async def program(upstream: FaultyUpstream, answers: SlowAnswers, tmp_path: Path) -> AsyncIterator[Program]:
    """Two workers that answer."""
    async with Program(tmp_path, UPSTREAM_URL=upstream.url, GATEWAY_WORKERS="2", LOG_LEVEL="info") as started:
        yield await started.serving()


async def test_every_worker_takes_connections_and_has_metrics_of_its_own(
    program: Program, client: aiohttp.ClientSession
) -> None:
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as fresh:
        for _ in range(40):
            assert (await ask(fresh, program.url, chat(stream=False))).status == 200
    assert sorted(program.targets) == ["0", "1"]
    seen = set(program.workers.values())
    asked = []
    for target in program.targets.values():
        exposition = (await get(client, f"http://{target}/metrics")).body.decode()
        lines = [line for line in exposition.splitlines() if line.startswith("toolgate_requests_total{")]
        asked.append(sum(float(line.rpartition(" ")[2]) for line in lines))
    assert sum(asked) == 40
    assert min(asked) >= 4, "the kernel deals connections out evenly"
    assert (await get(client, f"{program.url}/metrics")).status == 404
    await program.restarted(1)
    supervisor = program.pid
    for worker in program.workers.values():
        assert os.getpgid(worker) == worker, "Ctrl-C is the supervisor's to pass on"
        assert parent_of(worker) == supervisor
        own, whole = memory_of(worker)
        assert own < whole / 2, "what all have loaded is there once"
    others = {pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if parent_of(pid) == supervisor}
    assert others - set(program.workers.values()) <= seen, "whoever has forked them is gone"
    assert {event["slot"] for event in program.events("request_ended")} == {0, 1}
    assert all(json.loads(line)["event"] for line in program.lines), "each line is one event, whoever wrote it"


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def memory_of(pid: int) -> tuple[int, int]:
    """What a process has written to and no other one sees, and all that it has, in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return sizes["Private_Dirty"], sizes["Rss"]


async def test_o2_rolling_restarts_under_load_cost_no_request_and_no_stream(
    program: Program, answers: SlowAnswers
) -> None:
    seen = set(program.workers.values())
    async with Load(url=program.url, answers=answers, streams=200, short=8) as load:
        for count in range(1, 5):
            await program.restarted(count)
            assert not seen & set(program.workers.values()), "all of them are new"
            seen |= set(program.workers.values())
        await load.stop()
    assert load.faults == []
    assert load.whole >= 200
    assert load.answered >= 50


async def test_a_connection_kept_to_a_worker_that_was_replaced_is_good_for_one_more_request(
    program: Program, connect: Callable[..., Any]
) -> None:
    """Its owner cannot know, and a POST that meets the close is lost."""
    # The kernel deals them out by chance: of 8 all go to one worker once in 128 runs.
    kept = [await connect(program.url) for _ in range(40)]
    request = post_bytes(chat(stream=False))
    for reader, writer in kept:
        writer.write(request)
        assert (await answer_head(reader)).startswith(b"HTTP/1.1 200")
    old = list(program.workers.values())
    await program.restarted(1)
    assert all(map(is_alive, old)), "they wait for the connections that are left"
    for reader, writer in kept:
        writer.write(request)
        head = await answer_head(reader)
        assert head.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in head.lower()
    await until(lambda: not any(map(is_alive, old)), 5.0)


async def test_sigterm_does_not_wait_for_idle_connections(program: Program, connect: Callable[..., Any]) -> None:
    for reader, writer in [await connect(program.url) for _ in range(4)]:
        writer.write(post_bytes(chat(stream=False)))
        await answer_head(reader)
    await program.restarted(1)
    program.signal(signal.SIGTERM)
    assert await program.exit_code(10.0) == 0


async def answer_head(reader: asyncio.StreamReader) -> bytes:
    """Read one whole answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    await reader.readexactly(length)
    return head


async def test_o3_a_killed_worker_takes_only_its_own_streams_with_it(
    program: Program, upstream: FaultyUpstream, answers: SlowAnswers
) -> None:
    answers.events, answers.pause_s = 20, 0.2
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:
        streams = [asyncio.ensure_future(ask(client, program.url)) for _ in range(40)]
        await until(lambda: len(upstream.requests) == 40)
        victim = program.workers[0]
        async with Load(url=program.url, answers=answers, short=4) as load:
            os.kill(victim, signal.SIGKILL)
            ready = await program.logged("worker_ready", count=3)
            ends = await asyncio.gather(*streams, return_exceptions=True)
    took_s = seconds_between(program.events("worker_ended")[0], ready)
    # On a busy machine the first start says how long one takes; it begins when the supervisor writes its file.
    begun = datetime.fromtimestamp(program.pid_file.stat().st_mtime, UTC)
    loaded = datetime.fromisoformat(program.events("worker_ready")[0]["timestamp"])
    assert took_s < max(2.0, 4 * (loaded - begun).total_seconds())
    whole = [end for end in ends if not isinstance(end, BaseException) and end.content == answers.content]
    others = [end for end in ends if isinstance(end, aiohttp.ClientError)]
    assert len(whole) + len(others) == 40
    assert 4 <= len(others) <= 36, "only those of the worker that was killed"
    # What was being answered by the victim is lost, and nothing else.
    assert len(load.faults) <= 4
    assert load.answered > 40
    assert len(program.events("request_ended")) >= len(whole)


def seconds_between(first: dict[str, Any], second: dict[str, Any]) -> float:
    begun, ended = (datetime.fromisoformat(event["timestamp"]) for event in (first, second))
    return (ended - begun).total_seconds()


async def test_o4_a_worker_that_crashes_again_and_again_is_started_ever_more_slowly(program: Program) -> None:
    """The other worker serves both lanes meanwhile."""
    for count in (3, 4):
        os.kill(program.workers[0], signal.SIGKILL)
        await program.logged("worker_ready", count=count)
    os.kill(program.workers[0], signal.SIGKILL)
    await program.logged("worker_replaced", count=3)
    assert [event["wait_s"] for event in program.events("worker_replaced")] == [0.0, 1.0, 2.0]
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as fresh:
        answered = 0
        while len(program.events("worker_ready")) == 4:
            assert (await ask(fresh, program.url, chat(stream=False))).status == 200
            answered += 1
    assert answered >= 10


async def test_o5_workers_do_not_outlive_their_supervisor(
    program: Program, upstream: FaultyUpstream, answers: SlowAnswers
) -> None:
    answers.events = 200
    workers = list(program.workers.values())
    async with aiohttp.ClientSession() as client:
        streams = [asyncio.ensure_future(ask(client, program.url)) for _ in range(8)]
        await until(lambda: len(upstream.requests) == 8)
        program.signal(signal.SIGKILL)
        await program.exit_code()
        async with Pulse() as pulse:
            await until(lambda: not takes_connections(program.url), 2.0)
            await until(lambda: not any(map(is_alive, workers)), 6.0)
        assert pulse.seconds < 5.0
        assert {end.error for end in await asyncio.gather(*streams)} == {"draining"}


async def test_o5_a_worker_that_hangs_does_not_outlive_its_supervisor_either(program: Program) -> None:
    # Stopped, so that nothing runs; continued, its loop would still be first to see what happened.
    workers = list(program.workers.values())
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    program.signal(signal.SIGKILL)
    await program.exit_code()
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    await until(lambda: not any(map(is_alive, workers)), 6.0)


async def test_o1_two_hundred_streams_end_whole_after_sigterm(
    program: Program, upstream: FaultyUpstream, answers: SlowAnswers
) -> None:
    answers.events, answers.pause_s = 12, 0.25
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        streams = [asyncio.ensure_future(ask(client, program.url)) for _ in range(200)]
        await until(lambda: len(upstream.requests) == 200)
        program.signal(signal.SIGTERM)
        await until(lambda: not takes_connections(program.url), 2.0)
        ends = await asyncio.gather(*streams)
    assert await program.exit_code() == 0
    assert [end for end in ends if end.content != answers.content or not end.is_done] == []
    assert not program.pid_file.exists()


async def test_a_second_interrupt_ends_all_at_once(
    program: Program, upstream: FaultyUpstream, answers: SlowAnswers
) -> None:
    answers.events = 200
    async with aiohttp.ClientSession() as client:
        streams = [asyncio.ensure_future(ask(client, program.url)) for _ in range(4)]
        await until(lambda: len(upstream.requests) == 4)
        program.signal(signal.SIGINT)
        await program.logged("gateway_draining", count=2)
        program.signal(signal.SIGINT)
        assert await program.exit_code(15.0) == 0
        await asyncio.gather(*streams, return_exceptions=True)


async def test_o9_a_reload_reaches_every_worker_and_a_bad_one_none(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = answer_json(completion())
    settings = tmp_path / "env"
    settings.write_text("GATEWAY_API_KEYS=sk-one\n")
    environ = {"UPSTREAM_URL": upstream.url, "GATEWAY_WORKERS": "2", "GATEWAY_ENV_FILE": str(settings)}
    async with Program(tmp_path, **environ) as program:
        await program.serving()

        async def statuses(key: str) -> set[int]:
            headers = {"Authorization": f"Bearer {key}"}
            connector = aiohttp.TCPConnector(force_close=True)
            async with aiohttp.ClientSession(connector=connector, headers=headers) as fresh:
                return {(await ask(fresh, program.url, chat(stream=False))).status for _ in range(20)}

        assert await statuses("sk-one") == {200}
        settings.write_text("GATEWAY_API_KEYS=sk-two\n")
        program.signal(signal.SIGHUP)
        await until(lambda: program.status["reloads"] == 1)
        assert (await statuses("sk-one"), await statuses("sk-two")) == ({401}, {200})
        settings.write_text("GATEWAY_API_KEYS=sk-three\nGATEWAY_MAX_CONCURRENCY=many\n")
        program.signal(signal.SIGHUP)
        await until(lambda: program.status["reloads"] == 2)
        assert "GATEWAY_MAX_CONCURRENCY" in program.status["faults"][0]
        assert (await statuses("sk-two"), await statuses("sk-three")) == ({200}, {401})
        # A worker that comes later gets what is in force, not what stands in the file.
        os.kill(program.workers[0], signal.SIGKILL)
        await program.logged("worker_ready", count=3)
        assert await statuses("sk-two") == {200}
        before = dict(program.workers)
        program.signal(signal.SIGUSR2)
        await until(lambda: program.status["restarts"] == 1)
        assert "GATEWAY_MAX_CONCURRENCY" in program.status["faults"][0]
        assert program.workers == before, "nothing happens when the settings have a fault"
        settings.write_text("GATEWAY_API_KEYS=sk-three\n")
        await program.restarted(2)
        assert (await statuses("sk-two"), await statuses("sk-three")) == ({401}, {200})


async def test_a_taken_port_is_found_before_a_worker_is_started(program: Program, tmp_path: Path) -> None:
    port = program.url.rpartition(":")[2]
    other = tmp_path / "other"
    other.mkdir()
    async with Program(other, GATEWAY_WORKERS="2", GATEWAY_PORT=port) as second:
        assert await second.exit_code() == 1
        assert f"port {port} on 127.0.0.1 is in use" in "\n".join(second.lines)
        assert second.events("worker_started") == []


async def test_o4_settings_that_no_worker_can_use_end_the_start(upstream: FaultyUpstream, tmp_path: Path) -> None:
    environ = {"UPSTREAM_URL": upstream.url, "GATEWAY_WORKERS": "2", "STRATEGY_RULES": "*=nope"}
    async with Program(tmp_path, **environ) as program:
        assert await program.exit_code() == 78
        assert "fault: STRATEGY_RULES" in "\n".join(program.lines)
        assert not program.pid_file.exists()


async def test_the_places_are_those_of_all_workers_together(
    upstream: FaultyUpstream, answers: SlowAnswers, tmp_path: Path
) -> None:
    answers.events = 5
    environ = {"UPSTREAM_URL": upstream.url, "GATEWAY_WORKERS": "2", "GATEWAY_MAX_CONCURRENCY": "10"}
    async with Program(tmp_path, **environ) as program, aiohttp.ClientSession() as client:
        await program.serving()
        ends = await asyncio.gather(*(ask(client, program.url) for _ in range(60)))
    statuses = [end.status for end in ends]
    assert set(statuses) == {200, 503}
    assert statuses.count(200) <= 10


async def test_the_slot_of_a_worker_that_still_drains_is_not_used_again(
    program: Program, upstream: FaultyUpstream, answers: SlowAnswers
) -> None:
    answers.may_end.clear()
    async with aiohttp.ClientSession() as client:
        streams = [asyncio.ensure_future(ask(client, program.url)) for _ in range(20)]
        await until(lambda: len(upstream.requests) == 20)
        await program.restarted(1)
        assert sorted(event["slot"] for event in program.events("worker_ready")) == [0, 1, 2, 3]
        targets = sorted(program.targets)
        answers.may_end.set()
        for end in await asyncio.gather(*streams):
            assert end.is_done
    assert targets == ["0", "1", "2", "3"], "those that drain have numbers too"
    await program.logged("worker_ended", count=2)
    await until(lambda: sorted(program.targets) == ["2", "3"])
    await program.restarted(2)
    assert sorted(event["slot"] for event in program.events("worker_ready"))[:2] == [0, 0]


class Clogged(Program):
    """Its log goes to a pipe that is full, and that nobody reads."""

    async def __aenter__(self) -> "Clogged":
        self._reading, writing = os.pipe()
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"." * 4096)
        os.set_blocking(writing, True)
        try:
            await self.start(writing)
        finally:
            os.close(writing)
        return self

    async def __aexit__(self, *reason: object) -> None:
        await super().__aexit__(*reason)
        os.close(self._reading)


async def test_o15_a_log_that_nobody_reads_holds_up_no_request(
    upstream: FaultyUpstream, answers: SlowAnswers, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    port = free_port()
    environ = {"UPSTREAM_URL": upstream.url, "GATEWAY_WORKERS": "2", "GATEWAY_PORT": str(port)}
    async with Clogged(tmp_path, **environ) as program:
        url = f"http://127.0.0.1:{port}"
        await until(lambda: takes_connections(url))
        for _ in range(20):
            assert (await ask(client, url, chat(stream=False))).status == 200
        program.signal(signal.SIGUSR2)
        await until(lambda: program.status["restarts"] == 1)
        assert (await ask(client, url, chat(stream=False))).status == 200
        program.signal(signal.SIGTERM)
        assert await program.exit_code() == 0


async def test_a_lone_process_tells_systemd_and_its_files_itself(
    upstream: FaultyUpstream, answers: SlowAnswers, tmp_path: Path
) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)
        listening.setblocking(False)
        heard: list[str] = []

        def is_heard(*wanted: str) -> bool:
            with contextlib.suppress(BlockingIOError):
                while True:
                    heard.append(listening.recv(4096).decode())
            return all(any(word in message for message in heard) for word in wanted)

        async with Program(
            tmp_path, UPSTREAM_URL=upstream.url, NOTIFY_SOCKET=address, WATCHDOG_USEC="90000"
        ) as program:
            await program.serving()
            await until(lambda: is_heard(f"READY=1\nSTATUS=listens on {program.url}", "WATCHDOG=1"))
            assert list(program.targets) == ["0"]
            heard.clear()
            program.signal(signal.SIGHUP)
            await until(lambda: is_heard("RELOADING=1\n", "READY=1"))
            program.signal(signal.SIGTERM)
            await until(lambda: is_heard("STOPPING=1"))
            assert await program.exit_code() == 0


# --- Who is let in where several workers share the port, and each has a port for its metrics


EVIL = "https://evil.example"

CHAT = "https://chat.example"


@pytest.fixture
async def workers(upstream: FaultyUpstream, tmp_path: Path) -> AsyncIterator[Program]:
    """Two workers without keys."""
    environ = {"UPSTREAM_URL": upstream.url, "GATEWAY_WORKERS": "2", "GATEWAY_ALLOWED_ORIGINS": CHAT}
    async with Program(tmp_path, **environ) as program:
        yield await program.serving()


async def test_every_worker_keeps_the_door_on_both_of_its_ports(workers: Program, upstream: FaultyUpstream) -> None:
    asked = [answer_to(workers.url, "/v1/files", "Host: evil.example") for _ in range(12)]
    asked += [answer_to(workers.url, "/metrics", "Host: evil.example") for _ in range(4)]
    asked += [answer_to(f"http://{target}", "/metrics", "Host: evil.example") for target in workers.targets.values()]
    assert {status_of(answer) for answer in await asyncio.gather(*asked)} == {421}
    asked = [answer_to(workers.url, "/v1/files", "Host: localhost", f"Origin: {EVIL}") for _ in range(12)]
    asked += [
        answer_to(f"http://{target}", "/metrics", "Host: localhost", f"Origin: {EVIL}")
        for target in workers.targets.values()
    ]
    assert {status_of(answer) for answer in await asyncio.gather(*asked)} == {403}
    assert upstream.requests == []
    upstream.script = answer_json({})
    asked = [answer_to(workers.url, "/v1/files", "Host: localhost", f"Origin: {CHAT}") for _ in range(4)]
    asked += [answer_to(f"http://{target}", "/metrics", "Host: localhost") for target in workers.targets.values()]
    assert {status_of(answer) for answer in await asyncio.gather(*asked)} == {200}
