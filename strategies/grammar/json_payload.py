"""JSON behind a marker: the payload of the families that mark their calls with tokens of their own.

A value ends where its braces end, so a closing token inside a string is data. Where the braces do not make a value, a
second pass takes the text up to the closing token through the ladder of mends. At the end of an answer only closers of
the frame around complete arguments may be missing, never any of the arguments themselves.
"""

import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Any

from attrs import evolve, frozen

from gateway.core.tools import Tool
from gateway.wire.json_scan import JsonTooDeep
from strategies.grammar.dialect import Arguments, Context, Draft, Opening, Parse
from strategies.grammar.json_calls import drafting
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.tape import Taken
from strategies.text.tolerant_json import JsonFault, Parsed, parsing
from strategies.text.turns import Turns, scanning

__all__ = [
    "FRAME",
    "REST_OF_TEXT",
    "STOPS",
    "Payload",
    "code_draft",
    "lacks_frame_only",
    "marked_json",
    "named_drafts",
    "read_arguments",
    "read_end",
    "read_json",
    "read_surplus",
    "refuse_torn",
    "with_mends",
]

STOPS = ("</s>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>")
"""Tokens that end a message: a payload does not go beyond them."""

_MENDING = "mending"
FRAME = {"missing_braces": "frame_closer_missing"}
"""What is missing at the end of an answer is only ever the frame: there was nothing to choose."""
_NAMED = re.compile(r"""["'](?:name|tool_name|tool|function)["']\s*+:\s*+["']([^"'\n]{1,128})["']""")
_BRACES = re.compile(r"[}\]]*")
_SURPLUS = re.compile(r"[}\] \t\r\n]*")
_BEHIND_STRING = ("", "<", "[", "`")
"""The first characters of the markers behind a string; before a colon it is the first key of a broken object."""
_MEMBER = re.compile(r"[ \t,]*+[\"'“]?[\w-]++[\"'”]?[ \t]*+:[ \t]*+[\"'“\[{\d]|[\"',:]")
"""What stands behind an object when a brace too many ended it."""
_STRING_END = re.compile(r"[^\n\"']*+[\"']\s*+[}\]]")
_LONGEST_REST = 256
_TOKEN_IN_VALUE = re.compile(r"\s*+<\|[\w/]{1,24}\|>[\"']\s*+[,:}\]]")
"""A token with the end of a string behind it stood inside that string."""
_TOKEN_BEFORE_WORDS = re.compile(r"<\|(?!\w*(?:end|eot|eom))\w{1,32}\|>[ \t]+[\w\\\"']")
_LONGEST_TOKEN = 48
_LINE_END = re.compile(r"\n|<\||\[TOOL_CALLS\]|</s>")
# As much as has to be held back while the end of the line may have begun.
_LONGEST_END = len("[TOOL_CALLS]")
_FENCE = "```"
_FENCE_WORD = re.compile(r"[A-Za-z_]*")
_CODE_TOOLS = ("python", "code_interpreter", "ipython", "python_interpreter", "execute_python", "run_python")


@frozen(kw_only=True)
class Payload:
    """A value and what had to be mended in it."""

    value: Any
    steps: tuple[str, ...] = ()
    fenced: bool = False
    """A code fence around it was opened and closed."""


def read_json(
    cur: Cursor,
    context: Context,
    opening: Opening,
    stops: Sequence[str],
    *,
    tool: Tool | None = None,
    frame: int = 0,
) -> Steps:
    """The value that begins here, as a `Payload`; `frame` says how many braces around the arguments are not theirs."""
    pieces = Taken(cur)
    if opening.hint == _MENDING:
        return (yield from _read_mended(cur, context, tuple(stops), tool, frame))
    if (yield from cur.json(pieces.add)):
        text = pieces.text()
        try:
            parsed = yield from cur.work(_parsing(text, context, tool, closed=True))
        except JsonFault:
            pass
        else:
            # Braces make a value of which the ladder took less: then something stands in it that is no JSON, and all is
            # read again.
            if not text[parsed.end :].strip():
                return Payload(value=parsed.value, steps=parsed.steps)
    # No second pass over a cut answer: what is missing could be any part of the arguments.
    elif cur.cut:
        raise Reject("cut", attempted=True)
    raise Reject("JSON is not closed", again=True, hint=_MENDING, attempted=True)


