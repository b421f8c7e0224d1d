"""Turns that a model server's own parser swallowed: each way in which they show, whole, streamed and in a stream."""

import json
from typing import Any

import pytest
from attrs import frozen

from gateway.answer.rescue.faces import FACES
from tests.support.client import TOOLS, Answer, ask, chat, get
from tests.support.faulty_upstream import DONE, Script, answer_json, completion, event, hang, in_turn, stream, text

ROLE = event({"role": "assistant", "content": ""})
FINISH = event(finish="stop")
TAGS = "<read_file>\n<path>src/a.py</path>\n</read_file>"
FUNCTION = "<tool_call>\n<function=read_file>\n<parameter=path>\nsrc/a.py\n</parameter>\n</function>\n</tool_call>"
CALL = ("read_file", {"path": "src/a.py"})
MODEL = "llama-3.3-70b"
USED = {"prompt_tokens": 400, "completion_tokens": 40, "total_tokens": 440}


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "server_error", **more}}


@frozen
class Shown:
    """One way in which a swallowed turn shows."""

    face: str
    error: dict[str, Any] | None = None
    """None for an answer of status 200."""
    status: str = "500 Internal Server Error"
    message: dict[str, Any] | None = None
    finish: str = "stop"
    result: str = "asked"

    def whole(self) -> Script:
        if self.error is not None:
            return answer_json(self.error, status=self.status)
        choice = {"index": 0, "message": {"role": "assistant", "content": "", **(self.message or {})}}
        return answer_json({**completion(), "choices": [{**choice, "finish_reason": self.finish}], "usage": USED})

    def streamed(self) -> Script:
        thought = [event({"reasoning_content": "I should read it."})] if self.message else []
        if self.error is not None:
            return stream(ROLE, b"data: " + json.dumps(self.error).encode() + b"\n\n")
        return stream(ROLE, *thought, event(finish=self.finish), event(choices=[], usage=USED), DONE)

    @property
    def shapes(self) -> tuple[str, ...]:
        return ("whole", "refused_stream", "streamed") if self.error is not None else ("whole", "streamed")

    def script(self, shape: str) -> Script:
        return self.streamed() if shape == "streamed" else self.whole()


