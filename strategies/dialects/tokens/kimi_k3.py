"""Kimi K3: typed arguments between tokens.

    tools    = "<|open|>tools<|sep|>" { call } "<|close|>tools<|sep|>"
    call     = "<|open|>call tool=" Q " index=" Q "<|sep|>" { argument } "<|close|>call<|sep|>"
    argument = "<|open|>argument key=" Q " type=" Q "<|sep|>" RAW "<|close|>argument<|sep|>"

Values are text as it is; the type written says what it stands for where the schema allows that type, else the schema.
The closer of an argument counts only where another argument, the call's closer or the end of the answer follows; else
it is content, as are whole calls. Where the next argument opens, or the call ends, inside a value, there is no telling
where that ended, and it is no call. The section's tokens may be missing, and the call's closer at the end of the
answer. Text flows as it comes.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from attrs import define, field

from gateway.core.tools import Tool
from strategies.grammar.closers import ends_with_closer
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.raw_value import Sink, doubt
from strategies.schema.tool_schema import ToolSchema, Value
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.turns import Turns, whole
from strategies.writing.prompt import shielded
from strategies.writing.renderer import CannotExpress
from strategies.writing.token_renderer import family_section, json_text, reads_back

__all__ = ["KIMI_K3"]

_OPEN, _CLOSE, _SEPARATOR = "<|open|>", "<|close|>", "<|sep|>"
_TAG_END = re.compile(r"<\|sep\|>|\n")
# Without the look behind a long word that is no key would be tried from each of its letters, at the cost of its square.
_ATTRIBUTE = re.compile(r'(?<![a-z])([a-z]++)="([^"]*+)"')
_WORD = re.compile(r"[a-z]*")
_TAG = re.compile(r"<\|(?:open|close)\|>")
# Room for an argument's opening tag with a key as long as `_ARGUMENT_OPENS` takes; a tag that is longer decides nothing
# and holds up no text.
_LOOK_AHEAD = 160
# The last two where tokens between two tags are lost: https://github.com/can1357/oh-my-pi/issues/8495
_AROUND = ("response", "message", "tools", "think", "toolsmessage", "toolstoolsmessage")
_CALL_OPENS = re.compile(r"<\|open\|>\s*+(?:tools)?call\s++tool=")
_CALL_CLOSES = re.compile(r"<\|close\|>\s*+call\s*+<\|sep\|>")
_CALL_ENDS = re.compile(
    _CALL_CLOSES.pattern + r"\s*+(?:<\|open\|>\s*+call\s|<\|close\|>\s*+tools(?:(?:tools)?message)?\b|\Z)"
)
_SECTION_TAG = re.compile(r"<\|(open|close)\|>\s*+tools\s*+<\|sep\|>")
_ARGUMENT_OPENS = re.compile(r'<\|open\|>\s*+argument\s++key="([^"\n]{1,128})"')


@define
class _Call:
    """One call while it is read."""

    name: str
    tool: Tool | None
    schema: ToolSchema
    mends: list[str]
    values: dict[str, Any] = field(factory=dict)
    fault: str | None = None
    arguments_seen: set[str] = field(factory=set)

    def draft(self) -> Draft:
        return Draft(
            name=self.name,
            tool=self.tool,
            arguments=self.values,
            form="special",
            mends=tuple(self.mends),
            fault=self.fault,
        )


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    if opening.marker == _CLOSE:
        yield from _closer_alone(cur)
    # Anchored, as the text that was passed is let go of: without it there is nothing to go back to.
    cur.anchor = cur.offset
    kind = yield from _opens(cur)
    if kind is None:
        cur.back(cur.anchor)
        yield from _opener_alone(cur)
    cur.anchor = None
    if kind == "tools":
        yield from _attributes(cur)
        behind = cur.offset
        yield from cur.ws()
        kind = yield from _opens(cur)
        if kind is None:
            raise Reject("no call", remains=behind)
    while kind == "call":
        # Each call is told where it ends: what goes wrong behind it does not take it back.
        call = yield from _call(cur, context, arguments)
        yield call.draft()
        yield from cur.ws()
        kind = yield from _calls_on(cur)
    if kind is None:
        raise Reject("no call")


def _closer_alone(cur: Cursor) -> Steps:
    """A closing tag that closes no part of a call: the end of a response, of the message, of an empty section."""
    for kind in _AROUND:
        if (yield from _closes(cur, kind)):
            raise Reject("no call", remains=cur.offset)
    raise Reject("no call")


def _opener_alone(cur: Cursor) -> Steps:
    """An opening tag of what stands around the text of an answer."""
    cur.pos += len(_OPEN)
    yield from cur.ws()
    if (yield from cur.match(_WORD, 16)) in _AROUND:
        yield from _attributes(cur)
        raise Reject("no call", remains=cur.offset)
    raise Reject("no call")


def _calls_on(cur: Cursor) -> Steps:
    """What stands behind a call: another one, the section's closer (consumed), or neither."""
    if (yield from cur.starts(_OPEN)):
        cur.anchor = start = cur.offset
        kind = yield from _opens(cur)
        if kind != "call":
            cur.back(start)
            kind = "other"
        cur.anchor = None
        return kind
    # It may be missing: what stands there instead is not of the call, and is read as whatever it is.
    yield from _closes(cur, "tools")
    return "other"


