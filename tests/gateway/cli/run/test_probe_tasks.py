"""What `toolgate probe` asks: each question can be passed, and each fault of a reply is told in its own words."""

import json
from typing import Any

import pytest

from gateway.cli.run.probe_tasks import ABILITIES, OTHERS, UNDER_RULE, Reply, Task
from gateway.wire.chat_request import parse_request
from tests.gateway.cli.run.test_probe import ARGUMENTS

TASKS = {task.name: task for task in (*ABILITIES, *OTHERS)}
GOOD: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("native", "streamed", "strict", "ids"), ("read_file",)),
    "parallel": ("get_weather", "get_weather"),
    **dict.fromkeys(("required", "named", "long_prompt"), ("add_note",)),
    "nested_schema": ("create_event",),
}


def call(name: str, arguments: Any = None, number: int = 0) -> dict[str, Any]:
    given = json.dumps(ARGUMENTS[name] if arguments is None else arguments)
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": given}}


def reply(task: Task, *calls: Any, content: str | None = None, status: int = 200, **body: Any) -> Reply:
    message = {"role": "assistant", "content": content, **({"tool_calls": [*calls]} if calls else {})}
    return Reply(status, {"choices": [{"message": message}], **body}, task.body)


def judged(name: str, *calls: Any, **more: Any) -> str:
    return TASKS[name].judge(reply(TASKS[name], *calls, **more))


@pytest.mark.parametrize("task", [*ABILITIES, *OTHERS, *UNDER_RULE], ids=lambda task: task.name)
def test_every_question_is_a_request_that_is_taken(task: Task) -> None:
    request = parse_request(json.dumps({"model": "m", **task.body}).encode())
    assert request.messages
    assert len(request.tools) == len(task.body.get("tools", ()))


@pytest.mark.parametrize("name", GOOD)
def test_what_a_good_server_says_is_as_wanted(name: str) -> None:
    assert judged(name, *(call(tool, number=at) for at, tool in enumerate(GOOD[name]))) == ""


@pytest.mark.parametrize(
    ("calls", "content", "fault"),
    [
        ((), "I would read it.", "no call"),
        ((), "  ", "nothing: no call and no text"),
        ((call("add_note"),), None, "a call of 'add_note', which was not offered"),
        (({"id": "c"},), None, "a call of 'None', which was not offered"),
        (({"id": "c", "function": {"name": "read_file"}},), None, "arguments that are no JSON"),
        (({"id": "c", "function": {"name": "read_file", "arguments": "{"}},), None, "arguments that are no JSON"),
        ((call("read_file", []),), None, "arguments that are no object"),
    ],
)
def test_each_fault_of_a_call_has_its_words(calls: tuple[Any, ...], content: str | None, fault: str) -> None:
    assert judged("native", *calls, content=content) == fault


def test_arguments_that_do_not_fit_are_told_with_what_is_wrong() -> None:
    assert judged("native", call("read_file", {})).startswith("arguments that do not fit: ")
    deep = {**ARGUMENTS["create_event"], "when": {"day": "24th", "month": 3}}
    assert judged("nested_schema", call("create_event", deep)).startswith("arguments that do not fit: ")


def test_two_calls_are_two() -> None:
    assert judged("parallel", call("get_weather")) == "one call in place of two"


def test_the_named_tool_is_the_one_to_be_called() -> None:
    assert judged("named", call("read_file")) == "a call of another tool"


@pytest.mark.parametrize("ids", [(None, "c"), ("c", "c"), ("", "c")])
def test_calls_are_told_apart_by_their_ids(ids: tuple[Any, Any]) -> None:
    calls = [{**call("read_file"), "id": own} for own in ids]
    assert judged("ids", *calls) == "calls without ids of their own"


def test_a_long_prompt_is_read_whole_by_its_tokens_or_else_by_its_first_words() -> None:
    said = call("add_note", {"text": "the committee met"})
    assert judged("long_prompt", said, usage={"prompt_tokens": 900}) == "only 900 tokens of the prompt were read"
    assert judged("long_prompt", said, usage={"prompt_tokens": 9000}) == ""
    assert judged("long_prompt", said) == "the beginning of the prompt was not read"
    assert judged("long_prompt", call("add_note")) == ""


def test_what_follows_a_result_may_be_words_or_a_call_but_not_nothing() -> None:
    assert judged("tool_result", content="It is 3 degrees.") == ""
    assert judged("tool_result", content=" ") == "nothing: no call and no text"


def test_thoughts_stand_apart_from_the_text() -> None:
    assert judged("reasoning", content="51") == ""
    assert judged("reasoning", content="<think>17 times 3</think>51") == "its thoughts stand in the text"


@pytest.mark.parametrize("name", TASKS)
def test_an_error_is_told_whatever_was_asked(name: str) -> None:
    assert judged(name, status=400, error={"message": "no such field"}) == "400: no such field"
    assert judged(name, error="busy") == "200: busy"
    assert judged(name, status=502) == "502: no answer"


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [3]}, {"choices": [{"message": 3}]}])
def test_a_reply_of_any_shape_has_no_call_and_no_text(body: dict[str, Any]) -> None:
    found = Reply(200, body, {})
    assert (found.message, found.content, found.calls) == ({}, "", [])