READ = [
    Shown(
        "failed_generation",
        {"error": {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": FUNCTION}},
        status="400 Bad Request",
        result="read",
    ),
    Shown("parse_input", said(f"Failed to parse input at pos 0: I look.\n{FUNCTION}", code=500), result="read"),
    Shown("parse_input", said(f"Failed to parse input at pos 395: {FUNCTION}", code=500), result="read"),
    Shown(
        "raw_call",
        {"error": f"error parsing tool call: raw='{json.dumps({'name': 'read_file', 'arguments': CALL[1]})}', err=x"},
        result="read",
    ),
]
ASKED = [
    Shown(
        "failed_generation",
        {"error": {"message": "x", "code": "tool_use_failed", "failed_generation": "Tool use failed: no JSON"}},
        status="400 Bad Request",
    ),
    Shown("failed_generation", {"error": {"message": "x", "code": "tool_use_failed"}}, status="400 Bad Request"),
    # its head was read before: what is left may be the second of two calls
    Shown("parse_input", said(f"Failed to parse input at pos 40: c.py</parameter>\n</function>\n{FUNCTION}")),
    Shown("parse_input", said("Failed to parse input at pos 12: </tool_call>")),
    Shown("peg_format", said("The model produced output that does not match the expected peg-native format")),
    Shown("peg_format", said("The model produced output that does not match the expected peg-gemma4 format")),
    Shown("xml_syntax", said("XML syntax error on line 8: element <function> closed by </parameter>")),
    Shown("xml_syntax", {"error": "XML syntax error on line 115: unexpected EOF"}),
    Shown("xml_syntax", said("failed to parse XML: XML syntax error on line 1: element <tool_call> closed by </b>")),
    Shown("xml_syntax", said("expected element type <function> but have <parameter>")),
    # the arguments alone: of which tool, nobody knows
    Shown("raw_call", said('error parsing tool call: raw=\'{"path":"src/a.py"\', err=unexpected end of JSON input')),
    Shown("raw_call", said("error parsing tool call: invalid character ']' after object key:value pair")),
    Shown("parser_eof", {"error": "EOF"}),
    Shown("parser_eof", said("unexpected end of JSON input")),
    Shown("silent"),
    Shown("no_call", finish="tool_calls"),
    Shown("no_call", finish="tool_calls", message={"reasoning_content": "I should read it.", "tool_calls": []}),
]
CASES = [(shown, shape) for shown in (*READ, *ASKED) for shape in shown.shapes]


def calls_of(got: Answer) -> list[tuple[str, Any]]:
    if not got.headers["Content-Type"].startswith("text/event-stream"):
        message = got.json["choices"][0]["message"]
        return [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in message["tool_calls"]]
    found: dict[int, list[str]] = {}
    for chunk in got.chunks:
        for choice in chunk.get("choices", []):
            for call in choice["delta"].get("tool_calls") or []:
                name, arguments = found.setdefault(call["index"], ["", ""])
                function = call["function"]
                found[call["index"]] = [name or function.get("name", ""), arguments + function.get("arguments", "")]
    return [(name, json.loads(arguments)) for name, arguments in found.values()]


def told(status: int) -> int:
    """An error of the server itself is told as one of the way to it."""
    return 502 if status == 500 else status


def by_tools(first: Script, second: Script) -> Script:
    """The first answer to a request with native tools, the second to all others."""

    async def script(connection: Any, received: Any) -> None:
        await (first if "tools" in received.json else second)(connection, received)

    return script


def asked(shape: str, **more: Any) -> dict[str, Any]:
    return chat(model=MODEL, stream=shape != "whole", tools=TOOLS, **more)


async def metrics_of(client: Any, running: Any) -> str:
    return (await get(client, f"{running.url}/metrics")).body.decode()


def counted(exposition: str, face: str, result: str) -> bool:
    labels = f'face="{face}",result="{result}",upstream="default"'
    return f"toolgate_rescues_total{{{labels}}} 1.0" in exposition


@pytest.mark.parametrize(("shown", "shape"), CASES, ids=lambda each: getattr(each, "face", each))
async def test_a_swallowed_turn_ends_in_the_call(gateway, upstream, client, log, shown: Shown, shape: str):
    upstream.script = by_tools(shown.script(shape), answer_json(completion(f"I look.\n{TAGS}")))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(shape))
    assert got.status == 200
    assert calls_of(got) == [CALL]
    if shape != "whole":
        assert got.is_done
        assert "error" not in json.dumps([chunk for chunk in got.chunks if "error" in chunk])
        finishes = [choice["finish_reason"] for chunk in got.chunks for choice in chunk["choices"]]
        assert [each for each in finishes if each] == ["tool_calls"]
        assert len({chunk["id"] for chunk in got.chunks}) == 1
    else:
        assert got.json["choices"][0]["finish_reason"] == "tool_calls"
    assert len(upstream.requests) == (1 if shown.result == "read" else 2)
    if shown.result == "asked":
        second = upstream.last.json
        assert "tools" not in second
        assert "read_file" in json.dumps(second["messages"])
    assert counted(await metrics_of(client, running), shown.face, shown.result)
    ended = await log.record("request_ended")
    assert (ended["end"], ended["notes"]) == ("completed", [f"parser_failed: {shown.face}, {shown.result}"])
    assert ended["strategy"] == ("recovery" if shown.result == "read" else "xml_prompt")


def test_every_face_is_shown() -> None:
    assert {shown.face for shown in (*READ, *ASKED)} == {face.name for face in FACES} - {"no_grammar"}
    assert all(face.shown_by.startswith("https://github.com/") for face in FACES)


@pytest.mark.parametrize(("shown", "shape"), CASES, ids=lambda each: getattr(each, "face", each))
@pytest.mark.parametrize("mode", [{"TRANSFORM_MODE": "dry_run"}, {"TRANSFORM_MODE": "canary", "CANARY_PERCENT": "0"}])
async def test_an_untouched_arm_is_told_what_would_have_been(gateway, upstream, client, shown, shape, mode):
    upstream.script = shown.script(shape)
    running = await gateway(upstream.url, **mode)
    direct = await ask(client, upstream.url.removesuffix("/v1"), asked(shape))
    got = await ask(client, running.url, asked(shape))
    assert (got.status, got.body) == (told(direct.status), direct.body)
    assert len(upstream.requests) == 2
    exposition = await metrics_of(client, running)
    assert counted(exposition, shown.face, "would")


@pytest.mark.parametrize(("shown", "shape"), CASES, ids=lambda each: getattr(each, "face", each))
async def test_where_nothing_helps_the_first_answer_stands(gateway, upstream, client, shown, shape):
    upstream.script = by_tools(shown.script(shape), answer_json({"error": {"message": "no"}}, status="500 Oops"))
    running = await gateway(upstream.url, RESCUE="true" if shown.result == "asked" else "false")
    direct = await ask(client, upstream.url.removesuffix("/v1"), asked(shape))
    got = await ask(client, running.url, asked(shape))
    assert (got.status, got.body) == (told(direct.status), direct.body)
    exposition = await metrics_of(client, running)
    assert counted(exposition, shown.face, "failed") is (shown.result == "asked")
    assert len(upstream.requests) == (3 if shown.result == "asked" else 2)


@pytest.mark.parametrize("shape", ["whole", "streamed", "refused_stream"])
@pytest.mark.parametrize("off", [{"RESCUE": "false"}, {"TRANSFORM_MODE": "off"}])
async def test_switched_off_nothing_is_asked(gateway, upstream, client, shape, off):
    shown = ASKED[4]
    upstream.script = shown.script(shape)
    running = await gateway(upstream.url, **off)
    direct = await ask(client, upstream.url.removesuffix("/v1"), asked(shape))
    got = await ask(client, running.url, asked(shape))
    assert (got.status, got.body) == (told(direct.status), direct.body)
    assert len(upstream.requests) == 2
    assert "peg_format" not in await metrics_of(client, running)


@pytest.mark.parametrize("shape", ["whole", "streamed"])
@pytest.mark.parametrize("how", [{}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS, "n": 2}])
async def test_a_request_without_tools_or_for_several_answers_is_not_rescued(gateway, upstream, client, shape, how):
    upstream.script = Shown("silent").script(shape)
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(model=MODEL, stream=shape != "whole", **how))
    assert len(upstream.requests) == 1


