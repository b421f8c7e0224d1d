"""`toolgate try --surface`: the events that a client of each wire gets for an answer."""

import json

import pytest
from click.testing import CliRunner

from gateway.cli.look.try_ import try_
from tests.support.strict_clients import checked_events, final_of

ANSWER = "Let me.\n\n<read_file>\n<path>src/app.py</path>\n</read_file>"


def told(surface: str, answer: str = ANSWER, *more: str) -> bytes:
    ran = CliRunner().invoke(try_, ["-", "--surface", surface, *more], input=answer)
    assert ran.exit_code == 0, ran.output
    return ran.stdout_bytes


def test_a_responses_client_gets_items() -> None:
    said, called = final_of(told("responses"))["output"]
    assert said["content"][0]["text"] == "Let me."
    assert (called["name"], json.loads(called["arguments"])) == ("read_file", {"path": "src/app.py"})


def test_a_messages_client_gets_blocks() -> None:
    stream = told("messages")
    assert stream.count(b"event: content_block_start") == 2
    assert b'"stop_reason":"tool_use"' in stream


def test_a_chat_client_gets_chunks() -> None:
    stream = told("chat")
    assert b'"finish_reason":"tool_calls"' in stream
    assert stream.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(("finish", "end"), [("stop", "response.completed"), ("length", "response.incomplete")])
def test_an_answer_without_a_call_is_a_message(finish: str, end: str) -> None:
    events = checked_events(told("responses", "Hello.", "--finish", finish))
    assert events[-1]["type"] == end