def read_arguments(
    cur: Cursor, context: Context, opening: Opening, stops: Sequence[str], *, tool: Tool | None = None
) -> Steps:
    """The arguments behind a name: JSON, also in a fence or in a string, or `null`; None where none of these stands."""
    fenced = yield from _fence(cur)
    payload = None
    first = yield from cur.peek(1)
    if first in ("{", "["):
        payload = yield from read_json(cur, context, opening, stops, tool=tool)
    elif first == '"':
        payload = yield from _read_string(cur)
    elif (yield from cur.lit("null")):
        payload = Payload(value=None)
    if fenced and payload is not None:
        surplus = yield from read_surplus(cur)
        closed = yield from _optional(cur, (_FENCE,))
        payload = evolve(payload, steps=(*payload.steps, *surplus), fenced=closed)
    return payload


def json_ahead(cur: Cursor) -> Steps:
    """Read JSON that comes next, or behind a few words or signs, for its end alone."""
    yield from cur.match(_TO_JSON, 64)
    if (yield from cur.peek(1)) not in ("{", "[") or not (yield from cur.json(_ignored)):
        raise Reject("no JSON")


_TO_JSON = re.compile(r"[^{}\[\]]*")


def _ignored(_text: str) -> None:
    pass


def _fence(cur: Cursor) -> Steps:
    """The line that opens a code fence, if one does."""
    if not (yield from cur.lit(_FENCE)):
        return False
    yield from cur.match(_FENCE_WORD, 16)
    yield from cur.ws()
    return True


def _read_string(cur: Cursor) -> Steps:
    """Arguments that were written as one string."""
    pieces = Taken(cur)
    if not (yield from cur.json(pieces.add)):
        raise Reject("cut" if cur.cut else "value not closed", attempted=True, inside=True)
    try:
        parsed = yield from cur.work(parsing(pieces.text()))
    except JsonFault as fault:
        raise Reject(f"JSON: {fault.reason}", attempted=True) from None
    yield from cur.ws()
    if (yield from cur.at_end()) and cur.cut:
        raise Reject("cut", attempted=True)
    # `"a": 1}` after a lost brace begins like arguments in a string.
    if (yield from cur.peek(1)) not in _BEHIND_STRING:
        raise Reject("text after the string", attempted=True)
    return Payload(value=parsed.value, steps=parsed.steps)


def _read_mended(cur: Cursor, context: Context, stops: tuple[str, ...], tool: Tool | None, frame: int) -> Steps:
    """Everything up to a closing token, through the whole ladder."""
    pieces = Taken(cur)
    pattern, longest = _any_of(stops)
    ended = yield from cur.until_match(pattern, longest - 1, pieces.add)
    if not ended and cur.cut:
        raise Reject("cut", attempted=True)
    text = pieces.text()
    try:
        # The end of an answer is no sign that the model closed anything, unless only the frame's own braces are
        # missing.
        closed = ended or (yield from cur.work(lacks_frame_only(text, frame)))
        parsed = yield from cur.work(_parsing(text, context, tool, closed=closed))
    except JsonFault as fault:
        raise Reject(f"JSON: {fault.reason}", attempted=True) from None
    if text[parsed.end :].strip(" \t\r\n`"):
        raise Reject("text after the object", attempted=True)
    # A closing token inside a string ends the pass too early; the braces it lacks would then be made up.
    if ended and "missing_braces" in parsed.steps and (yield from _goes_on_behind(cur, stops)):
        raise Reject("the closing token may be inside a string", attempted=True)
    steps = parsed.steps if ended else tuple(FRAME.get(step, step) for step in parsed.steps)
    return Payload(value=parsed.value, steps=steps)


def _goes_on_behind(cur: Cursor, stops: tuple[str, ...]) -> Steps:
    """Whether what stands behind the closing token looks like the rest of what it seemed to close."""
    longest = max(map(len, stops))
    head: str = yield from cur.peek(longest + _LONGEST_REST)
    stop = next(filter(head.startswith, stops), "")
    rest = head[len(stop) :]
    return rest[:1] in tuple("\"'},:]") or _STRING_END.match(rest) is not None


