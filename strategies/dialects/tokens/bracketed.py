"""Calls between markers in square brackets, and Functionary's tokens.

    Qwen3        ( "[Tool call:" | "[Calling tool:" ) NAME [ "(" [ object ] ")" ] "]"
    the same     "Calling tool:" NAME "(" object ")"
    MiniMax M2   "[Calling tool=" NAME { KEY "=" string } "]"
    OpenClaw     "[Tool Call:" NAME [ "(ID:" ID ")" ] "]" "Arguments:" object
    LM Studio    "[TOOL_REQUEST]" ( object | NAME object ) ( "[END_TOOL_REQUEST]" | "[TOOL_REQUEST_END]" )
    TOOL_CALL    "[TOOL_CALL]" ( arrows | object ) "[/TOOL_CALL]"
    arrows       "{" "tool" "=>" NAME "," "args" "=>" "{" { "--" KEY value } "}" "}"
    Functionary  [ "<|from|>assistant" ] "<|recipient|>" NAME "<|content|>" object [ "<|stop|>" ]

Arrows stand for Perl and Ruby alike, so a name is bare or in quotes of either kind, and a value is a JSON or Python
string, a number, a word of JSON, or JSON. Bounds: each part is refused at the first character that it cannot have.
"""

import re
from collections.abc import Generator
from typing import Any

from attrs import evolve

from gateway.core.tools import Tool
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import (
    STOPS,
    Payload,
    json_ahead,
    marked_json,
    named_drafts,
    read_arguments,
    read_end,
    read_surplus,
    with_mends,
)
from strategies.text.cursor import Cursor, Reject, Steps, pass_over
from strategies.text.tape import Taken
from strategies.text.tolerant_json import JsonFault, parsing

__all__ = ["ARROWS", "CALLING_TOOL", "FUNCTIONARY_V2", "TOOL_REQUEST"]

_NAME = re.compile(r"[\w.:/-]*")
_KEY = re.compile(r"[\w-]*")
_ARROWS_END = "[/TOOL_CALL]"
_CALLINGS = ("[Tool call:", "[Tool Call:", "[Calling tool:")
_PAIRS = '[Calling tool="'
_BARE = "Calling tool: "
_ARGUMENTS = "Arguments:"
_ID = re.compile(r"[\w .:|-]*")
# MiniMax M2: https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1177
_JSON = marked_json((_ARROWS_END,), form="hermes")
_PLAIN_STRING = re.compile(r"[^\\'\"]*")
_PLAIN_WORD = re.compile(r"[\w.+-]*")
_RECIPIENT, _CONTENT, _STOP = "<|recipient|>", "<|content|>", "<|stop|>"


