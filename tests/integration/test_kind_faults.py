"""What goes wrong with servers of other kinds: the client hears of it as it would of an OpenAI server."""

import asyncio
import json
from typing import Any

import pytest
from attrs import frozen

from tests.support.anthropic_server import AnthropicServer, error_body
from tests.support.chat import hear_stream
from tests.support.client import ask, chat, get, post_bytes
from tests.support.faulty_upstream import STREAM_HEAD, answer, answer_json, close_at_once, hang, in_turn
from tests.support.gemini_server import GeminiServer
from tests.support.gemini_server import error_body as gemini_error
from tests.support.qwen_web_server import QwenWebServer, fault_body
from tests.support.responses_server import ResponsesServer
from tests.support.responses_server import error_body as responses_error
from tests.support.turns import Turn
from tests.support.wire_server import sse

SECRET = "sk-secret-finch-1"
COOKIE = "token-finch-2"
TURN = Turn(text="Hello, this is said.", thought="Hm.", signature="U0lH")
KINDS = ["anthropic", "gemini", "qwen_web", "responses"]


@frozen
class Wire:
    """How a server of a kind says things."""

    name: str

    @property
    def events(self) -> list[bytes]:
        """A good stream, event by event."""
        match self.name:
            case "anthropic":
                data = AnthropicServer().stream(TURN, "m")
            case "responses":
                server = ResponsesServer()
                data = server.stream(TURN, server.response(TURN, {"model": "m"}))
            case "gemini":
                data = b"".join(sse(chunk) for chunk in GeminiServer().chunks(TURN, "m"))
            case _:
                data = b"".join(sse(event) for event in QwenWebServer().events(TURN, "c", None, "a"))
        return [event + b"\n\n" for event in data.split(b"\n\n") if event]

    def fault(self, status: int, message: str) -> dict[str, Any]:
        """An error body."""
        match self.name:
            case "anthropic":
                return error_body(
                    {429: "rate_limit_error", 400: "invalid_request_error"}.get(status, "api_error"), message
                )
            case "responses":
                kind = {429: "rate_limit_error", 400: "invalid_request_error"}.get(status, "server_error")
                return responses_error(message, kind=kind, code={429: "rate_limit_exceeded"}.get(status))
            case "gemini":
                return gemini_error(
                    status, {429: "RESOURCE_EXHAUSTED", 400: "INVALID_ARGUMENT"}.get(status, ""), message
                )
            case _:
                return fault_body({429: "RateLimited", 400: "Bad_Request"}.get(status, "Internal"), message)

    def script(self, then):
        """A chat is made first, where there are chats."""

        async def scripted(connection, received):
            made = answer_json({"success": True, "data": {"id": "c"}})
            await (made if received.target.endswith("/chats/new") else then)(connection, received)

        return scripted

    def streams(self, *pieces: bytes):
        async def scripted(connection, received):
            await connection.send(STREAM_HEAD, *pieces)

        return self.script(scripted)


@pytest.fixture(params=KINDS)
def wire(request):
    return Wire(request.param)


@pytest.fixture
def start(gateway, upstream, wire, tmp_path):
    """Starts a gateway before one server of the kind."""

    async def started(more="", **environ):
        path = tmp_path / "toolgate.toml"
        path.write_text(
            f'[upstreams.a]\nurl = "{upstream.url}"\nkind = "{wire.name}"\napi_key = "{SECRET}"\n'
            f'cookies = "a=1; session={COOKIE}"\n{more}'
        )
        return await gateway(None, GATEWAY_CONFIG=str(path), **environ)

    return started


async def assert_no_secret(client, running, log, *bodies):
    exposition = (await get(client, f"{running.url}/metrics")).body
    written = (await log.until("request_ended")).encode()
    assert not [data for data in (*bodies, exposition, written) if b"finch" in data]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("status", [400, 429])
async def test_an_error_keeps_its_status_and_when_to_come_again(start, upstream, wire, client, log, status, streamed):
    fault = wire.fault(status, f"no: {SECRET} session={COOKIE} {COOKIE}")
    upstream.script = wire.script(answer_json(fault, status=f"{status} X", headers={"Retry-After": "47"}))
    running = await start()
    got = await ask(client, running.url, chat(stream=streamed))
    assert got.status == status
    assert got.headers["Retry-After"] == "47"
    assert got.json["error"]["message"].startswith("no: ***")
    await assert_no_secret(client, running, log, got.body)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_our_own_key_is_our_fault(start, upstream, wire, client, log, status):
    upstream.script = wire.script(answer_json(wire.fault(status, SECRET), status=f"{status} X"))
    running = await start()
    got = await ask(client, running.url)
    assert got.status == 502
    await assert_no_secret(client, running, log, got.body)


