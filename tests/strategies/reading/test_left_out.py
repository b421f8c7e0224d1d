"""A call that stands twice in a message is given once, unless it does no harm again."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.core.tools import Tool, ToolSet
from gateway.wire.chat_request import declared_tool
from strategies.asking.renderers import RENDERERS
from strategies.schema.known_tools import known_tools, only_reads
from tests.support.chat import answer_body, answer_events, hear_body, hear_stream, prepared, stream, whole
from tests.support.reading import AGENT_TOOLS, Reading, pieces, read, tool

APPEND = tool("append", "path", "content")
TOOLS = ToolSet([APPEND, *AGENT_TOOLS])
WAYS: tuple[dict[str, Any], ...] = ({}, {"reasoned": True}, {"reasoned": True, "stream_arguments": "incremental"})
CALL = "<append>\n<path>/a</path>\n<content>x</content>\n</append>"


def readings(text: str, **how: Any) -> Iterator[Reading]:
    rng = random.Random(text)
    for more in WAYS:
        places = sorted(rng.sample(range(len(text) + 1), min(len(text), 20)))
        for parts in ([text], list(text), list(pieces(text, places))):
            yield read(parts, **{"tools": TOOLS, **how, **more})


def contents(found: Reading) -> list[str]:
    return [json.loads(arguments)["content"] for _, arguments in found.calls]


ORDERS = {"xx": "x", "xxx": "x", "xyx": "xyx", "xyy": "xy", "xxyx": "xyx", "xy": "xy"}


def every_other() -> list[Any]:
    """Each dialect with half of the orders, and each order in half of the dialects; else all."""
    return [
        pytest.param(dialect, written, marks=[pytest.mark.long] if (number + other) % 2 else [])
        for number, dialect in enumerate(RENDERERS)
        for other, written in enumerate(ORDERS)
    ]


@pytest.mark.parametrize(("dialect", "written"), every_other())
def test_each_dialect_gives_adjacent_copies_once(dialect: str, written: str) -> None:
    """Each order with each kind of value in every third dialect."""
    writer, given = RENDERERS[dialect], ORDERS[written]
    value = ("{}", "two\n{}\nlines {}", "{}" * 50)[([*RENDERERS].index(dialect) + [*ORDERS].index(written)) % 3]
    values = [value.replace("{}", letter) for letter in written]
    text = writer.calls([writer.call("append", {"path": "/a", "content": each}, APPEND) for each in values])
    for found in readings(text, prompted=dialect):
        assert contents(found) == [value.replace("{}", letter) for letter in given]
        assert found.streamed == "".join(arguments for _, arguments in found.calls)
        assert [reason for reason, _ in found.dropped].count("duplicate") == len(written) - len(given)
    for found in readings(text, prompted=dialect, duplicate_calls="keep"):
        assert contents(found) == values


@pytest.mark.parametrize("between", ["\nOnce more:\n", "\nand\n", "\n.\n"])
def test_words_between_make_it_another_call(between: str) -> None:
    for found in readings(f"{CALL}{between}{CALL}\n{CALL}"):
        assert contents(found) == ["x", "x"]


@pytest.mark.parametrize("between", ["", "\n", "\n\n \n", "</tool_call>\n"])
def test_white_space_and_markup_between_do_not(between: str) -> None:
    for found in readings(f"{CALL}{between}{CALL}\n"):
        assert contents(found) == ["x"]


def test_the_same_arguments_of_another_tool_are_another_call() -> None:
    for found in readings(
        CALL + CALL.replace("append", "prepend"), tools=ToolSet([APPEND, tool("prepend", "path", "content")])
    ):
        assert [name for name, _ in found.calls] == ["append", "prepend"]


def test_what_only_reads_may_be_repeated() -> None:
    text = "<read>\n<filePath>/a</filePath>\n</read>\n" * 3
    for found in readings(text):
        assert [name for name, _ in found.calls] == ["read"] * 3
    function = {"name": "append", "parameters": APPEND.parameters}
    hinted = {"type": "function", "function": function}
    for told in ({"annotations": {"readOnlyHint": True}}, {"annotations": {"readOnlyHint": "yes"}}, {"annotations": 1}):
        for entry in ({**hinted, **told}, {**hinted, "function": {**function, **told}}):
            declared = declared_tool(entry)
            assert isinstance(declared, Tool)
            found = read(CALL + CALL, tools=ToolSet([declared]))
            assert len(found.calls) == (2 if told["annotations"] == {"readOnlyHint": True} else 1)


def test_the_tools_that_only_read_are_well_known_ones_that_change_nothing() -> None:
    readers = {name for name in known_tools() if only_reads(name)}
    assert {"read", "read_file", "list_files", "grep", "glob"} <= readers
    assert not readers & {
        "bash",
        "write",
        "edit",
        "execute_command",
        "apply_patch",
        "task",
        "todowrite",
        "use_mcp_tool",
    }
    assert not only_reads("append")


def test_a_client_gets_one_call_and_the_copy_is_counted() -> None:
    text = f"Adding.\n{CALL}\n{CALL}\n"
    how = prepared(tools=TOOLS)
    for parts in ([text], list(text)):
        out, exchange = stream(answer_events(parts), how)
        heard = hear_stream(out)
        assert [call["name"] for call in heard.calls] == ["append"]
        assert exchange.facts.dropped["duplicate"] == 1
        assert heard.meaning == hear_body(whole(answer_body(text), how)[0]).meaning


SECTION = "<|tool_calls_section_begin|><|tool_calls_section_end|>"
WRITTEN = '<tool_call>\n{"name": "read", "arguments": {"filePath": "a"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "content", "left_out"),
    [
        (SECTION, "", SECTION),
        (f"Done.\n{SECTION}", "Done.\n", SECTION),
        (f"Write {SECTION} for none.", f"Write {SECTION} for none.", ""),
        ("<|channel|>final<|message|>Hi.<|return|>", "Hi.", "<|channel|>final<|message|><|return|>"),
        (f"{WRITTEN}<|im_end|>", "", "<|im_end|>"),
        (f"{WRITTEN}\nThen.<|im_end|> more", "\nThen.<|im_end|> more", ""),
        ("The token <|im_end|> ends it.", "The token <|im_end|> ends it.", ""),
        ("</think>Hi.", "</think>Hi.", ""),
        ("<think></think>Hi.", "<think></think>Hi.", ""),
    ],
)
def test_remains_go_at_the_edges_alone_and_beside_their_familys_calls(text: str, content: str, left_out: str) -> None:
    for cut in (0, *range(1, len(text), 3)):
        found = read([text[:cut], text[cut:]])
        assert found.content == content
        assert "".join(raw for _, raw in found.dropped) == left_out
    assert read(list(text)).content == content


def test_the_end_of_reasoning_goes_where_the_reasoning_has_a_field_of_its_own() -> None:
    found = read("</think>Hi.", reasoned=True)
    assert (found.content, found.dropped) == ("Hi.", [("remains", "</think>")])
