""""""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.kinds.openai import OpenAiKind
from gateway.request.headers import bearer_token, new_id, request_headers, request_id, response_headers, trace_id
from gateway.request.responses import Streamed, Whole, json_response


def upstream(client, *, api_key=None, forward=False):
    credentials = OpenAiKind().credentials(api_key)
    return request_headers(CIMultiDict(client), id="req_1", credentials=credentials, forward_credentials=forward)


@pytest.mark.parametrize("given", ["abc", "req_0.1-x", "a" * 64])
def test_a_safe_id_of_the_client_is_kept(given):
    assert request_id(CIMultiDict({"x-request-id": given})) == given


@pytest.mark.parametrize("given", ["", "a" * 65, "a b", "a\nb", "ä", "<x>", "a;b"])
def test_an_unsafe_id_is_replaced(given):
    made = request_id(CIMultiDict({"X-Request-Id": given}))
    assert made.startswith("req_")
    assert made != request_id(CIMultiDict({"X-Request-Id": given}))


def test_a_well_formed_traceparent_names_its_trace():
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    assert trace_id(CIMultiDict(traceparent=f"00-{trace}-00f067aa0ba902b7-01")) == trace
    for bad in ("", "00", f"00-{trace[:-1]}-x-01", f"00-{'0' * 32}-x-01", f"00-{trace.upper()}-00f067aa0ba902b7-01"):
        assert trace_id(CIMultiDict(traceparent=bad)) is None


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", None),
        ("Bearer", None),
        ("Bearer  ", None),
        ("", None),
    ],
)
def test_the_bearer_token_is_found(value, token):
    assert bearer_token(CIMultiDict(Authorization=value)) == token


def test_a_clients_credentials_stay_here_unless_they_are_meant_for_the_upstream():
    client = {"Authorization": "Bearer mine", "X-Api-Key": "mine", "api-key": "mine", "Cookie": "s=mine"}
    assert "mine" not in str(upstream(client))
    assert upstream(client, api_key="ours")["Authorization"] == "Bearer ours"
    assert "mine" not in str(upstream(client, api_key="ours"))
    forwarded = upstream(client, forward=True)
    assert forwarded["Authorization"] == "Bearer mine"
    assert forwarded["X-Api-Key"] == "mine"
    assert "Cookie" not in forwarded


def test_hop_by_hop_headers_and_those_that_connection_names_stay_here():
    client = {
        "Connection": "close, X-Odd",
        "X-Odd": "1",
        "Transfer-Encoding": "chunked",
        "TE": "trailers",
        "Upgrade": "websocket",
        "Host": "gateway",
        "Content-Length": "5",
        "X-Forwarded-For": "10.0.0.1",
        "User-Agent": "opencode/1",
        "HTTP-Referer": "https://example.com",
        "traceparent": "00-x",
    }
    sent = upstream(client)
    assert {name.lower() for name in sent} == {"user-agent", "http-referer", "traceparent", "x-request-id"}
    assert sent["X-Request-Id"] == "req_1"


def test_what_an_upstream_says_of_itself_stays_behind():
    came = CIMultiDict(
        {
            "Server": "uvicorn",
            "Date": "x",
            "Set-Cookie": "a=b",
            "Content-Length": "3",
            "Connection": "X-Private",
            "X-Private": "1",
            "X-Request-Id": "theirs",
            "X-Toolgate-Arm": "forged",
            "x-ratelimit-remaining-requests": "9",
            "openai-processing-ms": "12",
        }
    )
    assert {name.lower() for name in response_headers(came)} == {
        "x-ratelimit-remaining-requests",
        "openai-processing-ms",
    }


@given(st.text(max_size=30), st.text(min_size=1, max_size=10))
def test_only_values_that_can_be_sent_are_passed_on(value, name):
    for passed in (response_headers(CIMultiDict({name: value})), upstream({name: value})):
        for each in passed.values():
            assert not set(each) & set("\r\n\0")
            each.encode()


# --- Whole answers, written by the gateway itself: byte for byte what the library would have written


CASES = [
    (status, body, headers, closes)
    for status in (200, 204, 304, 404, 503, 599)
    for body in (b"", b'{"a": 1}', b"x" * 70_000)
    for headers in ({"Content-Type": "application/json", "X-Own": "ä"}, {"Server": "own"})
    for closes in (False, True)
]


