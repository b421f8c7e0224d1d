"""Whether a value is what JSON Schema (2020-12, and what older drafts wrote otherwise) takes, and if not, why.

Schemas are the client's, values the model's, and both may be anything: references are followed within the document
alone, patterns never backtrack, each container is held against each part of the schema once, and work and depth are
bounded. What lies beyond a bound, or says what nobody understands, is taken to fit; `format` is a remark, as the
standard has it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any, TypeGuard, cast
from urllib.parse import unquote

from strategies.schema.document import Schema, has_type, member, named_types
from strategies.schema.patterns import pattern_of

__all__ = ["Validity"]

_MAX_WORK = 4_000
"""Parts of a schema held against parts of a value in one check."""
_MAX_NESTING = 100
_LONGEST_TYPE = 16
_MAX_NODES = 20_000
"""Of a schema that is searched for its names."""
_MAX_TEXT = 4096
"""Characters of a text that are held against a pattern."""
_MAX_PATTERNS = 32
_MAX_SHOWN = 20
_TYPES = ("string", "integer", "number", "boolean", "null", "object", "array")
_WORDS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "object": "an object",
    "array": "an array",
}
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")
_ARRAYS = (
    *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "unevaluatedItems",
)
_OBJECTS = (
    *("properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties"),
    *("maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
)
_TYPE_ALONE = frozenset({"type", "description", "title"})
"""A part that says no more than these is of one step."""
_TEXTS = ("minLength", "maxLength", "pattern")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COMBINED = ("allOf", "anyOf", "oneOf", "not", "if", "$ref", "$dynamicRef")


class Validity:
    """One schema, against which values are held."""

    __slots__ = ("_choices", "_ignores_siblings", "_names", "_root")

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._ignores_siblings = any(draft in str(root.get("$schema", "")) for draft in _OLD_DRAFTS)
        self._names: dict[str, Any] | None = None
        self._choices: dict[tuple[int, str], tuple[Any, frozenset[Any]]] = {}

    def fault(self, value: object) -> str | None:
        """Why the schema does not take the value, in words for its writer; `None` if it does."""
        return _Check(self).fault(value, self._root, "", 0)

    def part_fault(self, value: object, part: object, where: str) -> str | None:
        """The same of one part of the schema, for a value at that path."""
        return _Check(self).fault(value, part, where, 0)

    def target(self, reference: object) -> Any:
        """What a reference within the document points to; `None` for any other."""
        if not isinstance(reference, str):
            return None
        place, _, fragment = reference.partition("#")
        node: Any = self._root if not place else self._named().get(place)
        if not fragment:
            return node
        if not fragment.startswith("/"):
            # A name that is no pointer is an anchor of the document.
            return self._named().get(f"{place}#{fragment}")
        for step in unquote(fragment)[1:].split("/")[:_MAX_NESTING]:
            node = member(node, step)
            if node is None:
                return None
        return node

    def one_of(self, schema: Schema, members: Sequence[Any], key: str) -> frozenset[Any]:
        """The values that a list allows, so that they can be told apart at once however many there are."""
        known = self._choices.get((id(schema), key))
        if known is None or known[0] is not schema:
            known = (schema, frozenset(map(_sign, members)))
            self._choices[id(schema), key] = known
        return known[1]

    @property
    def ignores_siblings(self) -> bool:
        """What stands beside a reference says nothing, as in the older drafts."""
        return self._ignores_siblings

    def _named(self) -> dict[str, Any]:
        """The parts of the document that have a name of their own."""
        if self._names is None:
            self._names = {}
            left: list[tuple[Any, str]] = [(self._root, "")]
            for _ in range(_MAX_NODES):
                if not left:
                    break
                node, base = left.pop()
                if isinstance(node, Mapping):
                    base = self._name(node, base)
                    left += ((each, base) for each in node.values() if isinstance(each, Mapping | list))
                elif isinstance(node, list):
                    left += ((each, base) for each in node if isinstance(each, Mapping | list))
        return self._names

    def _name(self, node: Mapping[str, Any], base: str) -> str:
        names = cast("dict[str, Any]", self._names)
        own = node.get("$id", node.get("id"))
        if isinstance(own, str) and own:
            base = own.rstrip("#")
            names.setdefault(base, node)
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(key), str):
                names.setdefault(f"#{anchor}", node)
                names.setdefault(f"{base}#{anchor}", node)
        return base


class _Spent(Exception):
    """The work that one check may be is done."""


class _Check:
    """One value held against one schema."""

    __slots__ = ("_active", "_document", "_known", "_left")

    def __init__(self, document: Validity) -> None:
        self._document = document
        self._left = _MAX_WORK
        self._active: set[tuple[int, int]] = set()
        """What is being looked at: a schema that leads to itself without a step into the value asks for no more."""
        self._known: dict[tuple[int, int], str | None] = {}
        """What containers came to: alternatives that share a part would ask again and again."""

    def fault(self, value: Any, schema: Any, where: str, depth: int) -> str | None:
        """Why this part of the schema does not take this part of the value."""
        if not _is_schema(schema):
            return f"{_path(where)} may not be given" if schema is False else None
        self._left -= 1
        if self._left < 0 or depth > _MAX_NESTING:
            return None
        if _TYPE_ALONE.issuperset(schema):
            return self._kind_fault(value, schema, where)
        # Identities hold for as long as one check lasts, as both are kept by it.
        key = (id(schema), id(value))
        if key in self._active:
            return None
        if key in self._known:
            return self._known[key]
        self._active.add(key)
        fault = self._fault(value, schema, where, depth)
        self._active.discard(key)
        # Small values may be shared objects: `1` here is the same as `1` there.
        if isinstance(value, dict | list):
            self._known[key] = fault
        return fault

    def fits(self, value: Any, schema: Any, depth: int) -> bool:
        """Whether it takes it."""
        return self.fault(value, schema, "", depth) is None

    def _fault(self, value: Any, schema: Schema, where: str, depth: int) -> str | None:
        if "$ref" in schema and self._document.ignores_siblings:
            return self.fault(value, self._document.target(schema["$ref"]), where, depth + 1)
        fault = self._kind_fault(value, schema, where)
        if fault is None and isinstance(value, dict):
            fault = self._object_fault(value, schema, where, depth) if _says(schema, _OBJECTS) else None
        elif fault is None and isinstance(value, list):
            fault = self._array_fault(value, schema, where, depth) if _says(schema, _ARRAYS) else None
        elif fault is None and isinstance(value, str):
            fault = _text_fault(value, schema, where) if _says(schema, _TEXTS) else None
        elif fault is None and _is_number(value):
            fault = _number_fault(value, schema, where) if _says(schema, _NUMBERS) else None
        if fault is None and _says(schema, _COMBINED):
            fault = self._combined_fault(value, schema, where, depth)
        return fault

    def _kind_fault(self, value: Any, schema: Schema, where: str) -> str | None:
        types = _types(schema)
        if types and not has_type(value, types):
            return f"{_path(where)} must be {' or '.join(_WORDS[name] for name in _TYPES if name in types)}"
        members = schema.get("enum")
        if isinstance(members, list) and not self._is_one_of(value, schema, members):
            shown = ", ".join(map(str, members[:_MAX_SHOWN])) + (", ..." if len(members) > _MAX_SHOWN else "")
            return (
                None if value is None and schema.get("nullable") is True else f"{_path(where)} must be one of {shown}"
            )
        if "const" in schema and not self._is_one_of(value, schema, [schema["const"]], "const"):
            return f"{_path(where)} must be {schema['const']}"
        return None

    def _is_one_of(self, value: Any, schema: Schema, members: list[Any], key: str = "enum") -> bool:
        if isinstance(value, str):
            return value in members
        # A list of that length was made by a program, to cost something.
        if len(members) > _MAX_WORK:
            return True
        try:
            return self._sign(value) in self._document.one_of(schema, members, key)
        except _Spent:
            return True

    def _sign(self, value: Any) -> Any:
        """What stands for a value among others; each part of it is work."""
        self._left -= 1
        if self._left < 0:
            raise _Spent
        if isinstance(value, dict):
            return "object", frozenset((key, self._sign(item)) for key, item in value.items())
        return ("array", tuple(map(self._sign, value))) if isinstance(value, list) else _sign(value)

    def _holds_twice(self, value: list[Any]) -> bool:
        try:
            return len(set(map(self._sign, value))) != len(value)
        except _Spent:
            return False

    # Objects

    def _object_fault(self, value: dict[str, Any], schema: Schema, where: str, depth: int) -> str | None:
        required = schema.get("required")
        for name in required if isinstance(required, list) else ():
            if isinstance(name, str) and name not in value:
                return f"missing required argument `{_joined(where, name)}`"
        size = _counts(len(value), schema, "minProperties", "maxProperties")
        if size is not None:
            return f"{_path(where)} must have {size} members"
        return (
            self._member_fault(value, schema, where, depth)
            or self._dependence_fault(value, schema, where, depth)
            or self._unevaluated_member(value, schema, where, depth)
        )

    def _member_fault(self, value: dict[str, Any], schema: Schema, where: str, depth: int) -> str | None:
        names = schema.get("propertyNames")
        for name, item in value.items():
            # The work that a check may be is done: what is left is taken to fit.
            if self._left < 0:
                return None
            if names is not None and not self.fits(name, names, depth + 1):
                return f"`{_joined(where, name)}` is no name that may be given"
            for part in self._parts_of(schema, name):
                if part is False:
                    return f"`{_joined(where, name)}` is not known"
                fault = self.fault(item, part, _joined(where, name), depth + 1)
                if fault is not None:
                    return fault
        return None

    def _parts_of(self, schema: Schema, name: str) -> list[Any]:
        """What the schema says of a member: by its name, by the patterns that match it, else of all others."""
        declared, patterns = schema.get("properties"), schema.get("patternProperties")
        parts = [declared[name]] if _is_schema(declared) and name in declared else []
        is_unsure = _is_schema(patterns) and len(patterns) > _MAX_PATTERNS
        for source, part in islice(patterns.items(), _MAX_PATTERNS) if _is_schema(patterns) else ():
            found = _matches(source, name)
            is_unsure = is_unsure or found is None
            parts += [part] if found else []
        # A name that may match a pattern nobody understands must not fall under what is said of all others.
        if parts or is_unsure or "additionalProperties" not in schema:
            return parts
        return [schema["additionalProperties"]]

    def _dependence_fault(self, value: dict[str, Any], schema: Schema, where: str, depth: int) -> str | None:
        for key in ("dependentRequired", "dependentSchemas", "dependencies"):
            stated = schema.get(key)
            for name, part in stated.items() if isinstance(stated, Mapping) else ():
                if name not in value:
                    continue
                if isinstance(part, list):
                    lacking = next((each for each in part if isinstance(each, str) and each not in value), None)
                    fault = f"missing required argument `{_joined(where, lacking)}`" if lacking is not None else None
                else:
                    fault = self.fault(value, part, where, depth + 1)
                if fault is not None:
                    return fault
        return None

    def _unevaluated_member(self, value: dict[str, Any], schema: Schema, where: str, depth: int) -> str | None:
        part = schema.get("unevaluatedProperties")
        if part is None or part is True:
            return None
        known = self._evaluated(value, schema, depth, own=False)
        for name in value if known is not None else ():
            if name not in cast("set[Any]", known):
                fault = f"`{_joined(where, name)}` is not known" if part is False else None
                fault = fault or self.fault(value[name], part, _joined(where, name), depth + 1)
                if fault is not None:
                    return fault
        return None

    # Arrays

    def _array_fault(self, value: list[Any], schema: Schema, where: str, depth: int) -> str | None:
        size = _counts(len(value), schema, "minItems", "maxItems")
        if size is not None:
            return f"{_path(where)} must have {size} items"
        if schema.get("uniqueItems") is True and self._holds_twice(value):
            return f"{_path(where)} must not hold the same item twice"
        first, rest = _items(schema)
        for at, part in enumerate(first[: len(value)]):
            fault = self.fault(value[at], part, f"{where}[{at}]", depth + 1)
            if fault is not None:
                return fault
        if rest is not None and rest is not True and not _all_of_type(value, len(first), rest):
            for at in range(len(first), len(value)):
                if self._left < 0:
                    return None
                fault = self.fault(value[at], rest, f"{where}[{at}]", depth + 1)
                if fault is not None:
                    return fault
        return self._contained_fault(value, schema, where, depth) or self._unevaluated_item(value, schema, where, depth)

    def _contained_fault(self, value: list[Any], schema: Schema, where: str, depth: int) -> str | None:
        part = schema.get("contains")
        if part is None:
            return None
        found = sum(self.fits(item, part, depth + 1) for item in value[: max(self._left, 0) + 1])
        least = schema.get("minContains", 1)
        most = schema.get("maxContains")
        if (_is_number(least) and found < least) or (_is_number(most) and found > cast("float", most)):
            return f"{_path(where)} must hold other items"
        return None

    def _unevaluated_item(self, value: list[Any], schema: Schema, where: str, depth: int) -> str | None:
        part = schema.get("unevaluatedItems")
        if part is None or part is True:
            return None
        known = self._evaluated(value, schema, depth, own=False)
        for at, item in enumerate(value if known is not None else ()):
            if at not in cast("set[Any]", known):
                fault = self.fault(item, part, f"{where}[{at}]", depth + 1)
                if fault is not None:
                    return fault
        return None

    def _evaluated(self, value: Any, schema: Any, depth: int, *, own: bool) -> set[Any] | None:
        """The members or places that a schema has spoken of; `None` where it speaks of all, or nobody can tell."""
        self._left -= 1
        if not isinstance(schema, Mapping):
            return set()
        if self._left < 0 or depth > _MAX_NESTING:
            return None
        if own and (schema.get("unevaluatedProperties") is not None or schema.get("unevaluatedItems") is not None):
            return None
        seen = self._own_members(value, schema) if isinstance(value, dict) else self._own_items(value, schema, depth)
        for part in self._applied(value, schema, depth):
            more = self._evaluated(value, part, depth + 1, own=True)
            if more is None or seen is None:
                return None
            seen |= more
        return seen

    def _own_members(self, value: dict[str, Any], schema: Schema) -> set[Any] | None:
        if "additionalProperties" in schema:
            return None
        return {name for name in value if self._parts_of(schema, name)}

    def _own_items(self, value: list[Any], schema: Schema, depth: int) -> set[Any] | None:
        first, rest = _items(schema)
        if rest is not None:
            return None
        held = schema.get("contains")
        seen = set(range(min(len(first), len(value))))
        return seen | {at for at, item in enumerate(value) if held is not None and self.fits(item, held, depth + 1)}

    def _applied(self, value: Any, schema: Schema, depth: int) -> Iterator[Any]:
        """The parts of a schema that hold for the same value."""
        for key in ("$ref", "$dynamicRef"):
            if key in schema:
                yield self._document.target(schema[key])
        yield from _listed(schema, "allOf")
        for key in ("anyOf", "oneOf"):
            yield from (part for part in _listed(schema, key) if self.fits(value, part, depth + 1))
        if "if" in schema:
            holds = self.fits(value, schema["if"], depth + 1)
            yield from ((schema["if"], schema.get("then")) if holds else (schema.get("else"),))
        dependent = schema.get("dependentSchemas")
        if isinstance(dependent, Mapping) and isinstance(value, dict):
            yield from (part for name, part in dependent.items() if name in value)

    # Combinations

    def _combined_fault(self, value: Any, schema: Schema, where: str, depth: int) -> str | None:
        for key in ("$ref", "$dynamicRef"):
            fault = self.fault(value, self._document.target(schema[key]), where, depth + 1) if key in schema else None
            if fault is not None:
                return fault
        for part in _listed(schema, "allOf"):
            fault = self.fault(value, part, where, depth + 1)
            if fault is not None:
                return fault
        # Where the work ran out, that it fits was never found, only taken to be so; and `not` would turn that into a
        # fault.
        if "not" in schema and self.fits(value, schema["not"], depth + 1) and self._left >= 0:
            return f"{_path(where)} is what may not be given"
        return self._choice_fault(value, schema, where, depth) or self._condition_fault(value, schema, where, depth)

    def _choice_fault(self, value: Any, schema: Schema, where: str, depth: int) -> str | None:
        for key, most in (("anyOf", math.inf), ("oneOf", 1)):
            parts = _listed(schema, key)
            if not parts:
                continue
            faults = []
            found = 0
            for part in parts:
                fault = self.fault(value, part, where, depth + 1)
                found += fault is None
                faults += [fault] if fault is not None else []
                # `anyOf` is decided by the first that fits; `oneOf` has to know of a second.
                if found > most or (found and most > 1):
                    break
            # Alternatives that were not looked at might have fitted.
            if self._left < 0:
                return None
            if not found:
                return self._closest(value, parts, faults, where)
            if found > most:
                return f"{_path(where)} fits more than one of its alternatives"
        return None

    def _closest(self, value: Any, parts: Sequence[Any], faults: Sequence[str], where: str) -> str:
        """The fault of the one alternative that has the value's type, else a general one."""
        near = [
            fault
            for fault, part in zip(faults, parts, strict=False)
            if isinstance(part, Mapping) and (not (types := _types(part)) or has_type(value, types))
        ]
        return near[0] if len(near) == 1 else f"{_path(where)} fits none of its alternatives"

    def _condition_fault(self, value: Any, schema: Schema, where: str, depth: int) -> str | None:
        if "if" not in schema:
            return None
        key = "then" if self.fits(value, schema["if"], depth + 1) else "else"
        return self.fault(value, schema[key], where, depth + 1) if key in schema else None


