"""Harmony, the format of gpt-oss: messages whose header names a channel and a recipient.

    message = header "<|message|>" BODY ( "<|call|>" | "<|end|>" | "<|return|>" )
    header  = [ "<|start|>assistant" ] [ TO ] "<|channel|>" CHANNEL [ TO ] [ "<|constrain|>" ] [ TYPE ]
    TO      = " to=" RECIPIENT

A message to `functions.NAME`, or to a declared tool, is a call in every channel but `final`; its body is JSON that
ends by its braces, or code where the type says so. Messages to anybody else, and messages without a recipient, are
text. Also read: repeated channels, types glued on or left over, a header whose `<|message|>` is missing, and headers
from which the server stripped the tokens, with an object that ends its line or meets the next header. A header is
short; what is longer is text.
"""

import re
from collections.abc import Generator, Sequence

from attrs import frozen

from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import (
    STOPS,
    Payload,
    named_drafts,
    read_arguments,
    read_end,
    read_json,
    refuse_torn,
    with_mends,
)
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.tape import Taken
from strategies.writing.token_renderer import JsonRenderer, json_text

__all__ = ["HARMONY", "HARMONY_STRIPPED", "Header", "read_header"]

_CALL_END = "<|call|>"
# The model ends calls with any of the three.
_ENDS = (_CALL_END, "<|end|>", "<|return|>")
_STOPS = (*_ENDS, "<|start|>", *STOPS)
_TOKENS = ("<|channel|>", "<|constrain|>", "<|message|>")
_PLAIN = re.compile(r"[^<{]*")
_RECIPIENT = re.compile(r"(?:^|\s)to=(\S+)")
_BODY_END = re.compile("|".join(map(re.escape, _STOPS)))
_TO = "to=functions."
_NAME = re.compile(r"[A-Za-z0-9_.:/-]*")
_TYPE = re.compile(r"[A-Za-z?]*")
_NOBODY = frozenset({"assistant", "user", "all", "system", "developer"})
# A wrapper of OpenAI's own training, which no API declares:
# https://github.com/craft-ai-agents/craft-agents-oss/issues/449
_PARALLEL = "multi_tool_use.parallel"
_CHANNELS = ("commentary", "analysis")
_GLUED = (*_CHANNELS, "json", "code")
_SHOWN = frozenset({"final", "commentary"})
_BLANKS = re.compile(r"[ \t]*")


@frozen(kw_only=True)
class Header:
    """What a header says once its parts are sorted out."""

    recipient: str
    channel: str
    is_code: bool
    is_whole: bool
    """It ends with its token."""