def _parse_request(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.anchor = start = cur.offset
    cur.pos += len(opening.marker)
    yield from cur.ws()
    name: str = yield from cur.match(_NAME, 128)
    if not name:
        cur.back(start)
    cur.anchor = None
    if not name:
        yield from _REQUEST(cur, context, opening, arguments)
        return
    # Gemma 3 in the same markers: https://github.com/vybestack/llxprt-code/blob/main/packages/core/src/parsers/TextToolCallParser.ts
    found = context.resolve(name)
    if found is None:
        yield from pass_over(name, json_ahead(cur))
        return
    yield from cur.ws()
    payload = yield from read_arguments(cur, context, opening, (*_REQUEST_ENDS, *STOPS), tool=found[0])
    if payload is None:
        raise Reject("no arguments", attempted=True)
    payload = evolve(payload, steps=(*payload.steps, *(yield from read_surplus(cur))))
    drafts = yield from named_drafts(cur, context, name, payload, "hermes")
    yield from with_mends(drafts, (yield from read_end(cur, _REQUEST_ENDS)))


_REQUEST_ENDS = ("[END_TOOL_REQUEST]", "[TOOL_REQUEST_END]")
_REQUEST = marked_json(optional=_REQUEST_ENDS)


def _parse_arrows(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    if (yield from _is_json(cur, opening.marker)):
        yield from _JSON(cur, context, opening, arguments)
        return
    cur.pos += len(opening.marker)
    yield from cur.ws()
    yield from _expect(cur, "{")
    yield from _word(cur, "tool")
    name = yield from _quoted_name(cur)
    found = context.resolve(name)
    if found is None:
        raise Reject("unknown_tool", name=name)
    tool, mends = found
    values: dict[str, Any] = {}
    yield from cur.ws()
    if (yield from cur.lit(",")):
        yield from _word(cur, "args")
        values = yield from _members(cur)
    yield from cur.ws()
    yield from _expect(cur, "}")
    yield from cur.ws()
    mends = (*mends, *(yield from read_end(cur, (_ARROWS_END,))))
    adapted = yield from cur.work(context.schema(tool).adapting(values))
    mends = (*mends, *adapted.mends)
    yield Draft(name=tool.name, tool=tool, arguments=adapted.arguments, form="hermes", mends=mends)


def _is_json(cur: Cursor, marker: str) -> Steps:
    """Whether a colon stands behind the object's first key, quoted or bare, or it is a list."""
    cur.anchor = start = cur.offset
    cur.pos += len(marker)
    yield from cur.ws()
    found = (yield from cur.peek(1)) == "["
    if not found and (yield from cur.lit("{")):
        yield from cur.ws()
        is_quoted = yield from cur.lit('"')
        key = yield from cur.match(_KEY, 128)
        if key and (not is_quoted or (yield from cur.lit('"'))):
            yield from cur.ws()
            found = yield from cur.starts(":")
    cur.back(start)
    cur.anchor = None
    return found


def _expect(cur: Cursor, sign: str) -> Steps:
    if not (yield from cur.lit(sign)):
        raise Reject("no call")


def _word(cur: Cursor, word: str) -> Steps:
    """One of the two keys and its arrow."""
    yield from cur.ws()
    quote = yield from cur.lits(('"', "'", ":"))
    yield from _expect(cur, word)
    if quote and quote != ":":
        yield from _expect(cur, quote)
    yield from cur.ws()
    yield from _expect(cur, "=>")
    yield from cur.ws()


def _quoted_name(cur: Cursor) -> Steps:
    quote = yield from cur.lits(('"', "'"))
    name = yield from cur.match(_NAME, 128)
    if not name or (quote and not (yield from cur.lit(quote))):
        raise Reject("no name")
    return name


def _members(cur: Cursor) -> Steps:
    """`{ --KEY value ... }`."""
    yield from _expect(cur, "{")
    values: dict[str, Any] = {}
    while True:
        yield from cur.ws()
        if (yield from cur.lit("}")):
            return values
        if not (yield from cur.lit("--")):
            raise Reject("no key", attempted=True)
        key = yield from cur.match(_NAME, 128)
        yield from cur.ws()
        # Perl's hashes would take the last, a person the first: there is no telling.
        if not key or key in values:
            raise Reject("no key" if not key else f"`{key}` is given twice", attempted=True)
        values[key] = yield from _value(cur)
        yield from cur.ws()
        yield from cur.lit(",")


def _value(cur: Cursor) -> Steps:
    first = yield from cur.peek(1)
    pieces = Taken(cur)
    if first in ('"', "{", "["):
        if not (yield from cur.json(pieces.add)):
            raise Reject("value not closed", attempted=True, inside=True)
    elif first == "'":
        yield from _single(cur, pieces)
    else:
        pieces.add((yield from cur.match(_PLAIN_WORD, 128)))
    text = pieces.text()
    try:
        parsed = yield from cur.work(parsing(text))
    except JsonFault as fault:
        raise Reject(f"JSON: {fault.reason}", attempted=True) from None
    if text[parsed.end :].strip():
        raise Reject("no value", attempted=True)
    return parsed.value


def _single(cur: Cursor, pieces: Taken) -> Steps:
    """A text between single quotes."""
    pieces.add("'")
    cur.pos += 1
    while True:
        pieces.add((yield from cur.match(_PLAIN_STRING, 1 << 12)))
        if (yield from cur.lit("'")):
            pieces.add("'")
            return
        pair: str = yield from cur.peek(2)
        if not pair:
            raise Reject("value not closed", attempted=True, inside=True)
        size = 2 if pair[0] == "\\" else 1
        pieces.add(pair[:size])
        cur.pos += len(pair[:size])


def _parse_calling(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    is_bare = opening.marker.startswith(_BARE)
    cur.pos += len(_BARE if is_bare else opening.marker)
    yield from cur.ws()
    name: str = yield from cur.match(_NAME, 128)
    found = context.resolve(name, aliases=False) if name else None
    # Words stand there as well: `[Tool call: see below]`.
    if found is None:
        yield from pass_over(name, json_ahead(cur))
        return
    if opening.marker == _PAIRS:
        yield (yield from _with_pairs(cur, context, found))
        return
    yield from cur.ws()
    payload = Payload(value={})
    if (yield from cur.lit("(ID:")):
        # OpenClaw shows past calls so to models that cannot read others: https://github.com/openclaw/openclaw/issues/989
        yield from cur.match(_ID, 128)
        if not (yield from cur.lit(")")):
            raise Reject("no call")
    elif (yield from cur.lit("(")):
        payload = yield from _object(cur, context, opening, found[0])
    if not is_bare and not (yield from cur.lit("]")):
        raise Reject("no call")
    if is_bare and not ((yield from cur.at_end()) or (yield from _goes_on(cur))):
        raise Reject("text after the call", attempted=True)
    payload = (yield from _object_behind(cur, context, opening, found[0])) or payload
    yield from (yield from named_drafts(cur, context, name, payload, "hermes"))


def _goes_on(cur: Cursor) -> Steps:
    """Whether another call may come next."""
    return (yield from cur.starts(_BARE)) or (yield from cur.peek(1)) in ("[", "<")


def _with_pairs(cur: Cursor, context: Context, found: tuple[Tool, tuple[str, ...]]) -> Steps:
    """`[Calling tool="NAME" KEY="value"]`, behind the name: without a pair it only says what is called."""
    # https://github.com/raullenchai/Rapid-MLX/blob/main/tests/test_tool_parsers.py
    tool, mends = found
    schema = context.schema(tool)
    yield from _expect(cur, '"')
    values: dict[str, Any] = {}
    while True:
        is_apart = (yield from cur.ws()) > 0
        if (yield from cur.lit("]")):
            break
        key = yield from cur.match(_KEY, 128)
        is_key = is_apart and key in schema.properties and key not in values
        if not is_key or not (yield from cur.lit("=")) or (yield from cur.peek(1)) not in ('"', "'"):
            raise Reject("no pair", attempted=bool(values))
        values[key] = yield from _value(cur)
    if not values:
        raise Reject("no arguments")
    if (yield from cur.at_end()) and cur.cut:
        raise Reject("cut", attempted=True)
    adapted = yield from cur.work(schema.adapting(values))
    mends = (*mends, *adapted.mends)
    return Draft(name=tool.name, tool=tool, arguments=adapted.arguments, form="hermes", mends=mends)


def _object_behind(cur: Cursor, context: Context, opening: Opening, tool: Tool) -> Steps:
    """The object behind the bracket and `Arguments:`, if that word stands there."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    found = (yield from cur.lit(_ARGUMENTS)) is True
    if not found:
        cur.back(start)
    cur.anchor = None
    if not found:
        return None
    yield from cur.ws()
    payload = yield from read_arguments(cur, context, opening, STOPS, tool=tool)
    if payload is None:
        raise Reject("no arguments", attempted=True)
    return evolve(payload, steps=(*payload.steps, *(yield from read_surplus(cur))))


def _object(cur: Cursor, context: Context, opening: Opening, tool: Tool) -> Steps:
    """What stands between the brackets behind a name, up to the white space behind them."""
    yield from cur.ws()
    payload: Payload | None = Payload(value={})
    surplus: tuple[str, ...] = ()
    if not (yield from cur.starts(")")):
        payload = yield from read_arguments(cur, context, opening, (")]", *STOPS), tool=tool)
        surplus = yield from read_surplus(cur)
    yield from cur.ws()
    if payload is None or not (yield from cur.lit(")")):
        raise Reject("no arguments", attempted=True)
    yield from cur.ws()
    return evolve(payload, steps=(*payload.steps, *surplus))


def _parse_functionary(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    name: str = yield from cur.match(_NAME, 128)
    yield from cur.ws()
    # `all` is the user: https://github.com/MeetKai/functionary/blob/main/tests/prompt_test_v2.txt
    if not name or name == "all" or not (yield from cur.lit(_CONTENT)):
        raise Reject("no call")
    yield from cur.ws()
    found = context.resolve(name)
    stops = (_STOP, "<|from|>", *STOPS)
    payload = yield from read_arguments(cur, context, opening, stops, tool=found[0] if found else None)
    if payload is None:
        raise Reject("no arguments", attempted=True)
    yield from with_mends(
        (yield from named_drafts(cur, context, name, payload)), (yield from read_end(cur, (_STOP, "<|from|>assistant")))
    )


# LM Studio tells models without a template of their own to write so:
# https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2388
TOOL_REQUEST = Dialect(
    id="tool_request",
    family="tool_request",
    level="A",
    openers=lambda _context: ("[TOOL_REQUEST]",),
    parse=_parse_request,
    results=("[TOOL_RESULT]",),
    carriers=("", "json", "tool_call", "tool_code", "tool", "tools", "function"),
    example='[TOOL_REQUEST]{"name": "read", "arguments": {"filePath": "src/app.py"}}[END_TOOL_REQUEST]',
)
# https://github.com/openclaw/openclaw/issues/70331
ARROWS = Dialect(
    id="arrows",
    family="arrows",
    level="B",
    openers=lambda _context: ("[TOOL_CALL]",),
    parse=_parse_arrows,
    carriers=("", "tool_call", "tool"),
    example='[TOOL_CALL]\n{tool => "read", args => {\n  --filePath "src/app.py"\n}}\n[/TOOL_CALL]',
)
# What Qwen3 makes of a history without a template for calls; the first is oMLX's, the second vLLM-MLX's:
# https://github.com/jundot/omlx/issues/159 https://github.com/waybarrios/vllm-mlx/pull/15
# What MiniMax M2 makes of it at few bits: https://github.com/raullenchai/Rapid-MLX/blob/main/tests/test_tool_parsers.py
CALLING_TOOL = Dialect(
    id="calling_tool",
    family="calling_tool",
    level="C",
    openers=lambda _context: (*_CALLINGS, _PAIRS),
    line_openers=lambda context: tuple(f"{_BARE}{name}(" for name in context.tools.names),
    parse=_parse_calling,
    results=("[Tool Result for ID ",),
    carriers=("", "tool_call", "tool"),
    example='[Calling tool: read({"filePath": "src/app.py"})]',
)
# https://github.com/MeetKai/functionary/blob/main/tests/prompt_test_v2.txt
FUNCTIONARY_V2 = Dialect(
    id="functionary_v2",
    family="functionary_v2",
    level="A",
    openers=lambda _context: (f"<|from|>assistant\n{_RECIPIENT}", _RECIPIENT),
    parse=_parse_functionary,
    models=("functionary*v2*",),
    example='<|recipient|>read<|content|>{"filePath": "src/app.py"}<|stop|>',
)
