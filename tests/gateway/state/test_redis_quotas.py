"""What keys use, counted in a real Redis: the same answers as one process alone gives, for all who ask."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core.errors import RateLimited
from gateway.core.ports import StoreError
from gateway.core.rules import Quota
from gateway.state.opening import open_quotas
from gateway.state.redis_quotas import RedisQuotas
from tests.support.redis_server import RedisServer, needs_redis

pytestmark = needs_redis


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    server = await RedisServer(tmp_path).start()
    yield server
    await server.close()


@pytest.fixture
async def both(server: RedisServer) -> AsyncIterator[tuple[RedisQuotas, RedisQuotas]]:
    """Two hosts."""
    made = [open_quotas(server.url, prefix="toolgate:", timeout_ms=5000) for _ in range(2)]
    one, other = (quotas for quotas in made if quotas is not None)
    yield one, other
    await one.close()
    await other.close()


async def many(quotas: RedisQuotas, quota: Quota, times: int) -> int:
    """How many of so many requests at once are admitted."""
    found = await asyncio.gather(*(quotas.enter("k", quota) for _ in range(times)), return_exceptions=True)
    assert all(isinstance(each, dict | RateLimited) for each in found), found
    return sum(isinstance(each, dict) for each in found)


def test_only_a_redis_counts_for_all() -> None:
    for url in ("memory://", "sqlite:///somewhere.db"):
        assert open_quotas(url, prefix="x", timeout_ms=100) is None


async def test_two_hosts_admit_together_what_a_key_may(both: tuple[RedisQuotas, RedisQuotas]) -> None:
    quota = Quota(requests=100)
    assert sum(await asyncio.gather(*(many(each, quota, 500) for each in both))) == 100


async def test_how_the_key_stands_is_the_same_everywhere(both: tuple[RedisQuotas, RedisQuotas]) -> None:
    one, other = both
    quota = Quota(requests=5, tokens=50)
    await one.enter("k", quota)
    await one.spend("k", 20)
    standings = await other.enter("k", quota)
    assert (standings["requests"].used, standings["requests"].remaining) == (2, 3)
    assert (standings["tokens"].used, standings["tokens"].remaining) == (20, 30)
    assert 59 < standings["requests"].reset_s <= 60
    await other.spend("k", 30)
    with pytest.raises(RateLimited, match="50 tokens a minute") as raised:
        await one.enter("k", quota)
    assert raised.value.retry_after_s is not None
    assert 50 < raised.value.retry_after_s <= 60
    assert raised.value.headers["x-ratelimit-remaining-tokens"] == "0"
    assert raised.value.headers["x-ratelimit-remaining-requests"] == "3", "what is refused uses nothing"


async def test_a_minute_later_all_is_free_again(both: tuple[RedisQuotas, RedisQuotas], server: RedisServer) -> None:
    """The server's clock cannot be set: what it has noted is put a minute back."""
    one, _ = both
    quota = Quota(requests=3, tokens=10)
    for _ in range(3):
        await one.enter("k", quota)
    await one.spend("k", 500)
    script = """
    for _, part in ipairs({'requests', 'tokens'}) do
      local key = 'toolgate:quota:{k}:' .. part
      for i, entry in ipairs(redis.call('LRANGE', key, 0, -1)) do
        local at, rest = entry:match('^(%d+)(.*)')
        redis.call('LSET', key, i - 1, string.format('%.0f', tonumber(at) - 60000001) .. rest)
      end
    end
    return 1
    """
    assert await server.command("EVAL", script, "0") == b":1"
    standings = await one.enter("k", quota)
    assert (standings["requests"].used, standings["tokens"].used) == (1, 0)


async def test_places_for_streams_are_those_of_all(both: tuple[RedisQuotas, RedisQuotas]) -> None:
    one, other = both
    quota = Quota(streams=2)
    await one.lease("k", quota, "a")
    await other.lease("k", quota, "b")
    await other.lease("k", quota, "b")  # renewed
    with pytest.raises(RateLimited, match="2 streams at a time"):
        await one.lease("k", quota, "c")
    await one.release("k", "b")
    await one.lease("k", quota, "c")


async def test_a_server_that_is_away_says_so_in_time(server: RedisServer) -> None:
    quotas = open_quotas(server.url, prefix="toolgate:", timeout_ms=100)
    assert quotas is not None
    await quotas.enter("k", Quota(requests=5))
    server.freeze()
    with pytest.raises(StoreError):
        await quotas.enter("k", Quota(requests=5))
    server.thaw()
    await quotas.close()
