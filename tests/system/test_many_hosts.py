"""Three gateways on three hosts behind nginx, with one Redis: limits hold over all of them, and no request is lost."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from tests.deploy.proxy import HAS_NGINX, NGINX, configure, replace_once
from tests.support.hosts import HUB, Hosts, needs_hosts
from tests.support.redis_server import REDIS, needs_redis

pytestmark = [
    needs_hosts,
    needs_redis,
    pytest.mark.skipif(not HAS_NGINX, reason="needs nginx"),
    pytest.mark.timeout(180),
]

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
