"""Child tags as arrays and objects: what the schema lets them be, and what is no such markup."""

from typing import Any

import pytest

from strategies.schema.child_tags import NoMarkup, TagReader
from strategies.schema.document import Document, Prop
from strategies.text.turns import Turns, whole

STRINGS = {"type": "array", "items": {"type": "string"}}
PAIR = {"type": "object", "properties": {"a": {"type": "string"}, "b": STRINGS}}


def _as_it_is(_prop: Prop, leaf: str) -> Turns[tuple[Any, tuple[str, ...]]]:
    yield from ()
    return leaf, ()


def spelled(schema: dict[str, Any], text: str) -> Any:
    """What the tags come to, with every leaf as the text that it is."""
    prop = Document({}).prop("value", schema)
    return whole(TagReader(text, _as_it_is, []).container(prop, "", 0))


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (STRINGS, "<item>a</item><item>b</item>", ["a", "b"]),
        (STRINGS, "\n <item>a</item>\n", ["a"]),
        (STRINGS, "<0>a</0><1>b</1>", ["a", "b"]),
        (PAIR, "<a>x</a><b><item>y</item></b>", {"a": "x", "b": ["y"]}),
        (PAIR, "<a>x <i>y</i></a>", {"a": "x <i>y</i>"}),
        (PAIR, "<a></a>", {"a": ""}),
    ],
)
def test_the_schema_says_what_tags_are(schema: dict[str, Any], text: str, value: object) -> None:
    assert spelled(schema, text) == value


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string"}, "<a>x</a>"),
        (STRINGS, "a, b"),
        (STRINGS, "<item>a</item> and b"),
        (STRINGS, "<item>a</item><element>b</element>"),
        (PAIR, "<a>x</a><a>y</a>"),
        (PAIR, "<a>x"),
    ],
)
def test_what_does_not_fit_the_schema_is_no_markup(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(NoMarkup):
        spelled(schema, text)


def test_nesting_has_a_bound() -> None:
    node: dict[str, Any] = {"type": "object", "properties": {"n": {"$ref": "#/$defs/node"}}}
    prop: Prop = Document({"$defs": {"node": node}}).prop("value", node)
    text = "<n>" * 100 + "</n>" * 100
    with pytest.raises(NoMarkup):
        whole(TagReader(text, _as_it_is, []).container(prop, "", 0))
