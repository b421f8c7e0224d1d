"""What a marker that has begun may still come to, and text that is heard in the reader's place until one has."""

from collections.abc import Sequence

import pytest

from gateway.core.tools import ToolSet
from strategies.base import Options
from strategies.grammar.dialect import Context
from strategies.reading.active import grammar_for
from strategies.reading.foresight import (
    EVERY_LEVEL,
    Foresight,
    Overhearing,
    inline_behind,
    may_become,
    may_open_carrier,
)
from tests.support.golden import SAMPLES
from tests.support.reading import AGENT_TOOLS, read, tool

CONTEXT = Context(tools=AGENT_TOOLS, options=Options())
GRAMMAR = grammar_for(CONTEXT)
ROOM = 1 << 12
IN_REASONING, IN_FENCE = "AB", "A"


def foresight(context: Context = CONTEXT) -> tuple[Foresight, Foresight]:
    grammar = grammar_for(context)
    return (
        Foresight(context, grammar.lexicon, grammar.rows, grammar.begun),
        Foresight(context, grammar.line_lexicon, grammar.line_rows, grammar.begun_line),
    )


def hearing(before: str = "", levels: str = EVERY_LEVEL, *, inline: int = 0, mark: str = "") -> Overhearing:
    return Overhearing(GRAMMAR, foresight(), before, levels, inline=inline, keeps_space=False, mark=mark)


def heard(*texts: str, before: str = "So. ", levels: str = EVERY_LEVEL, room: int = ROOM, mark: str = "") -> list[int]:
    listener = hearing(before, levels, mark=mark)
    return [listener.hear(text, room) for text in texts]


# --- Markers


@pytest.mark.parametrize(
    ("text", "may_open"),
    [
        *(("<tool_call>", True), ("<tool_c", True), ("<", True), ("<read", True), ("<[", False), ("<b>", False)),
        *(("[TOOL_REQ", True), ("[Tool call: ", True), ("[x]", False)),
    ],
)
def test_a_marker_that_has_begun_may_open_what_it_may_become(text: str, may_open: bool) -> None:
    for before in ("", "Look.\n"):
        assert foresight()[0].may_open(before + text, len(before), before, EVERY_LEVEL) is may_open


def test_only_calls_of_the_levels_that_are_asked_for_count() -> None:
    anywhere, _ = foresight()
    assert anywhere.may_open("<|tool_call_begin|>", 0, "", "A")
    assert not anywhere.may_open("<tool_call>", 0, "", "A")


def test_a_quoted_marker_opens_nothing() -> None:
    for before in ('It writes "', "For example:\n> "):
        assert not foresight()[0].may_open(f"{before}<tool_call>", len(before), before, EVERY_LEVEL)


def test_a_tag_of_no_tool_opens_nothing() -> None:
    own = foresight(Context(tools=ToolSet([tool("fetch_moon")]), options=Options()))
    assert own[0].may_open("<fetch_moon>", 0, "", EVERY_LEVEL)
    assert not foresight()[0].may_open("<fetch_moon>", 0, "", EVERY_LEVEL)


# --- Fences


@pytest.mark.parametrize(
    ("info", "found"),
    [
        *(("", True), (" ", True), ("js", True), ("json", True), ("js ", False), ("jsonx", False), ("JSON", True)),
        *(("json x", True), ("python", False), ('json{"', True), ('tool_code [{"', True), ('py{"', False)),
    ],
)
def test_a_line_may_name_a_carrier_as_long_as_it_may_grow_into_one(info: str, found: bool) -> None:
    assert may_become(info, ("json", "tool_code")) is found


@pytest.mark.parametrize(
    ("before", "inline", "found"),
    [
        *(("", 0, True), ("\n  ", 0, True), ("words\n    ", 0, False), ("I read it.\n", 0, True)),
        *(("For example:\n", 0, False), ("I do it. ", 0, True), ("I do it. ", 1, False)),
    ],
)
def test_a_fence_that_carries_calls_opens_where_a_fence_may(before: str, inline: int, found: bool) -> None:
    assert may_open_carrier(before, inline=inline) is found


