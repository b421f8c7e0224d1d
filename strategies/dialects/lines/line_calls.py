"""Calls that are lines of their own: Functionary 3.2, Continue, gptme and CWM.

    Functionary  [ ">>>" ] NAME newline object | ">>>python" newline CODE
    Continue     "TOOL_NAME:" NAME newline { "BEGIN_ARG:" KEY newline RAW newline "END_ARG" newline }
    gptme        "@" NAME "(" ID "):" ws object
    CWM          "<tool: " NAME ">" newline ( object | RAW ) newline "</tool>"

All of them need a declared tool. Functionary's first `>>>` belongs to the prompt, so a message may begin with a name;
its object must then be all of the message. Continue's values are text as it is, up to an `END_ARG` behind which another
argument, another call or the end follows. Objects end by their braces.
"""

import re
from collections.abc import Generator
from typing import Any

from attrs import evolve

from gateway.core.tools import Tool
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import STOPS, code_draft, named_drafts, read_json, refuse_torn
from strategies.grammar.raw_value import trimmed
from strategies.schema.tool_schema import ToolSchema, schema_of
from strategies.text.cursor import Cursor, Reject, Steps, pass_over
from strategies.text.tape import Taken
from strategies.text.tolerant_json import JsonFault, parsing
from strategies.text.turns import Turns
from strategies.writing.token_renderer import JsonRenderer

__all__ = ["CONTINUE", "CWM", "FUNCTIONARY", "GPTME"]

_MARK = ">>>"
_BLANK = re.compile(r"[ \t]*")
_REST = re.compile(r"[^\n]*")
_CODE_END = re.compile("|".join(map(re.escape, (f"\n{_MARK}", *STOPS))))
_LONGEST = max(map(len, STOPS))


def _functionary_openers(context: Context) -> tuple[str, ...]:
    names = context.tools.names
    ends = [f"{name}{end}" for name in names for end in ("\n", "\r\n")]
    return (*(f"{_MARK}{name}" for name in names), f"{_MARK}python", *ends)