SEEN = [
    (text("I look."),),
    (
        event(
            {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}]}
        ),
    ),
]


@pytest.mark.parametrize("seen", SEEN, ids=["text", "call"])
@pytest.mark.parametrize("end", [b"data: " + json.dumps(said("EOF")).encode() + b"\n\n", event(finish="stop")])
async def test_after_anything_visible_nothing_is_asked(gateway, upstream, client, seen, end):
    pieces = (ROLE, *seen, end)
    upstream.script = stream(*pieces, *(() if b"error" in end else (DONE,)))
    running = await gateway(upstream.url)
    await ask(client, running.url, asked("streamed"))
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("litellm: Failed to parse input at pos 3: x", "500 Oops"),  # somebody quotes it
        ('Post "http://127.0.0.1:41234/completion": EOF', "500 Oops"),
        ("an error was encountered while running the model: unexpected EOF", "500 Oops"),
        ("context length exceeded; the last message was: XML syntax error on line 3: x", "400 Bad Request"),
        (f"invalid message; a call is written so: {FUNCTION}", "400 Bad Request"),
        ("Failed to parse tool call arguments as JSON: the history is broken", "500 Oops"),
        ("Failed to parse input at pos 3: x", "404 None"),
        ("EOF", "400 Bad Request"),
    ],
)
@pytest.mark.parametrize("shape", ["whole", "streamed"])
async def test_other_errors_are_the_clients(gateway, upstream, client, message, status, shape):
    upstream.script = answer_json(said(message), status=status)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(shape))
    assert (got.status, got.json) == (told(int(status[:3])), said(message))
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 9, "completion_tokens": 4},
        {"prompt_tokens": 9, "completion_tokens": 90, "completion_tokens_details": {"reasoning_tokens": 86}},
        None,
    ],
)
@pytest.mark.parametrize("shape", ["whole", "streamed"])
async def test_an_honest_empty_answer_is_one(gateway, upstream, client, usage, shape):
    end = [event(choices=[], usage=usage)] if usage else []
    pieces = (ROLE, FINISH, *end, DONE)
    body = {**completion(""), "usage": usage}
    upstream.script = stream(*pieces) if shape == "streamed" else answer_json(body)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(shape))
    assert got.body == b"".join(pieces) if shape == "streamed" else got.json == body
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("shape", ["whole", "streamed"])
async def test_reasoning_alone_is_an_answer_and_no_draft_in_it_a_call(gateway, upstream, client, shape):
    thought = {"reasoning_content": f"Maybe {TAGS} but no, I am done here."}
    pieces = (ROLE, event(thought), FINISH, event(choices=[], usage=USED), DONE)
    body = {**completion("", **thought), "usage": USED}
    upstream.script = stream(*pieces) if shape == "streamed" else answer_json(body)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(shape))
    assert got.body == b"".join(pieces) if shape == "streamed" else got.json == body
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("shape", ["whole", "streamed"])
async def test_a_second_answer_of_words_is_the_answer(gateway, upstream, client, shape):
    upstream.script = by_tools(ASKED[4].script(shape), answer_json(completion("There is nothing to read.")))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(shape))
    content = got.content if shape == "streamed" else got.json["choices"][0]["message"]["content"]
    assert content == "There is nothing to read."
    assert counted(await metrics_of(client, running), "peg_format", "asked")


