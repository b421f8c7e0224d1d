"""JSON that stands for calls without any marker: in a code fence, as the whole message, as its last block.

    calls = value { [ "," | ";" ] value }
    value = object | list of objects, in the shapes of `strategies.grammar.json_calls`

A value ends where its braces end; only where they do not make a value, the text up to the fence's end or the end of
the answer goes through the ladder of mends. Bounds: the first key decides at once whether an object can be a call at
all, so documents are held for one key; a list must begin with an object.
"""

import re
from collections.abc import Generator, Mapping
from typing import Any

from attrs import evolve

from gateway.core.tools import Tool
from strategies.grammar.bare_data import checking, ends_message, glance, in_prose, is_on, may_stand
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.fences import read_rest
from strategies.grammar.json_calls import CONTAINER_KEYS, NAME_KEYS, drafting
from strategies.grammar.json_payload import FRAME, lacks_frame_only, read_surplus, with_mends
from strategies.grammar.lexicon import line_of
from strategies.grammar.literal import shows_opener
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.entities import TwoReadings, attribute_value
from strategies.text.tape import Taken
from strategies.text.tolerant_json import JsonFault, Parsed, parsing
from strategies.text.turns import Turns
from strategies.writing.block_renderer import BlockRenderer, listed
from strategies.writing.token_renderer import json_text, named_object

__all__ = ["JSON_BARE", "JSON_FENCE", "XLAM"]

_TOOL_FENCES = frozenset({"tool_code", "tool_call", "tool_calls", "tool", "tools", "function", "function_call"})
_CARRIERS = ("", "json", "jsonc", "json5", "python", *sorted(_TOOL_FENCES))
# What small models write before the object, as they were told to announce what they do.
_LABELS = (
    # https://github.com/ggml-org/llama.cpp/issues/20260
    "; {",
    # https://github.com/VincenzoManto/Doxa/issues/9
    "(True, {",
    "Tool call:",
    "Tool Call:",
    "tool call:",
    "tool_call:",
    "Function call:",
    "function_call:",
    "Tool:",
    "TOOL_CALL:",
)
# A fence that lost its marks: the info string is all that is left of it.
_LOST = ("</TOOLCALL>", "[/TOOL_CALLS]", "[/TOOL_CALL]", "[END_TOOL_REQUEST]", "<|/tool_call|>")
# A byte order mark is no part of the JSON behind it: https://www.rfc-editor.org/rfc/rfc8259#section-8.1
_MARKED = ("\ufeff{", "\ufeff[")
_GLUED = (*_MARKED, "json{", "json[", "JSON{", "json\n{", "json\n[")
_MENDING, _ESCAPED = "mending", "escaped"


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    # The bracket of a glued marker belongs to the value.
    cur.pos += len(opening.marker.rstrip("{["))
    yield from cur.ws()
    tool = _named_by_fence(opening, context)
    if opening.hint is None:
        if tool is None and (yield from glance(cur, context)) in ("&quot;", "&#34;"):
            raise Reject("escaped", again=True, hint=_ESCAPED)
        values = yield from _values(cur, context, opening)
    else:
        values = yield from _mended(cur, context, opening, tool)
    form = "bare"
    if opening.fence is not None:
        form = "tool_fence" if opening.fence.info in _TOOL_FENCES else "fence"
    found: list[Draft] = []
    for parsed in values:
        if tool is None:
            found += yield from cur.work(_drafts(parsed, context, form, opening))
        else:
            named = drafting(parsed.value, context, form=form, steps=parsed.steps, name=tool.name)
            found += yield from cur.work(named)
    yield from cur.work(checking(found, context))
    found = with_mends(found, (yield from _closers(cur, opening)))
    end = cur.offset
    # Words behind it: then it may be shown as well as meant, and counts for less.
    # https://github.com/agentscope-ai/QwenPaw/issues/4066
    if opening.fence is None and not (yield from ends_message(cur)):
        found = in_prose(found, end)
    yield from found


