"""How a schema is walked on its way to a server that understands less of it: bounds, places, references, words.

Bounds: nothing deeper than 64 is looked at, and not more than 10,000 schemas in each; what lies beyond becomes any
value, as does a reference that leads in a circle. Work is linear in what comes out.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

__all__ = [
    "LATER_PLACES",
    "MAX_DEPTH",
    "NOTE_CHARS",
    "PLACES",
    "TYPES",
    "Schema",
    "Walk",
    "in_words",
    "inside",
    "listed",
    "note",
    "objects",
    "referred",
    "strings",
]

MAX_DEPTH = 64
MAX_NODES = 10_000
NOTE_CHARS = 400
TYPES = ("string", "number", "integer", "boolean", "array", "object")

Schema = dict[str, Any]

LATER_PLACES: Mapping[str, type] = {
    "dependencies": dict,
    "additionalItems": object,
    "unevaluatedProperties": object,
    "unevaluatedItems": object,
}
"""Those that only servers with all of JSON Schema read."""
PLACES: Mapping[str, type] = {
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"), dict),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), list),
    **dict.fromkeys(
        ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames"), object
    ),
    **LATER_PLACES,
}
"""Where in a schema further ones stand: by name, in a row, alone."""


def inside(key: str, value: Any, lower: Callable[[Any], Any]) -> Any:
    """The value of a keyword, each schema in it lowered."""
    place = PLACES.get(key)
    if place is dict and isinstance(value, dict):
        return {name: lower(each) for name, each in value.items()}
    if isinstance(value, list) and (place is list or key == "items"):
        return [lower(each) for each in value]
    return lower(value) if place is object else value


class Walk:
    """One schema on its way down."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._nodes = 0
        self._open: list[str] = []
        """The references that are being followed."""

    def lowered(self, schema: Any, depth: int) -> Any:
        """The schema, or a flag that stands for one, in the words of the server."""
        raise NotImplementedError

    def _enter(self, depth: int) -> bool:
        """One more schema; whether it is within the bounds."""
        self._nodes += 1
        return depth <= MAX_DEPTH and self._nodes <= MAX_NODES

    def _followed(self, reference: object, beside: Schema, depth: int) -> Any:
        """What a reference points to, with what stands beside it, lowered; None where it leads in a circle."""
        if not isinstance(reference, str) or reference in self._open:
            return None
        self._open.append(reference)
        try:
            return self.lowered({**referred(self._root, reference), **beside}, depth + 1)
        finally:
            self._open.pop()


def referred(root: Schema, reference: object) -> Schema:
    """What a reference within the document points to; empty where it points nowhere."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return {}
    # A JSON pointer in a fragment: percent first, then `~1` and `~0` in this order
    # (https://www.rfc-editor.org/rfc/rfc6901#section-4).
    value: Any = root
    for step in reference[1:].split("/")[1:MAX_DEPTH]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and len(name) < 6 and int(name) < len(value):
            value = value[int(name)]
        else:
            return {}
    return value if isinstance(value, dict) else {}


def in_words(value: Any) -> str:
    """How the JSON of a value begins."""
    try:
        return msgspec.json.encode(value)[:NOTE_CHARS].decode("utf-8", "ignore")
    except RecursionError:
        return "..."


def note(out: Schema, words: str) -> None:
    """Say what the schema no longer can."""
    said = out.get("description")
    out["description"] = f"{said} {words}" if isinstance(said, str) and said else words


def listed(value: object) -> list[Any]:
    """The values of a keyword that takes one or several."""
    return value if isinstance(value, list) else [] if value is None else [value]


def strings(value: object) -> list[str]:
    """The strings of a list."""
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def objects(value: object, *, with_flags: bool = False) -> Schema:
    """The schemas of a keyword that gives them names."""
    entries = value.items() if isinstance(value, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict) or (with_flags and entry is True)}
