"""What is particular to the store in Redis."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from gateway.core.errors import RateLimited
from gateway.core.ports import StoreError
from gateway.core.records import FeedbackRecord, RequestRecord
from gateway.core.rules import Quota
from gateway.state import redis as redis_module
from gateway.state.opening import open_quotas
from gateway.state.redis import RedisStore
from gateway.state.redis_quotas import RedisQuotas
from tests.support.stores import RedisServer, needs_redis, rating

pytestmark = needs_redis


@pytest.fixture
async def server(tmp_path: Path, no_leaks: None) -> AsyncIterator[RedisServer]:
    server = await RedisServer(tmp_path).start()
    yield server
    await server.close()


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(server.url, prefix="here:", timeout_s=2.0)
    yield store
    await store.close()


async def fill(store: RedisStore) -> None:
    await store.append([RequestRecord(id="r", at=1.0, key="", model="", upstream="", completion_id="c")])
    await store.tally({"n": 1}, ["m"])
    await store.put("k", b"v", ttl_s=60.0)
    await store.swap("s", None, b"v")


async def keys(server: RedisServer, store: RedisStore) -> dict[str, int]:
    """All keys, numbers and digests left out, and how long each lives in seconds; -1 for ever."""
    found = await store._client.keys("*")
    return {re.sub(r"[0-9a-f]{10,}", "_", cast("bytes", key).decode()): await store._client.ttl(key) for key in found}


async def test_every_key_begins_with_the_prefix_and_what_grows_has_an_end(server, store):
    await fill(store)
    lives = await keys(server, store)
    assert {key: bool(life > 0) for key, life in lives.items()} == {
        "here:log:requests": False,
        "here:at:requests": False,
        "here:answer:_": True,
        "here:batch:_": True,
        "here:value:k": True,
        "here:value:s": False,
        "here:blocks": False,
        "here:counts:_": True,
        "here:marks:_": True,
    }
    assert all(lives[f"here:{name}:_"] >= 48 * 3600 - 5 for name in ("counts", "marks"))


async def test_stores_with_other_prefixes_do_not_meet(server, store):
    other = RedisStore(server.url, prefix="there:", timeout_s=2.0)
    await fill(store)
    assert await other.get("k") == {}
    assert await other.find_answer("c") is None
    assert [record async for record in other.scan(RequestRecord)] == []
    await other.close()


async def test_records_are_capped_even_if_nobody_trims(store, monkeypatch):
    monkeypatch.setattr(redis_module, "MAX_RECORDS", 10)
    await store.append([rating(float(at)) for at in range(5, 15)])
    await store.append([rating(3.0), rating(20.0), rating(4.0)])
    found = [record.at async for record in store.scan(FeedbackRecord)]
    assert found == [*map(float, range(6, 15)), 20.0]
    assert await store._client.xlen("here:log:feedback") == 10


async def test_a_record_that_is_gone_from_the_stream_is_left_out(store):
    await fill(store)
    await store._client.delete("here:log:requests")
    assert [record async for record in store.scan(RequestRecord)] == []
    assert await store.find_answer("c") is None


async def test_records_of_other_versions_are_read_as_far_as_they_can_be(store):
    for at, body in ((1.0, b"{"), (2.0, b'{"at": 2, "completion_id": "c", "rating": "good", "new": [{}]}')):
        number = await store._client.xadd("here:log:feedback", {"r": body})
        await store._client.zadd("here:at:feedback", {number: at})
    assert [record async for record in store.scan(FeedbackRecord)] == [rating(2.0)]


async def test_many_callers_share_few_connections(server, store):
    await fill(store)
    assert await asyncio.gather(*(store.get("k") for _ in range(300))) == [{"k": b"v"}] * 300
    clients = await store._client.client_list()
    assert len(clients) <= 17


async def test_trimming_gives_the_memory_back(store):
    text = "x" * 2000
    for begin in range(0, 3000, 500):
        await store.append(
            [
                RequestRecord(id="r", at=float(at), key="", model="", upstream="", answer_text=text)
                for at in range(begin, begin + 500)
            ]
        )
    full = await store._size()
    assert full > 6_000_000
    assert await store.trim(before=2900.0, max_bytes=1 << 30) == 2900
    assert await store._size() < full / 10


# --- What keys use, counted in a real Redis: the same answers as one process alone gives, for all who ask


@pytest.fixture
async def counting_server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    server = await RedisServer(tmp_path).start()
    yield server
    await server.close()


@pytest.fixture
async def both(counting_server: RedisServer) -> AsyncIterator[tuple[RedisQuotas, RedisQuotas]]:
    """Two hosts."""
    made = [open_quotas(counting_server.url, prefix="toolgate:", timeout_ms=5000) for _ in range(2)]
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


async def test_a_minute_later_all_is_free_again(
    both: tuple[RedisQuotas, RedisQuotas], counting_server: RedisServer
) -> None:
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
    assert await counting_server.command("EVAL", script, "0") == b":1"
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


async def test_a_server_that_is_away_says_so_in_time(counting_server: RedisServer) -> None:
    quotas = open_quotas(counting_server.url, prefix="toolgate:", timeout_ms=100)
    assert quotas is not None
    await quotas.enter("k", Quota(requests=5))
    counting_server.freeze()
    with pytest.raises(StoreError):
        await quotas.enter("k", Quota(requests=5))
    counting_server.thaw()
    await quotas.close()