def _named_by_fence(opening: Opening, context: Context) -> Tool | None:
    """The tool whose name stands behind the fence's word, as Grok writes it; the object is then its arguments."""
    # https://github.com/zeroclaw-labs/zeroclaw/blob/master/crates/zeroclaw-tool-call-parser/src/lib.rs
    if opening.fence is None or opening.fence.info not in _TOOL_FENCES:
        return None
    mark, *words = line_of(opening.before.rstrip()).replace(opening.fence.info, " ", 1).split() or [""]
    is_opener = mark == opening.fence.mark * opening.fence.size
    return context.find(words[0]) if is_opener and len(words) == 1 else None


def _closers(cur: Cursor, opening: Opening) -> Steps:
    """What is left behind the values of a wrapper whose opener is lost; returns the mends."""
    closers = (*_LOST, ")") if opening.marker.startswith("(") else _LOST
    cur.anchor = start = cur.offset
    yield from cur.ws()
    if (yield from cur.starts("</tool_call>")) and shows_opener(opening.before, "<tool_call>", "</tool_call>"):
        raise Reject("its opener is quoted")
    found = yield from cur.lits(closers)
    if found is None:
        cur.back(start)
    cur.anchor = None
    return () if found is None or found == ")" else ("call_opener_missing",)


def _values(cur: Cursor, context: Context, opening: Opening) -> Steps:
    """All values that stand side by side here."""
    found: list[Parsed] = []
    while True:
        pieces = Taken(cur)
        if not (yield from cur.json(pieces.add)):
            if cur.cut:
                raise Reject("cut", attempted=True)
            # Read anew to the fence's end: a brace in a broken string has misled the count.
            raise Reject("JSON is not closed", again=True, hint=_MENDING)
        text = pieces.text()
        try:
            parsed = yield from cur.work(parsing(text, closed=True))
        except JsonFault:
            raise Reject("JSON", again=True, hint=_MENDING) from None
        found.append(parsed)
        surplus = yield from read_surplus(cur)
        found[-1] = evolve(parsed, steps=(*parsed.steps, *surplus))
        goes_on = yield from _goes_on(cur, opening)
        if not goes_on:
            return found
        # A log, a record on each line, must not wait for its last one.
        if goes_on == "line" and opening.fence is None and not found[-1].steps:
            yield from cur.work(_standing(found[-1], context, opening))


def _standing(parsed: Parsed, context: Context, opening: Opening) -> Turns[None]:
    """`Reject` where one of several values is no call: then none of them is."""
    yield from checking((yield from _drafts(parsed, context, "bare", opening)), context)


def _goes_on(cur: Cursor, opening: Opening) -> Steps:
    """Move to the next value, if one follows; whether it has a `line` of its own."""
    yield from _comments(cur)
    cur.anchor = start = cur.offset
    found = "line" if "\n" in (yield from cur.match(_SPACE, _MOST_SPACE)) else "more"
    yield from cur.ws()
    # What stood before the first may stand before each of them.
    label = (opening.marker,) if opening.marker.endswith(":") else ()
    if (yield from cur.lits((",", ";", *label))):
        found = "more"
        yield from cur.ws()
    if (yield from cur.peek(1)) != "{":
        found = ""
        cur.back(start)
    cur.anchor = None
    return found


_SPACE = re.compile(r"\s*")
_MOST_SPACE = 64
_COMMENTS = {"//": "\n", "<!--": "-->", "/*": "*/"}


def _comments(cur: Cursor) -> Steps:
    """Skip comments behind a value; their text is markup of the call."""
    while True:
        start = cur.offset
        cur.anchor = start
        yield from cur.ws()
        opener = yield from cur.lits(tuple(_COMMENTS))
        if opener is None:
            cur.back(start)
        cur.anchor = None
        if opener is None:
            return
        closer = _COMMENTS[opener]
        if (yield from cur.until(closer, _ignored)):
            cur.pos += len(closer) if closer != "\n" else 0
        elif closer != "\n":
            raise Reject("comment never ends")