async def test_a_tool_result_before_an_empty_answer_changes_nothing(gateway, upstream, client):
    upstream.script = by_tools(Shown("silent").whole(), answer_json(completion(TAGS)))
    running = await gateway(upstream.url)
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "b"}'}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
    ]
    got = await ask(client, running.url, {"model": MODEL, "messages": messages, "tools": TOOLS})
    assert calls_of(got) == [CALL]


async def test_reasoning_that_was_shown_is_no_hindrance_and_keeps_its_answers_id(gateway, upstream, client):
    error = said("The model produced output that does not match the expected peg-native format")
    broken = stream(ROLE, event({"reasoning_content": "Hm."}), b"data: " + json.dumps(error).encode() + b"\n\n")
    second = {**completion(TAGS), "id": "chatcmpl-2"}
    upstream.script = by_tools(broken, answer_json(second))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked("streamed", stream_options={"include_usage": True}))
    assert calls_of(got) == [CALL]
    assert {chunk["id"] for chunk in got.chunks} == {"chatcmpl-1"}
    assert [chunk["choices"][0]["delta"].get("role") for chunk in got.chunks if chunk["choices"]].count(
        "assistant"
    ) == 1
    assert got.chunks[-1]["usage"]["completion_tokens"] == 5


async def test_what_both_answers_took_is_told(gateway, upstream, client):
    upstream.script = by_tools(Shown("silent").whole(), answer_json(completion(TAGS)))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked("whole"))
    assert got.json["usage"] == {"prompt_tokens": 403, "completion_tokens": 45, "total_tokens": 448}


async def test_old_servers_name_the_field_itself_an_error(gateway, upstream, client):
    line = b'error: {"code":500,"message":"Failed to parse input at pos 9: x","type":"server_error"}\n\n'
    upstream.script = by_tools(stream(ROLE, line), answer_json(completion(TAGS)))
    running = await gateway(upstream.url)
    assert calls_of(await ask(client, running.url, asked("streamed"))) == [CALL]


