import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from aioresponses import aioresponses
from attrs import evolve
from multidict import CIMultiDict
from yarl import URL

from gateway.config.load import load
from gateway.core.errors import (
    UpstreamBadReply,
    UpstreamDisconnected,
    UpstreamRefused,
    UpstreamRejected,
    UpstreamTimeout,
)
from gateway.request.deadline import Deadline
from gateway.request.headers import headers_of
from gateway.request.servers import upstreams_of
from gateway.upstream import heads
from gateway.upstream.attempts import upstream_headers
from gateway.upstream.client import UpstreamCall, UpstreamClient, rejection
from gateway.upstream.heads import chat_head

KEY = ConnectionKey("model.test", 443, True, True, None, None, None)
URL_UNDER_TEST = URL("https://model.test/v1/chat/completions")


def call(**fields) -> UpstreamCall:
    fields = {"max_reply_bytes": 1000, "body": b"{}", **fields}
    return UpstreamCall(
        method="POST",
        url=URL_UNDER_TEST,
        lines=b"",
        connect_timeout_s=1,
        first_byte_timeout_s=1,
        **fields,
    )


@pytest.fixture
async def upstream_client():
    made = UpstreamClient.create()
    yield made
    await made.close()


@pytest.fixture
async def deadline():
    made = Deadline()
    yield made
    made.close()


@pytest.fixture
def mocked():
    with aioresponses() as mocks:
        yield mocks


async def test_a_canned_answer_is_read_to_its_end(upstream_client, deadline, mocked, response_class):
    mocked.post(
        URL_UNDER_TEST, body=b'{"a":1}', content_type="Application/JSON; charset=utf-8", response_class=response_class
    )
    with await upstream_client.send(call(), deadline) as reply:
        assert reply.status == 200
        assert reply.content_type == "application/json"
        due = deadline.now() + 1
        assert await reply.read_all(first_due=due, idle_s=1, total_due=due) == b'{"a":1}'
        assert reply.bytes_read == 7


async def test_an_answer_over_the_cap_is_given_up(upstream_client, deadline, mocked, response_class):
    mocked.post(URL_UNDER_TEST, body=b"x" * 1001, response_class=response_class)
    with await upstream_client.send(call(), deadline) as reply, pytest.raises(UpstreamBadReply):
        await reply.read(deadline.now() + 1)


@pytest.mark.parametrize(
    ("raised", "translated"),
    [
        (aiohttp.ServerDisconnectedError(), UpstreamDisconnected),
        (aiohttp.ClientOSError(104, "reset"), UpstreamDisconnected),
        (aiohttp.ConnectionTimeoutError(), UpstreamTimeout),
        (TimeoutError(), UpstreamTimeout),
        (aiohttp.InvalidURL("x"), UpstreamBadReply),
        (aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown name")), UpstreamRefused),
    ],
)
async def test_every_fault_of_the_library_is_one_of_ours(upstream_client, deadline, mocked, raised, translated):
    mocked.post(URL_UNDER_TEST, exception=raised)
    with pytest.raises(translated):
        await upstream_client.send(call(), deadline)


def without_our_key(body):
    return body.replace(b"sk-ours", b"********")


async def refused(client, deadline, mocked, response_class, *, key_is_ours=False, **reply):
    mocked.post(URL_UNDER_TEST, response_class=response_class, **reply)
    with await client.send(call(), deadline) as got:
        return await rejection(got, deadline=deadline, mask=without_our_key, key_is_ours=key_is_ours)


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), (" 0 ", 0.0), ("-1", None), ("soon", None), ("٣", None), ("", None)]
)
async def test_retry_after_in_seconds(upstream_client, deadline, mocked, response_class, value, seconds):
    error = await refused(upstream_client, deadline, mocked, response_class, status=429, headers={"Retry-After": value})
    assert isinstance(error, UpstreamRejected)
    assert error.retry_after_s == seconds


async def test_retry_after_as_a_date(upstream_client, deadline, mocked, response_class):
    moment = datetime.now(UTC) + timedelta(seconds=30)
    headers = {"Retry-After": format_datetime(moment, usegmt=True)}
    error = await refused(upstream_client, deadline, mocked, response_class, status=503, headers=headers)
    assert 25 <= error.retry_after_s <= 31


async def test_a_json_body_is_kept_without_our_secret(upstream_client, deadline, mocked, response_class):
    error = await refused(upstream_client, deadline, mocked, response_class, status=400, body=b'{"key": "sk-ours"}')
    assert error.payload == b'{"key": "********"}'
    assert error.upstream_status == 400


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'"sk"', b"{" * 5000, b'{"a":"' + b"x" * 2_000 + b'"}'])
async def test_a_body_that_is_no_small_json_object_is_left_behind(
    upstream_client, deadline, mocked, response_class, body
):
    assert (await refused(upstream_client, deadline, mocked, response_class, status=500, body=body)).payload is None


async def test_a_refusal_of_our_key_keeps_nothing(upstream_client, deadline, mocked, response_class):
    error = await refused(
        upstream_client, deadline, mocked, response_class, key_is_ours=True, status=401, body=b'{"a":1}'
    )
    assert error.payload is None


NAMES = ["Accept", "User-Agent", "Cookie", "Connection", "X-A", "X-B", "x-b", "Authorization", "X-Api-Key", "Via"]
NAMES += ["Content-Length", "Content-Type", "Anthropic-Version", "X-Request-Id", "traceparent", "X-H\u00e9", "Te"]
VALUES = ["", "a", "x-a, close", "keep-alive", "Bearer k", "\u00e9", "b\tc", "n" * 300, "X-B", "\x7f"]


@pytest.mark.parametrize("surface", ["chat", "messages"])
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("forwards", [False, True])
def test_a_head_says_what_the_map_of_headers_does(surface, kind, forwards, monkeypatch):
    monkeypatch.setattr(heads, "_passing", {})
    monkeypatch.setattr(heads, "MOST_KNOWN", 8)  # they are forgotten again and again
    rng = random.Random(7)
    settings = load({"UPSTREAM_URL": "http://m.test/v1", "UPSTREAM_KIND": kind})
    [upstream] = upstreams_of(settings, None).values()
    upstream = evolve(upstream, forwards_credentials=forwards, api_key=None if forwards else "ours")
    for _ in range(60):
        pairs = [(rng.choice(NAMES), rng.choice(VALUES)) for _ in range(rng.randrange(7))]
        http = SimpleNamespace(
            headers=CIMultiDict(pairs),
            raw_headers=tuple((name.encode(), value.encode()) for name, value in pairs),
        )
        is_chat = SimpleNamespace(is_identity=surface == "chat")
        state: Any = SimpleNamespace(
            http=http, upstream=upstream, surface=is_chat, bearer="theirs", credential="shown", id="req_1"
        )
        wanted = upstream_headers(state)
        wanted.update({"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"})
        for _ in range(2):
            told = headers_of(chat_head(state, stream=False))
            assert sorted((name.lower(), value) for name, value in told.items()) == sorted(
                (name.lower(), value) for name, value in wanted.items()
            )