def _opens(cur: Cursor) -> Steps:
    """The kind of tag that opens here, its attributes still to be read; `None` for no tag of a call."""
    if not (yield from cur.lit(_OPEN)):
        return None
    yield from cur.ws()
    kind = yield from cur.match(_WORD, 16)
    if kind == "toolscall":
        kind = "call"
    return kind if kind in ("tools", "call", "argument") else None


def _closes(cur: Cursor, kind: str) -> Steps:
    """Consume the closing tag of this kind, if it stands here."""
    if not (yield from cur.starts(_CLOSE)):
        return False
    cur.anchor = start = cur.offset
    cur.pos += len(_CLOSE)
    yield from cur.ws()
    found = yield from cur.lit(kind)
    yield from cur.ws()
    found = found and (yield from cur.lit(_SEPARATOR))
    if not found:
        cur.back(start)
    cur.anchor = None
    return found


def _attributes(cur: Cursor) -> Steps:
    """The attributes of a tag, which ends on its line."""
    pieces: list[str] = []
    yield from cur.until_match(_TAG_END, len(_SEPARATOR) - 1, pieces.append)
    if not (yield from cur.lit(_SEPARATOR)):
        raise Reject("no tag", attempted=True)
    return {key: _unescaped(value) for key, value in _ATTRIBUTE.findall("".join(pieces))}


def _unescaped(text: str) -> str:
    # The ampersand last, or `&amp;lt;` would be undone twice.
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")


def _call(cur: Cursor, context: Context, arguments: Arguments) -> Steps:
    """One call behind the name of its opening tag."""
    name = (yield from _attributes(cur)).get("tool", "").strip()
    if not name:
        raise Reject("no name")
    found = context.resolve(name)
    tool, mends = found if found else (None, ())
    schema = context.schema(tool) if tool else ToolSchema(Tool(name=name))
    call = _Call(name=tool.name if tool else name, tool=tool, schema=schema, mends=[*mends])
    arguments.begin(call.name)
    while True:
        yield from cur.ws()
        if (yield from _closes(cur, "call")):
            # Either this closer stood in a value, or what follows is another's argument: both readings lose something.
            if (yield from _goes_on(cur)):
                yield from doubt(cur)
            return call
        # A server that stops at the closer may keep it to itself. Not so where the answer was cut by its length, nor
        # before the first value: there more was to come.
        if (yield from cur.at_end()) and call.values and not cur.cut:
            call.mends.append("call_closer_missing")
            return call
        if (yield from _opens(cur)) != "argument":
            yield from doubt(cur)
        yield from _argument(cur, call, arguments)


def _argument(cur: Cursor, call: _Call, arguments: Arguments) -> Steps:
    """One argument behind the name of its opening tag."""
    written: Mapping[str, str] = yield from _attributes(cur)
    key, kind = _new_key(written, call), written.get("type", "string")
    prop = call.schema.prop(key)
    # What the schema drops must not flow either: a client has no way to take back what it has been shown.
    kept = key in call.schema.from_json({key: ""}).arguments
    flows = prop.flows and kept and (kind == "string" or key in call.schema.properties)
    # Not trimmed: the template puts no line break of its own between a token and the value.
    sink = Sink(arguments, key, body=False, flows=flows, trim=False, entities=False)
    yield from _raw(cur, call, sink)
    yield from _argument_closers(cur, call, key, sink.raw)
    if kept:
        call.values[key] = yield from _value(cur, call, key, sink.raw, kind)
        yield from cur.work(sink.closing(call.values[key]))


def _new_key(written: Mapping[str, str], call: _Call) -> str:
    key = written.get("key", "")
    # With an `=` in it a quotation mark was lost, and with that where the key ends.
    if not key or "=" in key:
        raise Reject("no key", attempted=True)
    # Which of the two was meant nobody can tell; an object of JSON would quietly keep the last.
    if key in call.arguments_seen:
        raise Reject(f"`{key}` is given twice", attempted=True)
    call.arguments_seen.add(key)
    return key