def _ignored(_text: str) -> None:
    pass


def _mended(cur: Cursor, context: Context, opening: Opening, tool: Tool | None) -> Steps:
    """Everything up to the end of the fence or of the answer, through the whole ladder."""
    pieces = Taken(cur)
    if opening.fence is not None:
        closed = yield from read_rest(cur, opening.fence, pieces.add)
    else:
        closed = False
        while not (yield from cur.at_end()):
            pieces.add(cur.text[cur.pos :])
            cur.pos = len(cur.text)
    if cur.cut and not closed:
        raise Reject("cut", attempted=True)
    text = pieces.text().rstrip()
    steps: tuple[str, ...] = ()
    if opening.hint == _ESCAPED:
        # Beside quotes that are none an entity may be meant as it is.
        if '"' in text:
            raise Reject("entities can be read in several ways", attempted=True)
        try:
            text, steps = attribute_value(text), ("html_escaped",)
        except TwoReadings as doubt:
            raise Reject(str(doubt), attempted=True) from None
    try:
        parsed = yield from cur.work(_ladder(text, context, tool))
    except JsonFault as fault:
        raise Reject(f"JSON: {fault.reason}", attempted=tool is not None or _names_tool(text, context)) from None
    if text[parsed.end :].strip():
        raise Reject("text after the object", attempted=True)
    if closed and (yield from cur.work(lacks_frame_only(text, 1))):
        parsed = evolve(parsed, steps=tuple(FRAME.get(step, step) for step in parsed.steps))
    return [Parsed(parsed.value, parsed.end, (*steps, *parsed.steps))]


def _ladder(text: str, context: Context, tool: Tool | None) -> Turns[Parsed]:
    """The value; unescaped quotes are delimited by the parameters of the tool that it names."""
    if tool is None and (match := _NAMED.search(text)) is not None:
        found = context.resolve(match.group(1), aliases=False)
        tool = found[0] if found else None
    if tool is None:
        return (yield from parsing(text, closed=True))
    schema = context.schema(tool)
    known = (*schema.properties, *NAME_KEYS, *CONTAINER_KEYS)
    return (yield from parsing(text, closed=True, body_keys=schema.body_keys, known_keys=known))


_NAMED = re.compile(rf"""["'](?:{"|".join(NAME_KEYS)}|action)["']\s*+:\s*+["']([\w.:/-]{{1,128}})["']""")


def _names_tool(text: str, context: Context) -> bool:
    match = _NAMED.search(text)
    return match is not None and context.resolve(match.group(1), aliases=False) is not None


def _drafts(parsed: Parsed, context: Context, form: str, opening: Opening) -> Turns[list[Draft]]:
    value, steps = parsed.value, parsed.steps
    is_alone = opening.starts_message or opening.fence is not None
    # https://github.com/ollama/ollama/issues/12884
    if is_alone and isinstance(value, dict) and value.keys() == {"content"}:
        # The whole message once more, as its own content.
        value, more = yield from _inner(value["content"])
        steps = (*steps, *more, "message_around")
    # https://github.com/QwenLM/qwen-code/issues/1281
    if not (is_alone and _is_call_of_nothing(value, context)):
        _refuse_records(value, whole=is_alone)
    if isinstance(value, dict):
        value = _adapted(value, context)
    return (yield from drafting(value, context, form=form, steps=steps, aliases=False, bare=True))


def _inner(content: object) -> Turns[tuple[Any, tuple[str, ...]]]:
    """What stands in the text of a message that is all of the answer."""
    try:
        parsed = yield from parsing(content if isinstance(content, str) else "", closed=True)
    except JsonFault:
        raise Reject("no call") from None
    return parsed.value, parsed.steps


