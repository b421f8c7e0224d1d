"""Runs the golden cases: an answer, the calls and the content that must come out of it, whatever the cuts."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.core.events import End, Text
from gateway.core.limits import Limits
from gateway.core.tools import ToolSet
from gateway.wire.chat_request import parse_request
from tests.support.reading import AGENT_TOOLS, Reading, read_every_way

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = {"input.txt", "expected.json", "note.md"}
FIELDS = {"tools", "calls", "content", "reason", "model", "prompted", "options"}
CASES = sorted(path for path in GOLDEN.glob("*/*") if path.is_dir())


def named(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


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


@pytest.mark.parametrize("case", CASES, ids=named)
def test_golden_case_reads_as_expected(case: Path) -> None:
    text = (case / "input.txt").read_bytes().decode()
    expected = json.loads((case / "expected.json").read_bytes())
    how = {name: expected[name] for name in ("reason", "model", "prompted") if name in expected}
    found = read_every_way(text, tools=declared(expected["tools"]), **how, **options(expected.get("options", {})))
    calls = [{"name": name, "arguments": json.loads(arguments)} for name, arguments in found.calls]
    assert as_json(calls) == as_json(expected["calls"])
    if calls:
        assert content(found).rstrip() == (expected["content"] or "").rstrip()
    else:
        assert found.text == text


@pytest.mark.parametrize("case", CASES, ids=named)
def test_golden_case_is_complete(case: Path) -> None:
    assert {path.name for path in case.iterdir()} == FILES
    assert re.match(r"row: \S", (case / "note.md").read_text(encoding="utf-8")), "the note says which row it stands for"
    expected = json.loads((case / "expected.json").read_bytes())
    assert {"tools", "calls", "content"} <= expected.keys() <= FIELDS
    assert all(call.keys() == {"name", "arguments"} for call in expected["calls"])


def test_booleans_are_not_numbers_to_the_comparison() -> None:
    assert as_json({"a": [True]}) != as_json({"a": [1]})
    assert as_json({"a": [1.0]}) == as_json({"a": [1]})
