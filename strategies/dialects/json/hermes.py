"""Hermes: one JSON object, or a list of them, inside `<tool_call>`.

    call   = "<tool_call>" ws ( object | array ) ws "</tool_call>"
    object = JSON with a name and an argument container, in any order

The object's brace decides where it ends, never the textual closer, so a closer inside a string is data; only JSON
that is broken is read up to the closer and mended. Also read: other wrappers, a lost opener, the name as an attribute
or as the key, flat arguments, arguments as a string, code beside the object, several objects in one tag, a parameter's
closer behind it, a closer that is wrong, begun or missing at the end. Text behind the object means that this is no
call. Depth and length are bounded by the cursor and the reader.
"""

import re
from collections.abc import Generator, Iterable
from typing import Any

from attrs import evolve

from strategies.dialects.lines.python import call_drafts
from strategies.grammar.bare_data import glance, is_inside_data
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_calls import drafting
from strategies.grammar.json_payload import read_surplus
from strategies.grammar.lexicon import LEFTOVERS
from strategies.grammar.literal import shows_opener
from strategies.schema.tool_schema import ToolSchema
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.python_text import PythonFault, bracketed, reading_calls
from strategies.text.tape import Taken
from strategies.text.tolerant_json import JsonFault, parsing
from strategies.text.turns import Turns
from strategies.writing.renderer import Hermes

__all__ = ["HERMES", "UNOPENED"]

# What models write that were not trained on the tag: Qwen2.5-Coder copies `<tools>` from its prompt
# (https://github.com/vllm-project/vllm/issues/32931), llama.cpp reads most of the others:
# https://github.com/ggml-org/llama.cpp/blob/master/common/chat.cpp
_WRAPPERS = (
    "tool_call",
    "function_call",
    "tool",
    "tools",
    "response",
    "json",
    "xml",
    "JSON",
    "tool_use",
    "toolcall",
    "TOOLCALL",
    "action",
    # Of Glaive and of small models, in the spellings that peers read:
    # https://github.com/CambrianTech/continuum/blob/main/src/debug/jtag/workers/continuum-core/src/tool_parsing/parsers.rs
    "functioncall",
    "function-call",
    "tool-call",
    "tool-use",
    "TOOL_CALL",
    "ToolCall",
    "use_tool",
    "call_tool",
)
_NAMED_WRAPPERS = ("<tool_call ", "<function_call ", "<tool_use ")
"""Those that may have the tool's name as an attribute."""
_FUNCTION = "<function>"
"""On a line of its own it opens other forms as well."""
_WRONG_CLOSERS = (
    "</think>",
    "</tool_response>",
    *(f"</{wrapper}>" for wrapper in _WRAPPERS),
    *LEFTOVERS,
)
_SEPARATORS = (",", ";")
_CALL_KEYS = frozenset({"name", "arguments", "parameters"})
_NAME_RUN = re.compile(r"[A-Za-z0-9_.:/-]*")
# A non-breaking space or a byte order mark in front is no part of the JSON.
_BLANK_RUN = re.compile(r"[ \t\r\n\u00a0\ufeff]*")
_MENTIONED = re.compile(
    r"""["'](?:name|tool|tool_name|function|function_name)["']\s{0,8}:\s{0,8}["']([\w.:/-]{1,64})["']"""
)


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    wrapper = opening.marker.strip("<> ")
    name = None if opening.marker.endswith(">") else (yield from _name_attribute(cur))
    yield from cur.match(_BLANK_RUN)
    yield from cur.ws()
    # Tags in it, or a bare name: the same opener in the forms of Qwen3-Coder and GLM.
    first = yield from cur.peek(1)
    if first not in ("{", "["):
        yield from _refuse(cur, context)
    closer = f"</{wrapper}>"
    if first == "[" and name is None and _PYTHON.match((yield from cur.peek(_LONGEST_HEAD))):
        found = yield from _python(cur, context)
    else:
        found = yield from _values(cur, context, name, closer)
    mends = yield from _end(cur, closer)
    yield from _with(found, mends)