def _parsing(text: str, context: Context, tool: Tool | None, *, closed: bool) -> Turns[Parsed]:
    """The value; the tool it names says which argument may hold unescaped quotes."""
    try:
        # First without the schema: most values need no knowledge of what they are for.
        return (yield from parsing(text, closed=closed))
    except JsonFault:
        tool = tool or _tool_named(text, context)
        if tool is None:
            raise
    schema = context.schema(tool)
    known = (*schema.properties, "name", "arguments", "parameters")
    return (yield from parsing(text, closed=closed, body_keys=schema.body_keys, known_keys=known))


def _tool_named(text: str, context: Context) -> Tool | None:
    match = _NAMED.search(text)
    found = context.resolve(match.group(1)) if match else None
    return found[0] if found else None


@lru_cache(maxsize=64)
def _any_of(stops: tuple[str, ...]) -> tuple[re.Pattern[str], int]:
    return re.compile("|".join(map(re.escape, stops))), max(map(len, stops))


def lacks_frame_only(text: str, frame: int) -> Turns[bool]:
    """Whether nothing but closers of the frame around complete arguments is missing."""
    bare = text.strip()
    if not bare.endswith(("}", "]")):
        return False
    try:
        scanner = yield from scanning(bare, 0, 64)
    except JsonTooDeep:
        return False
    missing = scanner.open_brackets
    # A list of calls has one bracket of the frame more.
    return not scanner.is_done and missing is not None and missing <= frame + (frame and bare.startswith("["))


