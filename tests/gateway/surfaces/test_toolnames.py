"""Flat names and back: what is declared decides, and nothing else."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
