"""All settings to be read: as Markdown tables, as a TOML file to begin from, and as a schema for editors."""

import json
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from gateway.config.declarations import DECLARED, Settings
from gateway.config.declared.setting import Declared
from gateway.config.routes import MODEL_KEYS, UPSTREAM_KEYS, UpstreamSettings
from gateway.core.rules import ModelRule

__all__ = ["settings_schema", "settings_table_markdown", "settings_toml"]

_ELSEWHERE = frozenset({"GATEWAY_CONFIG", "GATEWAY_ENV_FILE"})
"""They lead to the file, and cannot stand in it."""
_TYPES = {attribute.name: attribute.type for attribute in attrs.fields(Settings)}
_WIDTH = 100


def settings_table_markdown() -> str:
    """The reference of all settings as Markdown tables, one per group."""
    lines: list[str] = []
    for group in dict.fromkeys(entry.group for entry in DECLARED):
        lines += [f"**{group}**", "", "| name | default | meaning |", "| --- | --- | --- |"]
        for entry in DECLARED:
            if entry.group == group:
                shown_default = f"`{entry.default_text}`" if entry.default_text else "none"
                lines.append(f"| `{entry.name}` | {shown_default} | {entry.help.replace('<', '&lt;')} |")
        lines.append("")
    return "\n".join(lines)


def settings_toml() -> str:
    """Every setting as a comment with its default, to be kept, changed and uncommented: what `GATEWAY_CONFIG` names."""
    lines = ["# Settings of Toolgate: take the # from what is to differ, and name this file in GATEWAY_CONFIG.", ""]
    for group in dict.fromkeys(entry.group for entry in DECLARED):
        lines += [f"# {group}", ""]
        for entry in DECLARED:
            if entry.group == group and entry.name not in _ELSEWHERE:
                lines += [*(f"# {line}" for line in _wrapped(entry.help)), f"# {entry.name} = {_toml(entry)}", ""]
    lines += [*_TABLES.splitlines(), ""]
    return "\n".join(lines)


_TABLES = """# Model servers, beside the one that UPSTREAM_URL names
#
# [upstreams.local]
# url = "http://127.0.0.1:8000/v1"
# models = ["qwen*"]
#
# Rules for models: the first match wins
#
# [[models]]
# match = "qwen*"
# upstream = "local"
# strategy = "xml_prompt"
#
# Keys that open the gateway, beside those of GATEWAY_API_KEYS, with what each may use
#
# [keys.team]
# key = "sha256:e2186dbdb1bb4193608605e84f33208765b5693b55edd4f730a719a100eeea6f"
# expires = "2027-12-31"
# requests_per_min = 600
# tokens_per_min = 1000000
# streams = 20
"""


_AMOUNT = {"type": "integer", "minimum": 1}
_KEY = {
    "type": "object",
    "description": "A key that opens the gateway, and what it may use.",
    "additionalProperties": False,
    "oneOf": [{"required": ["key"]}, {"required": ["key_file"]}],
    "properties": {
        "key": {"type": "string"},
        "key_file": {"type": "string"},
        "expires": {"type": "string"},
        "requests_per_min": _AMOUNT,
        "tokens_per_min": _AMOUNT,
        "streams": _AMOUNT,
    },
}


def settings_schema() -> dict[str, Any]:
    """What the TOML file may hold, as a JSON schema, which editors complete and check by."""
    properties = {
        key: _property(entry)
        for entry in DECLARED
        if entry.name not in _ELSEWHERE
        for key in (entry.name, entry.name.lower())
    }
    upstream = _table(UPSTREAM_KEYS, UpstreamSettings, "One model server.", required="url")
    rule = _table(MODEL_KEYS, ModelRule, "What holds for the models that match.", required="match")
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Toolgate",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **properties,
            "upstreams": {"type": "object", "description": "Model servers by name.", "additionalProperties": upstream},
            "keys": {"type": "object", "description": "Keys by name.", "additionalProperties": _KEY},
            "models": {"type": "array", "description": "Rules for models; the first match wins.", "items": rule},
        },
    }


def _wrapped(text: str) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        if line and len(line) + len(word) >= _WIDTH:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _toml(entry: Declared) -> str:
    """The default as TOML has it, which for these values is as JSON has it."""
    text, kinds = entry.default_text, _kinds(_TYPES[entry.attribute])
    is_plain = "boolean" in kinds or ("number" in kinds and text.replace(".", "", 1).isdigit())
    return text if is_plain else json.dumps(text)


def _property(entry: Declared) -> dict[str, Any]:
    said: dict[str, Any] = {"description": entry.help}
    words = _words(_TYPES[entry.attribute])
    said |= {"enum": words} if words else {"type": sorted(_kinds(_TYPES[entry.attribute]))}
    if entry.default_text and not entry.is_secret:
        said["default"] = json.loads(_toml(entry))
    return said


def _table(keys: tuple[str, ...], made: type, about: str, *, required: str) -> dict[str, Any]:
    kinds = {attribute.name: attribute.type for attribute in attrs.fields(made)}
    properties = {key: {"type": sorted(_kinds(kinds.get(key.removesuffix("_file"))))} for key in keys}
    # Its own kind's table (`[upstreams.NAME.anthropic]`) may stand there too.
    return {"type": "object", "description": about, "required": [required], "properties": properties}


def _words(kind: Any) -> list[str]:
    return list(get_args(kind)) if get_origin(kind) is Literal else []


def _kinds(kind: Any) -> set[str]:
    """What a value of the table may be: every one may be written as text too."""
    if get_origin(kind) in (Union, types.UnionType):
        return set().union(*(_kinds(each) for each in get_args(kind) if each is not type(None)))
    if kind is bool:
        return {"boolean", "string"}
    if kind in (int, float):
        return {"number", "string"}
    return {"array", "string"} if get_origin(kind) is tuple else {"string"}