async def test_an_error_within_the_stream_is_told_without_secrets(start, upstream, wire, client, log):
    fault = wire.fault(429, f"too much, {SECRET} {COOKIE}")
    upstream.script = wire.streams(*wire.events[:-2], sse(fault, name="error" if wire.name == "anthropic" else None))
    running = await start()
    got = await ask(client, running.url)
    assert got.chunks[-1]["error"]["message"] == "too much, ******** ********"
    assert not got.is_done
    await assert_no_secret(client, running, log, got.body)


async def test_silence_is_filled_and_ends_at_its_deadline(start, upstream, wire, client):
    async def silent(connection, received):
        await connection.send(STREAM_HEAD, *wire.events[:-2])
        await connection.until_gone()

    upstream.script = wire.script(silent)
    running = await start("idle_timeout_s = 0.4\n", GATEWAY_KEEPALIVE_S="0.05")
    got = await ask(client, running.url)
    assert got.body.count(b": keep-alive\n\n") >= 3
    assert got.error == "upstream_timeout"
    assert hear_stream(got.body).finish is None
    await upstream.until_all_gone()


async def test_a_stream_without_end_ends_at_the_last_deadline(start, upstream, wire, client):
    async def endless(connection, received):
        await connection.send(STREAM_HEAD)
        while not connection.gone.is_set():
            await connection.send(b": ping\n\n")
            await asyncio.sleep(0.02)

    upstream.script = wire.script(endless)
    running = await start("total_timeout_s = 0.4\n")
    assert (await ask(client, running.url)).error == "upstream_timeout"
    await upstream.until_all_gone()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_server_that_never_begins_is_left(start, upstream, wire, client, streamed):
    upstream.script = wire.script(hang)
    running = await start("first_byte_timeout_s = 0.2\n")
    got = await ask(client, running.url, chat(stream=streamed))
    assert (got.status, got.error) == (504, "upstream_timeout")
    await upstream.until_all_gone()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_whole_answer_that_stops_coming_is_left(start, upstream, wire, client, streamed):
    async def stuck(connection, received):
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
        await connection.until_gone()

    upstream.script = wire.script(stuck)
    running = await start("idle_timeout_s = 0.2\n")
    got = await ask(client, running.url, chat(stream=streamed))
    assert (got.status, got.error) == (504, "upstream_timeout")
    await upstream.until_all_gone()


async def test_a_reset_between_events_is_told_behind_what_had_come(start, upstream, wire, client):
    async def cut(connection, received):
        head = STREAM_HEAD.replace(b"Connection: close", b"Transfer-Encoding: chunked")
        await connection.send(head)
        await connection.send_chunked(*wire.events[:-2], last=False)
        connection.reset()

    upstream.script = wire.script(cut)
    running = await start()
    got = await ask(client, running.url)
    assert got.error == "upstream_disconnected"
    assert TURN.text.startswith(got.content)
    assert got.content


async def test_an_end_that_came_too_early_is_told(start, upstream, wire, client):
    end = {"anthropic": -2, "gemini": -1, "qwen_web": -1, "responses": -1}[wire.name]
    upstream.script = wire.streams(*wire.events[:end])
    running = await start()
    got = await ask(client, running.url)
    assert (got.error, got.content) == ("upstream_truncated", TURN.text)


@pytest.mark.parametrize(
    "bad",
    [b"data: {oops\n\n", b'data: {"a": "\xff"}\n\n', b"data: " + b"[" * 5000 + b"\n\n", b"data: " + b"x" * 70_000],
)
async def test_bytes_that_are_no_event_end_the_stream(start, upstream, wire, client, bad):
    upstream.script = wire.streams(*wire.events[:-2], bad, *wire.events[-2:])
    running = await start(UPSTREAM_MAX_EVENT_BYTES="65536")
    assert (await ask(client, running.url)).error == "upstream_bad_reply"


