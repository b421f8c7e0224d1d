"""Several gateways and one Redis: three hosts behind nginx with limits that hold over all of them and no request lost,
and two gateways before a server that keeps the conversation itself.
"""

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from attrs import define, field

from gateway.wire.chat_reshape import stream_to_body
from tests.deploy.proxy import HAS_NGINX, NGINX, configure, replace_once
from tests.support.client import TOOLS
from tests.support.kinds import HEADER, ManyServers, Turn, listening
from tests.support.processes import Program
from tests.support.qwen_web_server import QwenWebServer
from tests.support.stores import REDIS, RedisServer, needs_redis

__all__ = ["HUB", "Hosts", "needs_hosts"]


_NET = "10.77.0"

HUB = f"{_NET}.254"

"""The address of the host that all others reach."""


def _can_make_hosts() -> bool:
    """Namespaces want the rights of root, and the program that makes them."""
    return os.geteuid() == 0 and shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


needs_hosts = pytest.mark.skipif(not _can_make_hosts(), reason="needs root and iproute2")


class Hosts:
    """A hub and some hosts around it; nothing in them reaches anything outside."""

    def __init__(self, count: int) -> None:
        self._tag = f"tg{os.getpid()}"
        self.addresses = [f"{_NET}.{number}" for number in range(1, count + 1)]
        self._programs: list[asyncio.subprocess.Process] = []

    def __enter__(self) -> "Hosts":
        hub = self._name("hub")
        self._ip("netns", "add", hub)
        self._in(hub, "link", "set", "lo", "up")
        self._in(hub, "link", "add", "br0", "type", "bridge")
        self._in(hub, "addr", "add", f"{HUB}/24", "dev", "br0")
        self._in(hub, "link", "set", "br0", "up")
        for number, address in enumerate(self.addresses):
            host = self._name(address)
            self._ip("netns", "add", host)
            self._in(host, "link", "set", "lo", "up")
            self._in(hub, "link", "add", f"to{number}", "type", "veth", "peer", "name", "eth0", "netns", host)
            self._in(hub, "link", "set", f"to{number}", "master", "br0", "up")
            self._in(host, "addr", "add", f"{address}/24", "dev", "eth0")
            self._in(host, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for address in ("hub", *self.addresses):
            subprocess.run(["ip", "netns", "del", self._name(address)], check=False, capture_output=True)

    async def start(self, address: str, *command: str, log: Path, **environ: str) -> asyncio.subprocess.Process:
        """Start a program on a host (`hub`, or one of the addresses); it is ended with the hosts."""
        with log.open("ab") as out:
            program = await asyncio.create_subprocess_exec(
                *self.on(address, *command),
                env={"PATH": os.environ["PATH"], **environ},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self._programs.append(program)
        return program

    async def run(self, address: str, *command: str) -> str:
        """What a program prints that ends by itself."""
        program = await asyncio.create_subprocess_exec(
            *self.on(address, *command), stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
        self._programs.append(program)
        out, _ = await asyncio.wait_for(program.communicate(), 90)
        assert program.returncode == 0, out.decode()
        return out.decode()

    async def python(self, address: str, module: str, *arguments: str) -> str:
        """What a module of the tests prints, run on a host."""
        return await self.run(address, sys.executable, "-m", module, *arguments)

    async def end(self) -> None:
        """End every program that is still there."""
        for program in self._programs:
            if program.returncode is None:
                program.kill()
            await program.wait()

    def on(self, address: str, *command: str) -> Sequence[str]:
        """The command that runs another one on a host."""
        return ("ip", "netns", "exec", self._name(address), *command)

    def _name(self, address: str) -> str:
        return f"{self._tag}-{address.rpartition('.')[2]}"

    def _in(self, host: str, *words: str) -> None:
        self._ip("-n", host, *words)

    def _ip(self, *words: Any) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


# --- Three gateways on three hosts behind nginx, with one Redis: limits hold over all of them, and no request is
# lost.


LIMIT = 300

WINDOW_S = 60.0

KEYS = f"few requests/min={LIMIT}\nmany requests/min=100000\n"

MODELS, GATEWAY, REDIS_PORT, WEB = 9000, 8080, 6379, 8443


@define
class Site:
    """All of it, and how it is asked."""

    hosts: Hosts
    folder: Path
    redis: asyncio.subprocess.Process | None = None

    async def start_redis(self) -> None:
        assert REDIS is not None
        command = (REDIS, "--bind", HUB, "--port", str(REDIS_PORT), "--save", "", "--protected-mode", "no")
        self.redis = await self.hosts.start("hub", *command, log=self.folder / "redis.log")
        await self.until("hub", f"{HUB}:{REDIS_PORT}")

    async def start_gateway(self, address: str) -> None:
        keys = self.folder / "keys"
        keys.write_text(KEYS)
        await self.hosts.start(
            address,
            *(sys.executable, "-m", "gateway", "serve", "--host", address, "--port", str(GATEWAY)),
            *("--upstream", f"http://{HUB}:{MODELS}/v1", "--keys-file", str(keys), "--mode", "canary"),
            log=self.folder / f"{address}.log",
            STORE_URL=f"redis://{HUB}:{REDIS_PORT}/0",
            STORE_TIMEOUT_MS="2000",  # who waits for a processor would else decide alone
            CANARY_PERCENT="50",
            METRICS_PORT="0",
        )
        await self.until("hub", f"{address}:{GATEWAY}")

    async def until(self, where: str, address: str) -> None:
        """Something listens there."""
        host, _, port = address.partition(":")
        look = f"import socket; socket.create_connection(({host!r}, {port}), 1).close()"
        for _ in range(100):
            program = await asyncio.create_subprocess_exec(
                *self.hosts.on(where, sys.executable, "-c", look), stderr=asyncio.subprocess.DEVNULL
            )
            if await program.wait() == 0:
                return
            await asyncio.sleep(0.1)
        raise TimeoutError(address)

    async def load(self, key: str, times: int, *, url: str = f"https://127.0.0.1:{WEB}", at_once: int = 20) -> Any:
        out = await self.hosts.python("hub", "tests.support.key_load", "load", url, key, str(times), str(at_once))
        return json.loads(out)

    async def unshared(self, address: str) -> float:
        """How many decisions a gateway has taken alone."""
        look = f"import urllib.request as u; print(u.urlopen('http://{address}:{GATEWAY}/metrics').read().decode())"
        shown = await self.hosts.run("hub", sys.executable, "-c", look)
        [line] = [line for line in shown.splitlines() if line.startswith("toolgate_limits_unshared_total ")]
        return float(line.rpartition(" ")[2])


def open_all_the_way(configuration: Path) -> None:
    """nginx's own bounds are for addresses; here all requests come from one, and keys are looked at."""
    text = configuration.read_text()
    for old, new in {"rate=10r/s": "rate=10000r/s", "burst=40": "burst=10000"}.items():
        text = replace_once(text, old, new)
    configuration.write_text(text)


def most_within_a_window(admitted: list[tuple[float, float]]) -> int:
    """How many at most were let through within a minute, for sure: however slowly the machine asks for them."""
    return max(sum(began <= each and end <= began + WINDOW_S for each, end in admitted) for began, _ in admitted)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    with Hosts(3) as hosts:
        made = Site(hosts, tmp_path)
        try:
            await hosts.start(
                *("hub", sys.executable, "-m", "tests.support.key_load", "serve", HUB, str(MODELS)),
                log=tmp_path / "models.log",
            )
            await made.start_redis()
            for address in hosts.addresses[:2]:
                await made.start_gateway(address)
            gateways = [f"http://{address}:{GATEWAY}" for address in hosts.addresses]
            configuration = configure(tmp_path, gateways, ports=[8880, WEB, 8881])
            open_all_the_way(configuration)
            assert NGINX is not None
            command = (NGINX, "-e", str(tmp_path / "nginx.log"), "-g", "daemon off;", "-c", str(configuration))
            await hosts.start("hub", *command, log=tmp_path / "nginx.log")
            await made.until("hub", f"127.0.0.1:{WEB}")
            yield made
        finally:
            await hosts.end()


@needs_hosts
@needs_redis
@pytest.mark.skipif(not HAS_NGINX, reason="needs nginx")
@pytest.mark.timeout(180)
async def test_many_hosts_are_one_gateway(site: Site) -> None:
    one, other, third = site.hosts.addresses
    # One limit over all of them, asked for ten times as much within a minute; the third host has not joined yet.
    found = await site.load("few", 10 * LIMIT)
    assert set(found["statuses"]) == {"200", "429"}, found["statuses"]
    admitted = found["admitted"]
    assert len(admitted) >= 0.98 * LIMIT
    assert most_within_a_window(admitted) <= 1.02 * LIMIT

    # Who joins serves the same arms at once, and holds the same limit.
    await site.start_gateway(third)
    arms = [(await site.load("many", 80, url=f"http://{each}:{GATEWAY}"))["arms"] for each in (one, other, third)]
    assert arms[0] == arms[1] == arms[2]
    assert set(arms[0].values()) == {"live", "dry_run"} or set(arms[0].values()) == {"live", "control"}
    admitted += (await site.load("few", 20, url=f"http://{third}:{GATEWAY}"))["admitted"]
    assert most_within_a_window(admitted) <= 1.02 * LIMIT

    # Redis is frozen, then killed: no request is lost, and the counter says who decided.
    assert await site.unshared(one) == 0
    assert site.redis is not None
    site.redis.send_signal(signal.SIGSTOP)
    assert (await site.load("many", 300))["statuses"] == {"200": 300}
    site.redis.kill()
    await site.redis.wait()
    assert (await site.load("many", 300))["statuses"] == {"200": 300}
    alone = await site.unshared(one)
    assert alone > 0

    # It comes back: the limits are shared again without help.
    await site.start_redis()
    async with asyncio.timeout(30):
        while True:
            before = await site.unshared(one)
            found = (await site.load("many", 20, url=f"http://{one}:{GATEWAY}"))["statuses"]
            assert found == {"200": 20}
            if await site.unshared(one) == before:
                break


# --- A server that keeps the conversation itself, behind two gateways that share a store: nothing is said to it
# twice.


TURNS = 30

CONVERSATIONS = 6

TABLES = """
[upstreams.web]
kind = "qwen_web"
url = "{url}"
api_key = "web-token"
"""


def script(conversation: int) -> list[Turn]:
    """Every third answer is a call."""
    return [
        Turn(text=f"Answer {number} of {conversation}.")
        if number % 3
        else Turn(text=f"I look.\n\n<read_file>\n<path>src/{conversation}/{number}.py</path>\n</read_file>")
        for number in range(TURNS)
    ]


@define
class Talk:
    """One conversation, as its client keeps it."""

    number: int
    server: QwenWebServer
    history: list[dict[str, Any]] = field(factory=list)
    said: int = 0

    @classmethod
    def begun(cls, number: int) -> "Talk":
        system = {"role": "system", "content": f"You are number {number}."}
        return cls(number, QwenWebServer(script(number)), [system])

    async def turn(self, session: aiohttp.ClientSession, url: str, *, stream: bool) -> None:
        """One more question, or the results of the last answer's calls."""
        calls = self.history[-1].get("tool_calls") or []
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            assert arguments["path"].startswith(f"src/{self.number}/")
            content = f"Result {self.said} of {self.number}"
            self.history.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        if not calls:
            self.history.append({"role": "user", "content": f"Question {self.said} of {self.number}?"})
        self.said += 1
        body = {"model": "qwen3-max", "messages": self.history, "tools": TOOLS, "stream": stream}
        headers = {HEADER: str(self.number)}
        async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
            data = await response.read()
            assert response.status == 200, data
        answer = json.loads(stream_to_body(data) if stream else data)
        self.history.append(answer["choices"][0]["message"])

    def assert_each_message_was_sent_once(self) -> None:
        [(chat, messages)] = self.server.chats.items()
        assert len(messages) == TURNS
        line = self.server.line(chat, list(messages)[-1])
        told = [text for role, text in line if role != "assistant"]
        wanted = [str(message["content"]) for message in self.history if message["role"] != "assistant"]
        assert len(told) == len(wanted)
        assert all(one in other for one, other in zip(wanted, told, strict=True))
        assert [text for role, text in line if role == "assistant"] == [turn.text for turn in script(self.number)]


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shared.db"
        return
    server = await RedisServer(tmp_path).start()
    yield server.url
    await server.close()


@pytest.mark.timeout(120)
async def test_long_conversations_over_two_gateways_and_a_restart(
    store: str, tmp_path: Path, client: aiohttp.ClientSession, no_leaks: None
) -> None:
    talks = [Talk.begun(number) for number in range(CONVERSATIONS)]
    folders = [tmp_path / name for name in ("first", "second", "third")]
    for folder in folders:
        folder.mkdir()
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(
            listening(ManyServers({str(talk.number): talk.server for talk in talks}))
        )
        (tmp_path / "toolgate.toml").write_text(TABLES.format(url=address))

        async def started(folder: Path) -> Program:
            settings = {"GATEWAY_CONFIG": str(tmp_path / "toolgate.toml"), "STORE_URL": store}
            # A machine that is busy with other tests must not look like a store that is away.
            program = Program(folder, **settings, STORE_TIMEOUT_MS="10000")
            await stack.enter_async_context(program)
            return await program.serving()

        async def go_on(talk: Talk, programs: list[Program], until: int) -> None:
            """To one gateway and the other in turn, at once when the last answer is there."""
            urls = itertools.cycle([program.url for program in programs])
            while talk.said < until:
                await talk.turn(client, next(urls), stream=talk.said % 5 != 0)

        programs = list(await asyncio.gather(*map(started, folders[:2])))
        await asyncio.gather(*(go_on(talk, programs, TURNS // 2) for talk in talks))
        programs[0].signal(signal.SIGTERM)
        assert await programs[0].exit_code() == 0
        programs[0] = await started(folders[2])
        await asyncio.gather(*(go_on(talk, programs, TURNS) for talk in talks))
    for talk in talks:
        talk.assert_each_message_was_sent_once()
