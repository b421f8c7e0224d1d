"""Grok: a name and its arguments on lines of their own, between tokens.

    section  = "<|tool_calls_begin|>" ( call { ws call } | JSON objects ) ws "<|tool_calls_end|>"
    call     = "<|tool_call_begin|>" ws NAME ws { argument } "<|tool_call_end|>"
    argument = "<|tool_sep|>" KEY ( newline | ":" ) RAW newline

Values are text as it is, and the schema says what it stands for. Nothing closes a value but the next token, so what
follows must fit: a declared parameter that was not given yet, or the end of the call and behind it another call or the
section's end. Where it does not, or a line of a value is a parameter's name whose token may be lost, there is no
telling, and it is no call. The section's tokens may be missing, and its last one at the end of the answer. Bounds: a
name that no token follows is refused at once.
"""

import re
from collections.abc import Generator
from typing import Any

from gateway.core.tools import Tool
from strategies.grammar.closers import ends_with_closer, ends_with_token
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import STOPS, begins_objects, read_objects
from strategies.grammar.raw_value import doubt
from strategies.schema.names import resolve_parameter
from strategies.schema.tool_schema import ToolSchema, Value, schema_of
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.tape import Taken
from strategies.text.turns import Turns

__all__ = ["GROK"]

_SECTION, _SECTION_END = "<|tool_calls_begin|>", "<|tool_calls_end|>"
_CALL, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_SEPARATOR = "<|tool_sep|>"
_TOKEN = re.compile(r"<\|tool_(?:sep|calls?_(?:begin|end))\|>")
_NAME = re.compile(r"[\w.:/-]*")
_KEY = re.compile(r"[^\r\n:<]*")
_BLANKS = re.compile(r"[ \t]*")
_PART = 1 << 14
"""Characters of a value whose lines are looked at in one turn, and what is left of the last of them."""
_LEAD = re.compile(r"\s*+(?:<[^<>\s]{1,60}>\s*+)*+")


def _parse(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    in_section = opening.marker == _SECTION
    if in_section:
        behind = cur.offset
        yield from cur.ws()
        if (yield from begins_objects(cur)):
            yield from read_objects(cur, context, opening, (_SECTION_END,), stops=STOPS)
            return
        if not (yield from cur.lit(_CALL)):
            raise Reject("no call in the section", remains=behind)
    while True:
        yield (yield from _call(cur, context, in_section=in_section))
        yield from cur.ws()
        if not (yield from cur.lit(_CALL)):
            yield from cur.lit(_SECTION_END)
            return


def _call(cur: Cursor, context: Context, *, in_section: bool) -> Steps:
    """One call behind its opening token."""
    yield from cur.ws()
    name = yield from cur.match(_NAME, 128)
    yield from cur.ws()
    if not name or not ((yield from cur.starts(_SEPARATOR)) or (yield from cur.starts(_CALL_END))):
        raise Reject("no call")
    tool, mends = context.resolve(name) or (None, ())
    # DeepSeek's type, in tokens that only look alike: what follows is a name, and no key.
    if tool is None and name == "function":
        raise Reject("another form", attempted=True)
    schema = schema_of(Tool(name=name)) if tool is None else context.schema(tool)
    found = _Found(schema, [*mends])
    while (yield from cur.lit(_SEPARATOR)):
        yield from _argument(cur, found)
    if not (yield from cur.lit(_CALL_END)) or not (yield from _may_end(cur, in_section=in_section)):
        yield from doubt(cur)
    return Draft(
        name=name if tool is None else tool.name,
        tool=tool,
        arguments=found.values,
        form="special",
        mends=tuple(dict.fromkeys(found.mends)),
        fault=found.fault,
    )


class _Found:
    """What is known of a call while it is read."""

    def __init__(self, schema: ToolSchema, mends: list[str]) -> None:
        self.schema = schema
        self.mends = mends
        self.values: dict[str, Any] = {}
        self.texts: dict[str, list[str]] = {}
        self.fault: str | None = None


def _argument(cur: Cursor, found: _Found) -> Steps:
    """One argument behind its token."""
    schema = found.schema
    yield from cur.match(_BLANKS, 8)
    written = (yield from cur.match(_KEY, 128)).strip()
    # The value may stand on the key's own line:
    # https://github.com/nikships/droidproxy/blob/main/src/Tests/CLIProxyMenuBarTests/GrokNativeToolCallRewriterTests.swift
    on_line = yield from cur.lit(":")
    if on_line:
        yield from cur.match(_BLANKS, 8)
        on_line = (yield from cur.peek(1)) not in ("\r", "\n")
    if not written or not (on_line or (yield from cur.lits(("\r\n", "\n")))):
        yield from doubt(cur)
    key, mends = resolve_parameter(written, schema, found.texts)
    if key in found.texts or (schema.properties and key not in schema.properties):
        yield from doubt(cur)
    found.mends += mends
    pieces = Taken(cur)
    if not (yield from cur.until_match(_TOKEN, len(_SECTION) - 1, pieces.add)):
        raise Reject("value not closed", attempted=True, inside=True)
    text = pieces.text().removesuffix("\n").removesuffix("\r")
    found.texts[key] = [text]
    if ends_with_token(text) or ends_with_closer(text, key) or (yield from cur.work(_names_another(text, found))):
        yield from doubt(cur)
    value: Value = yield from cur.work(schema.reading(key, text))
    if value.fault and "\n" in text:
        yield from doubt(cur)
    found.values[key] = value.value
    found.mends += value.mends
    found.fault = found.fault or value.fault


def _names_another(text: str, found: _Found) -> Turns[bool]:
    """Whether a line of a value is the name of another parameter, whose token is lost or became another."""
    names, at = found.schema.properties.keys() - found.texts.keys(), 0
    while at < len(text):
        end = text.find("\n", at + _PART)
        lines = text[at:end].split("\n") if end >= 0 else text[at:].split("\n")
        if not names.isdisjoint(map(str.strip, lines)):
            return True
        if any(_LEAD.sub("", line, count=1).rstrip() in names for line in lines if "<" in line):
            return True
        at += sum(map(len, lines)) + len(lines)
        yield
    return False


def _may_end(cur: Cursor, *, in_section: bool) -> Steps:
    """Whether what stands behind a call's last token may stand there; it is not consumed."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    if in_section:
        fits = (yield from cur.at_end()) or (yield from cur.starts(_CALL)) or (yield from cur.starts(_SECTION_END))
    else:
        fits = not (yield from cur.starts(_SEPARATOR)) and not (yield from cur.starts(_CALL_END))
    cur.back(start)
    cur.anchor = None
    return fits


# Where a server does not know the tokens: https://github.com/router-for-me/CLIProxyAPI/pull/4977
GROK = Dialect(
    id="grok",
    family="grok",
    level="A",
    openers=lambda _context: (_SECTION, _CALL),
    parse=_parse,
    models=("grok*", "*-grok*"),
    example=(
        "<|tool_calls_begin|><|tool_call_begin|>\nread\n<|tool_sep|>filePath\nsrc/app.py\n"
        "<|tool_call_end|><|tool_calls_end|>"
    ),
)