def _parse(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    header = yield from read_header(cur, opening.marker)
    name, glued = _callee(header, context)
    if name is None:
        # The text of a message for the user is content, its header is not.
        is_shown = header.is_whole and not header.recipient and header.channel in _SHOWN
        raise Reject("no call", remains=cur.offset if is_shown else 0)
    yield from cur.ws()
    # The built-in `python` takes plain code, and models write JSON all the same where a function is declared.
    if (header.is_code or glued == "code") and (yield from cur.peek(1)) != "{":
        yield (yield from _code(cur, context, name))
        return
    found = context.resolve(name)
    payload = yield from read_arguments(cur, context, opening, _STOPS, tool=found[0] if found else None)
    if payload is None:
        # A call without a body is one of a tool that takes nothing; anything else there is not.
        if not (yield from cur.starts(_CALL_END)):
            raise Reject("no arguments", attempted=True)
        payload = Payload(value=None)
    yield from with_mends((yield from named_drafts(cur, context, name, payload)), (yield from _end(cur, opening)))


def read_header(cur: Cursor, marker: str) -> Steps:
    """The parts of a header up to its `<|message|>`."""
    if marker.startswith("to="):
        cur.pos -= len(marker)
    parts = [marker.removeprefix("<|start|>").removesuffix("<|channel|>").removesuffix(_TO)]
    if marker.endswith("<|channel|>"):
        parts.append("<|channel|>")
    # Headers come with free words, question marks and a second channel, a few turns in a hundred; whole requests failed
    # by it elsewhere. https://github.com/ggml-org/llama.cpp/issues/27720 https://github.com/openai/harmony/issues/114
    for _ in range(12):
        parts.append((yield from cur.match(_PLAIN, 256)))
        found = yield from cur.lits(_TOKENS)
        if found == "<|message|>" or (found is None and (yield from cur.peek(1)) == "{"):
            return _read_header(parts, is_whole=found is not None)
        if found is None:
            break
        parts.append(found)
    raise Reject("no header")


def _read_header(parts: Sequence[str], *, is_whole: bool) -> Header:
    """The first channel counts, unless a repeated one says that this is only thought."""
    channels: list[str] = []
    recipients = [match.group(1) for part in parts for match in _RECIPIENT.finditer(part)]
    kept: list[str] = []
    for before, part in zip(("", *parts), parts, strict=False):
        words = [word for word in part.split() if not word.startswith("to=")]
        if before == "<|channel|>" and words:
            channels.append(words.pop(0))
        kept += words
    return Header(
        recipient=recipients[0] if recipients else "",
        channel=channels[0] if channels else "",
        is_code="code" in kept,
        is_whole=is_whole,
    )


def _callee(header: Header, context: Context) -> tuple[str | None, str]:
    """The tool that the message is for, and the word that was glued to its name."""
    recipient = header.recipient
    # Calls come in the analysis channel as well: https://github.com/openai/harmony/issues/40
    # `final` is what the user reads; a call there is quoted: https://github.com/openai/harmony/blob/main/docs/format.md
    if header.channel.startswith("final") or not recipient or recipient in _NOBODY:
        return None, ""
    # MCP tools have dots of their own in their names.
    name = recipient if context.find(recipient) else recipient.removeprefix("functions.")
    is_tool = recipient == _PARALLEL or context.resolve(recipient, aliases=False) is not None
    # Without the token between them the type is a part of the name: https://github.com/ggml-org/llama.cpp/issues/15102
    name, glued = _glued(name, context)
    return (name or None, glued) if is_tool or glued or name != recipient else (None, "")


def _code(cur: Cursor, context: Context, name: str) -> Steps:
    """A body that is code: the tool's one text."""
    pieces = Taken(cur)
    closed = yield from cur.until_match(_BODY_END, max(map(len, _STOPS)) - 1, pieces.add)
    if not closed and cur.cut:
        raise Reject("cut", attempted=True)
    found = context.resolve(name)
    if found is None:
        raise Reject("unknown_tool", name=name)
    tool, mends = found
    schema = context.schema(tool)
    key = "code" if "code" in schema.properties else next(iter(schema.required), "")
    if not key or not schema.prop(key).is_string:
        raise Reject("no arguments", attempted=True)
    yield from cur.lits(_ENDS)
    return Draft(name=tool.name, tool=tool, arguments={key: pieces.text()}, form="special", mends=mends)


def _end(cur: Cursor, opening: Opening) -> Steps:
    """The token that ends the message; prose behind the object is text of its own."""
    yield from cur.ws()
    if (yield from cur.at_end()) or (yield from cur.peek(1)) in ("<", "}", "]"):
        return (yield from read_end(cur, _ENDS))
    yield from refuse_torn(cur, opening)
    return ("call_closer_missing",)


def _parse_stripped(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    """`commentary to=functions.NAME json{...}`, with or without the role before it."""
    cur.pos += len(opening.marker)
    name, _glue = _glued((yield from cur.match(_NAME, 128)), context)
    yield from cur.ws()
    yield from cur.match(_TYPE, 24)
    yield from cur.ws()
    yield from cur.match(_TYPE, 24)
    yield from cur.ws()
    if not name or (yield from cur.peek(1)) != "{":
        raise Reject("no arguments")
    found = context.resolve(name)
    payload = yield from read_json(cur, context, opening, _STOPS, tool=found[0] if found else None)
    yield from _alone(cur)
    yield from (yield from named_drafts(cur, context, name, payload, form="function"))


def _alone(cur: Cursor) -> Steps:
    """Without tokens, only the end of the line or the next header shows that the message ends with its object."""
    yield from cur.match(_BLANKS, 64)
    if not ((yield from cur.at_end()) or (yield from cur.peek(1)) in ("\n", "\r", "<")):
        for role in ("assistant", *_CHANNELS):
            if (yield from cur.starts(role)):
                return
        raise Reject("text after the object")


def _may_open_stripped(_context: Context, opening: Opening) -> bool:
    """At the start, or glued to the message before: words with white space before them are part of a text."""
    if opening.marker.startswith("assistant"):
        # Where a line has anything before it, its last character is that of all the text.
        return opening.starts_line or not opening.before[-1:].isspace()
    return opening.starts_message or not (opening.before[-1:].isspace() or opening.before[-1:].isalnum())


def _glued(name: str, context: Context) -> tuple[str, str]:
    """The declared tool's name without the channel or the type that lost its token before it, and that word."""
    if context.resolve(name) is None:
        # `commentaryread`, where the tokens between are gone: https://github.com/oobabooga/textgen/issues/7374
        for word in _GLUED:
            short = name.removesuffix(word)
            if short != name and context.resolve(short, aliases=False) is not None:
                return short, word
    return name, ""


def _body(name: str, arguments: str) -> str:
    return f"<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>{arguments}<|call|>"


def _result(name: str, call_id: str, content: str) -> str:
    return f"<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>{json_text(content)}<|end|>"


# https://github.com/openai/harmony/blob/main/docs/format.md
HARMONY = Dialect(
    id="harmony",
    family="harmony",
    level="A",
    # LLM-jp puts a blank behind each token: https://github.com/ggml-org/llama.cpp/blob/master/common/parsers/llm-jp-harmony.cpp
    openers=lambda _context: ("<|start|>assistant", "<|start|> assistant", "<|channel|>"),
    line_openers=lambda _context: (_TO,),
    parse=_parse,
    may_open=lambda _context, opening: not opening.marker.startswith("to=") or opening.starts_message,
    results=("<|start|>functions.",),
    models=("gpt-oss*", "llm-jp-4*"),
    renderer=JsonRenderer(id="harmony", body=_body, answer=_result, tokens=("<|start|>", "<|channel|>", "<|message|>")),
    example=(
        "<|start|>assistant<|channel|>commentary to=functions.read <|constrain|>json<|message|>"
        '{"filePath": "src/app.py"}<|call|>'
    ),
)
# Servers that skip special tokens glue header and text together.
HARMONY_STRIPPED = Dialect(
    id="harmony_stripped",
    family="harmony",
    level="B",
    openers=lambda _context: tuple(
        f"{role}{channel} to=functions."
        for role in ("assistant", "")
        for channel in (*_CHANNELS, "")[: 3 if role else 2]
    ),
    parse=_parse_stripped,
    may_open=_may_open_stripped,
    carriers=(),
    example='assistantcommentary to=functions.read json{"filePath": "src/app.py"}',
)
