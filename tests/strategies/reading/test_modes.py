"""The graph of the modes: each answer here goes the way written beside it, and all ways together are the graph."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import Event
from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.grammar.dialect import Context
from strategies.reading import fences, modes, moves
from strategies.reading.active import Anchored, grammar_for
from strategies.reading.modes import FOLLOWS
from strategies.reading.reader import Reader
from tests.support.fragments import events_of, hostile_text, ways
from tests.support.golden import cases
from tests.support.reading import pieces, read, read_every_way

CALL = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'

OVER = CALL.replace("</tool_call>", "</think>")

"""A call that takes the end of reasoning for its own."""

TAG = "<read>\n<filePath>/a</filePath>\n</read>"

TOKENS = '<|tool_call>call:read{filePath:<|"|>/a<|"|>}<tool_call|>'

JSON = '{"name": "read", "arguments": {"filePath": "/a"}}'

CUT = JSON[:-5]

KIMI = '<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"filePath": "/a"}<|tool_call_end|>'

RESULT = "<tool_response>\nfine\n</tool_response>"

PATHS = [
    ("Nothing to do here.", 0, "Prose"),
    (f"{CALL}\n{CALL}", 2, "Prose Call Prose Call Prose"),
    ("<read>s</read>", 0, "Prose Call Prose"),
    (f"{CALL}\n{RESULT}\nIt is fine.", 1, "Prose Call Prose Discarding"),
    ("```py\nx = 1\n```\nSo.", 0, "Prose Carrier Fence Prose"),
    ("```rust\nlet x = 1;\n```\nSo.", 0, "Prose Fence Prose"),
    (f"```rust\n{TOKENS}\n{TOKENS}", 2, "Prose Fence Call TokensInFence Call TokensInFence"),
    (f"```rust\n{TOKENS}\n```\n", 1, "Prose Fence Call TokensInFence"),
    (f"```rust\n{TOKENS}\n```\nSo.", 0, "Prose Fence Call TokensInFence Prose"),
    ("```rust\n<|tool_call>call:no\n```", 0, "Prose Fence Call TokensInFence Fence Prose"),
    (f"```json\n{JSON}\n{JSON}\n```\n", 2, "Prose Carrier Call Carrier"),
    (f"```json\n{JSON}\n```\n```json\n{JSON}\n```", 2, "Prose Carrier Call Carrier Call Carrier"),
    (f"```json\n{JSON}\n```\nSo.", 0, "Prose Carrier Call Carrier Prose"),
    ('```tool_code\nread(filePath="/a")\n```\nSo.', 1, "Prose Carrier Call Carrier Prose"),
    (f"```json\n{TOKENS}\nx = 1\n```\nSo.", 0, "Prose Carrier Call Carrier TokensInFence Prose"),
    (f"```tool_code\n{OVER}\n```\n", 1, "Prose Carrier Call Carrier BehindDrafts"),
    ("<think>\nWell.\n</think>\nSo.", 0, "Prose Reasoning Prose"),
    (f"<think>\n{CALL}\n{CALL}\n</think>\n", 2, "Prose Reasoning Call Draft Call Draft"),
    (f"<think>\n{CALL}\nOr not.", 0, "Prose Reasoning Call Draft Reasoning"),
    (f"<think>\n{CALL}\n</think>\nNo.", 0, "Prose Reasoning Call Draft Prose"),
    (f"The format is:\n{TAG}\n{TAG}\nSo.", 0, "Prose Call BehindCall Call BehindCall Prose"),
    (f"The format is:\n{TAG}", 1, "Prose Call BehindCall"),
    (f"The format is:\n{OVER}\n{RESULT}", 0, "Prose Call BehindCall BehindDrafts Prose"),
    (f"{CALL}\n</think>\n", 1, "Prose Call Prose BehindDrafts"),
    (f"{CALL}\n</think>\nNo.", 0, "Prose Call Prose BehindDrafts Prose"),
    (f"{OVER}\nNo.", 0, "Prose Call BehindDrafts Prose"),
    (f"{CALL}\n{RESULT}\n</think>\nNo.", 0, "Prose Call Prose Discarding BehindDrafts Prose"),
    (f"{CALL}\n{RESULT}\n<think>\n</think>\nNo.", 1, "Prose Call Prose Discarding"),
    (f"I call:\n{CALL}\nDone.\n{RESULT}\n</think>\nNo.", 0, "Prose Call Prose Discarding Prose"),
]

IN_CUT_ANSWERS = [
    (f"```json\n{JSON}\n```\n```json\n{CUT}", 1, "Prose Carrier Call Carrier Call Carrier Fence"),
    (f"```json\n{OVER}\n```\n```json\n{CUT}", 0, "Prose Carrier Call Carrier Call Carrier BehindDrafts Fence"),
]

EACH = [*((*path, "stop") for path in PATHS), *((*path, "length") for path in IN_CUT_ANSWERS)]


@pytest.fixture
def went(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modes that readers have been in, each run of the same one once."""
    names: list[str] = []
    step, feed = Reader._step, Reader.feed

    def begun(reader: Reader, text: str) -> list[Event]:  # a text that means nothing may never take a step
        if not names:
            names.append(type(reader._mode).__name__)
        return feed(reader, text)

    def watched(reader: Reader) -> bool:
        moved = step(reader)
        if (name := type(reader._mode).__name__) != names[-1]:
            names.append(name)
        return moved

    monkeypatch.setattr(Reader, "_step", watched)
    monkeypatch.setattr(Reader, "feed", begun)
    return names