def _is_call_of_nothing(value: object, context: Context) -> bool:
    """Whether it is no more than the name of a tool that takes nothing."""
    if not isinstance(value, dict) or value.keys() != {"name"} or not isinstance(value["name"], str):
        return False
    tool = context.find(value["name"])
    return tool is not None and not context.schema(tool).properties


def _refuse_records(value: Any, *, whole: bool) -> None:
    """A name alone is no evidence: it needs a container of arguments, or another word for name than `name`."""
    entries = value if isinstance(value, list) else [value]
    for entry in entries:
        if not isinstance(entry, dict):
            raise Reject("no object")
        if any(key in entry for key in CONTAINER_KEYS):
            continue
        others = [key for key in NAME_KEYS if key != "name" and isinstance(entry.get(key), str)]
        # Any `package.json`, any list of persons.
        if isinstance(entry.get("name"), str) and not others:
            raise Reject("a name without arguments")
        if others and len(entry) == 1 and not whole:
            raise Reject("a name without arguments")


def _adapted(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """`{"action": N, "action_input": text}`: the text is the tool's one required parameter."""
    # https://github.com/langchain-ai/langchain/blob/master/libs/langchain/langchain/agents/output_parsers/json.py
    name, given = value.get("action"), value.get("action_input")
    if not isinstance(name, str) or not isinstance(given, str) or given.lstrip()[:1] == "{":
        return value
    found = context.resolve(name, aliases=False)
    schema = context.schema(found[0]) if found else None
    if schema is None or len(schema.required) != 1:
        return value
    (key,) = schema.required
    return {**value, "action_input": {key: given}} if schema.prop(key).is_string else value


def _fenced(name: str, arguments: Mapping[str, Any]) -> str:
    return f"```json\n{named_object(name, json_text(dict(arguments)))}\n```"


def _listed(name: str, arguments: Mapping[str, Any]) -> str:
    return f"[{named_object(name, json_text(dict(arguments)))}]"


# Qwen2.5-Coder at long prompts: https://github.com/ardanlabs/kronk/issues/950
JSON_FENCE = Dialect(
    id="json_fence",
    family="json",
    level="D",
    line_openers=lambda context: ("{", "[", *_MARKED) if is_on(context, "json_fence") else (),
    may_open=lambda _context, opening: opening.fence is not None,
    parse=_parse,
    models=("qwen2.5-coder*", "llama-3.2*"),
    carriers=_CARRIERS,
    renderer=BlockRenderer(id="json_fence", form=_fenced, shown='```json\n{"name": "NAME", "arguments": {...}}\n```'),
    example='```json\n{"name": "read", "arguments": {"filePath": "src/app.py"}}\n```',
)

# The same model at short ones, and whatever has no template for tools: https://github.com/ollama/ollama/issues/12174
JSON_BARE = Dialect(
    id="json_bare",
    family="json",
    level="D",
    line_openers=lambda context: ("{", *_GLUED, *_LABELS) if is_on(context, "json_bare") else (),
    may_open=lambda _context, opening: opening.fence is None and may_stand(opening),
    parse=_parse,
    models=("llama-3*",),
    carriers=(),
    example='{"name": "read", "arguments": {"filePath": "src/app.py"}}',
)

# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/xlam_tool_parser.py
XLAM = Dialect(
    id="xlam",
    family="json",
    level="D",
    line_openers=lambda context: ("[",) if is_on(context, "xlam") else (),
    may_open=lambda _context, opening: opening.fence is None and may_stand(opening),
    parse=_parse,
    models=("xlam*",),
    carriers=(),
    renderer=BlockRenderer(
        id="xlam",
        form=_listed,
        shown='[{"name": "NAME", "arguments": {...}}]',
        join=listed,
    ),
    example='[{"name": "read", "arguments": {"filePath": "src/app.py"}}]',
)
