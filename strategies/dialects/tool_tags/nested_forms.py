"""Structured children that some agents nest inside their parameters, brought to the declared schema.

`read_file` and `apply_diff` may hold `<args><file>...</file></args>`, `ask_followup_question` a list of suggestions.
Everything else is raw text and left alone. Scanning is linear: each element is found once, from left to right.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from strategies.schema.tool_schema import ToolSchema

__all__ = ["adapt_forms", "holds_args", "is_adapted"]

# Roo Code's forms for several files at once: https://github.com/RooCodeInc/Roo-Code/issues/8848
_HOLDS_ARGS = frozenset({"read_file", "apply_diff"})
_PATHS = ("path", "filePath", "file_path", "absolutePath", "target_file")
_CDATA = ("<![CDATA[", "]]>")


def holds_args(tag: str, schema: ToolSchema) -> bool:
    """Whether `<args>` inside this tool is its structured form and not a parameter of its own."""
    return tag in _HOLDS_ARGS and "args" not in schema.properties


def is_older_form(tag: str, schema: ToolSchema, name: str) -> bool:
    """Whether a parameter is one of the tool's older form, which is brought to the schema."""
    # https://github.com/RooCodeInc/Roo-Code/issues/10464
    return tag == "read_file" and "files" in schema.properties and name == "path"


def is_adapted(tag: str, schema: ToolSchema) -> bool:
    """Whether the arguments may differ from the values even without `<args>`."""
    if tag == "read_file":
        return "files" in schema.properties
    return tag == "ask_followup_question" and "array" in schema.prop("follow_up").types


def adapt_forms(tag: str, schema: ToolSchema, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The argument objects that these values stand for: one, or one per file where the tool takes one file."""
    args = values.get("args") if next(iter(values), "") == "args" else None
    if isinstance(args, str) and holds_args(tag, schema):
        files = list(_elements(args, "file"))
        calls = _read_files(schema, files) if tag == "read_file" else [_diff_of(schema, file) for file in files]
        return calls or [dict(values)]
    if any(is_older_form(tag, schema, name) for name in values) and "path" not in schema.properties:
        return [{"files": [_legacy_file(values)]}]
    if tag == "ask_followup_question":
        return [_with_suggestions(schema, dict(values))]
    return [dict(values)]


def _read_files(schema: ToolSchema, files: list[str]) -> list[dict[str, Any]]:
    parsed = [(_text(file, "path"), [_range(found) for found in _elements(file, "line_range")]) for file in files]
    if "files" in schema.properties:
        return [{"files": [_file_entry(path, ranges) for path, ranges in parsed]}]
    key = _path_key(schema)
    return [{key: path, **_window(schema, ranges)} for path, ranges in parsed]


def _file_entry(path: str, ranges: list[list[int] | None]) -> dict[str, Any]:
    known = [found for found in ranges if found]
    return {"path": path, "line_ranges": known} if known else {"path": path}


def _window(schema: ToolSchema, ranges: list[list[int] | None]) -> dict[str, int]:
    if len(ranges) != 1 or ranges[0] is None:
        return {}
    first, last = ranges[0]
    if {"start_line", "end_line"} <= schema.properties.keys():
        return {"start_line": first, "end_line": last}
    # A line range for a client that counts lines from one and takes a number of them.
    if {"offset", "limit"} <= schema.properties.keys():
        return {"offset": first, "limit": last - first + 1}
    return {}


def _legacy_file(values: Mapping[str, Any]) -> dict[str, Any]:
    bounds = [_int(values.get(key)) for key in ("start_line", "end_line")]
    first, last = bounds
    return _file_entry(str(values["path"]), [[first, last] if first is not None and last is not None else None])


def _diff_of(schema: ToolSchema, file: str) -> dict[str, Any]:
    blocks = []
    for diff in _elements(file, "diff"):
        content = _unwrap(_text(diff, "content", strip=False))
        start = _int(_text(diff, "start_line"))
        if start is not None and ":start_line:" not in content:
            # Roo Code's diffs may hold the line themselves; it must not stand there twice.
            content = content.replace("SEARCH\n", f"SEARCH\n:start_line:{start}\n-------\n", 1)
        blocks.append(content)
    return {_path_key(schema): _text(file, "path"), "diff": "\n\n".join(blocks)}


def _with_suggestions(schema: ToolSchema, values: dict[str, Any]) -> dict[str, Any]:
    """`<follow_up><suggest mode="m">text</suggest></follow_up>` as the list that the schema asks for."""
    text = values.get("follow_up")
    if not isinstance(text, str) or "array" not in schema.prop("follow_up").types:
        return values
    found = [*_suggestions(text, "suggest"), *_suggestions(text, "suggestion")]
    if not found:
        lines = [line.strip().lstrip("-*0123456789. ").strip() for line in text.splitlines()]
        found = [{"text": line, "mode": None} for line in lines if line]
    values["follow_up"] = found
    return values


def _suggestions(text: str, name: str) -> Iterator[dict[str, Any]]:
    at = 0
    closer = f"</{name}>"
    while (start := text.find(f"<{name}", at)) >= 0:
        opened = text.find(">", start)
        end = text.find(closer, opened)
        if opened < 0 or end < 0:
            return
        attributes = text[start + len(name) + 1 : opened]
        at = end + len(closer)
        if attributes and not attributes[0].isspace():
            continue
        mode = attributes.split('mode="', 1)[1].split('"', 1)[0] if 'mode="' in attributes else None
        yield {"text": text[opened + 1 : end].strip(), "mode": mode}


def _path_key(schema: ToolSchema) -> str:
    return next((key for key in _PATHS if key in schema.properties), "path")


def _elements(text: str, name: str) -> Iterator[str]:
    """The contents of the elements of this name, one behind the other."""
    opener, closer = f"<{name}>", f"</{name}>"
    at = 0
    while (start := text.find(opener, at)) >= 0:
        start += len(opener)
        end = text.find(closer, start)
        if text.startswith(_CDATA[0], start + len(text[start:]) - len(text[start:].lstrip())):
            end = text.find(closer, max(start, text.find(_CDATA[1], start)))
        if end < 0:
            return
        yield text[start:end]
        at = end + len(closer)


def _text(text: str, name: str, *, strip: bool = True) -> str:
    found = next(_elements(text, name), "")
    return found.strip() if strip else found


def _unwrap(text: str) -> str:
    core = text.strip()
    if core.startswith(_CDATA[0]) and core.endswith(_CDATA[1]):
        return core[len(_CDATA[0]) : -len(_CDATA[1])].strip("\n")
    return text.strip("\n")


def _range(text: str) -> list[int] | None:
    first, dash, last = text.strip().partition("-")
    bounds = (_int(first), _int(last))
    return [bounds[0], bounds[1]] if dash and bounds[0] is not None and bounds[1] is not None else None


def _int(text: object) -> int | None:
    if isinstance(text, int):
        return text
    return int(text) if isinstance(text, str) and text.strip().isdecimal() and len(text) < 12 else None