async def test_a_stream_that_does_not_end_after_its_error_is_not_waited_for(gateway, upstream, client):
    async def open_ended(connection: Any, received: Any) -> None:
        await ASKED[4].streamed()(connection, received)
        await hang(connection, received)

    upstream.script = by_tools(open_ended, answer_json(completion(TAGS)))
    running = await gateway(upstream.url)
    assert calls_of(await ask(client, running.url, asked("streamed"))) == [CALL]


async def test_the_usage_of_a_stream_is_asked_for_where_no_client_would_see_it(gateway, upstream, client):
    """The first stream tells that the server does not tell it unasked."""
    thought = event({"reasoning_content": "I have nothing to say."})

    async def script(connection: Any, received: Any) -> None:
        wants = (received.json.get("stream_options") or {}).get("include_usage")
        usage = [event(choices=[], usage=USED)] if wants else []
        if "tools" not in received.json:
            await answer_json(completion(TAGS))(connection, received)
        elif "thinking" in json.dumps(received.json["messages"]):
            await stream(ROLE, thought, FINISH, *usage, DONE)(connection, received)
        elif "silence" in json.dumps(received.json["messages"]):
            await stream(ROLE, FINISH, *usage, DONE)(connection, received)
        else:
            await stream(ROLE, text("Hello."), FINISH, *usage, DONE)(connection, received)

    upstream.script = script
    running = await gateway(upstream.url)
    plain = b"".join((ROLE, text("Hello."), FINISH, DONE))
    assert (await ask(client, running.url, asked("streamed"))).body == plain
    assert "stream_options" not in upstream.last.json
    assert (await ask(client, running.url, asked("streamed"))).body == plain
    assert upstream.last.json["stream_options"] == {"include_usage": True}
    wanted = await ask(client, running.url, asked("streamed", stream_options={"include_usage": True}))
    assert wanted.body == b"".join((ROLE, text("Hello."), FINISH, event(choices=[], usage=USED), DONE))
    request = {**asked("streamed"), "messages": [{"role": "user", "content": "thinking"}]}
    assert (await ask(client, running.url, request)).body == b"".join((ROLE, thought, FINISH, DONE))
    assert upstream.last.json["stream_options"] == {"include_usage": True}
    request = {**asked("streamed"), "messages": [{"role": "user", "content": "silence"}]}
    assert calls_of(await ask(client, running.url, request)) == [CALL]


async def test_who_refuses_the_wish_for_usage_is_not_asked_again(gateway, upstream, client):
    async def script(connection: Any, received: Any) -> None:
        if "stream_options" in received.json:
            await answer_json(said("Extra inputs: stream_options"), status="422 No")(connection, received)
        else:
            await stream(ROLE, text("Hello."), FINISH, DONE)(connection, received)

    upstream.script = script
    running = await gateway(upstream.url)
    for _ in range(3):
        assert (await ask(client, running.url, asked("streamed"))).content == "Hello."
    assert ["stream_options" in received.json for received in upstream.requests] == [False, True, False, False]


PATTERN = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string", "pattern": "^[^\\d]+$"}},
                "required": ["path"],
            },
        },
    }
]
GRAMMAR = [
    ("400 Bad Request", said("Failed to initialize samplers: failed to parse grammar", code=400)),
    ("500 Oops", said("JSON schema conversion failed:\nUnrecognized schema: true")),
    ("400 Bad Request", said("Unsupported JSON schema")),
]
NATIVE = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"src/a.py"}'}}