def _python(cur: Cursor, context: Context) -> Steps:
    """A list of calls as Python writes them, by models that know the tag and were taught that form."""
    pieces = Taken(cur)
    if not (yield from bracketed(cur, pieces.add)):
        raise Reject("brackets are not closed", attempted=True)
    try:
        calls = yield from cur.work(reading_calls(pieces.text()))
    except PythonFault as fault:
        raise Reject(fault.reason, attempted=True) from None
    return (yield from cur.work(call_drafts(calls, context, form="hermes", aliases=False)))


_PYTHON = re.compile(r"\[\s{0,8}[\w.:/-]{1,64}\(")


def _refuse(cur: Cursor, context: Context) -> Steps:
    """Tags or a name stand in the JSON's place; asked again where its head is lost: `<read", "arguments"`."""
    # https://github.com/microsoft/foundry-local/pull/1060
    head: str = yield from cur.peek(_LONGEST_HEAD)
    found = _LOST_HEAD.match(head)
    name = found[1] if found and context.find(found[1]) is not None else ""
    raise Reject("no JSON inside", attempted=bool(name), name=name)


_LOST_HEAD = re.compile(r"""<?["']?([\w.:/-]{1,64})["']\s{0,8}[,:]\s{0,8}["'{]""")
_LONGEST_HEAD = 90


