"""Whole answers, written by the gateway itself: byte for byte what the library would have written."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from gateway.request.responses import Whole, json_response

CASES = [
    (status, body, headers, closes)
    for status in (200, 204, 304, 404, 503, 599)
    for body in (b"", b'{"a": 1}', b"x" * 70_000)
    for headers in ({"Content-Type": "application/json", "X-Own": "ä"}, {"Server": "own"})
    for closes in (False, True)
]


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

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield site.port
    await runner.cleanup()


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