def read_surplus(cur: Cursor) -> Steps:
    """Consume braces that are left over behind a value; returns the mends."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    # More than some are no slip of the pen, but another kind of text.
    braces = yield from cur.match(_BRACES, 8)
    if not braces:
        cur.back(start)
    cur.anchor = None
    return ("surplus_braces",) if braces else ()


def read_end(cur: Cursor, closers: tuple[str, ...]) -> Steps:
    """The closing token of a call, or what stands in its place; returns the mends."""
    yield from cur.ws()
    if not closers or (yield from cur.lits(closers)):
        return ()
    if (yield from cur.at_end()):
        if cur.cut:
            raise Reject("cut", attempted=True)
        return ("call_closer_missing",)
    if (yield from cur.peek(1)) in ("}", "]"):
        yield from cur.match(_SURPLUS, 16)
        if (yield from cur.lits(closers)) or ((yield from cur.at_end()) and not cur.cut):
            return ("surplus_braces",)
    # Another tag in the closer's place: whoever reads on says what that is. A token that opens something, with words
    # behind it, stood inside a string that a quote has ended.
    elif (yield from cur.peek(1)) == "<":
        if not _TOKEN_BEFORE_WORDS.match((yield from cur.peek(_LONGEST_TOKEN))):
            return ("call_closer_missing",)
    raise Reject("text after the object", attempted=True)


REST_OF_TEXT = re.compile(r'[ \t\r}\]]*+\n\s*+[{\[]?+"\s*+[,:}\]]')
"""Behind an object, a line that begins as none does but the rest of a text, and of the JSON around it."""


def refuse_torn(cur: Cursor, opening: Opening) -> Steps:
    """Ask for another pass where the line goes on behind an object and ends with a brace.

    An unescaped quote inside a value, with a brace behind it, looks like the end: the value would lose the rest. So
    does a brace before a member.
    """
    pieces: list[str] = []
    cur.anchor = start = cur.offset
    head = yield from cur.peek(_LONGEST_TOKEN)
    yield from cur.until_match(_LINE_END, _LONGEST_END - 1, pieces.append)
    cur.back(start)
    cur.anchor = None
    behind = "".join(pieces)
    rest = behind.strip(" \t\r}]")
    if _TOKEN_IN_VALUE.match(head):
        raise Reject("the closing token may be inside a string", attempted=True)
    # Only lines that end in a brace or go on with a member: words behind a call are common, and no damage.
    is_torn = rest and (behind.rstrip(" \t\r]").endswith("}") or _MEMBER.match(behind))
    if is_torn or REST_OF_TEXT.match(head):
        raise Reject("text after the object", again=opening.hint != _MENDING, hint=_MENDING, attempted=True)


def with_mends(drafts: Sequence[Draft], mends: tuple[str, ...]) -> list[Draft]:
    """The drafts with what the markup around them lacked."""
    return [evolve(draft, mends=(*draft.mends, *mends)) for draft in drafts] if mends else list(drafts)


def named_drafts(cur: Cursor, context: Context, name: str, payload: Payload, form: str = "special") -> Steps:
    """The call whose name stood outside the JSON of its arguments."""
    value = {"name": name, "arguments": payload.value}
    return (yield from cur.work(drafting(value, context, form=form, steps=payload.steps)))


def code_draft(context: Context, code: str) -> Draft:
    """Bare code for the tool that runs it; raises `Reject` where none is declared."""
    # Families that were trained with an interpreter send it bare code, whichever name the client gave it.
    for tool in filter(None, map(context.find, _CODE_TOOLS)):
        schema = context.schema(tool)
        key = "code" if "code" in schema.properties else next(iter(schema.required), None)
        if key is not None and schema.prop(key).is_string and code.strip():
            return Draft(name=tool.name, tool=tool, arguments={key: code}, form="special")
    raise Reject("no tool that runs code")


def marked_json(
    closers: tuple[str, ...] = (),
    *,
    optional: tuple[str, ...] = (),
    form: str = "special",
    stops: tuple[str, ...] = STOPS,
    keep: int = 0,
    shape: Callable[[Any], Any] = lambda value: value,
) -> Parse:
    """The grammar `marker ws (object | list) { sep object } closer`; `keep` characters of the marker are JSON.

    Without closers the value ends the call; `optional` names what may close it all the same.
    """

    def read(
        cur: Cursor, context: Context, opening: Opening, arguments: Arguments
    ) -> Generator[Draft | None, None, None]:
        cur.pos += len(opening.marker) - keep
        yield from cur.ws()
        yield from read_objects(cur, context, opening, closers, form=form, stops=(*optional, *stops), shape=shape)
        yield from _optional(cur, optional)

    return read


def _optional(cur: Cursor, closers: tuple[str, ...]) -> Steps:
    """Whether a closer that need not be there stands here; it is consumed with the white space before it."""
    if not closers:
        return False
    cur.anchor = start = cur.offset
    yield from cur.ws()
    found = (yield from cur.lits(closers)) is not None
    if not found:
        cur.back(start)
    cur.anchor = None
    return found


def read_objects(
    cur: Cursor,
    context: Context,
    opening: Opening,
    closers: tuple[str, ...],
    *,
    form: str = "special",
    stops: tuple[str, ...] = STOPS,
    shape: Callable[[Any], Any] = lambda value: value,
) -> Steps:
    """Yields the calls of the values that follow; a call counts once what follows it allows it."""
    fenced = yield from _fence(cur)
    found: list[Draft] = []
    while (yield from _begins_value(cur, (*closers, *stops))):
        # The calls before it count by now: another value has begun behind them.
        for draft in found:
            yield draft
        payload = yield from read_json(cur, context, opening, (*closers, *stops), frame=1)
        found = yield from cur.work(drafting(shape(payload.value), context, form=form, steps=payload.steps))
        yield from _separator(cur)
    if not found:
        raise Reject("no JSON")
    if fenced:
        yield from _optional(cur, (_FENCE,))
    for draft in with_mends(found, (yield from read_end(cur, closers))):
        yield draft


def begins_objects(cur: Cursor) -> Steps:
    """Whether an object, or a list of them, comes next."""
    cur.anchor = start = cur.offset
    if (yield from cur.lit("[")):
        yield from cur.ws()
    found = (yield from cur.peek(1)) == "{"
    cur.back(start)
    cur.anchor = None
    return found


def _begins_value(cur: Cursor, ends: tuple[str, ...]) -> Steps:
    """Whether an object or a list comes next, and no token that begins like a list."""
    first = yield from cur.peek(1)
    if first != "[":
        return first == "{"
    for end in ends:
        # `[TOOL_CALLS]` and `[/TOOL_CALLS]` begin like lists.
        if end.startswith("[") and (yield from cur.starts(end)):
            return False
    return True


def _separator(cur: Cursor) -> Steps:
    """What may stand between two objects, consumed only where another one follows."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    if (yield from cur.peek(1)) in (",", ";"):
        cur.pos += 1
        yield from cur.ws()
    if (yield from cur.peek(1)) != "{":
        cur.back(start)
    cur.anchor = None