async def test_an_answer_beyond_the_cap_is_cut_off(start, upstream, wire, client):
    upstream.script = wire.streams(*wire.events[:-2], *[b": " + b"x" * 30_000 + b"\n\n"] * 10)
    running = await start(UPSTREAM_MAX_REPLY_BYTES="65536", UPSTREAM_MAX_EVENT_BYTES="65536")
    assert (await ask(client, running.url)).error == "upstream_bad_reply"


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_page_instead_of_an_answer_is_not_shown(start, upstream, wire, client, streamed):
    page = answer(b"<html>secret page</html>", headers={"Content-Type": "text/html"})
    upstream.script = wire.script(page)
    running = await start()
    got = await ask(client, running.url, chat(stream=streamed))
    assert (got.status, got.error) == (502, "upstream_bad_reply")
    assert b"page" not in got.body


async def test_a_redirect_is_not_followed(start, upstream, wire, client):
    upstream.script = wire.script(answer(b"", status="302 Found", headers={"Location": "http://127.0.0.1:1/"}))
    running = await start()
    assert (await ask(client, running.url)).status == 502


async def test_a_connection_that_closes_without_a_word_is_told(start, upstream, wire, client):
    upstream.script = wire.script(close_at_once)
    running = await start()
    got = await ask(client, running.url)
    assert (got.status, got.error) == (502, "upstream_disconnected")


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_leaves_takes_the_server_along(start, upstream, wire, connect, log, streamed):
    come = asyncio.Event()

    async def slow(connection, received):
        await connection.send(STREAM_HEAD, *wire.events[:-2])
        come.set()
        await connection.until_gone()

    upstream.script = wire.script(slow)
    running = await start()
    _, writer = await connect(running.url)
    writer.write(post_bytes(chat(stream=streamed)))
    await asyncio.wait_for(come.wait(), 5)
    writer.transport.abort()
    await upstream.until_all_gone()
    assert (await log.record("request_ended"))["end"] == "client_abort"


async def test_single_bytes_come_to_the_same(start, upstream, wire, client):
    data = b"".join(wire.events)
    upstream.script = wire.streams(*(data[at : at + 1] for at in range(len(data))))
    running = await start()
    got = await ask(client, running.url)
    assert (got.content, got.is_done) == (TURN.text, True)


async def test_a_stream_that_was_not_asked_for_is_gathered(start, upstream, wire, client):
    upstream.script = wire.streams(*wire.events)
    running = await start()
    got = await ask(client, running.url, chat(stream=False))
    assert got.json["choices"][0]["message"]["content"] == TURN.text


async def test_an_answer_that_was_to_be_a_stream_becomes_one(start, upstream, wire, client):
    match wire.name:
        case "anthropic":
            body = AnthropicServer().message(TURN, "m")
        case "responses":
            body = ResponsesServer().response(TURN, {"model": "m"})
        case "gemini":
            body = GeminiServer().whole(TURN, "m")
        case _:
            body = {"choices": [{"message": {"role": "assistant", "content": TURN.text}}], "response_id": "a"}
    upstream.script = wire.script(answer_json(body))
    running = await start()
    got = await ask(client, running.url)
    assert (got.content, got.is_done) == (TURN.text, True)


async def test_a_server_that_is_busy_once_is_asked_again(start, upstream, wire, client):
    async def good(connection, received):
        await connection.send(STREAM_HEAD, *wire.events)

    busy = answer_json(wire.fault(429, "busy"), status="429 Slow", headers={"Retry-After": "0"})
    upstream.script = wire.script(in_turn(busy, good))
    running = await start()
    assert (await ask(client, running.url)).content == TURN.text


async def test_a_request_that_a_kind_cannot_say_is_refused(start, upstream, wire, client):
    running = await start()
    got = await ask(client, running.url, chat(n=2))
    assert (got.status, got.json["error"]["param"]) == (400, "n")
    assert upstream.requests == []


async def test_headers_of_the_client_prove_nothing_to_the_server(start, upstream, wire, client):
    upstream.script = wire.streams(*wire.events)
    running = await start()
    given = {"Authorization": "Bearer mine", "X-Api-Key": "mine", "X-Goog-Api-Key": "mine", "Cookie": "a=mine"}
    assert (await ask(client, running.url, headers=given)).content == TURN.text
    assert all("mine" not in json.dumps(received.headers) for received in upstream.requests)
    assert all(SECRET in json.dumps(received.headers) for received in upstream.requests)