def _raw(cur: Cursor, call: _Call, sink: Sink) -> Steps:
    """The text of a value, up to the closer that ends it; whole calls and sections in it are its own."""
    nested = sections = 0
    while True:
        if not (yield from cur.until_match(_TAG, len(_CLOSE) - 1, sink)):
            raise Reject("value not closed", attempted=True, inside=True)
        token = yield from cur.peek(len(_CLOSE))
        # A value may quote whole calls, as in a file about this very form: their closers are counted, none is ours.
        section = 0 if nested else (yield from _section_tag(cur))
        # The closer of a section that the value did not open is the answer's own, and decided below.
        if section > 0 or (section and sections):
            sections += section
        elif token == _CLOSE and not nested:
            end = yield from _end_of(cur)
            if end == "closed":
                return
            if end == "doubt":
                yield from doubt(cur)
        nested += yield from _nesting(cur, call, nested)
        token = _OPEN if token.startswith(_OPEN) else _CLOSE
        sink(token)
        cur.pos += len(token)


def _section_tag(cur: Cursor) -> Steps:
    """Whether a section opens here (1), closes (-1), or neither."""
    section = _SECTION_TAG.match((yield from _tag_ahead(cur)))
    return 0 if section is None else 1 if section.group(1) == "open" else -1


def _argument_closers(cur: Cursor, call: _Call, key: str, raw: str) -> Steps:
    """The closer behind a value, however often it is repeated: in doubt where the value holds another of its tags."""
    yield from _closes(cur, "argument")
    while (yield from _closes(cur, "argument")):
        call.mends.append("closer_repeated")
        yield from cur.ws()
    # A closer in another spelling at the end of the value: it belongs to it, or was meant to end it earlier.
    strays = ends_with_closer(raw, key) and not raw.rstrip().endswith(_SEPARATOR)
    if strays or (call.mends[-1:] == ["closer_repeated"] and _OPEN in raw):
        yield from doubt(cur)


