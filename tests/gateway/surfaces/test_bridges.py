"""Tools that are no functions: how they are shown, and what a call of them brings."""

import json

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
