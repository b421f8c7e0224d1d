"""The page of rules: each has a case or a test, each case stands for a rule, each topic says where it was seen."""

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest
from attrs import frozen

from tests.support.golden import cases
from tests.support.sources import faults_of, sources

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "strategies" / "RULES.md").read_text(encoding="utf-8")
KINDS = {"malformed", "trap", "example", "rule"}
LINK = re.compile(r"\[(\w+)\]\(\.\./(tests/[\w/.]+)\)")
TOPICS = {topic: text for topic, _, text in (part.partition("\n\n") for part in PAGE.split("\n## ")[1:])}


@frozen(kw_only=True)
class Rule:
    """One row of the page."""

    id: str
    kind: str
    says: str
    beside: str
    seen: str
    """Where it was seen: links, one behind the other."""


def rows() -> list[Rule]:
    found = []
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and cells[0].startswith("`"):
            name, kind, says, beside, seen = cells
            found.append(Rule(id=name.strip("`"), kind=kind, says=says, beside=beside, seen=seen))
    return found


RULES = rows()
SHOWN = {rule for case in cases() for rule in case.rules}


@lru_cache
def defined_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_bytes())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_rules_are_well_formed_and_in_order() -> None:
    assert len(RULES) > 500
    assert len({rule.id for rule in RULES}) == len(RULES)
    at = ("", 0)
    for rule in RULES:
        topic, _, number = rule.id.rpartition("-")
        assert rule.kind in KINDS
        assert rule.says
        assert int(number) == (at[1] + 1 if topic == at[0] else 1), rule.id
        at = (topic, int(number))


def test_every_rule_has_a_case_or_a_test_or_says_why_not() -> None:
    without = [rule for rule in RULES if rule.id not in SHOWN and not LINK.search(rule.beside)]
    assert [rule.id for rule in without if len(rule.beside.split()) <= 10] == []


def test_every_case_stands_for_a_rule_that_can_be_read() -> None:
    assert SHOWN - {rule.id for rule in RULES} == set()
    assert [case.id for case in cases() if not case.rules and len(case.beside) <= 20] == []


def test_what_no_case_can_show_is_tested_elsewhere() -> None:
    for rule in RULES:
        for test, path in LINK.findall(rule.beside):
            assert test in defined_in(path), f"{rule.id}: {path}::{test}"


def test_damaged_forms_are_shown_by_calls_and_by_refusals() -> None:
    """Not every damaged form is mended, and not every one is given up."""
    malformed = {rule.id for rule in RULES if rule.kind == "malformed"}
    calls = [bool(case.expected["calls"]) for case in cases() if malformed & {*case.rules}]
    assert sum(calls) > 100
    assert len(calls) - sum(calls) > 20


def test_every_topic_says_who_writes_it_and_where_that_is_seen() -> None:
    for topic, text in TOPICS.items():
        introduction = text.partition("\n|")[0]
        assert len(introduction.split()) > 5, topic
        assert sources(introduction), topic


def test_what_is_seen_somewhere_is_a_link_to_it() -> None:
    given = [rule for rule in RULES if rule.seen]
    assert len(given) > 100
    assert [rule.id for rule in given if [one for one, _ in sources(rule.seen)] != rule.seen.split("; ")] == []


def test_every_link_to_a_source_is_well_formed() -> None:
    assert faults_of(PAGE) == []


@pytest.mark.parametrize(
    "page",
    [
        "[a/b#2](https://github.com/a/b/issues/3)",
        "[a](http://github.com/a/b)",
        "[a](https://github.com/a/b/blob/main)",
        "[a](https://huggingface.co/a)",
        "[a](https://elsewhere)",
        "see https://github.com/a/b/issues/3",
        "a/b#3",
    ],
)
def test_a_link_that_is_not_is_found(page: str) -> None:
    assert faults_of(page)