def _goes_on(cur: Cursor) -> Steps:
    """Whether another argument stands behind what seemed to be the call's closer."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    kind = yield from _opens(cur)
    cur.back(start)
    cur.anchor = None
    return kind == "argument"


def _end_of(cur: Cursor) -> Steps:
    """What a closing tag in a value comes to: `closed`, `doubt` where only more markup follows, or it is text."""
    if (yield from _ends_value(cur)):
        return "closed"
    cur.anchor = start = cur.offset
    cur.pos += len(_CLOSE)
    yield from cur.ws()
    yield from cur.match(_WORD, 16)
    is_tag = yield from _separated(cur)
    yield from cur.ws()
    follows = yield from cur.peek(_MARK)
    cur.back(start)
    cur.anchor = None
    # Words behind it show that the value goes on; more markup leaves open which of the tags was written wrongly.
    return "doubt" if is_tag and (not follows or follows.startswith(_MARKS)) else ""


_MARKS = ("<|", "</", "|open", "open|")
"""What more markup begins with, also where a sign of its own was lost."""
_MARK = max(map(len, _MARKS))


def _tag_ahead(cur: Cursor) -> Steps:
    """The tag that stands here, and where it closes a call what follows it: no more is waited for than decides."""
    while True:
        ahead = cur.text[cur.pos : cur.pos + _LOOK_AHEAD]
        end = ahead.find(_SEPARATOR) + len(_SEPARATOR)
        if end >= len(_SEPARATOR) and not _CALL_CLOSES.match(ahead):
            return ahead[:end]
        # The bound before the wait: text that only looks like a tag must not hold up what comes behind it.
        if cur.eof or len(ahead) == _LOOK_AHEAD:
            return ahead
        yield


def _nesting(cur: Cursor, call: _Call, nested: int) -> Steps:
    """What a tag inside a value does to the calls that are open in it; outside of those it may show that none ended."""
    ahead: str = yield from _tag_ahead(cur)
    if _CALL_OPENS.match(ahead):
        return 1
    if nested:
        return -1 if _CALL_CLOSES.match(ahead) else 0
    argument = _ARGUMENT_OPENS.match(ahead)
    key = _unescaped(argument.group(1)) if argument else None
    # A new argument of the tool, or the call's whole end, inside of a value: its closer was lost somewhere before.
    if _CALL_ENDS.match(ahead) or (key in call.schema.properties and key not in call.arguments_seen):
        yield from doubt(cur)
    return 0


def _ends_value(cur: Cursor) -> Steps:
    """Whether the closer that stands here is followed by what may follow an argument."""
    cur.anchor = start = cur.offset
    cur.pos += len(_CLOSE)
    yield from cur.ws()
    ends = (yield from cur.lit("argument")) and (yield from _separated(cur))
    if ends:
        yield from cur.ws()
        if (yield from cur.at_end()):
            # At the end of an answer that was cut, the closer may be one that the value quotes.
            ends = not cur.cut
        elif (yield from cur.lit(_OPEN)):
            yield from cur.ws()
            ends = yield from cur.starts("argument")
        else:
            ends = (yield from cur.lit(_CLOSE)) and (yield from _word_follows(cur))
    cur.back(start)
    cur.anchor = None
    return ends


def _separated(cur: Cursor) -> Steps:
    yield from cur.ws()
    return (yield from cur.lit(_SEPARATOR))


def _word_follows(cur: Cursor) -> Steps:
    """Whether the call's closer stands here, or the argument's own once more."""
    yield from cur.ws()
    return (yield from cur.starts("call")) or (yield from cur.starts("argument"))


def _value(cur: Cursor, call: _Call, key: str, raw: str, kind: str) -> Steps:
    read: Value = yield from cur.work(_reading(call.schema, key, raw, kind))
    call.mends += read.mends
    call.fault = call.fault or read.fault
    return read.value


def _reading(schema: ToolSchema, key: str, raw: str, kind: str) -> Turns[Value]:
    """What the text stands for: by the type that was written where the schema allows it, else by the schema."""
    told = yield from schema.reading_told(key, raw, is_text=kind == "string")
    return (yield from schema.reading(key, raw)) if told is None else told


class _Writer:
    """Calls and results between K3's tokens."""

    id = "kimi_k3"
    result_separator = "\n"

    def tool_section(self, tools: Sequence[Tool], *, parallel: bool) -> str:
        argument = self._argument("KEY", "VALUE").replace('type="string"', 'type="TYPE"')
        form = f"{_SECTION}{_opening('NAME')}{argument}{_CALL_END}{_SECTION_END}"
        return family_section(tools, form, self.call, parallel=parallel)

    def call(self, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str:
        body = "".join(self._argument(key, value) for key, value in arguments.items())
        text = f"{_SECTION}{_opening(name)}{body}{_CALL_END}{_SECTION_END}"
        fault = self._fault(name, arguments, tool) or reads_back(name, arguments, tool)
        if fault is not None:
            raise CannotExpress(fault, text)
        return text

    def calls(self, rendered: Sequence[str]) -> str:
        bodies = (text.removeprefix(_SECTION).removesuffix(_SECTION_END) for text in rendered)
        return _SECTION + "".join(bodies) + _SECTION_END if rendered else ""

    def result(self, name: str, call_id: str, content: str, fmt: str) -> str:
        text = shielded(content, _TOKEN)
        return f'{_OPEN}result tool="{_escaped(name)}"{_SEPARATOR}{text}{_CLOSE}result{_SEPARATOR}'

    def _argument(self, key: str, value: Any) -> str:
        text = value if isinstance(value, str) else json_text(value)
        opening = f'{_OPEN}argument key="{_escaped(key)}" type="{_type(value)}"{_SEPARATOR}'
        return f"{opening}{text}{_CLOSE}argument{_SEPARATOR}"

    def _fault(self, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str | None:
        """What tokens cannot carry, or what would be read as another type."""
        schema = ToolSchema(tool or Tool(name=name))
        for key, value in arguments.items():
            text = value if isinstance(value, str) else json_text(value)
            if not key or "\n" in key or _SEPARATOR in key:
                return "a key cannot be written"
            if _VALUE_END.search(text) or text.endswith(_PREFIXES) or ends_with_closer(text, key):
                return f"`{key}` holds the tokens that would end it"
            if json_text(whole(_reading(schema, key, text, _type(value))).value) != json_text(value):
                return f"`{key}` would be read as another type"
        return None if "\n" not in name and _SEPARATOR not in name else "the name cannot be written"


def _opening(name: str) -> str:
    return f'{_OPEN}call tool="{_escaped(name)}" index="1"{_SEPARATOR}'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", list: "array", type(None): "null"}.get(type(value), "object")


_SECTION, _SECTION_END = f"{_OPEN}tools{_SEPARATOR}", f"{_CLOSE}tools{_SEPARATOR}"
_CALL_END = f"{_CLOSE}call{_SEPARATOR}"
_VALUE_END = re.compile(r"<\|close\|>\s*+argument\s*+<\|sep\|>|<\|(?:open|close)\|>\s*+(?:argument\s|call\b)")
_PREFIXES = tuple(f"{_CLOSE}{word}" for word in ("argument", "argument "))
_TOKEN = re.compile("<(\u200b*\\|(?:open|close|sep)\\|>)")

# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/kimi_k3_tool_parser.py
# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/Kimi-K3.jinja
KIMI_K3 = Dialect(
    id="kimi_k3",
    family="kimi_k3",
    level="A",
    openers=lambda _context: (_OPEN, _CLOSE),
    parse=_parse,
    results=(f"{_OPEN}result", f"{_OPEN}tool_result"),
    models=("kimi-k3*",),
    renderer=_Writer(),
    example=(
        '<|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|><|open|>argument key="filePath" type="string"'
        "<|sep|>src/app.py<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
    ),
)