def pairs(names: list[str]) -> set[tuple[str, str]]:
    return set(pairwise(names))


GRAPH = {(mode, after) for mode, following in FOLLOWS.items() for after in following}


@pytest.mark.parametrize(("text", "calls", "path", "reason"), EACH)
def test_an_answer_goes_its_way(text: str, calls: int, path: str, reason: str, went: list[str]) -> None:
    assert len(read(text, reason=reason).calls) == calls
    assert " ".join(went) == path


@pytest.mark.parametrize(("text", "calls", "path", "reason"), EACH)
def test_it_goes_the_same_way_in_pieces(text: str, calls: int, path: str, reason: str, went: list[str]) -> None:
    assert len(read(list(text), reason=reason).calls) == calls
    assert " ".join(went) == path


def test_the_ways_are_the_graph() -> None:
    assert set().union(*(pairs(path.split()) for _, _, path, _ in EACH)) == GRAPH


def test_the_graph_names_every_mode() -> None:
    rooms = (fences, modes, moves)
    found = {name for room in rooms for name, made in vars(room).items() if hasattr(made, "levels")}
    assert found - {"Mode"} == FOLLOWS.keys() == set().union(*FOLLOWS.values())


def test_no_golden_case_leaves_the_graph(went: list[str]) -> None:
    for case in cases():
        went.clear()
        read(case.text, reason=case.expected.get("reason", "stop"), prompted=case.expected.get("prompted"))
        assert pairs(went) <= GRAPH, case.id


def test_no_hostile_answer_leaves_the_graph(went: list[str]) -> None:
    every = ways()
    for number in range(2000):
        rng = random.Random(f"modes/{number}")
        text = hostile_text(rng)
        cuts = sorted(rng.sample(range(len(text) + 1), min(3, len(text) + 1)))
        went.clear()
        events_of(rng.choice(every), [part for part in pieces(text, cuts) if part])
        assert pairs(went) <= GRAPH, number


def test_what_is_held_is_held_by_the_mode() -> None:
    holding = {"Carrier", "TokensInFence", "Draft", "BehindCall"}
    for text, *_ in EACH:
        reader = ways()[0].reader()
        for character in text:
            reader.feed(character)
            mode = reader._mode.after if isinstance(reader._mode, moves.Call) else reader._mode
            assert (reader._window.out.held is not None) == (type(mode).__name__ in holding)


def test_inline_code_ends_with_its_paragraph_in_front_of_reasoning() -> None:
    found = read_every_way(f"a `[\n\nb <|open|>think<|sep|>\n{CALL}\nand more")
    assert found.calls == []


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"``<|tool_call>```{KIMI}```x\n\ny", 0),
        (f"`\nAction ```\n{{\n```{KIMI}\n\ny", 1),
    ],
)
def test_how_far_the_end_of_one_code_was_looked_for_says_nothing_about_another(text: str, calls: int) -> None:
    assert len(read_every_way(text).calls) == calls


def test_inline_code_that_its_paragraph_has_ended_hides_no_fence_behind_words() -> None:
    found = read_every_way(f" ``x\n\nHere it is: ```json\n[{JSON}]\n```")
    assert [name for name, _ in found.calls] == ["read"]


# --- What the dialects of a request look for, and how a text is told in which nothing can be found


LETTERS = "ab_ (:\n<>~=\u2019"


@given(st.lists(st.text(LETTERS, min_size=1, max_size=6), max_size=8), st.text(LETTERS, max_size=40))
def test_a_text_is_found_wherever_it_stands(texts, whole):
    assert Anchored.of(texts).stand_in(whole) is any(text in whole for text in texts)


@pytest.mark.parametrize("prompted", [None, "generic_xml", "hermes"])
def test_something_that_is_looked_for_first_stands_in_each_marker(prompted):
    tools = ToolSet([Tool(name=name) for name in ("read", "read_file", "mcp__a-b__c", "Bash", "functions")])
    grammar = grammar_for(Context(tools=tools, options=Options(), model="m", prompted=prompted))
    for marker in (*grammar.rows, *grammar.line_rows, *grammar.results, "```", "~~~"):
        assert grammar.starts.stand_in(f"so {marker}x"), marker
