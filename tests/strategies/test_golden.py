"""Runs the golden cases: an answer, the calls and the content that must come out of it, whatever the cuts."""

import json
from typing import Any

import msgspec
import pytest

from gateway.core.events import End, Note, Text
from gateway.core.limits import Limits
from gateway.core.sentences import FORM_WORDS, MENDS, REASON_WORDS, step_of
from gateway.core.tools import ToolSet
from gateway.wire.chat_request import parse_request
from tests.support.golden import Case, cases, parse
from tests.support.reading import AGENT_TOOLS, Reading, read_every_way

FIELDS = {"tools", "calls", "content", "reason", "model", "prompted", "options", "remains"}
CASES = cases()
WORDS = MENDS.keys() | FORM_WORDS.keys() | REASON_WORDS.keys()
EACH = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


def declared(tools: Any) -> ToolSet:
    if tools == "agent":
        return AGENT_TOOLS
    body = {"model": "m", "messages": [{"role": "user", "content": ""}], "tools": tools}
    return parse_request(msgspec.json.encode(body)).tools


def options(given: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    if "limits" in made:
        made["limits"] = Limits(**made["limits"])
    return made


def content(reading: Reading) -> str:
    """The text before the end of the last call: what follows it may be dropped, and is not compared."""
    last = max(place for place, event in enumerate(reading.events) if isinstance(event, End))
    return "".join(event.raw for event in reading.events[:last] if isinstance(event, Text))


def as_json(value: Any) -> Any:
    """The value with every boolean marked, as Python takes `True` for 1."""
    match value:
        case bool():
            return ("boolean", value)
        case dict():
            return {name: as_json(each) for name, each in value.items()}
        case list():
            return [as_json(each) for each in value]
    return value


@EACH
def test_golden_case_reads_as_expected(case: Case) -> None:
    expected = case.expected
    how = {name: expected[name] for name in ("reason", "model", "prompted") if name in expected}
    found = read_every_way(case.text, tools=declared(expected["tools"]), **how, **options(expected.get("options", {})))
    verdicts = [event.verdict for event in found.events if isinstance(event, End | Note) and event.verdict is not None]
    steps = [step_of(reason) for verdict in verdicts for reason in verdict.reasons]
    assert [step.code for step in steps if step.code and step.code not in WORDS] == [], "it has words for a person"
    calls = [{"name": name, "arguments": json.loads(arguments)} for name, arguments in found.calls]
    assert as_json(calls) == as_json(expected["calls"])
    if calls:
        assert content(found).rstrip() == (expected["content"] or "").rstrip()
    else:
        assert found.text == (expected["content"] if expected.get("remains") else case.text)


def test_golden_cases_are_complete() -> None:
    for case in CASES:
        assert case.rules or case.beside, f"{case.id} says neither which rule it stands for, nor why for none"
        assert {"tools", "calls", "content"} <= case.expected.keys() <= FIELDS, case.id
        assert all(call.keys() == {"name", "arguments"} for call in case.expected["calls"]), case.id


def test_no_two_cases_bear_one_name() -> None:
    assert len({case.id for case in CASES}) == len(CASES)


PAGE = """# heron

## two-lines
rule: heron-1
note: It ends in a line break.
%%%% expected
{"tools": "agent", "calls": [], "content": "a"}
%%%% input
one\r
two

%%%% end
"""


def test_a_case_is_read_to_its_last_character() -> None:
    (case,) = parse("heron", PAGE)
    assert (case.id, case.rules, case.text) == ("heron/two-lines", ("heron-1",), "one\r\ntwo\n")
    assert case.note == "It ends in a line break."


@pytest.mark.parametrize(
    "page",
    [
        PAGE.replace("# heron", "# egret", 1),
        PAGE.replace("rule: heron-1", "rule heron-1"),
        PAGE.replace("%%%% end\n", "%%%% end\nlost\n"),
        PAGE.replace("# heron\n", "# heron\nlost\n", 1),
        PAGE.replace("%%%% end\n", ""),
    ],
)
def test_a_line_that_belongs_to_no_case_is_a_fault(page: str) -> None:
    with pytest.raises(ValueError, match="heron"):
        parse("heron", page)


def test_booleans_are_not_numbers_to_the_comparison() -> None:
    assert as_json({"a": [True]}) != as_json({"a": [1]})
    assert as_json({"a": [1.0]}) == as_json({"a": [1]})
