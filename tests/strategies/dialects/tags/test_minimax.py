"""Calls as the nodes of MiniMax M3: what may be missing, and what leaves them text."""

import json

import pytest

from gateway.core.tools import ToolSet
from tests.support.reading import read, read_every_way, tool

MARK = "]<]minimax[>["
OPEN = f'{MARK}<invoke name="read">'
PATH = f"{MARK}<filePath>a{MARK}</filePath>"
CLOSE = f"{MARK}</invoke>"


@pytest.mark.parametrize("end", ["", f"{MARK}</tool_call>"])
def test_a_call_may_lack_its_closer_at_a_price(end: str) -> None:
    whole, lacking = read_every_way(OPEN + PATH + CLOSE + end), read_every_way(OPEN + PATH + end)
    assert whole.calls == lacking.calls == [("read", '{"filePath":"a"}')]
    assert (whole.text, lacking.text) == ("", "")
    assert whole.scores > lacking.scores


@pytest.mark.parametrize("end", ["", f"{MARK}</tool_call>"])
def test_an_empty_element_is_a_call_without_arguments(end: str) -> None:
    found = read_every_way(f'{MARK}<invoke name="todoread"/>{end}')
    assert (found.calls, found.text) == ([("todoread", "{}")], "")


def test_the_marker_alone_is_part_of_a_value() -> None:
    found = read_every_way(f"{OPEN}{MARK}<filePath>a{MARK}b{MARK}</filePath>{CLOSE}")
    assert found.calls == [("read", f'{{"filePath":"a{MARK}b"}}')]


def test_a_value_without_opener_has_the_name_of_its_closer() -> None:
    found = read_every_way(f"{OPEN}{MARK}foo{MARK}</filePath>{CLOSE}")
    assert (found.calls, found.scores) == ([("read", '{"filePath":"foo"}')], [95])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{OPEN}{PATH} x {CLOSE}", "text between parameters"),
        (f"{MARK}<tool_call>zap", "no invoke"),
        (f"{OPEN}{MARK}<filePath>a{MARK}</limit>{CLOSE}", "closed by another tag"),
        (f"{OPEN}{MARK}<filePath>x{MARK}<a>b{MARK}</a>{MARK}</filePath>{CLOSE}", "text between values"),
        (f"{OPEN}{MARK}foo{MARK}</zap>{CLOSE}", "value not opened"),
        (f"{OPEN}{MARK}foo", "value not opened"),
        (f"{OPEN}{MARK}<limit>1{MARK}</limit>{MARK}a{MARK}</filePath>{CLOSE}", "value not opened"),
        (f"{OPEN}{PATH}{MARK}<b>x", "value not closed"),
        (f"{OPEN}{PATH}{CLOSE}{MARK}</zap>", "text behind the call"),
    ],
)
def test_nodes_that_do_not_fit_stay_text(text: str, reason: str) -> None:
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)
    assert found.notes[0] == (reason,)


def test_a_closer_that_stands_twice_ends_its_value() -> None:
    found = read_every_way(f"{OPEN}{PATH}{MARK}</filePath>")
    assert [(name, json.loads(arguments)) for name, arguments in found.calls] == [("read", {"filePath": "a"})]


def test_a_call_that_was_cut_is_none() -> None:
    assert read(OPEN + PATH, reason="length").notes == [("cut",)]


def test_a_parameter_given_twice_is_no_call_whether_it_flowed_or_not() -> None:
    text = OPEN + PATH + PATH.replace(">a", ">b") + CLOSE
    assert read(text).calls == []
    flowed = read(text, reasoned=True, stream_arguments="incremental")
    assert flowed.calls == []
    assert len(flowed.broken) == 1


@pytest.mark.parametrize("again", ["a", "b"])
def test_a_flowing_parameter_is_never_told_twice(again: str) -> None:
    """What was streamed cannot be taken back, so even the same value again breaks the call."""
    text = OPEN + PATH + PATH.replace(">a", f">{again}") + CLOSE
    whole = read_every_way(text)
    assert [json.loads(arguments) for _, arguments in whole.calls] == ([{"filePath": "a"}] if again == "a" else [])


@pytest.mark.parametrize("key", ["__proto__", "constructor"])
@pytest.mark.parametrize("value", ["x", f"{MARK}<a>x{MARK}</a>"])
def test_a_key_that_reaches_into_every_object_is_left_out(key: str, value: str) -> None:
    text = OPEN + PATH + f"{MARK}<{key}>{value}{MARK}</{key}>" * 2 + CLOSE
    found = read_every_way(text)
    assert [json.loads(arguments) for _, arguments in found.calls] == [{"filePath": "a"}]
    assert read(text, stream_arguments="incremental").calls == found.calls


def test_another_list_of_the_same_name_is_not_chosen_silently() -> None:
    tools = ToolSet([tool("read", "filePath", tags={"type": "array", "items": {"type": "string"}})])

    def tags(value: str) -> str:
        return f"{MARK}<tags>{MARK}<item>{value}{MARK}</item>{MARK}</tags>"

    assert read_every_way(OPEN + PATH + tags("a") + tags("b") + CLOSE, tools=tools).calls == []
    same = read_every_way(OPEN + PATH + tags("a") + tags("a") + CLOSE, tools=tools)
    assert [json.loads(arguments)["tags"] for _, arguments in same.calls] == [["a"]]