@asynccontextmanager
async def serving(handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> AsyncIterator[int]:
    """The port of a server that answers so."""
    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield site.port
    await runner.cleanup()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def handle(http: web.BaseRequest) -> web.StreamResponse:
        kind, _, at = http.path[1:].partition("/")
        status, body, headers, closes = CASES[int(at)]
        made = {"Server": "toolgate", **headers}
        answer = (
            Whole(body, status=status, headers=made)
            if kind == "ours"
            else web.Response(body=body, status=status, headers=made)
        )
        if closes:
            answer.force_close()
        return answer

    async with serving(handle) as at:
        yield at


async def told(port: int, lines: str) -> bytes:
    """All that comes back for two requests on one connection, the second of which ends it; but for the date."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for connection in ("keep-alive", "close"):
        writer.write(f"{lines}\r\nHost: a\r\nConnection: {connection}\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return re.sub(rb"Date: [^\r]*", b"Date:", answer)


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_it_is_what_the_library_writes(port: int, method: str, version: str) -> None:
    for at in range(len(CASES)):
        ours, theirs = [await told(port, f"{method} /{kind}/{at} {version}") for kind in ("ours", "theirs")]
        assert ours == theirs, CASES[at]
        assert ours.startswith(version.encode())


PIECES = [b'{"a": ', b"", b"1}" * 3000]
STREAMED = [
    (status, length, closes)
    for status in (200, 204, 304, 404, 503)
    for length in (None, sum(map(len, PIECES)))
    for closes in (False, True)
]


@pytest.fixture
async def streaming_port() -> AsyncIterator[int]:
    async def handle(http: web.BaseRequest) -> web.StreamResponse:
        kind, _, at = http.path[1:].partition("/")
        status, length, closes = STREAMED[int(at)]
        made = {"Content-Type": "text/plain", "Server": "toolgate"}
        if length is not None:
            made["Content-Length"] = str(length)
        answer = (Streamed if kind == "ours" else web.StreamResponse)(status=status, headers=made)
        if closes:
            answer.force_close()
        if isinstance(answer, Streamed):
            assert http.transport is not None
            http.transport.write(answer.begin(http))
            for piece in filter(None, PIECES):
                http.transport.write(answer.framed(piece))
            http.transport.write(answer.end())
            return answer
        await answer.prepare(http)
        for piece in PIECES if http.method != "HEAD" and status not in (204, 304) else ():
            await answer.write(piece)
        await answer.write_eof()
        return answer

    async with serving(handle) as at:
        yield at


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_in_pieces_it_is_read_as_what_the_library_writes(streaming_port: int, method: str, version: str) -> None:
    for at, (status, length, _) in enumerate(STREAMED):
        ours, theirs = [await told(streaming_port, f"{method} /{kind}/{at} {version}") for kind in ("ours", "theirs")]
        if version == "HTTP/1.0" and length is None and method != "HEAD" and status not in (204, 304):
            # Its end is the connection's, which the library keeps, so that what follows is read as part of it.
            assert _bodies(ours) == [b"".join(PIECES)]
            continue
        assert _heads(ours) == _heads(theirs), STREAMED[at]
        assert _bodies(ours) == _bodies(theirs), STREAMED[at]


def _heads(answers: bytes) -> list[tuple[bytes, frozenset[bytes]]]:
    """The first line of each answer, and its headers in no order."""
    heads = [head.split(b"\r\n") for head in re.findall(rb"HTTP/1\.[01] .*?(?=\r\n\r\n)", answers, re.DOTALL)]
    return [(first, frozenset(headers)) for first, *headers in heads]


def _bodies(answers: bytes) -> list[bytes]:
    """What stands behind each head."""
    return [body for _, _, body in (each.partition(b"\r\n\r\n") for each in answers.split(b"HTTP/1.")[1:])]


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "a\0b"])
async def test_a_value_cannot_split_it(port: int, value: str) -> None:
    CASES.append((200, b"{}", {"X-Own": value}, False))
    try:
        answer = await told(port, f"GET /ours/{len(CASES) - 1} HTTP/1.1")
    finally:
        CASES.pop()
    assert b"X-Other" not in answer
    assert not answer.startswith(b"HTTP/1.1 200")


def test_json_says_so() -> None:
    assert json_response(b"{}", status=404).headers["Content-Type"] == "application/json"


def test_a_forked_process_gives_ids_of_its_own():
    own = new_id()
    told, tells = os.pipe()
    child = os.fork()
    if not child:
        os.write(tells, "".join(new_id() for _ in range(200)).encode())
        os._exit(0)
    os.close(tells)
    with os.fdopen(told) as read:
        theirs = set(read.read().split("req_")[1:])
    os.waitpid(child, 0)
    assert len(theirs) == 200
    assert not theirs & {each.removeprefix("req_") for each in (own, *(new_id() for _ in range(200)))}