def _says(schema: Schema, keys: Iterable[str]) -> bool:
    # Asked for each part of a value; a schema may have very many keys, so it is not gone through.
    for key in keys:
        if key in schema:
            return True
    return False


def _types(schema: Schema) -> frozenset[str]:
    """The types that fit; empty where the schema does not say."""
    declared = schema.get("type")
    if declared is None:
        return frozenset()
    types = (
        _one_type(declared) if isinstance(declared, str) and len(declared) <= _LONGEST_TYPE else named_types(declared)
    )
    return types | {"null"} if types and schema.get("nullable") is True else types


@lru_cache(maxsize=64)
def _one_type(declared: str) -> frozenset[str]:
    return named_types(declared)


def _is_schema(part: object) -> TypeGuard[Mapping[str, Any]]:
    # To ask whether something is a mapping takes ten times as long as whether it is a dict, which nearly all are.
    return type(part) is dict or isinstance(part, Mapping)


def _listed(schema: Schema, key: str) -> list[Any]:
    parts = schema.get(key)
    return parts if isinstance(parts, list) else []


def _items(schema: Schema) -> tuple[list[Any], Any]:
    """What is said of the first items, one by one, and of all behind them."""
    first, items = schema.get("prefixItems"), schema.get("items")
    if isinstance(items, list):
        return items, schema.get("additionalItems")
    return (first if isinstance(first, list) else []), items


