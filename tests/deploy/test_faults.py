"""The page of faults: every number that a test bears is a row, every row is shown by tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from attrs import frozen

from tests.support.sources import faults_of, sources

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "deploy" / "FAULTS.md").read_text(encoding="utf-8")
GROUPS = "UWPSCOA"
TEST = re.compile(r"\[(test_\w+)\]\(\.\./(tests/[\w/.]+)\)")
BORNE = re.compile(rf"(?<=_)[{GROUPS.lower()}]\d{{1,2}}(?=_)")
SAID = re.compile(rf"\brows? ([{GROUPS}]\d+(?:(?:, | and | to )[{GROUPS}]\d+)*)")


@frozen(kw_only=True)
class Fault:
    """One row of the page."""

    id: str
    fault: str
    done: str
    shown: str
    seen: str


def rows() -> dict[str, Fault]:
    found: dict[str, Fault] = {}
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            name, fault, done, shown, seen = (cell.strip() for cell in line.split("|")[1:-1])
            row = Fault(id=name.strip("`"), fault=fault, done=done, shown=shown, seen=seen)
            assert row.id not in found
            found[row.id] = row
    return found


FAULTS = rows()


@cache
def defined_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_bytes())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def bearing() -> dict[str, set[str]]:
    """The tests that bear a number in their names, by that number."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test in defined_in(path.relative_to(ROOT).as_posix()):
            for number in BORNE.findall(test) if test.startswith("test_") else ():
                found.setdefault(number.upper(), set()).add(test)
    return found


def test_the_rows_are_in_their_order_and_say_something() -> None:
    assert len(FAULTS) > 90
    order = [(GROUPS.index(row[0]), int(row[1:])) for row in FAULTS]
    assert order == sorted(order)
    assert all(fault.fault and fault.done for fault in FAULTS.values())


def test_every_number_that_a_test_bears_is_a_row() -> None:
    assert sum(map(len, bearing().values())) > 80
    assert bearing().keys() - FAULTS.keys() == set()


def test_every_number_that_a_test_file_speaks_of_is_a_row() -> None:
    said = [
        (path.name, number)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for numbers in SAID.findall((ast.get_docstring(ast.parse(path.read_bytes())) or "").replace("\n", " "))
        for number in re.findall(r"[A-Z]\d+", numbers)
    ]
    assert len(said) > 8
    assert [each for each in said if each[1] not in FAULTS] == []


@pytest.mark.parametrize("row", FAULTS)
def test_a_row_is_shown_by_tests_that_exist(row: str) -> None:
    shown = TEST.findall(FAULTS[row].shown)
    assert shown
    assert [test for test, path in shown if test not in defined_in(path)] == []
    assert "; ".join(f"[{test}](../{path})" for test, path in shown) == FAULTS[row].shown


def test_a_row_names_one_of_the_tests_that_bear_its_number() -> None:
    named = {row: {test for test, _ in TEST.findall(fault.shown)} for row, fault in FAULTS.items()}
    assert [row for row, bear in sorted(bearing().items()) if not bear & named[row]] == []


def test_where_a_fault_was_seen_is_a_link_that_can_lead_there() -> None:
    assert faults_of(PAGE) == []
    seen = [fault for fault in FAULTS.values() if fault.seen]
    assert len(seen) > 50
    assert [fault.id for fault in seen if [one for one, _ in sources(fault.seen)] != fault.seen.split("; ")] == []
