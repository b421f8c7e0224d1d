"""The class of a structured call: one each, in order, as the reference library has it."""

import json
import random
from collections import Counter
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from gateway.core.call_class import CallClass
from gateway.core.tools import Tool, ToolSet
from strategies.structured.judge import judge

READ = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["fast", "slow"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "at": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["path"],
    "additionalProperties": False,
}
EDIT = {
    "type": "object",
    "properties": {
        "edits": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/edit"}},
        "note": {"type": ["string", "null"]},
    },
    "required": ["edits", "note"],
    "$defs": {"edit": {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]}},
}
SCHEMAS: dict[str, dict[str, Any]] = {"read": READ, "edit": EDIT, "now": {}}
TOOLS = ToolSet(Tool(name=name, parameters=schema) for name, schema in SCHEMAS.items())


def wanted(name: str, text: str) -> str:
    """What the reference says of a call."""
    try:
        told = json.loads(text or "{}", parse_constant=lambda word: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return "invalid_json"
    schema = SCHEMAS.get(name)
    if schema is None:
        return "unknown_name"
    if isinstance(told, dict):
        spare = {key for key in schema.get("properties", {}) if key not in schema.get("required", [])}
        told = {key: value for key, value in told.items() if value is not None or key not in spare}
    is_valid = isinstance(told, dict) and Draft202012Validator(schema).is_valid(told)
    return "valid" if is_valid else "schema_mismatch"


def drawn(source: random.Random) -> tuple[str, str]:
    """A call, right or damaged somewhere."""
    value: Any = {
        "path": source.choice(["a.py", "", "ä", 5, None]) if source.random() < 0.5 else "a.py",
        "limit": source.choice([1, 5, 0, "5", 2.0, 2.5, None, True]),
        "mode": source.choice(["fast", "Fast", None]),
        "tags": source.choice([["a"], ["a", 1], "a", [], ["a"] * 4]),
        "at": source.choice([1, None, "1"]),
        "edits": source.choice([[{"old": "a"}], [], [{"new": "a"}], '[{"old": "a"}]']),
        "note": source.choice(["x", None]),
        "more": 1,
    }
    kept = {key: value[key] for key in value if source.random() < (0.9 if key in ("path", "edits", "note") else 0.2)}
    name = source.choice(["read", "edit", "now", "Read", "functions.read", ""])
    if name in SCHEMAS and source.random() < 0.6:
        kept = {key: item for key, item in kept.items() if key in SCHEMAS[name].get("properties", kept)}
    text = json.dumps(kept, ensure_ascii=source.random() < 0.5)
    damage = source.random()
    if damage < 0.1:
        at = source.randrange(len(text))
        text = text[:at] + text[at + 1 :]
    elif damage < 0.16:
        text = source.choice(["", "[]", "null", '"x"', "5", text + text, f"```json\n{text}\n```", text[:-1], str(kept)])
    return name, text


def test_ten_thousand_mixed_calls_have_the_classes_of_the_reference() -> None:
    source = random.Random(14)
    counted: Counter[str] = Counter()
    for _ in range(10_000):
        name, text = drawn(source)
        found = judge(name, text, TOOLS)
        assert found.call_class == wanted(name, text), (name, text, found.fault)
        assert bool(found.fault) == (not found.is_valid)
        counted[found.call_class] += 1
    assert min(counted[each] for each in CallClass) > 500


@pytest.mark.parametrize(
    ("text", "call_class"),
    [
        ("  ", "schema_mismatch"),
        ('{"path": "a", "limit": null}', "valid"),
        ('{"path": null}', "schema_mismatch"),
        ('{"path": "a", "limit": 1e999}', "schema_mismatch"),
        ('{"path": "\\ud800"}', "valid"),
        ('{"path": "a", "limit": NaN}', "invalid_json"),
        ('{"path": "a", "limit": ' + "9" * 5000 + "}", "schema_mismatch"),
        ('{"path": ' + "[" * 100_000, "invalid_json"),
        ('\ufeff{"path": "a"}', "invalid_json"),
    ],
)
def test_texts_at_the_edge(text: str, call_class: str) -> None:
    assert judge("read", text, TOOLS).call_class == call_class


def test_a_tool_without_a_schema_takes_nothing_at_all() -> None:
    assert judge("now", "", TOOLS).is_valid
    assert judge("now", '{"a": 1}', TOOLS).is_valid
    assert judge("now", "[1]", TOOLS).call_class == "schema_mismatch"
