"""Limits of keys, seen by clients: who is refused, what is told, and what goes on while Redis is away."""

import asyncio
from pathlib import Path

import pytest

from gateway.config.load import load
from tests.support.client import ask, chat, get
from tests.support.faulty_upstream import DONE, STREAM_HEAD, answer_json, completion, event, text
from tests.support.redis_server import RedisServer, needs_redis

USAGE = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def keys(tmp_path: Path):
    def written(*lines):
        path = tmp_path / "keys"
        path.write_text("\n".join(lines) + "\n")
        return {"GATEWAY_API_KEYS": f"@{path}"}

    return written


async def test_a_key_may_have_so_many_requests_a_minute(gateway, upstream, client, keys):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url, **keys("few requests/min=3", "free"))
    answers = [await ask(client, running.url, chat(), headers=bearer("few")) for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["2", "1", "0", "0", "0"]
    refused = answers[3]
    assert refused.json["error"]["code"] == "rate_limited"
    assert refused.json["error"]["type"] == "rate_limit_error"
    assert 50 <= int(refused.headers["Retry-After"]) <= 60
    assert len(upstream.requests) == 3
    free = await ask(client, running.url, chat(), headers=bearer("free"))
    assert free.status == 200
    assert not [name for name in free.headers if name.lower().startswith("x-ratelimit")]


async def test_tokens_are_those_that_the_server_counts(gateway, upstream, client, keys):
    upstream.script = answer_json({**completion("hello"), "usage": USAGE})
    running = await gateway(upstream.url, **keys("few tokens/min=80"))
    statuses = []
    for _ in range(3):
        statuses.append((await ask(client, running.url, chat(), headers=bearer("few"))).status)
    assert statuses == [200, 200, 429], "at 50 it is below 80, at 100 it is not"


async def test_streams_hold_their_places_until_they_end(gateway, upstream, client, keys):
    may_end, both = asyncio.Event(), asyncio.Event()

    async def slow(connection, received):
        if len(upstream.requests) == 2:
            both.set()
        await connection.send(STREAM_HEAD, text("hello"))
        await may_end.wait()
        await connection.send(event(finish="stop"), DONE)

    upstream.script = slow
    running = await gateway(upstream.url, **keys("two streams=2"))
    body = chat(stream=True)
    first = [asyncio.ensure_future(ask(client, running.url, body, headers=bearer("two"))) for _ in range(2)]
    await both.wait()
    third = await ask(client, running.url, body, headers=bearer("two"))
    assert (third.status, third.json["error"]["message"]) == (429, "this key may have 2 streams at a time")
    may_end.set()
    assert [answer.status for answer in await asyncio.gather(*first)] == [200, 200]
    assert (await ask(client, running.url, body, headers=bearer("two"))).status == 200


async def test_limits_stand_in_tables_too_and_follow_a_reload(gateway, upstream, client, tmp_path):
    upstream.script = answer_json(completion("hello"))
    toml = tmp_path / "toolgate.toml"
    toml.write_text('[keys.team]\nkey = "few"\nrequests_per_min = 1\n')
    running = await gateway(upstream.url, GATEWAY_CONFIG=str(toml))
    statuses = [(await ask(client, running.url, chat(), headers=bearer("few"))).status for _ in range(2)]
    assert statuses == [200, 429]
    toml.write_text('[keys.team]\nkey = "few"\nrequests_per_min = 3\n')
    running.reload(load({"UPSTREAM_URL": upstream.url, "GATEWAY_CONFIG": str(toml)}))
    assert (await ask(client, running.url, chat(), headers=bearer("few"))).status == 200


@pytest.fixture
async def redis(tmp_path):
    server = await RedisServer(tmp_path).start()
    yield server
    await server.close()


@needs_redis
async def test_two_gateways_hold_one_limit_and_each_its_own_while_redis_is_away(gateway, upstream, client, keys, redis):
    upstream.script = answer_json(completion("hello"))
    environ = {**keys("few requests/min=20"), "STORE_URL": redis.url, "STORE_TIMEOUT_MS": "1000"}
    one, other = await gateway(upstream.url, **environ), await gateway(upstream.url, **environ)

    async def admitted(running, times):
        answers = await asyncio.gather(*(ask(client, running.url, chat(), headers=bearer("few")) for _ in range(times)))
        statuses = [answer.status for answer in answers]
        assert set(statuses) <= {200, 429}, "no request fails"
        return statuses.count(200)

    mine, theirs = await asyncio.gather(admitted(one, 15), admitted(other, 15))
    assert mine + theirs == 20
    redis.freeze()
    assert mine + await admitted(one, 40) == 20, "what it had admitted counts while it is alone"
    metrics = (await get(client, f"{one.url}/metrics")).body.decode()
    assert "toolgate_limits_unshared_total" in metrics
    assert "toolgate_limits_unshared_total 0.0" not in metrics
    redis.thaw()
    answer = await ask(client, one.url, chat(), headers=bearer("few"))
    assert answer.status == 429