def _parse_functionary(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    marked = opening.marker.startswith(_MARK)
    name = opening.marker.removeprefix(_MARK).strip()
    if marked:
        yield from cur.match(_BLANK, 16)
        if not (yield from cur.lits(("\n", "\r\n"))):
            raise Reject("another name")
    yield from cur.ws()
    if (yield from cur.peek(1)) != "{":
        # `python` behind the mark is the built-in interpreter, whose body is code.
        if not marked or name != "python":
            raise Reject("no arguments")
        yield (yield from _code(cur, context))
        return
    payload = yield from read_json(cur, context, opening, (f"\n{_MARK}", *STOPS), tool=context.find(name))
    drafts = yield from named_drafts(cur, context, name, payload, form="function")
    if marked:
        yield from refuse_torn(cur, opening)
    else:
        yield from _require_end(cur)
    yield from drafts


def _require_end(cur: Cursor) -> Steps:
    """The message ends here, or another call follows."""
    yield from cur.ws()
    if (yield from cur.at_end()) or (yield from cur.starts(_MARK)):
        return
    for stop in STOPS:
        if (yield from cur.starts(stop)):
            return
    raise Reject("text after the object", attempted=True)


def _code(cur: Cursor, context: Context) -> Steps:
    """Code up to the next call or the end of the message."""
    pieces = Taken(cur)
    ended = yield from cur.until_match(_CODE_END, _LONGEST - 1, pieces.add)
    if not ended and cur.cut:
        raise Reject("cut", attempted=True)
    return code_draft(context, pieces.text().rstrip())


def _parse_continue(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    name: str = (yield from cur.match(_REST, 256)).strip()
    if opening.marker == _GEMMA:
        name = name.removesuffix(":").rstrip()
        yield from cur.ws()
        if not (yield from cur.starts("BEGIN_ARG:")):
            raise Reject("no call")
    found = context.resolve(name)
    if found is None:
        yield from pass_over(name, _arguments(cur, schema_of(Tool(name=name))))
        return
    tool, mends = found
    values, more, fault = yield from _arguments(cur, context.schema(tool))
    yield Draft(name=tool.name, tool=tool, arguments=values, form="tag", mends=(*mends, *more), fault=fault)


def _arguments(cur: Cursor, schema: ToolSchema) -> Steps:
    """All the arguments, with what was mended and what cannot be right in them."""
    values: dict[str, Any] = {}
    mends: list[str] = []
    fault: str | None = None
    text = ""
    while (yield from _argument_begins(cur)):
        key: str = (yield from cur.match(_REST, 256)).strip()
        text = yield from _argument(cur)
        if not key:
            key, text = _keyed(text, schema)
        if not key or key in values:
            raise Reject("no key" if not key else f"`{key}` is given twice", attempted=True)
        read = yield from cur.work(schema.reading(key, text))
        values[key] = read.value
        # A value that holds the beginning of a further argument has lost its `END_ARG` in between.
        if any(other in schema.properties and other not in values for other in _BEGINS.findall(text)):
            raise Reject("value not closed", attempted=True)
        mends += read.mends
        fault = fault or read.fault
    if not (yield from _call_ends(cur)):
        raise Reject("call not closed", attempted=True)
    # The call stands in a fence; one at the value's end may be the value's or the call's.
    if text.endswith("\n```") and text.count("\n```") % 2 and not (yield from _starts_after_space(cur, "```")):
        raise Reject("the fence may be the call's", attempted=True)
    return values, mends, fault


def _starts_after_space(cur: Cursor, marker: str) -> Steps:
    """Whether the marker comes next; nothing is consumed."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    found = yield from cur.starts(marker)
    cur.back(start)
    cur.anchor = None
    return found


def _keyed(text: str, schema: ToolSchema) -> tuple[str, str]:
    """The key that stands on the value's own line, and the value; no key where none is the tool's."""
    match = _KEYED.fullmatch(text.strip())
    if match is not None and match.group(1) in schema.properties:
        value = match.group(2).strip()
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        return match.group(1), value[1:-1] if is_quoted else value
    return "", text


_KEYED = re.compile(r"([\w.-]{1,64})[ \t]*+[:=][ \t]*+(.*)")
_GEMMA = "call:"


def _argument_begins(cur: Cursor) -> Steps:
    cur.anchor = start = cur.offset
    yield from cur.ws()
    found = yield from cur.lit("BEGIN_ARG:")
    if not found:
        cur.back(start)
    cur.anchor = None
    return found


def _call_ends(cur: Cursor) -> Steps:
    """Whether a fence's line, another call or the end follows; nothing of it is consumed."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    ends = (yield from cur.starts("```")) or (yield from cur.starts("TOOL_NAME:"))
    ends = ends or (not cur.cut and (yield from cur.at_end()))
    cur.back(start)
    cur.anchor = None
    return ends


def _argument(cur: Cursor) -> Steps:
    """One value, from the end of its key's line to the `END_ARG` that ends it."""
    pieces = Taken(cur)
    while True:
        if not (yield from cur.until(_END_ARG, pieces.add)):
            raise Reject("value not closed", attempted=True)
        cur.anchor = start = cur.offset
        cur.pos += len(_END_ARG)
        ends = yield from _argument_begins(cur)
        cur.anchor = start
        ends = ends or (yield from _call_ends(cur))
        cur.back(start)
        cur.anchor = None
        cur.pos += len(_END_ARG)
        if ends:
            return pieces.text().removesuffix("\r").removeprefix("\r").removeprefix("\n")
        pieces.add(_END_ARG)


_END_ARG = "\nEND_ARG"
_BEGINS = re.compile(r"^BEGIN_ARG:[ \t]*+(\S++)", re.MULTILINE)


def _parse_gptme(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.match(_ID, 64)
    if not (yield from cur.lit("):")):
        raise Reject("no call")
    yield from cur.ws()
    if (yield from cur.peek(1)) != "{":
        raise Reject("no arguments")
    name = opening.marker[1:-1]
    payload = yield from read_json(cur, context, opening, STOPS, tool=context.find(name))
    yield from refuse_torn(cur, opening)
    yield from (yield from named_drafts(cur, context, name, payload, form="function"))


_ID = re.compile(r"[^()\s]*")


def _parse_cwm(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    name: str = yield from cur.match(_NAME, 128)
    # https://github.com/vllm-project/vllm/blob/main/tests/tool_parsers/test_csm_tool_parser.py
    is_open = bool(name) and not (yield from cur.lit(">"))
    if not name or (is_open and (context.find(name) is None or not (yield from cur.ws()))):
        raise Reject("no call")
    # https://github.com/vllm-project/vllm/blob/main/tests/tool_parsers/test_cwm_tool_parser.py
    if name == "function" and context.find(name) is None:
        yield from cur.ws()
        name = yield from cur.match(_NAME, 128)
    found = context.resolve(name)
    if found is None:
        raise Reject("unknown tool", name=name)
    tool, mends = found
    mends = (*mends, "call_opener_broken") if is_open else mends
    text = yield from _cwm_body(cur)
    schema = context.schema(tool)
    # What names a parameter in quotes is an object, whatever its beginning has become.
    heads = ("{", '"', "'", *(f'{name}"' for name in schema.properties))
    if text.lstrip().startswith(heads) or any(f'"{name}"' in text for name in schema.properties):
        draft = yield from cur.work(_cwm_object(tool, schema, text))
        yield evolve(draft, mends=(*mends, *draft.mends))
        return
    key = next(iter(schema.required), "")
    if len(schema.required) != 1 or not schema.prop(key).is_string or not text.strip():
        raise Reject("no arguments", attempted=True)
    yield Draft(name=tool.name, tool=tool, arguments={key: text}, form="tag", mends=mends)


def _cwm_body(cur: Cursor) -> Steps:
    """What stands up to the closer that ends the call."""
    pieces = Taken(cur)
    while True:
        if not (yield from cur.until(_TOOL_END, pieces.add)):
            raise Reject("call not closed", attempted=True)
        cur.pos += len(_TOOL_END)
        cur.anchor = start = cur.offset
        yield from cur.ws()
        if (yield from cur.at_end()) and cur.cut:
            raise Reject("cut", attempted=True)
        ends = (yield from cur.at_end()) or (yield from cur.lits((_TOOL, *STOPS))) is not None
        cur.back(start)
        cur.anchor = None
        if ends:
            return trimmed(pieces.text().strip(" \t"), body=True)
        pieces.add(_TOOL_END)


def _cwm_object(tool: Tool, schema: ToolSchema, text: str) -> Turns[Draft]:
    """A body that is the tool's arguments; one that only begins like them is no text, but a fault."""
    try:
        parsed = yield from parsing(text.strip())
    except JsonFault as fault:
        raise Reject(f"JSON: {fault.reason}", attempted=True) from None
    opened = yield from schema.opening(parsed.value)
    if opened is None or text.strip()[parsed.end :].strip():
        raise Reject("no arguments", attempted=True)
    adapted = yield from schema.adapting(opened.arguments)
    mends = (*parsed.steps, *opened.mends, *adapted.mends)
    return Draft(name=tool.name, tool=tool, arguments=adapted.arguments, form="tag", mends=mends)


_TOOL, _TOOL_END = "<tool: ", "</tool>"
_NAME = re.compile(r"[\w.:/-]*")

# https://github.com/MeetKai/functionary/blob/main/functionary/prompt_template/llama3_prompt_template_v3.py
FUNCTIONARY = Dialect(
    id="functionary",
    family="functionary",
    level="C",
    line_openers=_functionary_openers,
    parse=_parse_functionary,
    may_open=lambda _context, opening: opening.marker.startswith(_MARK) or opening.starts_message,
    models=("functionary*",),
    carriers=(),
    renderer=JsonRenderer(
        id="functionary", body=lambda name, arguments: f"{_MARK}{name}\n{arguments}", between="\n", tokens=(_MARK,)
    ),
    example='>>>read\n{"filePath": "src/app.py"}',
)
# https://github.com/continuedev/continue/blob/main/core/tools/systemMessageTools/toolCodeblocks/index.ts
CONTINUE = Dialect(
    id="continue",
    family="continue",
    level="C",
    # https://github.com/NousResearch/hermes-agent/issues/7449
    line_openers=lambda _context: ("TOOL_NAME:", _GEMMA),
    parse=_parse_continue,
    # Continue asks for the fence, and takes the bare form at the beginning:
    # https://github.com/continuedev/continue/blob/main/core/tools/systemMessageTools/toolCodeblocks/index.ts
    may_open=lambda _context, opening: opening.fence is not None or opening.starts_message,
    carriers=("tool", ""),
    example="```tool\nTOOL_NAME: read\nBEGIN_ARG: filePath\nsrc/app.py\nEND_ARG\n```",
)
# https://github.com/gptme/gptme/blob/master/gptme/tools/base.py
GPTME = Dialect(
    id="gptme",
    family="gptme",
    level="C",
    line_openers=lambda context: tuple(f"@{name}(" for name in context.tools.names),
    parse=_parse_gptme,
    carriers=(),
    renderer=JsonRenderer(id="gptme", body=lambda name, arguments: f"@{name}(call-0): {arguments}", between="\n"),
    example='@read(call-1): {"filePath": "src/app.py"}',
)
# Meta's Code World Model, as its card has it: https://huggingface.co/facebook/cwm
CWM = Dialect(
    id="cwm",
    family="cwm",
    level="C",
    line_openers=lambda _context: (_TOOL,),
    parse=_parse_cwm,
    models=("cwm*",),
    carriers=(),
    example='<tool: read>\n{"filePath": "src/app.py"}\n</tool>',
)