_PLAIN: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def _all_of_type(value: list[Any], first: int, part: Any) -> bool:
    """Whether the items are all of the type which is all that is asked of them: a long list is seen at a glance."""
    if not isinstance(part, Mapping) or not _TYPE_ALONE.issuperset(part):
        return False
    declared = part.get("type")
    kinds = _PLAIN.get(declared) if isinstance(declared, str) else None
    return kinds is not None and set(map(type, value[first:])).issubset(kinds)


def _counts(size: int, schema: Schema, least: str, most: str) -> str | None:
    """How many there must be, where there are not as many."""
    low, high = schema.get(least), schema.get(most)
    if _is_number(low) and size < cast("float", low):
        return f"at least {low}"
    return f"at most {high}" if _is_number(high) and size > cast("float", high) else None


def _text_fault(value: str, schema: Schema, where: str) -> str | None:
    size = _counts(len(value), schema, "minLength", "maxLength")
    if size is not None:
        return f"{_path(where)} must have {size} characters"
    source = schema.get("pattern")
    return f"{_path(where)} must match {source}" if _matches(source, value) is False else None


def _matches(source: object, text: str) -> bool | None:
    known = pattern_of(source) if isinstance(source, str) else None
    return known.matches(text, _MAX_TEXT) if known is not None else None


