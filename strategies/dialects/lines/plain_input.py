"""What a plain text stands for that is a tool's whole input: the one parameter, or parameters by their names.

    input = [ NAME ( "=" | ":" ) ] text | NAME "=" VALUE { "," ... } | members of an object | an object as a string

Only names that the tool declares count: a command or a query may begin with any other word and such a sign. Where a
name is there and more than its one value, it is not told what belongs to which; that is doubt, as are lists.
"""

import json
import re
from typing import Any

from strategies.schema.tool_schema import ToolSchema
from strategies.text.cursor import Reject
from strategies.text.loose_quotes import may_be_torn
from strategies.text.python_text import PythonFault, read_calls
from strategies.text.tolerant_json import JsonFault, parsing
from strategies.text.turns import whole

__all__ = ["sole", "text_arguments"]

# A tool may require nothing and still be meant to take what is written.
_SOLE = ("command", "query", "path")
_NOTHING = frozenset({"", "none", "null", "n/a", "{}", "nothing"})
_PAIRS = re.compile(r"([A-Za-z_]\w*)\s*=\s*[\"'\[{\d-]")
_HEAD = re.compile(r"""(["']?)([\w.-]{2,64})\1[ \t]*(?:=(?!=)|:(?!//))""")
_INNER_HEAD = re.compile(r"""(?<![\w-])([\w-]++)["']?[ \t]*+[=:]""")
_TAG = re.compile(r"<([\w.-]{1,64})>")
_PAGES = frozenset({"body", "code", "document", "html", "markup", "page", "script", "style", "svg", "template", "xml"})
"""Parameters whose values may begin with a tag of that name."""
_STRING = r"""(?:"[^"\n]*+"|'[^'\n]*+')\s*+"""
_LIST = re.compile(rf"[\[(]\s*+{_STRING}(?:,\s*+{_STRING})*+,?\s*+[\])]")


def text_arguments(text: str, schema: ToolSchema) -> dict[str, Any]:
    """The arguments that a plain text stands for; raises `Reject` where there is no telling."""
    text = text.strip()
    if text.lower() in _NOTHING and not schema.required:
        return {}
    pairs = _PAIRS.match(text)
    # `path="a.py", limit=3`, as in a call of Python.
    if pairs is not None and pairs.group(1) in schema.properties:
        # `code = 5` may be the code.
        if pairs.group()[-1] not in "\"'" and schema.prop(pairs.group(1)).body:
            raise Reject("more than one value", attempted=True)
        try:
            return read_calls(f"f({text})")[0].arguments
        except PythonFault as fault:
            raise Reject(fault.reason, attempted=True) from None
    told = _object(text, schema)
    if told is None:
        told = _named(text, schema)
    if told is not None:
        return told
    if _LIST.fullmatch(text):
        raise Reject("a list for one value", attempted=True)
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
        text = text[1:-1]
    if not text:
        raise Reject("no input", attempted=True)
    # An object whose beginning is lost must not become the one text of a tool that takes text.
    if text.endswith("}") and whole(may_be_torn(text, '"', schema.properties)):
        raise Reject("the object is damaged", attempted=True)
    return {sole(schema): text}


def _object(text: str, schema: ToolSchema) -> dict[str, Any] | None:
    """The object that the text is, or that stands in it as a string."""
    if text[:1] == "{" and text[-1:] == "}":
        found = _parsed(text)
        return found if found is not None and not schema.properties.keys().isdisjoint(found) else None
    body = text[1:-1].strip()
    if not (text[:1] in ('"', "'") and text[-1:] == text[:1] and body[:1] == "{" and body[-1:] == "}"):
        return None
    if text[0] == '"' and "\\" in body:
        try:
            body = str(json.loads(text))
            body.encode()
        except ValueError:
            raise Reject("JSON", attempted=True) from None
    found = _parsed(body)
    if found is None:
        raise Reject("JSON", attempted=True)
    return found


def _parsed(text: str) -> dict[str, Any] | None:
    """The object that this is without a mend."""
    try:
        parsed = whole(parsing(text, closed=True))
    except JsonFault:
        return None
    is_plain = isinstance(parsed.value, dict) and not parsed.steps and not text[parsed.end :].strip()
    return parsed.value if is_plain else None


def _named(text: str, schema: ToolSchema) -> dict[str, Any] | None:
    """The arguments where the text begins with the name of a parameter."""
    tag = _TAG.match(text)
    if tag is not None and tag.group(1) in schema.properties and tag.group(1) not in _PAGES:
        key, value = tag.group(1), text[tag.end() :].removesuffix(f"</{tag.group(1)}>")
        if len(value) == len(text) - tag.end() or "<" in value:
            raise Reject("more than one value", attempted=True)
        return _only(key, value.strip(), schema)
    head = _HEAD.match(text)
    if head is None or head.group(2) not in schema.properties:
        return None
    key, value = head.group(2), text[head.end() :].strip()
    if head.group(1):
        # The members of an object that has lost both its braces.
        found = _parsed("{" + text + "}")
        if found is None:
            raise Reject("the object is damaged", attempted=True)
        return found
    if head.group()[-1] == "=" and schema.prop(key).body:
        raise Reject("more than one value", attempted=True)
    if value[:1] in ('"', "'") and value[-1:] == value[:1] and not {value[0], "\\"} & set(value[1:-1]):
        value = value[1:-1]
    elif "\n" in value or value[:1] in ('"', "'", "{", "[") or _holds_more(value, schema):
        raise Reject("more than one value", attempted=True)
    return _only(key, value, schema)


def _holds_more(value: str, schema: ToolSchema) -> bool:
    """Whether another name may stand in what follows the first."""
    for found in _INNER_HEAD.finditer(value):
        before = value[max(0, found.start() - 8) : found.start()].rstrip()
        if found.group(1) in schema.properties or before[-1:] in (",", ";"):
            return True
    return False


def _only(key: str, value: str, schema: ToolSchema) -> dict[str, Any]:
    if not value or key != sole(schema):
        raise Reject("input with names", attempted=True)
    return {key: value}


def sole(schema: ToolSchema) -> str:
    """The parameter that an input without names is for."""
    if len(schema.required) == 1:
        (key,) = schema.required
    else:
        key = next((name for name in _SOLE if name in schema.properties and not schema.required), "")
    if not key or not schema.prop(key).is_string:
        raise Reject("input without names", attempted=True)
    return key
