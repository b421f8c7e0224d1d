"""Values that are written as nested tags are read by the schema, however the items of an array are named."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.tools import Tool, ToolSet
from tests.support.reading import read

STEP = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "minutes": {"type": "integer"},
        "done": {"type": "boolean"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"city": {"type": "string"}, "lat": {"type": "number"}}},
    },
    "required": ["title"],
}
PLAN = Tool(
    name="make_plan",
    parameters={
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "steps": {"type": "array", "items": STEP},
            "first": STEP,
            "sizes": {"type": "array", "items": {"type": "number"}},
            "mode": {"type": "string", "enum": ["fast", "slow"]},
            "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["name"],
    },
)
WORDS = st.text(alphabet="abc 1.,é東&'-", min_size=1, max_size=12).map(str.strip).filter(bool)
NUMBERS = st.integers(-1000, 1000) | st.floats(-100, 100).map(lambda number: round(number, 3))
PLACES = st.fixed_dictionaries({"city": WORDS}, optional={"lat": NUMBERS})
STEPS = st.fixed_dictionaries(
    {"title": WORDS},
    optional={
        "minutes": st.integers(0, 99),
        "done": st.booleans(),
        "labels": st.lists(WORDS, min_size=2, max_size=3),
        "place": PLACES,
    },
)
PLANS = st.fixed_dictionaries(
    {"name": WORDS},
    optional={
        "steps": st.lists(STEPS, min_size=1, max_size=3),
        "first": STEPS,
        "sizes": st.lists(NUMBERS, min_size=1, max_size=3),
        "mode": st.sampled_from(["fast", "slow"]),
        "limits": st.dictionaries(st.sampled_from(["low", "high"]), st.integers(0, 9), min_size=1),
    },
)
ITEM_NAMES: dict[str, Callable[[str], str]] = {
    "item": lambda _key: "item",
    "singular": lambda key: key.removesuffix("s"),
    "same": lambda key: key,
}


def written(key: str, value: Any, style: str, indent: str | None) -> Iterator[str]:
    """The lines of one value; `style` names the items of arrays."""
    deeper = None if indent is None else indent + "  "
    if isinstance(value, list) and style == "repeated":
        for item in value:
            yield from written(key, item, style, indent)
        return
    if isinstance(value, list | dict):
        yield f"{indent or ''}<{key}>"
        members = [(ITEM_NAMES[style](key), item) for item in value] if isinstance(value, list) else value.items()
        for name, item in members:
            yield from written(name, item, style, deeper)
        yield f"{indent or ''}</{key}>"
        return
    text = value if isinstance(value, str) else json.dumps(value)
    yield f"{indent or ''}<{key}>{text}</{key}>"


@given(PLANS, st.sampled_from([*ITEM_NAMES, "repeated"]), st.sampled_from(["", "\n", "\r\n"]))
@settings(max_examples=200, deadline=None)
def test_nested_tags_are_read_by_the_schema(plan: dict[str, Any], style: str, newline: str) -> None:
    indent = "  " if newline else None
    lines = [line for key, value in plan.items() for line in written(key, value, style, indent)]
    found = read(newline.join(["<make_plan>", *lines, "</make_plan>"]), tools=ToolSet([PLAN]))
    assert [(name, json.loads(arguments)) for name, arguments in found.calls] == [("make_plan", plan)]
