"""Every reason has one sentence with the facts in it and the setting that would change it, wherever it is told."""

import json
import re
from collections.abc import AsyncIterator

import pytest

from gateway.answer.candidates import _STAGES
from gateway.core.events import Verdict
from gateway.core.reasons import Reason
from gateway.core.records import RequestRecord
from gateway.core.sentences import MENDS, REASON_WORDS, Step, furthest, step_of, told_mends, why
from gateway.demo.script import MODELS
from gateway.demo.server import Pace, start_demo
from gateway.inspector.filters import parsed
from gateway.inspector.reader import Reader
from gateway.rereading.reading import declared_tools, document, read
from strategies.base import Options
from strategies.grammar.confidence import _COSTS, FORMS
from strategies.text.tolerant_json import CHOSEN
from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import DONE, answer_json, completion, event, hang, stream, text, without_tls
from tests.support.golden import cases
from tests.support.processes import free_port
from tests.support.reading import AGENT_TOOLS

THREE = ("read_file", "write_file", "execute_command")


def refused_for(reason: Reason, *reasons: str, name: str = "write_file", **facts: object) -> Verdict:
    given = {"dialect": "hermes", "score": 0, "accepted": False, "refusal": reason, "reasons": reasons, **facts}
    return Verdict(name=name, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_sentence_words_and_a_stage(reason):
    told = why(refused_for(reason, "some words", score=89, threshold=90))
    assert told.reason is reason
    assert told.sentence == told.sentence.strip()
    assert "\n" not in told.sentence
    assert not told.sentence.endswith(".")
    assert REASON_WORDS[reason]
    assert reason in _STAGES


QUOTES = refused_for(Reason.LOW_CONFIDENCE, "bare 92", "inner_quotes -7", score=85, threshold=90, about="content")
BELOW = "0.85 is below 0.90: quotes inside `content` were not escaped (with TRANSFORM_MIN_CONFIDENCE=0.85 it is a call)"


@pytest.mark.parametrize(
    ("verdict", "finish", "sentence", "setting"),
    [
        (
            refused_for(Reason.UNKNOWN_TOOL, "unknown_tool", name="launch_rocket", offered=THREE),
            "stop",
            "`launch_rocket` is none of the 3 tools offered (read_file, write_file, execute_command)",
            "",
        ),
        (
            refused_for(Reason.UNKNOWN_TOOL, "unknown_tool", name="x", offered=("a",)),
            "stop",
            "`x` is not the one tool offered (a)",
            "",
        ),
        (QUOTES, "stop", BELOW, "TRANSFORM_MIN_CONFIDENCE=0.85"),
        (
            refused_for(Reason.CUT, "cut"),
            "length",
            "the answer was cut by its length limit inside the call of `write_file`",
            "",
        ),
        (refused_for(Reason.CUT, "cut"), "cut", "the answer was cut off inside the call of `write_file`", ""),
        (
            refused_for(Reason.SCHEMA_INVALID, "hermes 97", "missing required argument `path`", score=97),
            "stop",
            "the arguments of the call of `write_file` do not fit: missing required argument `path`",
            "",
        ),
        (
            refused_for(Reason.NOT_CLOSED, "value not closed"),
            "stop",
            "the call of `write_file` is not complete: value not closed",
            "",
        ),
    ],
)
def test_a_sentence_holds_the_facts(verdict, finish, sentence, setting):
    told = why(verdict, finish)
    assert (told.sentence, told.setting) == (sentence, setting)


def test_many_tools_and_long_names_are_shortened():
    told = why(refused_for(Reason.UNKNOWN_TOOL, name="n" * 100_000, offered=tuple("t" * 5000 for _ in range(500))))
    assert "500 tools" in told.sentence
    assert len(told.sentence) < 1500


def test_the_costliest_mend_is_told_first():
    assert told_mends(("tag 97", "trailing_comma -2", "inner_quotes -7", "typed_string")) == (
        "quotes inside a value were not escaped; a comma stands before a closing brace"
    )
    assert told_mends(("tag 97", "some_new_mend -2")) == "some new mend"


def test_every_step_of_a_score_has_words_with_its_code_beside_it():
    """Whatever the judge gives or takes for, and what is said of a value without taking anything."""
    for code in (*FORMS, *_COSTS, *CHOSEN):
        step = step_of(f"{code} -2")
        assert (step.code, step.points) == (code, -2)
        assert step.words not in (code, code.replace("_", " "))
    assert step_of("unknown_tool") == Step(REASON_WORDS[Reason.UNKNOWN_TOOL], "unknown_tool")
    assert step_of("missing required argument `path`") == Step("missing required argument `path`")
    assert step_of("some_new_mend -3") == Step("some new mend", "some_new_mend", -3)


def test_words_of_mends_can_be_filled_in():
    assert all(re.fullmatch(r"[^{}]*(\{of\})?[^{}]*", words) for words in MENDS.values())


def test_of_several_readings_the_one_that_came_furthest_speaks():
    prose = refused_for(Reason.PARSE, "no call", name="")
    unread = refused_for(Reason.PARSE, "JSON", name="write_file")
    unknown = refused_for(Reason.UNKNOWN_TOOL, "unknown_tool", name="launch")
    judged = refused_for(Reason.LOW_CONFIDENCE, "x", score=85)
    assert furthest([prose, unread]) is unread
    assert furthest([unread, unknown]) is unknown
    assert furthest([prose, unknown, judged, unread]) is judged


SENTENCE = "`launch_rocket` is not the one tool offered (read_file)"

UNKNOWN = [
    '<tool_call>\n{"name": "launch_rocket", "arguments": {"x": 1}}\n</tool_call>',
    "<tool_call>\n<function=launch_rocket>\n<parameter=x>1</parameter>\n</function>\n</tool_call>",
]


@pytest.mark.parametrize("said", UNKNOWN)
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_tool_that_was_not_offered_is_told_of_everywhere(gateway, upstream, client, log, said, streamed):
    pieces = [said[at : at + 7] for at in range(0, len(said), 7)]
    upstream.script = (
        stream(event({"role": "assistant"}), *map(text, pieces), event(finish="stop"), DONE)
        if streamed
        else answer_json(completion(said))
    )
    running = await gateway(upstream.url, AUDIT_BODIES="full")
    await ask(client, running.url, chat(model="some-model", stream=streamed, tools=TOOLS))
    (told,) = (await log.record("request_ended"))["refused"]
    assert (told["tool"], told["reason"], told["sentence"]) == ("launch_rocket", "unknown_tool", SENTENCE)
    metrics = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_transform_errors_total{reason="unknown_tool",strategy="recovery"} 1.0' in metrics
    assert await running.upkeep.recorder.flush(5)
    store = running.upkeep.store
    (record,) = [each async for each in store.scan(RequestRecord)]
    (call,) = record.calls
    assert (call.tool, call.reason, call.sentence, call.declared) == ("launch_rocket", "unknown_tool", SENTENCE, False)
    assert call.span is not None
    assert call.before[slice(*call.span)].startswith("<tool_call>")
    page = await Reader(store).page(parsed("reason:unknown_tool"), before="", limit=5)
    assert (page.rows[0].sign, page.rows[0].what) == ("✗", "stayed text: launch_rocket")
    detail = await Reader(store).detail(record.id, 3600.0)
    assert detail is not None
    assert detail["sentence"] == SENTENCE
    reading = read([said], tools=declared_tools(TOOLS), options=Options(), model="m", prompted=None, finish="stop")
    (entry,) = document(reading)["rejected"]
    assert (entry["name"], entry["reason"], entry["sentence"]) == ("launch_rocket", "unknown_tool", SENTENCE)


def _refused_goldens() -> list[tuple[str, str]]:
    """Texts of golden cases that hold no call and something that was meant as one."""
    found = []
    for case in cases():
        if case.expected.get("tools") != "agent" or case.expected.get("calls") or set(case.expected) - _PLAIN:
            continue
        reading = read([case.text], tools=AGENT_TOOLS, options=Options(), model="m", prompted=None, finish="stop")
        if len(reading.rejected) == 1 and not reading.calls and case.text.isascii():
            found.append((case.id, case.text))
    return found[:: max(1, len(found) // 30)][:30]


@pytest.fixture
async def demo() -> AsyncIterator[str]:
    """Where the demo's models answer, without their pauses."""
    server = await start_demo(Pace(tokens_per_s=0, pause_s=0))
    yield server.url
    await server.close()


@pytest.mark.parametrize("model", MODELS)
async def test_the_page_says_of_each_demo_model_what_try_says(gateway, demo, client, model):
    running = await gateway(demo, AUDIT_BODIES="full", REPAIR_ATTEMPTS="0")
    offered = chat(model=model, stream=False, tools=TOOLS)
    await ask(client, running.url, offered, headers={"X-Request-Id": "r"})
    assert await running.upkeep.recorder.flush(5)
    detail = await Reader(running.upkeep.store).detail("r", 3600.0)
    assert detail is not None
    [record] = [each async for each in running.upkeep.store.scan(RequestRecord)]
    said = record.answer_text or ""
    reading = read([said], tools=declared_tools(TOOLS), options=Options(), model=model, prompted=None, finish="stop")
    told = document(reading)
    if model == "demo-native":
        assert detail["sentence"] == "the model server itself gave one call of `read_file`; it went out as it came"
    elif told["rejected"]:
        assert [detail["sentence"]] == [each["sentence"] for each in told["rejected"]]
    elif told["calls"]:
        (call,) = told["calls"]
        how = f"({call['dialect']}, {call['score']:.2f})"
        assert detail["sentence"] == f"`{call['name']}` was written as text and arrived as a call {how}"
    else:
        assert detail["sentence"] == "the answer holds nothing that looks like a call"


_PLAIN = {"tools", "calls", "content"}


async def test_the_page_names_the_reason_that_try_gives(gateway, upstream, client):
    texts = _refused_goldens()
    assert len(texts) >= 20
    functions = [{"name": tool.name, "parameters": dict(tool.parameters)} for tool in AGENT_TOOLS]
    offered = [{"type": "function", "function": function} for function in functions]
    running = await gateway(upstream.url, REPAIR_ATTEMPTS="0", RESCUE="false")
    for number, (name, said) in enumerate(texts):
        upstream.script = answer_json(completion(said))
        body = chat(model="m", stream=False, tools=offered)
        await ask(client, running.url, body, headers={"X-Request-Id": f"r{number}"})
        assert await running.upkeep.recorder.flush(5)
        detail = await Reader(running.upkeep.store).detail(f"r{number}", 3600.0)
        assert detail is not None, name
        tools = declared_tools(json.loads(json.dumps(offered)))
        reading = read([said], tools=tools, options=Options(), model="m", prompted=None, finish="stop")
        (entry,) = document(reading)["rejected"]
        assert detail["sentence"] == entry["sentence"], name
        assert not set(entry["name"]) & set("<>{}="), name


# --- Why a model server could not answer: one word in log and record, and what to look at for its operator alone


KEYED = {"GATEWAY_API_KEYS": "opens-the-door"}

KEY = {"Authorization": "Bearer opens-the-door"}


async def test_nobody_listens(gateway, client, log):
    url = f"http://127.0.0.1:{free_port()}/v1"
    running = await gateway(url)
    answer = await ask(client, running.url, chat())
    assert answer.json["error"]["code"] == "upstream_refused"
    assert f"UPSTREAM_URL is {url}" in answer.json["error"]["message"]
    assert "is it running" in answer.json["error"]["message"]
    line = await log.record("request_ended")
    assert (line["cause"], line["upstream"]) == ("refused", "default")
    assert await running.upkeep.recorder.flush(5)
    [record] = [each async for each in running.upkeep.store.scan(RequestRecord)]
    assert (record.cause, record.upstream) == ("refused", "default")


async def test_a_host_that_is_none(gateway, client, log):
    running = await gateway("http://no-such-host.invalid/v1")
    answer = await ask(client, running.url, chat())
    assert "spelt right" in answer.json["error"]["message"]
    assert (await log.record("request_ended"))["cause"] == "no_such_host"


async def test_a_server_without_tls(gateway, client, log):
    async with without_tls() as port:
        running = await gateway(f"https://127.0.0.1:{port}/v1")
        answer = await ask(client, running.url, chat())
    assert "is it http:// in UPSTREAM_URL" in answer.json["error"]["message"]
    assert (await log.record("request_ended"))["cause"] == "tls"


async def test_a_server_that_says_nothing(gateway, upstream, client, log):
    upstream.script = hang
    running = await gateway(upstream.url, UPSTREAM_FIRST_BYTE_TIMEOUT_S="0.2")
    answer = await ask(client, running.url, chat())
    assert "UPSTREAM_*_TIMEOUT_S" in answer.json["error"]["message"]
    assert (await log.record("request_ended"))["cause"] == "timeout"


async def test_a_path_that_is_none(gateway, upstream, client, log):
    upstream.script = answer_json({"detail": "Not Found"}, status="404 Not Found")
    running = await gateway(upstream.url)
    answer = await ask(client, running.url, chat())
    assert (answer.status, answer.json) == (404, {"detail": "Not Found"}), "the server's own words stay"
    assert (await log.record("request_ended"))["cause"] == "not_found"


@pytest.mark.parametrize(
    ("environ", "headers"),
    [
        (KEYED, KEY),
        ({"GATEWAY_ALLOWED_HOSTS": "gateway.example"}, {}),
        ({"GATEWAY_ALLOWED_ORIGINS": "https://x.y"}, {}),
    ],
)
async def test_whoever_is_no_operator_learns_no_address(gateway, client, environ, headers):
    url = f"http://127.0.0.1:{free_port()}/v1"
    running = await gateway(url, **environ)
    answer = await ask(client, running.url, chat(), headers=headers)
    assert answer.json["error"]["message"] == "the model server cannot be reached"
