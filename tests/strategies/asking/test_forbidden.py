"""Answers to requests that offer tools and forbid calls: markup is counted, and left out where that is wanted."""

import json
from typing import Any

import pytest

from gateway.core.events import NONE_MARKUP, Drop, Note, Text
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.asking.forbidden import CallsForbidden, forbids_calls
from strategies.base import InTurns, Options, PassesText, Prepared
from strategies.xml_prompt import XmlPromptStrategy
from tests.support.chat import answer_body, answer_events, hear_stream, stream, whole
from tests.support.reading import AGENT_TOOLS, pieces

TOOLS = [
    {"type": "function", "function": {"name": tool.name, "description": "", "parameters": tool.parameters}}
    for tool in AGENT_TOOLS
]
HERMES = '<tool_call>\n{"name": "read", "arguments": {"filePath": "a.py"}}\n</tool_call>'
TAGS = "<read>\n<filePath>a.py</filePath>\n</read>"
GEMMA = "<|tool_call>call:launch{}<tool_call|>"
MARKUP = {"hermes": HERMES, "generic_xml": TAGS, "gemma4": GEMMA}
NO_MARKUP = {
    "JSON": 'It is `{"a": 1}`, so\n```json\n{"name": "read", "arguments": {"filePath": "a.py"}}\n```',
    "bare": '{"name": "read", "arguments": {"filePath": "a.py"}}',
    "in code": f"You would write `{TAGS}`.",
    "a fence": f"So it goes:\n```xml\n{HERMES}\n```\nand so on.",
    "half": "<tool_call>\n{",
    "the form in a fence": f"It is written so:\n\n```\n{HERMES}\n```",
    "a tool of nobody": "<web_fetch>\n<url>x</url>\n</web_fetch>",
    "prose": "Nothing is to be done.\n\n",
}


def request(**more: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, "tool_choice": "none"}
    return parse_request(json.dumps({**body, **more}).encode())


def how(mode: str, strategy: Any = CallsForbidden, **more: Any) -> Prepared:
    made: Prepared = strategy().prepare(request(**more), Options(none_markup=mode))  # type: ignore[arg-type]
    return made


def test_which_requests_forbid_calls() -> None:
    assert forbids_calls(request())
    assert not forbids_calls(request(tool_choice="auto"))
    assert not forbids_calls(request(tools=[]))
    assert how("keep", n=2).make_reader is None
    assert how("keep").body == request().raw


@pytest.mark.parametrize("strategy", [CallsForbidden, XmlPromptStrategy])
@pytest.mark.parametrize(("dialect", "markup"), MARKUP.items(), ids=MARKUP)
def test_markup_is_noted_and_stays_or_is_left_out(dialect: str, markup: str, strategy: Any) -> None:
    text = f"I would look.\n{markup}"
    for parts in ([text], list(text)):
        events = answer_events(parts)
        out, exchange = stream(events, how("keep", strategy))
        assert out == b"".join(events)
        (noted,) = exchange.facts.intents
        assert (noted.dialect, noted.reasons[-1], exchange.facts.calls) == (dialect, NONE_MARKUP, [])
        out, exchange = stream(events, how("drop", strategy))
        heard = hear_stream(out)
        assert ((heard.content or "").strip(), heard.calls, heard.finish) == ("I would look.", [], "stop")
        assert (exchange.facts.dropped[NONE_MARKUP], len(exchange.facts.intents)) == (1, 1)
    body = answer_body(text)
    assert whole(body, how("keep", strategy))[0] == body
    message = json.loads(whole(body, how("drop", strategy))[0])["choices"][0]["message"]
    assert (message["content"].strip(), "tool_calls" in message) == ("I would look.", False)


@pytest.mark.parametrize("mode", ["keep", "drop"])
@pytest.mark.parametrize("text", NO_MARKUP.values(), ids=NO_MARKUP)
def test_what_is_no_markup_is_no_ones_affair(text: str, mode: str) -> None:
    events = answer_events(list(text))
    out, exchange = stream(events, how(mode))
    assert (out, exchange.facts.intents, exchange.facts.refused) == (b"".join(events), [], [])
    body = answer_body(text)
    assert whole(body, how(mode))[0] == body


@pytest.mark.parametrize("mode", ["keep", "drop"])
def test_the_readers_say_the_same_however_they_are_fed(mode: str) -> None:
    make = how(mode).make_reader
    assert make is not None
    text = "x " * 4500 + f"\nOne.\n{HERMES}\nTwo. <b>x</b>\n\n{HERMES.replace('a.py', 'b.py')}\n"
    for cuts in ((), range(1, len(text)), range(5, len(text), 700)):
        reader = make()
        assert isinstance(reader, InTurns)
        assert isinstance(reader, PassesText)
        told = [event for piece in pieces(text, cuts) for event in reader.feed(piece)] + reader.finish("stop")
        assert "".join(event.raw for event in told if not isinstance(event, Note)) == text
        assert len([event for event in told if isinstance(event, Note)]) == 2
        assert any(isinstance(event, Drop) for event in told) is (mode == "drop")
        reader, told = make(), []
        told += reader.step(text)  # type: ignore[attr-defined]
        while reader.busy:  # type: ignore[attr-defined]
            told += reader.step()  # type: ignore[attr-defined]
        told += reader.finish("stop")
        said = "".join(event.raw for event in told if isinstance(event, Text))
        assert (HERMES in said) is (mode == "keep")
    assert make().idle
