"""Kimi K2: JSON behind an id that names the tool. Kimi K3: typed arguments between tokens.

    section  = "<|tool_calls_section_begin|>" { call } "<|tool_calls_section_end|>"                      (K2)
    call     = "<|tool_call_begin|>" ID "<|tool_call_argument_begin|>" JSON "<|tool_call_end|>"
    ID       = [ "functions." ] NAME ":" INDEX

    tools    = "<|open|>tools<|sep|>" { call } "<|close|>tools<|sep|>"                                   (K3)
    call     = "<|open|>call tool=" Q " index=" Q "<|sep|>" { argument } "<|close|>call<|sep|>"
    argument = "<|open|>argument key=" Q " type=" Q "<|sep|>" RAW "<|close|>argument<|sep|>"

K2's JSON ends by its braces. An id in front of the arguments' token is a call without its own. Ids that sanitising
clients have damaged are read by the declared names, longest first; a bare counter only where one tool alone fits the
arguments. K3's closer counts where an argument, the call's closer or the end follows it; else it is content. Strings
flow as they come.
"""

import re
from collections.abc import Generator

from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import (
    REST_OF_TEXT,
    STOPS,
    Payload,
    named_drafts,
    read_arguments,
    read_end,
    read_surplus,
    with_mends,
)
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.writing.token_renderer import JsonRenderer

__all__ = ["KIMI_K2", "KIMI_K2_STRIPPED"]

_SECTION = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
_SECTION_END = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_CALL = "<|tool_call_begin|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_CALL_END = ("<|tool_call_end|>",)
_MAX_NOISE = 200
_ID = re.compile(r"[^<{]*")
_BARE_ID = re.compile(r"[\w.:/-]*")
_CANONICAL = re.compile(r"(?:functions\.)?([^\s:][^\s]*?)\s*:\s*[0-9]+")
# Clients that allow only letters, digits and lines in an id send back `functions_read_3`, and the model goes on in
# that way; K2.5 writes `functionsread3` by itself. https://github.com/exo-explore/exo/issues/2281
# https://github.com/sgl-project/sglang/issues/21377
_FUNCTIONS = "functions."
_BEFORE_NAME = (_FUNCTIONS, "_", "-", ":", "/")
"""Behind these stands the end of a name."""
_DIGITS = re.compile(r"[0-9]*")
_PREFIX = re.compile(r"functions[._]?")
_COUNTER = re.compile(r"[:_.]?[0-9]*")