_BOUNDS: tuple[tuple[str, str, Callable[[Any, Any], bool]], ...] = (
    ("minimum", "at least", lambda value, bound: value >= bound),
    ("maximum", "at most", lambda value, bound: value <= bound),
    ("exclusiveMinimum", "more than", lambda value, bound: value > bound),
    ("exclusiveMaximum", "less than", lambda value, bound: value < bound),
)


def _number_fault(value: float, schema: Schema, where: str) -> str | None:
    for key, words, holds in _BOUNDS:
        bound = schema.get(key)
        if bound is True:  # in draft 4 a word of its own makes a bound exclusive
            bound = schema.get(key.removeprefix("exclusive").lower())
        if _is_number(bound) and not holds(value, bound):
            return f"{_path(where)} must be {words} {bound}"
    step = schema.get("multipleOf")
    # Infinity is no fraction, and to ask for one raises.
    if _is_number(step) and cast("float", step) > 0 and math.isfinite(value) and math.isfinite(cast("float", step)):
        # As decimal numbers: in binary 0.3 is no multiple of 0.1.
        if Fraction(str(value)) % Fraction(str(step)):
            return f"{_path(where)} must be a multiple of {step}"
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sign(value: Any) -> Any:
    """What is the same for values that are the same as JSON, and for no others: 1 is 1.0, and `true` is neither."""
    if isinstance(value, dict):
        return "object", frozenset((key, _sign(item)) for key, item in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_sign, value))
    return (("boolean" if isinstance(value, bool) else "number"), value) if isinstance(value, int | float) else value


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _path(where: str) -> str:
    return f"`{where}`" if where else "the arguments"