@pytest.mark.parametrize(("status", "error"), GRAMMAR)
@pytest.mark.parametrize("streamed", [True, False])
async def test_tools_that_cannot_be_compiled_are_told_in_simpler_words(
    gateway, upstream, client, status, error, streamed
):
    async def script(connection: Any, received: Any) -> None:
        if "pattern" in json.dumps(received.json.get("tools")).replace("(pattern", ""):
            await answer_json(error, status=status)(connection, received)
        elif streamed:
            call = event({"tool_calls": [{"index": 0, **NATIVE}]})
            await stream(ROLE, call, event(finish="tool_calls"), DONE)(connection, received)
        else:
            await answer_json(completion(None, tool_calls=[NATIVE]))(connection, received)

    upstream.script = script
    running = await gateway(upstream.url)
    request = chat(model=MODEL, stream=streamed, tools=PATTERN)
    assert calls_of(await ask(client, running.url, request)) == [CALL]
    assert len(upstream.requests) == 2
    assert calls_of(await ask(client, running.url, request)) == [CALL]
    assert len(upstream.requests) == 3, "that is remembered"
    assert counted(await metrics_of(client, running), "no_grammar", "asked")


@pytest.mark.parametrize("streamed", [True, False])
async def test_else_they_go_into_the_prompt_and_else_the_first_refusal_stands(gateway, upstream, client, streamed):
    status, error = GRAMMAR[0]
    good = stream(ROLE, text(TAGS), FINISH, DONE) if streamed else answer_json(completion(TAGS))
    upstream.script = by_tools(answer_json(error, status=status), good)
    running = await gateway(upstream.url)
    request = chat(model=MODEL, stream=streamed, tools=PATTERN)
    assert calls_of(await ask(client, running.url, request)) == [CALL]
    assert len(upstream.requests) == 3
    upstream.script = in_turn(answer_json(error, status=status), answer_json(said("other"), status="400 Bad"))
    got = await ask(client, running.url, request)
    assert (got.status, got.json) == (400, error)


async def test_after_five_in_vain_one_in_twenty_is_asked(gateway, upstream, client):
    upstream.script = ASKED[4].whole()
    running = await gateway(upstream.url)
    asked_for = []
    for _ in range(46):
        before = len(upstream.requests)
        await ask(client, running.url, asked("whole"))
        asked_for.append(len(upstream.requests) - before == 2)
    assert asked_for == [*[True] * 5, *[False] * 19, True, *[False] * 19, True, False]
    exposition = await metrics_of(client, running)
    assert 'toolgate_rescues_total{face="peg_format",result="not_possible",upstream="default"} 39.0' in exposition


async def test_a_model_that_is_cured_three_times_is_prompted_at_once(gateway, upstream, client, log):
    upstream.script = by_tools(ASKED[4].whole(), answer_json(completion(TAGS)))
    running = await gateway(upstream.url)
    for _ in range(5):
        assert calls_of(await ask(client, running.url, asked("whole"))) == [CALL]
    assert ["tools" in received.json for received in upstream.requests] == [True, False] * 3 + [False, False]
    assert (await log.record("native_fallback"))["reason"] == "parser_failed"
    upstream.script = answer_json({"object": "list", "data": [{"id": MODEL}]})
    (told,) = (await get(client, f"{running.url}/v1/models")).json["data"]
    assert told["toolgate"]["learned"]["reason"] == "parser_failed"
    assert told["toolgate"]["strategy"] == "xml_prompt"


async def test_without_budget_the_first_answer_stands(gateway, upstream, client):
    upstream.script = by_tools(ASKED[4].whole(), answer_json(completion(TAGS)))
    running = await gateway(upstream.url)
    while running.shared.second_questions.take(1):
        pass
    assert (await ask(client, running.url, asked("whole"))).status == told(500)
    assert counted(await metrics_of(client, running), "peg_format", "not_possible")


async def test_a_required_call_is_asked_for_once_and_not_by_both(gateway, upstream, client):
    upstream.script = Shown("no_call", finish="tool_calls").whole()
    running = await gateway(upstream.url)
    await ask(client, running.url, {**asked("whole"), "tool_choice": "required"})
    assert len(upstream.requests) == 2


