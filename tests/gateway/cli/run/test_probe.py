"""`toolgate probe` before servers with hidden faults: what the card says, which rule it names, and that it holds."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.background.lesson_sync import SharedLessons
from gateway.cli.root import cli
from gateway.cli.run.probe import dialects_in
from gateway.cli.run.probe_tasks import ABILITIES
from gateway.state.opening import open_store
from gateway.traffic.lesson_rules import ABLE
from gateway.wire.chat_request import declared_tool
from strategies.asking.renderers import RENDERERS
from tests.support.client import TOOLS, ask, chat

MODEL = "qwen2.5-72b"
NAMES = ("read_file", "get_weather", "add_note", "create_event")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "notes/today.txt"},
    "get_weather": {"city": "Oslo"},
    "add_note": {"text": "heron-4417"},
    "create_event": {"title": "Dinner", "when": {"day": 24, "month": 3}, "guests": [{"name": "Ada"}]},
}
OFFERED = {tool.name: tool for task in ABILITIES for tool in map(declared_tool, task.body["tools"]) if tool is not None}
USAGE = {"prompt_tokens": 0, "completion_tokens": 12}
Reply = tuple[int, dict[str, Any]]


def wanted(request: dict[str, Any]) -> str | None:
    """The tool that a good model would call now."""
    if request["messages"][-1]["role"] == "tool" or "3 degrees" in str(request["messages"][-1]):
        return None
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        return str(choice["function"]["name"])
    said = str(request["messages"][-1]["content"])
    named = [name for name in NAMES if name in said]
    offered = [tool["function"]["name"] for tool in request.get("tools") or ()]
    if choice == "required":
        return str(offered[0])
    return named[0] if named else offered[0] if offered and "Read" in said else None


def message(content: str | None, *calls: tuple[str, Any]) -> Reply:
    told = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for at, (name, arguments) in enumerate(calls)
    ]
    body = {"role": "assistant", "content": content, **({"tool_calls": told} if told else {})}
    return 200, {"message": body, "finish_reason": "tool_calls" if told else "stop"}


def prompted(request: dict[str, Any], dialect: str) -> str | None:
    """What it writes where the tools stand in its prompt."""
    name = wanted(request)
    if name is None:
        return None
    return RENDERERS[dialect].call(name, ARGUMENTS[name], OFFERED[name])


def form_of(request: dict[str, Any]) -> str:
    """The form in which the prompt wants its calls."""
    prompt = str(request["messages"][0]["content"])
    return "hermes" if "<tool_call>" in prompt else "generic_xml"


def good(request: dict[str, Any]) -> Reply:
    name = wanted(request)
    if not request.get("tools"):
        return message(prompted(request, form_of(request)) or "51 it is.")
    if name is None:
        return message("It is 3 degrees.")
    twice = "twice" in str(request["messages"][-1]["content"])
    return message(None, *[(name, ARGUMENTS[name])] * (2 if twice else 1))


def refuses(request: dict[str, Any]) -> Reply:
    if request.get("tools"):
        return 400, {"error": {"message": f"{MODEL} does not support tools"}}
    return good(request)


def leaks(request: dict[str, Any]) -> Reply:
    name = wanted(request)
    if request.get("tools") and name is not None:
        return message(f"<tool_call>\n{json.dumps({'name': name, 'arguments': ARGUMENTS[name]})}\n</tool_call>")
    return message("51 it is.") if not request.get("tools") else good(request)


def loses_in_streams(request: dict[str, Any]) -> Reply:
    return message("") if request.get("tools") and request.get("stream") and wanted(request) else good(request)


def breaks_nested(request: dict[str, Any]) -> Reply:
    if request.get("tools") and wanted(request) == "create_event":
        return 500, {
            "error": {"message": "The model produced output that does not match the expected peg-native format"}
        }
    return good(request)


def swallows_its_own_form(request: dict[str, Any]) -> Reply:
    if request.get("tools"):
        return message("")
    answer = good(request)[1]
    text = answer["message"]["content"]
    return message("" if "<tool_call>" in text else text)


def mute(request: dict[str, Any]) -> Reply:
    return message("I would rather not.")


Model = Callable[[dict[str, Any]], Reply]
FAULTS: list[tuple[Model, str]] = [
    (good, "recovery"),
    (refuses, "xml_prompt:hermes"),
    (leaks, "recovery"),
    (loses_in_streams, "xml_prompt:hermes"),
    (breaks_nested, "xml_prompt:hermes"),
    (swallows_its_own_form, "xml_prompt:generic_xml"),
]


class Server:
    """A server with one model, in a thread of its own."""

    def __init__(self, model: Model) -> None:
        self.offers: dict[str, Any] = {}
        """What is at other paths."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each body waits for the word that its head has arrived

            def do_GET(self) -> None:
                body = server.offers.get(self.path)
                self.answer(404 if body is None else 200, json.dumps(body or {}).encode())

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path != "/v1/chat/completions":
                    body = server.offers.get(self.path)
                    self.answer(404 if body is None else 200, json.dumps(body or {}).encode())
                    return
                status, told = model(request)
                if status != 200:
                    self.answer(status, json.dumps(told).encode())
                    return
                usage = {**USAGE, "prompt_tokens": len(json.dumps(request)) // 4}
                head = {"id": "a", "object": "chat.completion", "created": 1, "model": MODEL}
                if not request.get("stream"):
                    body = {**head, "choices": [{"index": 0, **told}], "usage": usage}
                    self.answer(200, json.dumps(body).encode())
                    return
                delta = dict(told["message"])
                delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(delta.get("tool_calls", ()))]
                chunks = [
                    {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                    {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": told["finish_reason"]}]},
                ]
                events = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
                self.answer(200, events + b"data: [DONE]\n\n", "text/event-stream")

            def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                del args

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self.offers["/v1/models"] = {"object": "list", "data": [{"id": MODEL}]}
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[[Model], Server]]:
    servers: list[Server] = []

    def start(model: Model) -> Server:
        servers.append(Server(model))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def probed(server: Server | None, *arguments: str, **environ: str) -> Any:
    url = server.url if server is not None else "http://127.0.0.1:9/v1"
    return CliRunner().invoke(cli, ["probe", *arguments], env={"UPSTREAM_URL": url, **environ})


@pytest.mark.parametrize(("model", "strategy"), FAULTS, ids=lambda each: getattr(each, "__name__", each))
def test_the_best_rule_is_named_with_its_reason_and_holds(serve, model: Model, strategy: str) -> None:
    server = serve(model)
    result = probed(server, "--json", "--samples", "2")
    assert result.exit_code == 0, result.output
    card = json.loads(result.stdout)
    assert card["rule"] == f"{MODEL}={strategy}"
    assert json.dumps(strategy) in card["toml"]
    assert strategy in card["why"]
    tried = {each["name"]: each for each in card["abilities"]}
    for name in ("native", "streamed", "parallel", "required", "named", "strict", "long_prompt", "nested_schema"):
        assert tried[name]["tries"] == 2
        assert tried[name]["low"] <= (tried[name]["rate"] or 0.0) <= tried[name]["high"]
    assert {"tool_result", "reasoning", "ids", "prompted:generic_xml", "prompted:hermes"} <= tried.keys()
    assert asyncio.run(arrives(server.url, card["rule"])), "with its rule the gateway does as the card says"


async def arrives(url: str, rule: str) -> bool:
    import aiohttp

    from gateway.app import build
    from gateway.config.load import load

    own = {"GATEWAY_PORT": "0", "METRICS_PORT": "0", "STORE_URL": "memory://"}
    running = await build(load({**own, "UPSTREAM_URL": url, "STRATEGY_RULES": rule, "RESCUE": "false"}))
    try:
        async with aiohttp.ClientSession() as session:
            asked = {**chat(model=MODEL, tools=TOOLS), "messages": [{"role": "user", "content": "Use read_file."}]}
            got = await ask(session, running.url, asked)
            return (
                "notes/today.txt" in got.body.decode() and got.chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
            )
    finally:
        await running.close()


def test_what_the_server_can_by_itself_is_told_apart_from_what_a_rule_makes_of_it(serve) -> None:
    card = json.loads(probed(serve(leaks), "--json", "--samples", "1").stdout)
    tried = {each["name"]: each for each in card["abilities"]}
    assert (tried["native"]["passed"], tried["native"]["note"]) == (0, "no call")
    assert set(card) == {"schema_version", "upstream", "model", "abilities", "rule", "toml", "why"}
    assert set(tried["native"]) == {"name", "tries", "passed", "rate", "low", "high", "note"}


def test_no_way_of_asking_ends_with_3_and_no_server_with_5(serve) -> None:
    result = probed(serve(mute), "--json", "--samples", "1")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["rule"] == ""
    result = probed(None, "--samples", "1")
    assert result.exit_code == 5
    assert "cannot be reached" in result.output


def test_the_card_is_for_reading_and_progress_goes_elsewhere(serve) -> None:
    result = probed(serve(good), MODEL, "--samples", "1")
    assert result.exit_code == 0
    assert f"STRATEGY_RULES='{MODEL}=recovery'" in result.stdout
    assert "why: " in result.stdout
    assert "rule recovery" in result.stderr


def test_the_servers_own_words_are_read(serve) -> None:
    server = serve(good)
    server.offers["/props"] = {"chat_template": "{{ '<arg_key>' }}", "build_info": "b9999"}
    server.offers["/api/show"] = {"template": "x", "capabilities": ["tools"]}
    server.offers["/version"] = {"version": "0.28.0"}
    server.offers["/v1/models"] = {"data": [{"id": MODEL, "max_model_len": 8192}, {"id": "other"}]}
    result = probed(server, MODEL, "--samples", "1", "--json")
    assert "prompted:glm" in {each["name"] for each in json.loads(result.stdout)["abilities"]}
    for said in ("llama.cpp b9999", "Ollama", "version 0.28.0", "8192"):
        assert said in result.stderr
    assert probed(server, "--samples", "1").exit_code == 2, "which of the two?"


@pytest.mark.parametrize(
    ("behaves", "samples", "rule", "able"),
    [
        (refuses, 1, "xml_prompt:hermes", set()),
        (good, ABLE, "recovery", {"named", "strict"}),
    ],
)
def test_an_applied_rule_is_a_lesson_of_a_week(serve, tmp_path, behaves, samples, rule, able) -> None:
    store = f"sqlite:///{tmp_path / 'toolgate.db'}"

    async def make() -> None:
        opened = open_store(store, prefix="toolgate:", timeout_ms=2000)
        await opened.open()
        await opened.close()

    asyncio.run(make())
    rules = f"{MODEL[:4]}*=native"
    result = probed(serve(behaves), "--apply", "--samples", str(samples), STORE_URL=store, STRATEGY_RULES=rules)
    assert result.exit_code == 0, result.output
    assert f"the rule {MODEL[:4]}*=native wins over it" in result.stderr, "it would have no effect"

    async def read() -> Any:
        opened = open_store(store, prefix="toolgate:", timeout_ms=2000)
        await opened.open()
        lessons = SharedLessons(opened)
        await lessons.sync()
        await opened.close()
        return lessons.recall("default", MODEL, 0.0)

    lesson = asyncio.run(read())
    assert (lesson.reason, lesson.rule, lesson.able) == ("probed", rule, able)
    assert 6.9 < lesson.until / 86_400 <= 7
    assert -600 < lesson.since <= 0, "it has its date"


def test_what_is_set_for_the_model_holds_while_it_is_asked(serve, tmp_path) -> None:
    asked: set[str] = set()

    def knows_its_name(request: dict[str, Any]) -> Reply:
        asked.add(request["model"])
        return good(request)

    file = tmp_path / "toolgate.toml"
    file.write_text(f'[[models]]\nmatch = "work-*"\nsend_as = "{MODEL}"\nstrategy = "xml_prompt"\n')
    result = probed(serve(knows_its_name), "work-horse", "--json", "--samples", "1", GATEWAY_CONFIG=str(file))
    assert result.exit_code == 0, result.output
    assert (asked, json.loads(result.stdout)["rule"]) == ({MODEL}, "work-horse=recovery")


@pytest.mark.parametrize(
    ("template", "dialect"),
    [
        ("<tool_call>\n<function={{ name }}>", "qwen3_coder"),
        ('<tool_call>\n{"name"', "hermes"),
        ("<arg_key>", "glm"),
        ("[TOOL_CALLS]", "mistral"),
        ("plain", None),
    ],
)
def test_a_template_tells_the_form(template: str, dialect: str | None) -> None:
    assert dialects_in(template) == ([] if dialect is None else [dialect])


def test_both_helps_say_which_asks_what() -> None:
    assert "toolgate doctor --probe" in CliRunner().invoke(cli, ["probe", "--help"]).output
    assert "toolgate probe" in CliRunner().invoke(cli, ["doctor", "--help"]).output
