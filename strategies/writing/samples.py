"""Sample values for the example of a call: they fit the type and the name of their parameter."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from gateway.core.tools import Tool
from strategies.schema.document import Document, Schema, properties, required
from strategies.schema.tool_schema import schema_of
from strategies.writing.documentation import forms, is_plain_name, types
from strategies.writing.prompt import guarded

__all__ = ["sample_arguments"]

V = TypeVar("V")

_SAMPLE_TEXTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("glob", "include", "exclude"), "*.py"),
    (("pattern", "regex"), "error|warning"),
    (("directory", "folder", "dir", "cwd", "workdir"), "src"),
    (("url", "uri", "link", "href"), "https://example.com/page"),
    (("path", "file", "filename"), "src/main.py"),
    (("command", "cmd", "script"), "ls -la"),
    (("query", "search", "keyword"), "error handling"),
    (("old",), "first version"),
    (("new",), "second version"),
    (("content", "contents", "text", "body", "code"), "first line\nsecond line"),
    (("diff", "patch"), "- first version\n+ second version"),
    (("city", "location", "place", "country"), "Paris"),
    (("email", "mail"), "name@example.com"),
    (("timestamp", "datetime"), "2025-01-31T12:00:00Z"),
    (("date", "day"), "2025-01-31"),
    (("time",), "12:00"),
    (("language", "lang"), "python"),
    (("branch",), "main"),
    (("question",), "Which version should I use?"),
    (("message", "prompt", "description", "reason", "comment", "task", "instruction", "instructions"), "A short text"),
    (("title", "name", "subject"), "example"),
    (("id", "uuid", "key"), "abc123"),
)
_SAMPLE_FORMATS = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "email": "name@example.com",
    "time": "12:00:00Z",
    "uri": "https://example.com/page",
    "url": "https://example.com/page",
    "uuid": "3f2b8c1e-9d4a-4e6f-8b7a-1c2d3e4f5a6b",
}
_SAMPLE_NUMBERS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("timeout", "seconds"), 60),
    (("port",), 8080),
    (("year",), 2025),
    (("limit", "max", "count", "size", "lines"), 20),
    (("end",), 20),
)


def _by_word(lines: Sequence[tuple[tuple[str, ...], V]]) -> dict[str, tuple[int, V]]:
    """Each word and its plural, with the line that it first stands in."""
    found: dict[str, tuple[int, V]] = {}
    for place, (words, value) in enumerate(lines):
        for word in words:
            found.setdefault(word, (place, value))
            found.setdefault(f"{word}s", (place, value))
    return found


_TEXT_OF_WORD, _NUMBER_OF_WORD = _by_word(_SAMPLE_TEXTS), _by_word(_SAMPLE_NUMBERS)
_UNION = {"anyOf", "oneOf"}
_GIVEN = {"const", "enum", "examples", "default"}
_WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]")
_MAX_SAMPLE = 60
_SAMPLE_DEPTH = 4
_MAX_SAMPLES = 200
_MAX_GIVEN = 50


def sample_arguments(tool: Tool) -> dict[str, Any]:
    """Every required parameter and the first optional one, with values that fit their types and names."""
    schema = schema_of(tool)
    return _Samples(schema.document, tool.name).fields(schema.view, 0)


class _Samples:
    """Makes sample values for one tool; past the bound nested values stay empty."""

    def __init__(self, document: Document, tool: str) -> None:
        self._document = document
        self._tool = tool
        self._left = _MAX_SAMPLES

    def fields(self, schema: Schema, depth: int) -> dict[str, Any]:
        needed = frozenset(required(schema))
        chosen: dict[str, Any] = {}
        has_optional = False
        for name, raw in properties(schema).items():
            # Past the bound only what is nested stays empty: the call's own parameters are always shown.
            if depth and self._left <= 0:
                break
            if not is_plain_name(name):
                continue
            # One that is optional is shown, or small models never give any.
            if name in needed or not has_optional:
                chosen[name] = self._value(name, self._document.view(raw), depth)
            has_optional = has_optional or name not in needed
        return chosen

    def _value(self, name: str, schema: Schema, depth: int) -> Any:
        self._left -= 1
        if _UNION & schema.keys():
            schema = self._decided(schema)
        if _GIVEN & schema.keys():
            for value in islice(_given(schema), _MAX_GIVEN):
                if _is_plain(value):
                    return value
        kinds = types(self._document, schema)
        match kinds[0] if kinds else "string":  # null is the last of them
            case "string":
                return _sample_text(f"{self._tool}_{name}" if name == "pattern" else name, schema)
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(name, schema, depth)
            case "integer":
                return int(_within(_number_of(name) or 1, schema))
            case "number":
                return _within(_number_of(name) or 1.5, schema)
            case "boolean":
                return True
            case _:
                return None

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        if depth >= _SAMPLE_DEPTH or self._left <= 0:
            return {}
        return self.fields(schema, depth + 1)

    def _array(self, name: str, schema: Schema, depth: int) -> list[Any]:
        if depth >= _SAMPLE_DEPTH or self._left <= 0:
            return []
        least = schema.get("minItems")
        # A schema may ask for thousands of items, and an example has to stay short.
        count = min(max(least, 1), 3) if isinstance(least, int) else 1
        items = self._document.view(schema.get("items"))
        return [self._value(name, items, depth + 1) for _ in range(count)]

    def _decided(self, schema: Schema) -> Schema:
        """The schema with its unions decided: the first alternative that is more than null."""
        for _ in range(_SAMPLE_DEPTH):
            options = forms(self._document, schema)
            if not options:
                break
            chosen = next((form for form in options if types(self._document, form) != ("null",)), options[0])
            rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
            schema = {**rest, **chosen}
        return schema


def _given(schema: Schema) -> Iterator[object]:
    """Values that the schema itself names, best first."""
    if "const" in schema:
        yield schema["const"]
    for key in ("enum", "examples"):
        values = schema.get(key)
        if isinstance(values, list):
            yield from values
    if "default" in schema:
        yield schema["default"]


def _is_plain(value: object) -> bool:
    """Fit to stand in our own markup: nothing in it could be taken for more than a value."""
    if isinstance(value, str):
        is_short = 0 < len(value) <= _MAX_SAMPLE and value.isprintable() and value == value.strip()
        # Defaults and examples are a client's words, and are shown as a call that the model is to repeat.
        return is_short and "<" not in value and guarded(value) == value
    return isinstance(value, int | float)


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD_BORDER.split(name[:_MAX_SAMPLE])}


# All tools have parameters of the same few names.
@lru_cache(maxsize=1024)
def _text_of(name: str) -> str | None:
    """The text of the first line of the table that has one of the name's words."""
    return min((_TEXT_OF_WORD[word] for word in _words(name) if word in _TEXT_OF_WORD), default=(0, None))[1]


@lru_cache(maxsize=1024)
def _number_of(name: str) -> int | None:
    return min((_NUMBER_OF_WORD[word] for word in _words(name) if word in _NUMBER_OF_WORD), default=(0, None))[1]


def _sample_text(name: str, schema: Schema) -> str:
    form = schema.get("format")
    if isinstance(form, str) and form in _SAMPLE_FORMATS:
        return _SAMPLE_FORMATS[form]
    return _text_of(name[:_MAX_SAMPLE]) or "example"


def _within(value: float, schema: Schema) -> float:
    """The value moved into the declared bounds."""
    low, over = _bound(schema, "minimum"), _bound(schema, "exclusiveMinimum")
    high, under = _bound(schema, "maximum"), _bound(schema, "exclusiveMaximum")
    if low is not None and value < low:
        value = low
    if over is not None and value <= over:
        value = over + 1
    if high is not None and value > high:
        value = high
    if under is not None and value >= under:
        value = under - 1
    return value


def _bound(schema: Schema, key: str) -> float | None:
    value = schema.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