THOUGHT = {"reasoning_content": f"I should read it.\n{FUNCTION}\n"}


def reasoned(shape: str, finish: str) -> Script:
    if shape == "whole":
        return Shown("no_call", finish=finish, message=THOUGHT).script(shape)
    said = THOUGHT["reasoning_content"]
    pieces = {"streamed": [said], "at the end": ["", said], "in pieces": [said[:40], said[40:]]}[shape]
    first, last = pieces[0], pieces[1:]
    end = event({"reasoning_content": last[0]} if last else None, finish=finish)
    return stream(ROLE, event({"reasoning_content": first}), end, event(choices=[], usage=USED), DONE)


@pytest.mark.parametrize("shape", ["whole", "streamed", "at the end", "in pieces"])
@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
@pytest.mark.parametrize("model", [MODEL, "qwen3-8b"])
async def test_a_call_in_the_reasoning_is_read_there_and_not_asked_for(
    gateway, upstream, client, log, shape, finish, model
):
    upstream.script = reasoned(shape, finish)
    running = await gateway(upstream.url, AUDIT_BODIES="none")
    got = await ask(client, running.url, {**asked(shape), "model": model})
    assert calls_of(got) == [CALL]
    assert len(upstream.requests) == 1
    exposition = await metrics_of(client, running)
    assert 'toolgate_reasoning_calls_total{arm="live",dialect="qwen3_coder"} 1.0' in exposition
    assert counted(exposition, "no_call", "read") is (finish == "tool_calls")
    (call,) = (await log.record("request_ended"))["calls"]
    assert "in_reasoning" in call["reasons"]


@pytest.mark.parametrize("shape", ["whole", "streamed"])
@pytest.mark.parametrize("mode", [{"TRANSFORM_MODE": "dry_run"}, {"REASONING_CALLS": "false", "RESCUE": "false"}])
async def test_reasoning_that_is_not_to_be_read_goes_on_as_it_came(gateway, upstream, client, shape, mode):
    upstream.script = reasoned(shape, "stop")
    running = await gateway(upstream.url, **mode)
    direct = await ask(client, upstream.url.removesuffix("/v1"), asked(shape))
    got = await ask(client, running.url, asked(shape))
    assert got.body == direct.body
    exposition = await metrics_of(client, running)
    told = 'toolgate_reasoning_calls_total{arm="dry_run",dialect="qwen3_coder"} 1.0' in exposition
    assert told is ("TRANSFORM_MODE" in mode)
    assert ('dialect="qwen3_coder",verdict="would_change"} 1.0' in exposition) is told


READ_FILE: Any = TOOLS[0]
ANTHROPIC = [{"name": "read_file", "input_schema": READ_FILE["function"]["parameters"]}]
RESPONSES = [{"type": "function", **READ_FILE["function"]}]


@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
async def test_clients_of_other_wires_get_the_call_behind_the_thought(gateway, upstream, client, finish):
    upstream.script = reasoned("streamed", finish)
    running = await gateway(upstream.url)
    asks = {"model": MODEL, "stream": True}
    messages = {**asks, "max_tokens": 99, "tools": ANTHROPIC, "messages": [{"role": "user", "content": "Read it."}]}
    async with client.post(f"{running.url}/v1/messages", json=messages) as got:
        told = (await got.read()).decode()
    kinds = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: {")]
    begun = [each["content_block"]["type"] for each in kinds if each["type"] == "content_block_start"]
    assert begun[-1] == "tool_use"
    assert '"stop_reason":"tool_use"' in told
    async with client.post(
        f"{running.url}/v1/responses", json={**asks, "input": "Read it.", "tools": RESPONSES}
    ) as got:
        told = (await got.read()).decode()
    final = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: {")][-1]["response"]
    assert [item["type"] for item in final["output"]] == ["reasoning", "function_call"]
    assert json.loads(final["output"][1]["arguments"]) == CALL[1]
    assert len(upstream.requests) == 2