@pytest.mark.parametrize(
    ("text", "inline", "left"),
    [
        *(("a `b", 0, 1), ("a `b`", 0, 0), ("a ``b` c", 0, 2), ("b` c", 1, 0), ("b`` c", 1, 1), ("b", 2, 2)),
        *(("`a\n\nb", 0, 0), ("`a\nb", 0, 1), ("a\n\n`b", 1, 1), ("no code", 0, 0)),
    ],
)
def test_inline_code_ends_with_as_many_marks_or_with_its_paragraph(text: str, inline: int, left: int) -> None:
    assert inline_behind(text, inline, is_line_start=False) == left


def test_a_blank_line_ends_inline_code_where_the_text_begins_behind_a_line_break() -> None:
    assert inline_behind("\nb", 1, is_line_start=True) == 0
    assert inline_behind("\nb", 1, is_line_start=False) == 1


# --- Overhearing


@pytest.mark.parametrize("kind", ["english", "chinese"])
def test_prose_is_heard_as_the_text_that_the_reader_makes_of_it(kind: str) -> None:
    for answer in SAMPLES[kind]:
        listener, taken = hearing(), ""
        for word in answer.split(" "):
            if listener.hear(f"{word} ", ROOM) < 0:
                break
            taken += f"{word} "
        assert listener.told() == taken
        assert read(taken).text == taken


@pytest.mark.parametrize(
    ("texts", "undecided"),
    [
        (("words",), [0]),
        (("words ",), [1]),
        (("words", " and", " more  "), [0, 0, 2]),
        (("a <", "tool_x"), [2, 0]),
        (("a <", "tool_call>"), [2, -1]),
        (("a<", "1"), [1, 0]),
        (("a [", "x"), [2, 0]),
        (("a `", "b` c"), [2, 0]),
        (("a\n",), [1]),
        (("a ~",), [-1]),
        (("a <think>",), [-1]),
        (("a\n```",), [-1]),
    ],
)
def test_what_waits_is_what_may_begin_something(texts: Sequence[str], undecided: list[int]) -> None:
    assert heard(*texts) == undecided


def test_what_has_begun_is_told_until_it_is_decided() -> None:
    listener = hearing("So. ")
    assert (listener.hear("a <to", ROOM), listener.begun) == (4, 3)
    assert (listener.hear("xic", ROOM), listener.begun) == (0, 0)
    assert listener.told() == "a <toxic"


def test_no_more_waits_than_there_is_room_for() -> None:
    assert heard("a <tool_", room=7) == [7]
    assert heard("a <tool_", room=6) == [-1]


def test_in_reasoning_and_in_a_fence_backticks_are_text() -> None:
    assert heard("a `b", levels=IN_REASONING) == [0]
    assert heard("a <read>", levels=IN_REASONING) == [0]
    assert heard("x = `a`;", levels=IN_FENCE, mark="`") == [0]
    assert heard("x\n```", levels=IN_FENCE, mark="`") == [-1]
    assert heard("x\n~~~", levels=IN_FENCE, mark="") == [-1]


def test_calm_is_asked_only_where_nothing_has_begun() -> None:
    listener = hearing("So. ")
    assert listener.calm is None, "behind white space"
    listener.hear("a", ROOM)
    assert listener.calm is GRAMMAR.calm
    listener.overlook(" b")
    assert listener.told() == "a b"
    listener.hear(" <", ROOM)
    assert listener.calm is None


def test_text_flows_where_nothing_is_left_to_decide() -> None:
    assert hearing("So. ").flows("words and more")
    assert hearing("So. ").flows("words ")
    assert not hearing("So. ").flows("words <")
    assert not hearing("So. ").flows("<tool_call>")


def test_a_long_answer_is_not_kept_at_hand_and_told_whole() -> None:
    listener, text = hearing(), ""
    for number in range(2_000):
        piece = f"word {number} `code` and\nmore"
        text += piece
        assert listener.hear(piece, ROOM) == 0
    assert listener.told() == text
    assert len(listener._text) < 2_000
