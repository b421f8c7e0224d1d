"""The golden cases beside the reference of the dialects: each row has a case, and each case stands for a row."""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
REFERENCE = ROOT.parent / "shared" / "dialects.md"
ROWS: list[dict[str, Any]] = json.loads((GOLDEN / "rows.json").read_bytes())
CASES = {f"{path.parent.name}/{path.name}": path for path in sorted(GOLDEN.glob("*/*")) if path.is_dir()}
KINDS = {"malformed", "trap", "example", "rule"}
BESIDE = re.compile(r"^beside: \S.{20,}", re.MULTILINE)
"""How a note says why its case stands for no row."""


def per_section(kind: str) -> Counter[str]:
    return Counter(row["section"] for row in ROWS if row["kind"] == kind)


def place(section: str) -> tuple[int, ...]:
    return tuple(map(int, section.split(".")))


@lru_cache
def defined_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_bytes())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


# The rows


def test_rows_are_well_formed_and_in_order() -> None:
    for row in ROWS:
        assert {"section", "kind", "row", "cases"} <= row.keys() <= {"section", "kind", "row", "cases", "tests", "why"}
        assert row["kind"] in KINDS
        assert row["row"].strip()
    assert all(place(one["section"]) <= place(next_one["section"]) for one, next_one in pairwise(ROWS))
    names = Counter((row["section"], row["kind"], row["row"]) for row in ROWS)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_row_has_a_case_that_exists() -> None:
    without = [f"{row['section']} {row['row']}" for row in ROWS if not row["cases"] and not row.get("tests")]
    beyond = [f"{row['section']} {row['row']}" for row in ROWS if len(row.get("why", "").split()) > 10]
    assert without == beyond, "rows without a case, and those that say why"
    assert {case for row in ROWS for case in row["cases"]} - CASES.keys() == set()


def test_what_no_case_can_show_is_tested_elsewhere() -> None:
    for row in ROWS:
        for name in row.get("tests", ()):
            path, _, test = name.partition("::")
            assert test in defined_in(path), name


def test_every_case_stands_for_a_row_or_says_why_not() -> None:
    named = {case for row in ROWS for case in row["cases"]}
    notes = {case: (CASES[case] / "note.md").read_text(encoding="utf-8") for case in CASES.keys() - named}
    assert sorted(case for case, note in notes.items() if not BESIDE.search(note)) == []


def test_damaged_forms_are_shown_by_calls_and_by_refusals() -> None:
    """Not every damaged form is mended, and not every one is given up."""
    damaged = {case for row in ROWS if row["kind"] == "malformed" for case in row["cases"]}
    calls = [bool(json.loads((CASES[case] / "expected.json").read_bytes())["calls"]) for case in damaged]
    assert sum(calls) > 100
    assert len(calls) - sum(calls) > 20


# The reference


@frozen
class Section:
    """One numbered section: its lines outside of examples, and how many examples it has."""

    number: str
    lines: list[str]
    examples: int


def sections(text: str) -> Iterator[Section]:
    number, examples, fence = "0", 0, ""
    lines: list[str] = []
    for line in text.split("\n"):
        found = re.match(r"(~~~~|```)[^`]*\Z", line)
        mark = found[1] if found else ""
        heading = None if fence else re.match(r"#{1,2} (\d+(?:\.\d+)?)", line)
        if mark and (not fence or fence == mark):
            fence = "" if fence else mark
            examples += line == "~~~~raw"
        elif heading:
            yield Section(number, lines, examples)
            number, lines, examples = heading[1], [], 0
        elif not fence:
            lines.append(line)
    yield Section(number, lines, examples)


def plain(text: str) -> str:
    """The text with what stands in code spans and in parentheses blanked out, place by place."""
    blanked = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", lambda span: " " * len(span[0]), text)
    while True:
        shorter = re.sub(r"\([^()]*\)", lambda span: " " * len(span[0]), blanked)
        if shorter == blanked:
            return blanked
        blanked = shorter


def listed(text: str) -> list[str]:
    """The items of the first sentence: separated by semicolons, or else by commas."""
    bare = plain(text)
    end = re.search(r"\.(?=\s+[A-Z*`]|\s*\Z)", bare)
    bare = bare[: end.start() if end else None]
    cuts = [found.start() for found in re.finditer(";", bare)] or [found.start() for found in re.finditer(",", bare)]
    return [text[start:stop] for start, stop in pairwise([0, *cuts, len(bare)])]


def table_below(lines: list[str]) -> list[str]:
    """The rows of the table that follows, without its head."""
    rows: list[str] = []
    for line in lines:
        if line.startswith("|"):
            rows.append(line)
        elif rows:
            break
    return rows[2:]


def damaged(section: Section) -> int:
    """How many damaged forms a section lists, in tables and in running text."""
    for index, line in enumerate(section.lines):
        found = re.search(r"(?:^|(?<=[.\s]))\**Malformed\b[^.:|`]*[.:]\**:?\s*", line)
        if found and not line.startswith(("#", "|")):
            rest = line[found.end() :]
            return len(listed(rest)) if rest else len(table_below(section.lines[index + 1 :]))
    return len(table_below(section.lines)) if section.number == "13" else 0


def has_traps(section: Section) -> bool:
    return place(section.number) > (3,) and any(
        re.search(r"(?:^|[.*\s-])[Tt]raps?\b[^.:|`]*[.:]", line) for line in section.lines
    )


@pytest.fixture(scope="module")
def reference() -> list[Section]:
    if not REFERENCE.exists():
        pytest.skip("the reference of the dialects is not here")
    return [each for each in sections(REFERENCE.read_text(encoding="utf-8")) if "." in each.number or each.lines]


def test_every_damaged_form_of_the_reference_has_its_row(reference: list[Section]) -> None:
    counted = Counter({each.number: damaged(each) for each in reference if damaged(each)})
    assert counted.total() > 150
    assert per_section("malformed") == counted


def test_every_worked_example_of_the_reference_has_its_row(reference: list[Section]) -> None:
    counted = Counter({each.number: each.examples for each in reference if each.examples})
    assert counted.total() > 30
    assert per_section("example") == counted


def test_every_section_with_traps_has_rows_for_them(reference: list[Section]) -> None:
    assert {each.number for each in reference if has_traps(each)} == set(per_section("trap"))


def test_small_dialects_and_shapes_of_json_have_their_rows(reference: list[Section]) -> None:
    by_number = {each.number: each for each in reference}
    assert per_section("rule")["7.15"] == len(table_below(by_number["7.15"].lines))
    shapes = [row for row in ROWS if row["section"] == "8.1" and row["row"].startswith("shape: ")]
    assert len(shapes) == len(table_below(by_number["8.1"].lines))


def test_the_ten_rules_have_their_rows(reference: list[Section]) -> None:
    (last,) = (each for each in reference if each.number == "14")
    numbers = [line.partition(".")[0] for line in last.lines if re.match(r"\d+\. ", line)]
    assert [row["row"].partition(" ")[0] for row in ROWS if row["section"] == "14"] == numbers
