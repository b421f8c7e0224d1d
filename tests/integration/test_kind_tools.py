"""Servers of other kinds that refuse tools, or some words of a schema: the calls come all the same, and fit."""

import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import define, field

from gateway.request.state import RequestState
from tests.support.anthropic_server import AnthropicServer, error_body
from tests.support.chat import hear_body, hear_stream
from tests.support.client import ask, chat, get
from tests.support.gemini_server import GeminiServer
from tests.support.gemini_server import error_body as gemini_error
from tests.support.openai_server import OpenAiServer
from tests.support.qwen_web_server import QwenWebServer
from tests.support.turns import Call, Turn
from tests.support.wire_server import Answered, listening

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
def start(gateway, tmp_path):
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
async def test_a_server_that_refuses_tools_is_told_of_them_in_words(start, client, kind, model, makes, streamed):
    refusing = Refusing(makes([WRITTEN, WRITTEN], key=KEY))
    async with start(kind, refusing) as running:
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


async def test_a_server_without_tools_is_not_even_asked_natively(start, client):
    server = QwenWebServer([WRITTEN], token=KEY)
    async with start("qwen_web", server, '[[models]]\nmatch = "*"\nstrategy = "native"\n') as running:
        got = await ask(client, running.url, asking("qwen3-max", True))
        assert calls_of(got, True) == [("read_file", {"path": "a.py"})]
    assert [path for path, _ in server.requests] == ["/api/v2/chats/new", "/api/v2/chat/completions"]


async def test_a_call_written_as_text_by_a_native_server_is_recovered(start, client):
    server = AnthropicServer([WRITTEN], key=KEY)
    async with start("anthropic", server, '[[models]]\nmatch = "*"\nstrategy = "recovery"\n') as running:
        got = await ask(client, running.url, asking("claude-sonnet-4-5", True))
        assert calls_of(got, True) == [("read_file", {"path": "a.py"})]
        exposition = await metrics_of(client, running)
    assert successes(exposition, "recovery") == 1


FITS = Turn(calls=(Call("c1", "read_file", {"path": "a.py", "level": "low"}),))
FITS_NOT = Turn(calls=(Call("c1", "read_file", {"path": "a.py", "level": "extreme"}),))
LOWERED = 'down_level = ["enum", "additionalProperties"]\n'


@pytest.mark.parametrize("streamed", [True, False])
async def test_words_that_a_server_refuses_are_taken_out_of_schemas(start, client, streamed, monkeypatch):
    kept = []
    monkeypatch.setattr(RequestState, "deliver", lambda state, chat: kept.append(state.delivered))
    server = OpenAiServer([FITS], key=KEY, refused=frozenset({"enum", "additionalProperties"}))
    async with start("openai", server, LOWERED) as running:
        got = await ask(client, running.url, asking("gpt-4o", streamed))
        assert calls_of(got, streamed) == [("read_file", {"path": "a.py", "level": "low"})]
    [sent] = server.requests
    level = sent["tools"][0]["function"]["parameters"]["properties"]["level"]
    assert level == {"type": "string", "description": '(enum: ["low","high"])'}
    assert set(kept) == {None}, "an answer that nobody asks for again is not held to its end"


async def test_without_the_setting_the_refusal_is_the_clients(start, client):
    server = OpenAiServer([FITS], key=KEY, refused=frozenset({"enum"}))
    async with start("openai", server) as running:
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
    start, client, kind, model, makes, more
):
    server = makes([FITS_NOT, FITS], key=KEY)
    async with start(kind, server, more) as running:
        got = await ask(client, running.url, asking(model, False))
        assert calls_of(got, False) == [("read_file", {"path": "a.py", "level": "low"})]
        assert 'toolgate_repairs_total{result="repaired"} 1.0' in await metrics_of(client, running)
    told = json.dumps(server.requests[1])
    assert "the tool was not run" in told
    assert "`level` must be" in told


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_call_that_never_fits_is_delivered_and_written_down(start, client, log, streamed):
    server = GeminiServer([FITS_NOT, FITS_NOT], key=KEY)
    async with start("gemini", server) as running:
        got = await ask(client, running.url, asking("gemini-3-flash", streamed))
        assert calls_of(got, streamed) == [("read_file", {"path": "a.py", "level": "extreme"})]
    assert len(server.requests) == (1 if streamed else 2)
    record = await log.record("structured_calls_misfit")
    assert (len(record["faults"]), record["upstream"]) == (1, "a")
    assert record["faults"][0]["tool"] == "read_file"
    assert "extreme" not in json.dumps(record)


async def test_a_server_that_was_told_the_whole_schema_is_not_held_to_it(start, client):
    server = OpenAiServer([FITS_NOT], key=KEY)
    async with start("openai", server) as running:
        got = await ask(client, running.url, asking("gpt-4o", False))
        assert calls_of(got, False) == [("read_file", {"path": "a.py", "level": "extreme"})]


async def test_a_call_without_arguments_is_held_to_its_schema_too(start, client):
    nothing = Turn(calls=(Call("c1", "read_file", {}),))
    server = OpenAiServer([nothing, FITS], key=KEY)
    async with start("openai", server, LOWERED) as running:
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


async def test_gemini_may_be_told_schemas_whole(start, client):
    server = GeminiServer([FITS], key=KEY)
    options = '[upstreams.a.gemini]\nschema_field = "parametersJsonSchema"\n'
    async with start("gemini", server, options) as running:
        await ask(client, running.url, asking("gemini-3-flash", True))
    [declared] = server.requests[0]["tools"][0]["functionDeclarations"]
    assert declared["parametersJsonSchema"] == cast("dict[str, Any]", TOOLS[0]["function"])["parameters"]
