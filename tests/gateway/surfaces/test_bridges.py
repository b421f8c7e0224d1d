"""Flat names and back: what is declared decides, and nothing else."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.surfaces.bridges import (
    BRIDGE,
    CustomInput,
    custom_function,
    is_cut_patch,
    is_server_tool,
    read_input,
    vendor_parameters,
)
from gateway.surfaces.too_long import overflow_in, words_of
from gateway.surfaces.toolnames import MAX_NAME, ToolName, ToolNames

FLAT = frozenset(string.ascii_letters + string.digits + "_-")

NAMES = st.text(st.sampled_from("ab_.-é/ "), min_size=1, max_size=90)

PLACES = st.tuples(st.none() | NAMES, NAMES)


def test_a_namespace_stands_before_the_name_and_comes_back_apart() -> None:
    names = ToolNames()
    assert names.add("close_agent", namespace="multi_agent_v1") == "multi_agent_v1__close_agent"
    assert names.own("multi_agent_v1__close_agent") == ToolName("function", "multi_agent_v1", "close_agent")


def test_the_namespace_of_what_has_none_is_not_shown() -> None:
    names = ToolNames()
    assert names.add("exec", namespace="functions") == "exec"
    assert names.own("exec") == ToolName("function", "functions", "exec")
    assert names.flat("exec") == names.flat("exec", "functions") == "exec"


def test_what_a_tool_is_comes_back_with_its_name() -> None:
    names = ToolNames()
    names.add("apply_patch", kind="custom")
    assert names.own("apply_patch") == ToolName("custom", None, "apply_patch")
    assert names.own("read") is None


@pytest.mark.parametrize("own", ["x" * 65, "fs.read", "lire_été", "", "a b"])
def test_a_name_that_chat_does_not_take_gets_a_hash_behind_it(own: str) -> None:
    names = ToolNames()
    flat = names.add(own, namespace="mcp")
    assert 0 < len(flat) <= MAX_NAME
    assert FLAT.issuperset(flat)
    assert names.own(flat) == ToolName("function", "mcp", own)
    assert ToolNames().add(own, namespace="mcp") == flat, "the same in every request"


def test_names_that_would_clash_stay_two() -> None:
    names = ToolNames()
    one, other = names.add("b__c", namespace="a"), names.add("c", namespace="a__b")
    assert one == "a__b__c"
    assert other != one
    assert names.own(other) == ToolName("function", "a__b", "c")
    assert names.flat("c", "a__b") == other


def test_a_tool_that_is_declared_twice_is_what_it_was_first() -> None:
    names = ToolNames()
    assert names.add("apply_patch", kind="custom") == names.add("apply_patch") == "apply_patch"
    assert names.own("apply_patch") == ToolName("custom", None, "apply_patch")
    assert len(names) == 1


def test_history_that_nothing_declares_takes_no_declared_name() -> None:
    names = ToolNames()
    names.add("b__c", namespace="a")
    assert names.flat("c", "a__b") != "a__b__c"
    assert names.flat("gone", "old") == "old__gone"
    assert names.own("old__gone") is None
    assert list(names) == ["a__b__c"]


@pytest.mark.parametrize(
    "name", ["mcp__fs.read", "mcp.fs.read", "mcp:fs/read", "mcp__fs__read", "read", "mcp/fs__read"]
)
def test_a_name_in_another_form_means_the_declared_tool(name: str) -> None:
    names = ToolNames()
    names.add("read", namespace="mcp__fs")
    names.add("write", namespace="mcp__fs")
    assert names.meant(name) == "mcp__fs__read"


def test_a_bare_name_that_two_tools_have_means_neither() -> None:
    names = ToolNames()
    names.add("read", namespace="one")
    names.add("read", namespace="two")
    assert names.meant("read") is None
    assert names.meant("two.read") == "two__read"
    names.add("read")
    assert names.meant("read") == "read"


@pytest.mark.parametrize("name", ["", "..", "__", "fs", "fs.write", "x" * 5000])
def test_a_name_that_means_nothing_declared_means_nothing(name: str) -> None:
    names = ToolNames()
    names.add("read", namespace="fs")
    assert names.meant(name) is None


def test_a_tool_that_is_found_later_counts() -> None:
    names = ToolNames()
    assert names.meant("read") is None
    names.add("read", namespace="fs")
    assert names.meant("read") == "fs__read"


@given(st.lists(PLACES, max_size=12))
def test_every_name_comes_back_as_what_it_was(places: list[tuple[str | None, str]]) -> None:
    names = ToolNames()
    flat = [names.add(own, namespace=namespace) for namespace, own in places]
    assert all(FLAT.issuperset(each) and 0 < len(each) <= MAX_NAME for each in flat)
    assert len(set(flat)) == len(set(places))
    for (namespace, own), each in zip(places, flat, strict=True):
        assert names.own(each) == ToolName("function", namespace, own)
        assert names.flat(own, namespace) == each


# --- Tools that are no functions: how they are shown, and what a call of them brings


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 'a'\n+x = \"b\"\t# ü\n*** End Patch"


def test_a_custom_tool_is_shown_with_the_sentence_and_its_grammar() -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" LF\n'}
    told = custom_function("apply_patch", "Do not wrap the patch in JSON.\n", form)["function"]
    assert told["name"] == "apply_patch"
    assert told["description"].startswith(f"Do not wrap the patch in JSON.\n\n{BRIDGE}\n\n")
    assert told["description"].endswith('grammar (lark):\nstart: "*** Begin Patch" LF')
    assert told["parameters"]["required"] == ["input"]
    assert told["parameters"]["properties"]["input"]["type"] == "string"


@pytest.mark.parametrize("form", [None, {"type": "text"}, {"type": "grammar"}, {"type": "grammar", "definition": 3}, 5])
def test_a_custom_tool_without_a_grammar_has_the_sentence_alone(form: object) -> None:
    assert custom_function("exec", "", form)["function"]["description"] == BRIDGE


def test_a_grammar_is_read_where_chat_has_it_too() -> None:
    form = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}
    assert custom_function("x", "", form)["function"]["description"].endswith("grammar (regex):\na+")


@given(st.text())
def test_the_text_comes_back_as_it_was(text: str) -> None:
    found = read_input(json.dumps({"input": text}, ensure_ascii=False))
    assert found is not None
    assert found.text == text or found.is_mended


def test_a_patch_comes_back_byte_for_byte() -> None:
    assert read_input(json.dumps({"input": PATCH})) == CustomInput(PATCH)


@pytest.mark.parametrize("arguments", [PATCH, json.dumps(PATCH), json.dumps({"patch": PATCH})])
def test_a_text_in_another_place_is_the_text_all_the_same(arguments: str) -> None:
    assert read_input(arguments) == CustomInput(PATCH, is_mended=True)


@pytest.mark.parametrize("arguments", ["[]", "7", "{}", '{"a": "x", "b": "y"}', '{"input": 7}', '{"input": "*** Beg'])
def test_what_is_not_certain_is_no_text(arguments: str) -> None:
    assert read_input(arguments) is None


@pytest.mark.parametrize("fence", ["```\n%s\n```", "```patch\n%s\n```\n", "\n```diff\n%s\n```"])
def test_a_fence_around_a_whole_patch_is_taken_off(fence: str) -> None:
    assert read_input(json.dumps({"input": fence % PATCH})) == CustomInput(PATCH + "\n", is_mended=True)


def test_a_fence_around_anything_else_stays() -> None:
    text = "```python\nprint(1)\n```"
    assert read_input(json.dumps({"input": text})) == CustomInput(text)


def test_half_a_patch_is_told_from_a_whole_one() -> None:
    assert not is_cut_patch(PATCH)
    assert not is_cut_patch(PATCH + "\n")
    assert not is_cut_patch("anything")
    assert is_cut_patch(PATCH.removesuffix("*** End Patch"))
    assert is_cut_patch(PATCH.replace("\n*** End", "\n+*** End"))


def test_tools_of_servers_are_known_by_their_types() -> None:
    for kind in ("web_search", "web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "mcp"):
        assert is_server_tool(kind)
    for kind in ("function", "custom", "bash_20250124", "text_editor_20250728", "tool_search", "shell", "namespace"):
        assert not is_server_tool(kind)


def test_vendors_tools_have_the_parameters_that_they_publish() -> None:
    assert "restart" in (vendor_parameters("bash_20250124") or {})["properties"]
    assert "view_range" in (vendor_parameters("text_editor_20250728") or {})["properties"]
    assert "new_path" in (vendor_parameters("memory_20250818") or {})["properties"]
    assert vendor_parameters("function") is None


# --- The numbers in a server's refusal of a request that is too long


# In the words of OpenAI, Anthropic, llama.cpp, Gemini, SGLang, Mistral, LM Studio and vLLM.
WORDS = [
    ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", 9000, 8192),
    ("prompt is too long: 210000 tokens > 200000 maximum", 210_000, 200_000),
    ("request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it", 9000, 8192),
    ("The input token count (9000) exceeds the maximum number of tokens allowed (8192).", 9000, 8192),
    ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", 9000, 8192),
    (
        "Prompt contains 9000 tokens and 0 draft tokens, too large for model with 8192 maximum context length",
        9000,
        8192,
    ),
    (
        "Trying to keep the first 9000 tokens, but the model is loaded with context length of only 4096 tokens",
        9000,
        4096,
    ),
    ("The decoder prompt (length 9000) is longer than the maximum model length of 8192.", 9000, 8192),
]


@pytest.mark.parametrize(("words", "needed", "allowed"), WORDS)
def test_a_servers_words_give_both_numbers(words: str, needed: int, allowed: int) -> None:
    overflow = overflow_in(json.dumps({"error": {"message": words}}).encode())
    assert overflow is not None
    assert (overflow.needed, overflow.allowed, overflow.words) == (needed, allowed, words)


def test_figures_beside_the_words_count() -> None:
    error = {"message": "too big", "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192}
    overflow = overflow_in(json.dumps({"error": error}).encode())
    assert overflow is not None
    assert (overflow.needed, overflow.allowed) == (9000, 8192)


def test_words_without_numbers_stay_words() -> None:
    overflow = overflow_in(b'{"error": {"message": "too long", "code": "context_length_exceeded"}}')
    assert overflow is not None
    assert (overflow.needed, overflow.words) == (None, "too long")


@pytest.mark.parametrize("payload", [None, b"", b"[]", b"x", b'{"error": 5}', b'{"error": {"message": "odd field"}}'])
def test_what_speaks_of_something_else_is_none(payload: bytes | None) -> None:
    assert overflow_in(payload) is None


def test_words_are_found_in_any_form() -> None:
    assert words_of(b'{"error": "plain"}')[0] == "plain"
    assert words_of(b'{"message": "flat", "code": "c"}') == ("flat", frozenset({"c"}))
