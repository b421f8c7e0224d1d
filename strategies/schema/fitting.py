"""Whether a large value fits its part of a schema as it is, told fast: nothing is to be converted, nothing is wrong.

Most values fit, and a list of ten thousand objects is asked for more than once on its way. A part of a schema that says
no more than types, members and items becomes a function; whatever says more is left to the walks that convert and
explain (`Walk`), and so is a value that does not fit.
"""

from collections.abc import Callable, Mapping
from typing import Any

from strategies.schema.document import Document, Schema, properties, required

__all__ = ["Fitting"]

_Test = Callable[[Any], bool]
_PLAIN = frozenset({"type", "properties", "required", "items", "additionalProperties"})
_SILENT = frozenset(
    {
        *("title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions"),
        *("deprecated", "readOnly", "writeOnly", "format", "pattern", "minLength", "maxLength", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"),
    }
)
"""What no walk looks at."""
_MAX_TESTS = 500


class _Leaf(frozenset[type]):
    """The types of a value that has no parts: many are looked at in one go, without a call for each.

    By the exact type: a truth value is an int to Python, and none to JSON.
    """

    def __call__(self, value: Any) -> bool:
        return type(value) in self


_KINDS: Mapping[str, _Leaf] = {
    "string": _Leaf({str}),
    "integer": _Leaf({int}),
    "number": _Leaf({int, float}),
    "boolean": _Leaf({bool}),
    "null": _Leaf({type(None)}),
}


class Fitting:
    """The parts of one document as functions, each made when it is first asked for."""

    __slots__ = ("_document", "_left", "_tests")

    def __init__(self, document: Document) -> None:
        self._document = document
        self._tests: dict[int, tuple[Any, _Test]] = {}
        self._left = 0

    def fits(self, value: Any, schema: Any, work: int) -> int:
        """How many parts of the value have been looked at, at most about `work` (what lies beyond is taken to fit), or
        -1 where it may not fit."""
        self._left = work
        return work - self._left if self._test(schema)(value) else -1

    def _test(self, schema: Any) -> _Test:
        known = self._tests.get(id(schema))
        if known is not None and known[0] is schema:
            return known[1]
        if len(self._tests) >= _MAX_TESTS:
            self._tests.clear()

        def later(value: Any) -> bool:
            return self._test(schema)(value)

        self._tests[id(schema)] = (schema, later)  # where a part holds itself
        test = self._made(schema)
        self._tests[id(schema)] = (schema, test)
        return test

    def _made(self, schema: Any) -> _Test:
        if not isinstance(schema, Mapping):
            return _is_anything
        view = self._document.view(schema)
        said = view.keys() - _SILENT
        if not said:
            return _is_anything
        kind = view.get("type")
        if not said <= _PLAIN or not isinstance(kind, str):
            return _is_unclear
        if kind == "object":
            return self._object(view)
        if kind == "array":
            return self._array(view)
        kinds = _KINDS.get(kind)
        return _is_unclear if kinds is None or len(said) > 1 else kinds

    def _object(self, view: Schema) -> _Test:
        needed = required(view)
        members = {key: self._test(inner) for key, inner in properties(view).items()}
        extra = view.get("additionalProperties")
        other = _is_unclear if extra is False else self._test(extra)

        def test(value: Any) -> bool:
            if type(value) is not dict:
                return False
            self._left -= len(value) + 1
            if self._left <= 0:
                return True
            for key in needed:
                if key not in value:
                    return False
            if not members and other is _is_anything:
                return True
            for key, item in value.items():
                member = members.get(key, other)
                # Asked for here where that takes no call.
                if type(item) not in member if type(member) is _Leaf else not member(item):
                    return False
            return True

        return test

    def _array(self, view: Schema) -> _Test:
        items = view.get("items")
        if isinstance(items, list):
            return _is_unclear
        item = self._test(items)
        leaf = item if isinstance(item, _Leaf) else None

        def test(value: Any) -> bool:
            if type(value) is not list:
                return False
            left = self._left = self._left - len(value) - 1
            if item is _is_anything:
                return True
            # Beyond the work that may be done the rest is taken to fit.
            looked_at = value if left > 0 else value[: max(0, left + len(value))]
            return all(map(item, looked_at)) if leaf is None else leaf.issuperset(map(type, looked_at))

        return test


def _is_anything(_value: Any) -> bool:
    return True


def _is_unclear(_value: Any) -> bool:
    return False
