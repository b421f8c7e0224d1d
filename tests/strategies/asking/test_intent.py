"""Requests for tool work that offer no tools: read beside, never touched."""

from typing import Any

import msgspec
import pytest

from gateway.wire.chat_request import parse_request
from strategies.asking.intent import IntentWatch, asks_for_tools
from strategies.base import Options
from tests.support.chat import answer_body, answer_events, stream, whole

READ = '<tool_call>\n{"name": "read", "arguments": {"filePath": "src/a.py"}}\n</tool_call>'


def request(text, **fields):
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **fields}
    return parse_request(msgspec.json.encode(body))


@pytest.mark.parametrize(
    "text",
    [
        "Read the file src/app.py",
        "please run the command below",
        "Could you list all files in this folder?",
        "search the repo for TODO",
        "Edit main.py so that it prints 2",
        "write a script that counts words",
        "execute the tests",
        [{"type": "text", "text": "open config.toml"}],
        "Lies bitte die Datei",
        "Ouvre le fichier",
        "Ejecuta el comando",
        "Прочитай файл",
        "请读取这个文件",
        "x" * 9000 + "\nread the file",
    ],
)
def test_tool_work_is_recognised(text):
    assert asks_for_tools(request(text))


@pytest.mark.parametrize("text", ["What is a monad?", "hi", "", [], None, "Write a poem about rain", "read\nthe file"])
def test_other_questions_are_not(text):
    assert not asks_for_tools(request(text))


def test_only_the_last_user_message_counts():
    messages = [{"role": "user", "content": "read the file"}, {"role": "assistant", "content": "x"}]
    assert asks_for_tools(request("", messages=messages))
    assert not asks_for_tools(request("", messages=[*messages, {"role": "user", "content": "thanks"}]))
    assert not asks_for_tools(request("", messages=[{"role": "system", "content": "read the file"}]))


@pytest.mark.parametrize("size", [1, 6, 500])
def test_a_well_formed_call_is_noted_and_nothing_is_touched(size):
    prepared = IntentWatch().prepare(request("read the file"), Options())
    events = answer_events([READ[at : at + size] for at in range(0, len(READ), size)])
    out, exchange = stream(events, prepared)
    assert out == b"".join(events)
    assert [verdict.name for verdict in exchange.facts.intents] == ["read"]
    assert exchange.facts.calls == []
    body = answer_body(READ)
    assert whole(body, prepared)[0] == body


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "read", "arguments": {"filePath": "a"}}\n```',  # not certain enough
        '<tool_call>\n{"name": "read", "arguments": {"filePath": "a", "odd": 1}}\n</tool_call>',
        '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>',
        "Only words.",
    ],
)
def test_less_than_a_well_formed_call_is_not_noted(text):
    prepared = IntentWatch().prepare(request("read the file"), Options())
    out, exchange = stream(answer_events([text]), prepared)
    assert exchange.facts.intents == []
    assert out == b"".join(answer_events([text]))


def test_several_choices_are_not_read():
    assert IntentWatch().prepare(request("read the file", n=2), Options()).make_reader is None


def test_a_reader_that_fails_beside_an_answer_harms_nothing():
    make_reader = IntentWatch().prepare(request("read the file"), Options()).make_reader
    assert make_reader is not None
    reader: Any = make_reader()

    class Failing:
        idle = True

        def feed(self, text):
            raise ZeroDivisionError

        finish = feed

    reader._inner = Failing()
    assert [event.raw for event in (*reader.feed("a"), *reader.feed("b"))] == ["a", "b"]
    assert reader.finish("stop") == []