def _parse(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    if opening.marker in _SECTION:
        behind = cur.offset
        yield from cur.ws()
        # Words before the first call of a section are for nobody:
        # https://github.com/vllm-project/vllm/blob/main/tests/tool_parsers/test_kimi_k2_tool_parser.py
        words: str = yield from cur.match(_ID, _MAX_NOISE)
        first = words.split()[-1:]
        if first and _CANONICAL.fullmatch(first[0]) and (yield from cur.starts(_ARGUMENTS)):
            yield from (yield from _call(cur, context, opening, first[0]))
            yield from _calls(cur, context, opening)
            return
        if not (yield from cur.lit(_CALL)):
            is_empty = yield from cur.lits(_SECTION_END)
            raise Reject("no call in the section", remains=cur.offset if is_empty else behind)
    yield from (yield from _call(cur, context, opening))
    yield from _calls(cur, context, opening)


def _calls(cur: Cursor, context: Context, opening: Opening) -> Generator[Draft | None, None, None]:
    """The calls behind the first, and the end of the section."""
    while True:
        yield from cur.ws()
        if (yield from cur.lit(_CALL)):
            yield from (yield from _call(cur, context, opening))
        elif written := (yield from _bare_id(cur)):
            yield from (yield from _call(cur, context, opening, written))
        else:
            yield from cur.lits(_SECTION_END)
            return


def _bare_id(cur: Cursor) -> Steps:
    """The id that stands here without its opening token; nothing is consumed where there is none."""
    cur.anchor = start = cur.offset
    written: str = (yield from cur.match(_BARE_ID, 128)).strip()
    if not _CANONICAL.fullmatch(written) or not (yield from cur.starts(_ARGUMENTS)):
        written = ""
        cur.back(start)
    cur.anchor = None
    return written


def _call(cur: Cursor, context: Context, opening: Opening, written: str = "") -> Steps:
    """One call behind its opening token, or behind its id."""
    written = written or (yield from cur.match(_ID, 256)).strip()
    marked = yield from cur.lit(_ARGUMENTS)
    yield from cur.ws()
    first = yield from cur.peek(1)
    if not written or (not marked and first != "{"):
        raise Reject("no id")
    # The id's counter goes over the whole conversation, and clients rewrite ids, so only the name in it counts:
    # https://github.com/vybestack/llxprt-code/issues/713
    name = _meant(written, context, None)
    found = context.resolve(name) if name else None
    payload = yield from read_arguments(
        cur, context, opening, (*_CALL_END, *_SECTION_END, *STOPS), tool=found[0] if found else None
    )
    payload = payload or Payload(value=None)
    name = name or _meant(written, context, payload.value)
    if name is None:
        raise Reject("the id names no tool", attempted=True)
    drafts = yield from named_drafts(cur, context, name, payload)
    return with_mends(drafts, (yield from read_end(cur, _CALL_END)))


def _parse_stripped(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    """Ids and objects alone, as many as stand side by side."""
    found: list[Draft] = []
    marker: str | None = opening.marker
    stops = (*_CALL_END, *_SECTION_END, *STOPS)
    while marker and (yield from cur.lit(marker)):
        name = marker.removeprefix(_FUNCTIONS).removesuffix(":")
        count = yield from cur.match(_DIGITS, 4)
        is_marked = yield from cur.lit(_ARGUMENTS)
        yield from cur.ws()
        if not count or not (is_marked or marker.startswith(_FUNCTIONS)) or (yield from cur.peek(1)) != "{":
            raise Reject("no call")
        payload = yield from read_arguments(cur, context, opening, stops, tool=context.find(name))
        surplus = yield from read_surplus(cur)
        # Nothing else tells where an object ends: behind one that a stray quote has closed stands its other half.
        if (yield from _goes_on(cur)):
            raise Reject("more of the object", attempted=True)
        found += with_mends((yield from named_drafts(cur, context, name, payload, "function")), surplus)
        yield from cur.ws()
        yield from cur.lits(_CALL_END)
        yield from cur.lits(_SECTION_END)
        yield from cur.ws()
        marker = yield from _next_of(cur, _heads(context))
    yield from found


def _goes_on(cur: Cursor) -> Steps:
    """Whether a quote, a separator or an escape follows in the line, or the rest of a text in the next one."""
    behind = yield from cur.peek(_AHEAD)
    return _MORE.match(behind) is not None or REST_OF_TEXT.match(behind) is not None


_AHEAD = 24
_MORE = re.compile(r"[ \t]{0,8}[\"',:\\]")


def _next_of(cur: Cursor, markers: tuple[str, ...]) -> Steps:
    """Which of the markers comes next; it is not consumed."""
    for marker in markers:
        if (yield from cur.starts(marker)):
            # A word and a colon alone begin a sentence.
            return marker if marker.startswith(_FUNCTIONS) or (yield from _is_marked(cur, marker)) else None
    return None


def _is_marked(cur: Cursor, marker: str) -> Steps:
    """Whether a counter and the token before the arguments stand behind the marker."""
    cur.anchor = start = cur.offset
    yield from cur.lit(marker)
    found = bool((yield from cur.match(_DIGITS, 4))) and (yield from cur.starts(_ARGUMENTS))
    cur.back(start)
    cur.anchor = None
    return found


def _ids(context: Context) -> tuple[str, ...]:
    return tuple(f"{_FUNCTIONS}{name}:" for name in context.tools.names)


def _heads(context: Context) -> tuple[str, ...]:
    """The same and the names alone, which count in front of the arguments' own token."""
    # https://github.com/typeclaw/typeclaw/pull/344
    return (*_ids(context), *(f"{name}:" for name in context.tools.names))


def _meant(written: str, context: Context, arguments: object) -> str | None:
    """The tool that an id names; a damaged id only where that is a declared one."""
    whole = written.rpartition(":")[0].rstrip()
    if context.find(whole):
        return whole
    canonical = _CANONICAL.fullmatch(written)
    if canonical and context.resolve(canonical.group(1)):
        return canonical.group(1)
    for bare in dict.fromkeys((written, _PREFIX.sub("", written, count=1))):
        # `read2` before `read`: both could be meant by `read23`.
        for name in sorted(context.tools.names, key=len, reverse=True):
            if bare.startswith(name) and _COUNTER.fullmatch(bare, len(name)):
                return name
    if canonical:
        return canonical.group(1)
    # Nothing but the counter is left of some ids.
    if written.isdigit() and isinstance(arguments, dict):
        return _only_fitting(context, arguments)
    return None


def _only_fitting(context: Context, arguments: dict[str, object]) -> str | None:
    """The one tool that these arguments can be for."""
    schemas = [(tool.name, context.schema(tool)) for tool in context.tools]
    found = [
        name
        for name, schema in schemas
        if arguments.keys() <= schema.properties.keys() and schema.required <= arguments.keys()
    ]
    return found[0] if len(found) == 1 else None


def _k2_body(name: str, arguments: str) -> str:
    # Always the first: in the prompt's example there is no call before it.
    return f"{_CALL}functions.{name}:0{_ARGUMENTS}{arguments}{_CALL_END[0]}"


# https://github.com/MoonshotAI/Kimi-K2/blob/main/docs/tool_call_guidance.md
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/kimi_k2_tool_parser.py
KIMI_K2 = Dialect(
    id="kimi_k2",
    family="kimi",
    level="A",
    openers=lambda _context: (*_SECTION, _CALL),
    parse=_parse,
    results=("## Return of functions.",),
    models=("kimi-k2*", "moonshot*"),
    renderer=JsonRenderer(
        id="kimi_k2",
        body=_k2_body,
        opening=_SECTION[0],
        closing=_SECTION_END[0],
        answer=lambda name, call_id, content: f"## Return of {call_id or name}\n{content}",
        tokens=("<|tool_call", "<|im_"),
    ),
    example=(
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
        '{"filePath": "src/app.py"}<|tool_call_end|><|tool_calls_section_end|>'
    ),
)
# Servers that skip special tokens leave the ids and the objects:
# https://github.com/ikawrakow/ik_llama.cpp/blob/main/tests/test-function-calls.cpp
KIMI_K2_STRIPPED = Dialect(
    id="kimi_k2_stripped",
    family="kimi",
    level="C",
    # Nothing is left between a sentence and them: only this family's words are searched for that.
    openers=lambda context: _heads(context) if "kimi" in context.model.lower() else (),
    line_openers=_heads,
    may_open=lambda _context, opening: not opening.before[-1:].isalnum() and not opening.before.endswith(_BEFORE_NAME),
    parse=_parse_stripped,
    models=KIMI_K2.models,
    carriers=(),
    example='functions.read:0{"filePath": "src/app.py"}',
)
