"""What goes wrong with servers of other kinds: the client hears of it as it would of an OpenAI server."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import define, field, frozen

from gateway.request.state import RequestState
from tests.support.anthropic_server import AnthropicServer, error_body
from tests.support.chat import hear_body, hear_stream
from tests.support.client import ask, chat, get, post_bytes
from tests.support.faulty_upstream import STREAM_HEAD, answer, answer_json, close_at_once, hang, in_turn
from tests.support.gemini_server import GeminiServer
from tests.support.gemini_server import error_body as gemini_error
from tests.support.kinds import Answered, Call, Turn, listening, sse
from tests.support.openai_server import OpenAiServer, ResponsesServer
from tests.support.openai_server import error_body as responses_error
from tests.support.qwen_web_server import QwenWebServer, fault_body

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


# --- Servers of other kinds that refuse tools, or some words of a schema: the calls come all the same, and fit


KEY = "sk-any"

WRITTEN = Turn(text="<read_file>\n<path>a.py</path>\n</read_file>")

LEVEL = {"type": "string", "enum": ["low", "high"]}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "level": LEVEL},
                "required": ["path"],
                "additionalProperties": False,
            },
        },
    }
]

ASK = "What stands in it?"


@define
class Refusing:
    """A server that takes no tools."""

    server: AnthropicServer | GeminiServer
    refusals: int = 0

    def respond(self, method, target, headers, body):
        if b'"tools"' not in body:
            return self.server.respond(method, target, headers, body)
        self.refusals += 1
        told = "this model does not support tools"
        is_gemini = isinstance(self.server, GeminiServer)
        fault = gemini_error(400, "INVALID_ARGUMENT", told) if is_gemini else error_body("invalid_request_error", told)
        return Answered.json(fault, 400)


@define
class Start:
    """Starts a gateway before servers, each in a table of its own."""

    gateway: Any
    folder: Path
    tables: str = ""
    servers: list[Any] = field(factory=list)

    @asynccontextmanager
    async def before(self, kind, server, more="", **environ):
        async with listening(server) as url:
            path = self.folder / "toolgate.toml"
            path.write_text(f'[upstreams.a]\nkind = "{kind}"\nurl = "{url}/v1"\napi_key = "{KEY}"\n{more}')
            yield await self.gateway(None, GATEWAY_CONFIG=str(path), **environ)


@pytest.fixture
def start_kind(gateway, tmp_path):
    return Start(gateway, tmp_path).before


def asking(model, streamed, **fields):
    return chat(model=model, stream=streamed, tools=TOOLS, messages=[{"role": "user", "content": ASK}], **fields)


def heard(got, streamed):
    return hear_stream(got.body) if streamed else hear_body(got.body)


def calls_of(got, streamed):
    return [(call["name"], json.loads(call["arguments"])) for call in heard(got, streamed).calls]


async def metrics_of(client, running):
    return (await get(client, f"{running.url}/metrics")).body.decode()


def successes(exposition, strategy):
    """How many answers this approach has read calls from."""
    lines = [line for line in exposition.splitlines() if line.startswith("toolgate_transforms_total{")]
    wanted = ('arm="live"', 'outcome="success"', f'strategy="{strategy}"')
    return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in wanted))


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("kind", "model", "makes"),
    [("anthropic", "claude-sonnet-4-5", AnthropicServer), ("gemini", "gemini-2.5-pro", GeminiServer)],
)
async def test_a_server_that_refuses_tools_is_told_of_them_in_words(start_kind, client, kind, model, makes, streamed):
    refusing = Refusing(makes([WRITTEN, WRITTEN], key=KEY))
    async with start_kind(kind, refusing) as running:
        for _ in range(2):
            got = await ask(client, running.url, asking(model, streamed))
            assert calls_of(got, streamed) == [("read_file", {"path": "a.py"})]
            assert got.headers["X-Toolgate-Strategy"] == "xml_prompt"
        assert refusing.refusals == 1
        exposition = await metrics_of(client, running)
        assert 'toolgate_native_fallbacks_total{reason="refused",upstream="a"} 1.0' in exposition
        assert successes(exposition, "xml_prompt") == 2
        listed = (await get(client, f"{running.url}/v1/models")).json["data"][0]["toolgate"]
        assert listed["kind"] == kind


async def test_a_server_without_tools_is_not_even_asked_natively(start_kind, client):
    server = QwenWebServer([WRITTEN], token=KEY)
    async with start_kind("qwen_web", server, '[[models]]\nmatch = "*"\nstrategy = "native"\n') as running:
        got = await ask(client, running.url, asking("qwen3-max", True))
        assert calls_of(got, True) == [("read_file", {"path": "a.py"})]
    assert [path for path, _ in server.requests] == ["/api/v2/chats/new", "/api/v2/chat/completions"]


async def test_a_call_written_as_text_by_a_native_server_is_recovered(start_kind, client):
    server = AnthropicServer([WRITTEN], key=KEY)
    async with start_kind("anthropic", server, '[[models]]\nmatch = "*"\nstrategy = "recovery"\n') as running:
        got = await ask(client, running.url, asking("claude-sonnet-4-5", True))
        assert calls_of(got, True) == [("read_file", {"path": "a.py"})]
        exposition = await metrics_of(client, running)
    assert successes(exposition, "recovery") == 1


FITS = Turn(calls=(Call("c1", "read_file", {"path": "a.py", "level": "low"}),))

FITS_NOT = Turn(calls=(Call("c1", "read_file", {"path": "a.py", "level": "extreme"}),))

LOWERED = 'down_level = ["enum", "additionalProperties"]\n'


@pytest.mark.parametrize("streamed", [True, False])
async def test_words_that_a_server_refuses_are_taken_out_of_schemas(start_kind, client, streamed, monkeypatch):
    kept = []
    monkeypatch.setattr(RequestState, "deliver", lambda state, chat: kept.append(state.delivered))
    server = OpenAiServer([FITS], key=KEY, refused=frozenset({"enum", "additionalProperties"}))
    async with start_kind("openai", server, LOWERED) as running:
        got = await ask(client, running.url, asking("gpt-4o", streamed))
        assert calls_of(got, streamed) == [("read_file", {"path": "a.py", "level": "low"})]
    [sent] = server.requests
    level = sent["tools"][0]["function"]["parameters"]["properties"]["level"]
    assert level == {"type": "string", "description": '(enum: ["low","high"])'}
    assert set(kept) == {None}, "an answer that nobody asks for again is not held to its end"


async def test_without_the_setting_the_refusal_is_the_clients(start_kind, client):
    server = OpenAiServer([FITS], key=KEY, refused=frozenset({"enum"}))
    async with start_kind("openai", server) as running:
        got = await ask(client, running.url, asking("gpt-4o", True))
        assert (got.status, got.json["error"]["message"]) == (400, "schema keyword 'enum' is not supported")


@pytest.mark.parametrize(
    ("kind", "model", "makes", "more"),
    [
        ("openai", "gpt-4o", OpenAiServer, LOWERED),
        ("gemini", "gemini-3-flash", GeminiServer, ""),
        ("anthropic", "claude-sonnet-4-5", AnthropicServer, LOWERED),
    ],
)
async def test_a_whole_call_that_fits_only_the_lowered_schema_is_asked_for_again(
    start_kind, client, kind, model, makes, more
):
    server = makes([FITS_NOT, FITS], key=KEY)
    async with start_kind(kind, server, more) as running:
        got = await ask(client, running.url, asking(model, False))
        assert calls_of(got, False) == [("read_file", {"path": "a.py", "level": "low"})]
        assert 'toolgate_repairs_total{result="repaired"} 1.0' in await metrics_of(client, running)
    told = json.dumps(server.requests[1])
    assert "the tool was not run" in told
    assert "`level` must be" in told


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_call_that_never_fits_is_delivered_and_written_down(start_kind, client, log, streamed):
    server = GeminiServer([FITS_NOT, FITS_NOT], key=KEY)
    async with start_kind("gemini", server) as running:
        got = await ask(client, running.url, asking("gemini-3-flash", streamed))
        assert calls_of(got, streamed) == [("read_file", {"path": "a.py", "level": "extreme"})]
    assert len(server.requests) == (1 if streamed else 2)
    record = await log.record("structured_calls_misfit")
    assert (len(record["faults"]), record["upstream"]) == (1, "a")
    assert record["faults"][0]["tool"] == "read_file"
    assert "extreme" not in json.dumps(record)


async def test_a_server_that_was_told_the_whole_schema_is_not_held_to_it(start_kind, client):
    server = OpenAiServer([FITS_NOT], key=KEY)
    async with start_kind("openai", server) as running:
        got = await ask(client, running.url, asking("gpt-4o", False))
        assert calls_of(got, False) == [("read_file", {"path": "a.py", "level": "extreme"})]


async def test_a_call_without_arguments_is_held_to_its_schema_too(start_kind, client):
    nothing = Turn(calls=(Call("c1", "read_file", {}),))
    server = OpenAiServer([nothing, FITS], key=KEY)
    async with start_kind("openai", server, LOWERED) as running:
        got = await ask(client, running.url, asking("gpt-4o", False))
        assert calls_of(got, False) == [("read_file", {"path": "a.py", "level": "low"})]


@pytest.mark.parametrize(
    ("options", "header", "value"),
    [("", "x-api-key", KEY), ('[upstreams.a.anthropic]\nauth = "bearer"\n', "authorization", f"Bearer {KEY}")],
)
async def test_options_of_a_kind_come_from_its_table(gateway, upstream, client, tmp_path, options, header, value):
    path = tmp_path / "toolgate.toml"
    path.write_text(f'[upstreams.a]\nkind = "anthropic"\nurl = "{upstream.url}"\napi_key = "{KEY}"\n{options}')
    running = await gateway(None, GATEWAY_CONFIG=str(path))
    await ask(client, running.url)
    assert upstream.last.headers[header] == value


async def test_gemini_may_be_told_schemas_whole(start_kind, client):
    server = GeminiServer([FITS], key=KEY)
    options = '[upstreams.a.gemini]\nschema_field = "parametersJsonSchema"\n'
    async with start_kind("gemini", server, options) as running:
        await ask(client, running.url, asking("gemini-3-flash", True))
    [declared] = server.requests[0]["tools"][0]["functionDeclarations"]
    assert declared["parametersJsonSchema"] == cast("dict[str, Any]", TOOLS[0]["function"])["parameters"]
