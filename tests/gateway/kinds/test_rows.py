"""The table of kinds: a row says all, and nothing outside goes by a kind's name."""

import ast

import pytest

from gateway.kinds.rows import KINDS
from gateway.surfaces.responses.surface import RESPONSES
from strategies.factory import load_strategies
from tests.support.rooms import modules, room_of


@pytest.mark.parametrize("name", KINDS)
def test_a_row_makes_the_kind_of_its_name(name: str) -> None:
    row = KINDS[name]
    assert row.made(None).name == name
    if row.options is not None:
        options = row.options()
        assert getattr(row.made(options), "options", None) is options
        assert getattr(row.made(None), "options", None) == options


@pytest.mark.parametrize("name", KINDS)
def test_a_row_names_a_strategy_that_exists_and_can_serve_the_kind(name: str) -> None:
    row = KINDS[name]
    assert row.strategy is None or row.strategy in load_strategies().strategies
    assert row.takes_tools or row.strategy == "xml_prompt", "tools have no other way to such a server"


def test_nothing_but_the_table_and_the_kinds_goes_by_a_kinds_name() -> None:
    names = KINDS.keys() - {RESPONSES.name}  # what clients speak has the same name as what servers speak
    named = [
        f"{module}:{node.lineno} {node.value}"
        for module, path in modules().items()
        if room_of(module) != "gateway.kinds"
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]
    assert named == []
