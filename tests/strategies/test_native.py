"""Native models: their own family's markup in the text is a call, everything else is relayed."""

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from gateway.wire.chat_request import parse_request
from strategies.base import Options, Prepared
from strategies.dialects.rows import BY_ID
from strategies.native import LEAKS, NativeStrategy, leaks_of
from tests.support.chat import answer_body, answer_events, event, hear_body, hear_stream, stream, whole
from tests.support.reading import AGENT_TOOLS

TOOLS = [
    {"type": "function", "function": {"name": tool.name, "description": "", "parameters": tool.parameters}}
    for tool in AGENT_TOOLS
]
INVOKE = '<invoke name="read">\n<parameter name="filePath">a.py</parameter>\n</invoke>'
LEAKED = {
    "claude-opus-4-8": f"I look.\n\n<function_calls>\n{INVOKE}\n</function_calls>",
    "anthropic/claude-sonnet-4.5": f"I look.\n\ncount\n{INVOKE}",
    "gpt-5.4": '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"filePath": "a.py"}<|call|>',
    "gpt-5.3-codex": 'I look.\nassistant to=functions.read commentary json\n{"filePath": "a.py"}',
    "gemini-3-pro": 'I look.\n```tool_code\nprint(default_api.read(filePath="a.py"))\n```',
    "google/gemini-2.5-flash": 'I look.\ndefault_api:read{filePath:"a.py"}',
    "mistral-large-2512": 'I look.[TOOL_CALLS]read[ARGS]{"filePath": "a.py"}',
    "mistral-medium-3": '[TOOL_CALLS][{"name": "read", "arguments": {"filePath": "a.py"}}]',
    "command-a-03-2025": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "read", "parameters": '
    '{"filePath": "a.py"}}]<|END_ACTION|>',
    "grok-4": "I look.\n<read>\n<filePath>a.py</filePath>\n</read>",
    "o3": "<read>\n<filePath>a.py</filePath>\n</read>",
}
HERMES = '<tool_call>\n{"name": "read", "arguments": {"filePath": "a.py"}}\n</tool_call>'
RELAYED = [
    ("gpt-5.4", HERMES),
    ("gpt-5.4", f"I look.\n{INVOKE}"),
    ("claude-opus-4-8", HERMES),
    ("claude-opus-4-8", '[TOOL_CALLS]read[ARGS]{"filePath": "a.py"}'),
    ("claude-opus-4-8", '```json\n{"name": "read", "arguments": {"filePath": "a.py"}}\n```'),
    ("grok-4", "<|channel|>final<|message|>It is done."),
    ("grok-4", INVOKE),
    ("grok-4", "<web_fetch>\n<url>https://example.org</url>\n<prompt>x</prompt>\n</web_fetch>"),
    ("claude-opus-4-8", f"One writes `{INVOKE}` for it."),
    ("claude-opus-4-8", f"For example:\n```xml\n{INVOKE}\n```\nThat is all."),
    ("claude-opus-4-8", '<invoke name="launch">\n<parameter name="x">1</parameter>\n</invoke>'),
    ("claude-opus-4-8", '<invoke name="read">\n<parameter name="limit">3</parameter>\n</invoke>'),
    ("claude-opus-4-8", '<invoke name="read">\n<parameter name="filePath">a'),
    ("mistral-large-2512", "[TOOL_CALLS]"),
    ("gemini-3-pro", "```python\nprint(default_api)\n```"),
]


def native(model: str, options: Options | None = None, **more: Any) -> Prepared:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, **more}
    return NativeStrategy().prepare(parse_request(json.dumps(body).encode()), options or Options())


def test_every_leak_is_one_of_a_dialect() -> None:
    assert {name for _, names in LEAKS for name in names} <= BY_ID.keys()
    assert leaks_of("grok-4") == {"generic_xml"}
    assert leaks_of("glm-4.6") == {"generic_xml", "glm"}, "one that a rule makes native has its own markup, too"


@pytest.mark.parametrize(("model", "text"), LEAKED.items())
def test_a_leak_of_the_family_is_a_call(model: str, text: str) -> None:
    for parts in ([text], list(text)):
        out, exchange = stream(answer_events(parts), native(model))
        heard = hear_stream(out)
        assert [(call["name"], json.loads(call["arguments"])) for call in heard.calls] == [
            ("read", {"filePath": "a.py"})
        ]
        assert heard.finish == "tool_calls"
        assert exchange.facts.calls[0].verdict.dialect in leaks_of(model)
    assert hear_body(whole(answer_body(text), native(model))[0]).meaning == heard.meaning


@pytest.mark.parametrize(("model", "text"), RELAYED)
@pytest.mark.parametrize("more", [{}, {"tool_choice": "required"}])
def test_everything_else_goes_on_as_it_came_and_at_once(model: str, text: str, more: Any) -> None:
    events = answer_events(["Well. ", *text])
    out, exchange = stream(events, native(model, **more))
    assert out == b"".join(events)
    assert (exchange.facts.calls, exchange.ask_again) == ([], None)
    body = answer_body(text)
    assert whole(body, native(model, **more))[0] == body


def test_a_structured_call_beside_it_leaves_the_text_alone() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "read", "arguments": '{"filePath":"a.py"}'}}
    text = LEAKED["claude-opus-4-8"]
    events = [event({"role": "assistant", "content": text}), event({"tool_calls": [call]})]
    events += [event({}, "tool_calls"), b"data: [DONE]\n\n"]
    out, exchange = stream(events, native("claude-opus-4-8"))
    assert out == b"".join(events)
    assert exchange.facts.calls == []


@pytest.mark.parametrize(
    "how",
    [
        native("claude-opus-4-8", Options(native_leaks=False)),
        native("claude-opus-4-8", n=2),
        native("claude-opus-4-8", tools=[]),
    ],
)
def test_it_can_be_left(how: Prepared) -> None:
    assert how.make_reader is None


def test_texts_that_are_no_calls_are_relayed() -> None:
    negatives = Path(__file__).parents[1] / "data" / "negatives.jsonl"
    texts = [json.loads(line)["text"] for line in negatives.read_text(encoding="utf-8").split("\n") if line]
    models = cycle([native(model) for model in LEAKED])
    for text, how in zip(texts, models, strict=False):
        body = answer_body(text)
        assert whole(body, how)[0] == body
