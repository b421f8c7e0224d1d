"""What the dialects of one request look for: their markers, their order, and texts in which none of them stands."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.dialects.rows import TABLE
from strategies.grammar.dialect import Context
from strategies.reading.active import Anchored, Grammar, family_of, grammar_for
from tests.support.golden import SAMPLES
from tests.support.reading import AGENT_TOOLS, tool

EXAMPLES = [row for row in TABLE if row.example]


def grammar(tools: ToolSet = AGENT_TOOLS, only: frozenset[str] | None = None, **how: Any) -> Grammar:
    return grammar_for(Context(tools=tools, options=how.pop("options", Options()), **how), only)


def test_the_prompted_dialect_comes_first_and_then_those_of_the_family() -> None:
    found = grammar(prompted="claude_invoke", model="org/Qwen3-Coder-30B").families
    own = [row.id for row in TABLE if row.id in family_of("qwen3-coder")]
    assert "qwen3_coder" in own
    assert [*found][: 1 + len(own)] == ["claude_invoke", *own]
    assert {*found} == {row.id for row in TABLE}
    assert [*grammar().families] == [row.id for row in TABLE]


@pytest.mark.parametrize("model", ["qwen3-coder", "QWEN3-CODER-480b", "vendor/qwen3-coder-plus"])
def test_a_family_is_known_by_the_name_of_the_model_whoever_serves_it(model: str) -> None:
    assert "qwen3_coder" in family_of(model)


def test_a_model_of_no_known_name_has_no_family() -> None:
    assert family_of("my-own-model") == frozenset()


def test_only_those_that_are_asked_for_are_looked_for() -> None:
    found = grammar(only=frozenset({"hermes"}))
    assert [*found.families] == ["hermes"]
    assert {row.id for rows in found.rows.values() for row in rows} == {"hermes"}


def test_requests_with_the_same_names_share_one_grammar() -> None:
    other = ToolSet(Tool(name=each.name, parameters={"type": "object"}) for each in AGENT_TOOLS)
    assert grammar(other) is grammar()
    assert grammar(ToolSet([tool("read", "path")])) is not grammar()
    assert grammar(options=Options(recovery_json=False)) is not grammar()


def test_a_marker_of_several_dialects_opens_each_of_them() -> None:
    shared = {marker: rows for marker, rows in grammar().rows.items() if len(rows) > 1}
    assert shared
    assert all(len({row.id for row in rows}) == len(rows) for rows in shared.values())


@pytest.mark.parametrize("row", EXAMPLES, ids=[row.id for row in EXAMPLES])
def test_what_may_hold_a_call_has_one_of_the_starts_in_it(row: Any) -> None:
    model = row.models[0].replace("*", "") if row.models else ""
    tools = ToolSet([*AGENT_TOOLS, tool("apply_patch", "patchText")])
    found = grammar(tools, model=model, options=Options(recovery_shell=True))
    assert found.starts.stand_in(f"Let me look.\n\n{row.example}")


@pytest.mark.parametrize("kind", ["english", "chinese"])
def test_prose_holds_none_of_the_starts(kind: str) -> None:
    found = grammar()
    assert not any(found.starts.stand_in(text) for text in SAMPLES[kind] if "<" not in text and "`" not in text)


PARTS = st.text(alphabet="<[ab_ 9|", min_size=1, max_size=9)


@given(st.lists(PARTS, min_size=1, max_size=40, unique=True), st.text(alphabet="<[ab_ 9|", max_size=60))
def test_texts_are_found_as_by_looking_for_each(texts: list[str], whole: str) -> None:
    assert Anchored.of(texts).stand_in(whole) is any(text in whole for text in texts)


def test_thousands_of_texts_that_end_in_one_sign_are_found() -> None:
    rng = random.Random(3)
    texts = [f"@tool{number}(" for number in range(2_000)]
    many = Anchored.of(texts)
    assert len(many.rare) == 1
    assert many.stand_in(f"f(x) and {rng.choice(texts)}")
    assert not many.stand_in("f(x) and @tool2000( and @tool")
    assert not many.stand_in("tool7(")


def test_markers_of_a_line_stir_at_the_beginning_of_one_alone() -> None:
    found = grammar(only=frozenset({"functionary"}))
    assert found.stirs.search("so\nread") is not None
    assert found.stirs.search("so\nthe read") is None
    assert found.stirs.search("to read") is None


def test_calm_is_a_text_of_any_language_in_which_nothing_stirs() -> None:
    calm = grammar().calm
    words = (
        "words and more ",
        "1 + 2",
        "It is.\nSo",
        "café",
        "你好，世界。",
        "Größe “so” – ½ …",
        "Привет",
        "שלום",
        "한국어",
        "👍🏽",
    )
    for text in words:
        for plain in (False, True):
            assert not calm.is_in(json.dumps(text, ensure_ascii=plain)[1:-1].encode()), text
    stirring = ["a <b", "a `b`", "line\n", "你好 <", "你\n", "，func", "✿", "好✿"]
    stirring += ["a\u3000b", "a\u00a0b", "a\u2028", "\u200b", "\u1680", "\ue000", "\x85"]
    for text in stirring:
        for plain in (False, True):
            assert calm.is_in(json.dumps(text, ensure_ascii=plain)[1:-1].encode()), text
    assert calm.is_in(b"\\\\u4f60"), "a backslash, and no letter"
    assert calm.is_in(b"\\ud83d"), "half a character"
    for size in (1, 2):
        assert calm.is_in("你".encode()[:size]), "cut in two"
        assert calm.is_in("你".encode()[size:]), "cut in two"
    assert not grammar().calm_in_fence.is_in(b"a `b`")


def test_a_word_of_a_marker_stirs_only_where_the_marker_may_open() -> None:
    stirs = grammar().stirs
    assert stirs.search("then functools[") is not None
    assert stirs.search("(functools[") is not None
    assert stirs.search("myfunctools") is None, "within a word"
    assert stirs.search("words commentary") is None, "behind words and a blank"
    assert stirs.search(".commentary") is not None
    assert stirs.search("wordsassistant to=functions.read") is not None, "a role may be glued to a word"


def test_only_dialects_that_these_tools_give_a_marker_bring_their_fences() -> None:
    own = ToolSet([tool("fetch_moon")])
    assert grammar(own, frozenset({"shell"}), options=Options(recovery_shell=True)).carriers == frozenset()
    bash = grammar(AGENT_TOOLS, frozenset({"shell"}), options=Options(recovery_shell=True))
    assert "bash" in bash.carriers