def _parse_unopened(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    """`{"name": ...}` and then `</tool_call>`: the opener was lost."""
    yield from glance(cur, context, aliases=True)
    pieces = Taken(cur)
    if not (yield from cur.json(pieces.add)):
        raise Reject("JSON is not closed")
    yield from cur.ws()
    if not (yield from cur.lit("</tool_call>")):
        raise Reject("no call")
    value, steps = yield from cur.work(_parsed(pieces.text(), context))
    found = yield from cur.work(drafting(value, context, form="hermes", steps=steps))
    yield from _with(found, ("call_opener_missing",))


def _may_open_unopened(_context: Context, opening: Opening) -> bool:
    # Behind an opener that is quoted nothing has lost its own.
    return not is_inside_data(opening) and not shows_opener(opening.before, "<tool_call>", "</tool_call>")


def _values(cur: Cursor, context: Context, name: str | None, closer: str) -> Steps:
    """The calls of one tag: an object, a list, or several objects with or without separators."""
    found: list[Draft] = []
    while True:
        found += yield from _value(cur, context, name, closer, is_first=not found)
        yield from cur.ws()
        if (yield from cur.lits(_SEPARATORS)):
            yield from cur.ws()
        if (yield from cur.peek(1)) != "{":
            return found


def _value(cur: Cursor, context: Context, name: str | None, closer: str, *, is_first: bool) -> Steps:
    """One object or list; where its braces do not parse, what stands before the closer."""
    pieces = Taken(cur)
    cur.anchor = start = cur.offset
    steps: tuple[str, ...] = ()
    value: Any = None
    is_whole = yield from cur.json(pieces.add)
    if is_whole:
        try:
            value, steps = yield from cur.work(_parsed(pieces.text(), context))
        except Reject:
            value = None
    if value is None:
        # Behind a call that was read whole, broken JSON is no reason to read all of it anew.
        if not is_first:
            raise Reject("JSON", attempted=True)
        cur.back(start)
        value, steps = yield from _mended(cur, context, closer, is_whole=is_whole)
    cur.anchor = None
    steps = (*steps, *(yield from read_surplus(cur)))
    if (yield from _comment(cur, closer)):
        steps = (*steps, "comment")
    # Qwen-Agent's prompt for code:
    # https://github.com/QwenLM/Qwen-Agent/blob/main/qwen_agent/llm/fncall_prompts/nous_fncall_prompt.py
    code = yield from _code(cur)
    return (yield from cur.work(drafting(value, context, form="hermes", steps=steps, name=name, code=code)))


def _comment(cur: Cursor, closer: str) -> Steps:
    """A comment behind the object."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    found = yield from cur.lits(tuple(_COMMENTS))
    if found is None:
        cur.back(start)
    cur.anchor = None
    if found == "//":
        # The call's closer may stand on the same line.
        yield from cur.until_match(re.compile(rf"\n|{re.escape(closer)}"), len(closer) - 1, _ignore)
    elif found is not None:
        end = _COMMENTS[found]
        if not (yield from cur.until(end, _ignore)):
            raise Reject("comment never ends", attempted=True)
        cur.pos += len(end)
    return found is not None


_COMMENTS = {"<!--": "-->", "/*": "*/", "//": "\n"}


def _ignore(_: str) -> None:
    """A comment is dropped."""


def _mended(cur: Cursor, context: Context, closer: str, *, is_whole: bool) -> Steps:
    """JSON that is broken: everything up to the closer, through the whole ladder."""
    pieces = Taken(cur)
    # Only here the textual closer counts: where the braces do not, nothing better is left.
    if not (yield from cur.until(closer, pieces.add)):
        raise Reject("JSON is not closed", attempted=True, inside=True)
    try:
        return (yield from cur.work(_parsed(pieces.text(), context)))
    except Reject as refusal:
        raise Reject(refusal.reason, attempted=True, inside=not is_whole) from None


def _parsed(text: str, context: Context) -> Turns[tuple[Any, tuple[str, ...]]]:
    text, fused = _FUSED.subn(r'{"name": "\1",', text, count=1)
    schemas = _schemas(text, context)
    # The schema tells which value may hold quotes that are not escaped, and what may follow it.
    bodies = {key for schema in schemas for key in schema.body_keys}
    keys = {key for schema in schemas for key in schema.properties}
    try:
        parsed = yield from parsing(text, closed=True, body_keys=sorted(bodies), known_keys=sorted(keys | _CALL_KEYS))
    except JsonFault as fault:
        raise Reject(f"JSON: {fault.reason}", attempted=True) from None
    if text[parsed.end :].strip():
        raise Reject("text after the object", attempted=True)
    return parsed.value, (*parsed.steps, *(("function_tag",) if fused else ()))


# Qwen3.5 begins with the tag of its other form, which no JSON does: https://github.com/tetherto/qvac/pull/2677
_FUSED = re.compile(r'\A\s*\{\s*"function=([\w.:/-]{1,64})"\s*,')


def _schemas(text: str, context: Context) -> Iterable[ToolSchema]:
    """The schema of the tool that the text names first, else of all tools."""
    mentioned = _MENTIONED.search(text)
    found = context.resolve(mentioned[1]) if mentioned else None
    return [context.schema(tool) for tool in ((found[0],) if found else context.tools)]


def _code(cur: Cursor) -> Steps:
    """`<code>` behind the object (code interpreters): belongs into the arguments."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    if not (yield from cur.lit("<code>")):
        cur.back(start)
        cur.anchor = None
        return None
    cur.anchor = None
    pieces = Taken(cur)
    if not (yield from cur.until("</code>", pieces.add)):
        raise Reject("code is not closed", attempted=True)
    cur.pos += len("</code>")
    return pieces.text().strip("\n")


def _end(cur: Cursor, closer: str) -> Steps:
    """The closer, or what stands in its place; returns the mends."""
    yield from cur.ws()
    # Of a parameter that JSON has none of: https://github.com/diegosouzapw/OmniRoute/pull/13930
    stray = yield from cur.lits(_STRAY_CLOSERS)
    yield from cur.ws()
    mends = yield from _own_end(cur, closer)
    return (*mends, "closer_foreign") if stray else mends


_STRAY_CLOSERS = ("</parameter>", "</arguments>")


def _own_end(cur: Cursor, closer: str) -> Steps:
    """The same without what may stand before it."""
    if (yield from cur.lit(closer)):
        return ()
    if (yield from cur.at_end()):
        if cur.cut:
            raise Reject("cut", attempted=True)
        return ("call_closer_missing",)
    # The end of reasoning in its place: https://github.com/cubist38/mlx-openai-server/issues/284
    if (yield from cur.lits(_WRONG_CLOSERS)):
        return ("call_closer_wrong",)
    # Models that forget the slash open a second call where they mean to close the first.
    for opener in ("<tool_call>", closer.replace("/", "")):
        if (yield from cur.starts(opener)):
            yield from _lone_opener(cur, opener)
            return ("call_closer_wrong",)
    if not cur.cut and (yield from _begun(cur, closer)):
        return ("call_closer_wrong",)
    raise Reject("text after the object", attempted=True)


def _begun(cur: Cursor, closer: str) -> Steps:
    """The answer ends inside the closer."""
    rest = yield from cur.peek(len(closer))
    # A lone `<` may begin anything.
    if len(rest) < 2 or len(rest) == len(closer) or not closer.startswith(rest):
        return False
    cur.pos += len(rest)
    return True


def _lone_opener(cur: Cursor, opener: str) -> Steps:
    """An opener in place of the closer: consumed at the end of the answer, else it opens the next call."""
    cur.anchor = start = cur.offset
    cur.pos += len(opener)
    yield from cur.ws()
    if not (yield from cur.at_end()):
        cur.back(start)
    cur.anchor = None


def _with(found: list[Draft], mends: tuple[str, ...]) -> Generator[Draft, None, None]:
    for draft in found:
        yield evolve(draft, mends=(*draft.mends, *mends)) if mends else draft


def _name_attribute(cur: Cursor) -> Steps:
    """`<tool_call name="read">`, also beside others: `<tool_call id="call_00" name="read">`; None where none is it."""
    # DeepSeek V4 Pro, now and then: https://github.com/felinics/Memoh/issues/435
    name: str | None = None
    for _ in range(_MOST_ATTRIBUTES):
        yield from cur.ws()
        if (yield from cur.lit(">")):
            return name
        key = yield from cur.match(_ATTRIBUTE, 16)
        if not key or not (yield from cur.lit("=")):
            raise Reject("no name")
        quote = yield from cur.lits(('"', "'"))
        value: str = yield from cur.match(_NAME_RUN, 64)
        if (quote and not (yield from cur.lit(quote))) or not value:
            raise Reject("no name")
        name = value if key == "name" else name
    raise Reject("no name")


_ATTRIBUTE = re.compile(r"[a-z_-]*")
_MOST_ATTRIBUTES = 4


# https://github.com/NousResearch/Hermes-Function-Calling/blob/main/README.md and
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/hermes_tool_parser.py
HERMES = Dialect(
    id="hermes",
    family="tool_call",
    level="B",
    openers=lambda _context: (*(f"<{wrapper}>" for wrapper in _WRAPPERS), _FUNCTION, *_NAMED_WRAPPERS),
    # As WebLLM asks Llama 3.1 for it:
    # https://github.com/mlc-ai/web-llm/blob/main/examples/function-calling/function-calling-manual/src/function_calling_manual.ts
    line_openers=lambda _context: (_FUNCTION,),
    parse=_parse,
    results=("<tool_response>",),
    models=("qwen2.5*", "qwen3*", "qwq*", "hermes*", "granite-4*", "ernie*", "mimo*", "jan*"),
    renderer=Hermes(),
    example='<tool_call>\n{"name": "read", "arguments": {"filePath": "src/app.py"}}\n</tool_call>',
)
# Openers get lost in this family: https://github.com/QwenLM/Qwen3-Coder/issues/475
UNOPENED = Dialect(
    id="hermes_unopened",
    family="tool_call",
    level="B",
    line_openers=lambda _context: ("{",),
    may_open=_may_open_unopened,
    parse=_parse_unopened,
    models=HERMES.models,
    example='{"name": "read", "arguments": {"filePath": "src/app.py"}}\n</tool_call>',
)
