from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from aioresponses import aioresponses
from multidict import CIMultiDict
from yarl import URL

from gateway.core.errors import (
    UpstreamBadReply,
    UpstreamDisconnected,
    UpstreamRefused,
    UpstreamRejected,
    UpstreamTimeout,
)
from gateway.request.deadline import Deadline
from gateway.upstream.client import UpstreamCall, UpstreamClient, rejection

KEY = ConnectionKey("model.test", 443, True, True, None, None, None)
URL_UNDER_TEST = URL("https://model.test/v1/chat/completions")


def call(**fields) -> UpstreamCall:
    fields = {"max_reply_bytes": 1000, "body": b"{}", **fields}
    return UpstreamCall(
        method="POST",
        url=URL_UNDER_TEST,
        headers=CIMultiDict(),
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
