"""Calls whose parameters are elements with a name and raw text: what the function, invoke and DSML forms share.

    call  = CALL ws { param ws } CLOSE
    param = PARAM RAW "</" ... ">"

A `Form` says how the tags of one dialect are written; `Call` is one call while it is read, `read_call` reads it from
behind its opener. Values end as `strategies.grammar.raw_value` says. Also read here: parameters as tags named after the
schema's properties, a name in place of an attribute, self-closing parameters, JSON as the body, wrong and missing
closers.
Bounds: a call whose opener is not followed by a parameter or a closer is refused at once.
"""

import re
from collections.abc import Callable, Generator
from typing import Literal

from attrs import define, field, frozen

from gateway.core.tools import Tool
from strategies.grammar.closers import CALL_END, PARAMETER_END, Kind
from strategies.grammar.dialect import Arguments, Context, Draft
from strategies.grammar.json_bodies import json_arguments
from strategies.grammar.raw_value import (
    MEND_OF_END,
    Sink,
    Way,
    awaits_path,
    decode_entities,
    doubt,
    last_tag,
    read_cdata,
    read_value,
    refusal,
    trimmed,
    unwrap_cdata,
    without_breaks,
)
from strategies.grammar.value_end import confirm_end
from strategies.schema.names import resolve_parameter
from strategies.schema.tool_schema import Listing, ToolSchema, Value, schema_of
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.dumping import dumps
from strategies.text.turns import Turns, whole

__all__ = [
    "NAME",
    "NEVER",
    "QUOTED",
    "Call",
    "Form",
    "Typed",
    "begin_call",
    "draft_of",
    "group",
    "read_call",
    "read_call_end",
    "read_parameter",
    "read_parameters",
    "read_section_close",
    "show_value",
    "untyped",
]

NAME = r"[A-Za-z_][\w.:/-]{0,127}"
_BARE = r"""[^\s"'<>=/](?:[^\s"'<>=]{{0,126}}[^\s"'<>=/])?"""
QUOTED = (
    rf"""(?:"\s*(?P<{{0}}>[^"<>]{{{{1,128}}}}?)\s*"|'\s*(?P<{{0}}1>[^'<>]{{{{1,128}}}}?)\s*'|(?P<{{0}}2>{_BARE}))"""
)
"""A name in quotes or bare; the groups are the given name, and the same with 1 and 2."""
NEVER = re.compile(r"(?!)")
_PLAIN_TAG = re.compile(r"<(/?)([A-Za-z_][\w.:-]{0,127})\s*(/?)>\Z")
# https://cwe.mitre.org/data/definitions/1321.html
# A client in JavaScript that copies arguments into an object would change all objects by these keys.
_PROTOTYPE_KEYS = frozenset({"__proto__", "constructor", "prototype"})
# The name stands where the value belongs, as in forms that are elements alone.
_NAMED_AS_TEXT = "<parameter>"
_KEY_RUN = re.compile(r"[\w.:-]*")
_VALUE_OPEN, _VALUE_CLOSE = "<value>", "</value>"
# Qwen3.5 and later close the reasoning between tags of a call that began in it.
_NOISE = frozenset({"</think>"})


def untyped(_call: "Call", _tag: str, _key: str, _text: str) -> "Turns[Typed | None]":
    """The tag says nothing about the type of its value."""
    yield from ()
    return None


@frozen(kw_only=True)
class Form:
    """How the tags of one dialect are written."""

    call: re.Pattern[str]
    """An opener of a call; its name in one of the groups `name`, `name1`, `name2`."""
    closer: str
    """The call's closer, as it should be."""
    call_close: re.Pattern[str]
    param: re.Pattern[str]
    """An opener of a parameter: groups `key`, `key1`, `key2`; `empty` where it closes itself, `held` with its value."""
    close: re.Pattern[str]
    closes: re.Pattern[str] = re.compile("</")
    """How every closer begins."""
    loose: re.Pattern[str] = NEVER
    """What is seen in place of a parameter's closer."""
    section_open: re.Pattern[str] = NEVER
    section_close: re.Pattern[str] = NEVER
    wrong_close: re.Pattern[str] = NEVER
    """What is seen in place of a call's closer."""
    edges: Literal["lines", "pair", "none", "all"] = "lines"
    """The white space that is markup: a line break each side; only both together; none; all."""
    stub: str = ""
    noise: frozenset[str] = _NOISE
    """Tags that mean nothing between those of a call."""
    cdata_closers: tuple[str, ...] = ("</parameter>", "</param>", "</arg>", "</argument>")
    takes_section: bool = False
    """The section's closer behind a call is read with it, as it can be written in many ways."""
    property_tags: bool = True
    """Parameters may be tags named after the schema's properties."""
    typed: Callable[["Call", str, str, str], "Turns[Typed | None]"] = untyped
    """What the parameter's own tag says about the type of its value."""


@frozen
class Typed:
    """A value whose type its tag has told."""

    value: object
    mends: tuple[str, ...] = ()


@define
class Call:
    """One call while it is read; knows what tags mean inside its values."""

    form: Form
    name: str
    tool: Tool | None
    schema: ToolSchema
    mends: list[str] = field(factory=list)
    values: dict[str, object] = field(factory=dict)
    texts: dict[str, list[str]] = field(factory=dict)
    faults: dict[str, str | None] = field(factory=dict)
    last_body: str | None = None
    own_tags: bool = False
    """Parameters of this call are written as tags of their own."""
    in_lines: bool = True
    """A line break stands behind its opener, so there is one behind each of its closers."""
    last_tag: str = ""
    """What its last value ends with, if that is a tag."""
    is_closed: bool = False
    """Its closer was read with those of its last value."""
    written: str = ""
    """The tag of the parameter under way, where it is one of its own."""
    stub: str = ""
    distinct: bool = True
    ends: tuple[str, ...] = ("</tool_call>", "<tool_call>", "</function>", "</invoke>", "</function_calls>")
    name_run: re.Pattern[str] | None = None
    pair: re.Pattern[str] | None = None
    _listing: Listing = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._listing = Listing(self.schema)

    @classmethod
    def of(cls, form: Form, context: Context, name: str) -> "Call":
        """The call of the tool that this name means; `tool` is None where it means none."""
        found = context.resolve(name)
        if found is None:
            return cls(form, name, None, schema_of(Tool(name=name)), stub=form.stub)
        tool, mends = found
        return cls(form, tool.name, tool, context.schema(tool), mends=list(mends), stub=form.stub)

    def kind(self, tag: str, key: str) -> tuple[Kind, str]:
        form = self.form
        if form.closes.match(tag):
            return (self._kind_of_closer(tag, key), key)
        found = form.param.match(tag)
        if found:
            return "param", self.parameter(group(found, "key"))
        if self.is_noise(tag):
            return "noise", ""
        if form.call.match(tag):
            return "call_open", ""
        if form.section_open.match(tag):
            return "section_open", ""
        # Only where this call has shown that it writes them so: a document holds elements of any name.
        plain = _PLAIN_TAG.match(tag) if self.own_tags else None
        if plain and plain.group(2) in self.schema.properties:
            return "param", plain.group(2)
        return ("section_close" if form.section_close.match(tag) else "other"), ""

    def _kind_of_closer(self, tag: str, key: str) -> Kind:
        form = self.form
        if self.written:
            if tag == f"</{self.written}>":
                return "close"
        elif form.close.match(tag):
            return "close"
        if form.call_close.match(tag):
            return "call_close"
        if form.section_close.match(tag):
            return "section_close"
        if form.wrong_close.match(tag):
            return "stray_close"
        if self.is_noise(tag):
            return "noise"
        if tag == form.stub or form.loose.match(tag):
            return "loose"
        # Closed by the parameter's own name, or in another family's spelling:
        # https://github.com/anthropics/claude-code/issues/83088
        if tag == f"</{key}>" or PARAMETER_END.match(tag):
            return "foreign"
        return "stray_close" if CALL_END.match(tag) else "other"

    def is_noise(self, tag: str) -> bool:
        """Whether a tag means nothing here, as it is none of the tool's own parameters."""
        return tag in self.form.noise and tag.strip("</>") not in self.schema.properties

    def parameter(self, name: str) -> str:
        """The schema's name of a parameter written as `name`."""
        return name if name in self.schema.properties else resolve_parameter(name, self.schema, self.texts)[0]

    def may_follow(self, name: str) -> bool:
        if not name:
            return True
        if name in self.schema.properties:
            return name not in self.texts or "array" in self.schema.prop(name).types
        # A tool that declares no parameters may be given any, each once.
        return not self.schema.properties and name not in self.texts

    def declares(self, name: str) -> bool:
        return True

    def is_alien(self, name: str) -> bool:
        # Of tags that are properties' names no other is read as a parameter.
        return not self.own_tags and bool(name) and name not in self.schema.properties and name not in self.texts

    def counts(self, name: str) -> bool:
        return self.own_tags and name in self.schema.properties

    def is_prototype(self, key: str) -> bool:
        """Whether a key that nobody declared would reach into every object of a client in JavaScript."""
        return key in _PROTOTYPE_KEYS and key not in self.schema.properties

    def store(self, key: str, text: str, typed: Typed | None = None) -> None:
        """Keep a value; given again it joins a list, or the last that is not empty counts."""
        whole(self.storing(key, text, typed))

    def storing(self, key: str, text: str, typed: Typed | None = None) -> Turns[None]:
        """The same in turns."""
        if self.is_prototype(key):
            self.mends.append("prototype_key")
            return
        texts = self.texts.setdefault(key, [])
        prop = self.schema.prop(key)
        # What the tag says counts for the first one only: a second of the same name may be of another type.
        if typed is not None and not texts:
            texts.append(text)
            self.values[key] = typed.value
            self.mends += typed.mends
            return
        if texts and "array" not in prop.types:
            self.mends.append("parameter_repeated" if text == texts[0] else "parameter_chosen")
            # Of two documents the first stays: which of them was meant nobody can tell, and the call says so by its
            # mend.
            if prop.body:
                return
            # Models correct themselves by writing the parameter once more:
            # https://github.com/anomalyco/opencode/issues/6918
            texts[:] = [text if text.strip() else texts[0]]
        else:
            texts.append(text)
        if len(texts) > 1:
            yield from self._listing.adding(key, texts)
            return
        # Read anew for each text: what it is the schema says, and a list of one is still a list.
        found = yield from self.schema.reading(key, texts[0])
        # A list written as a JSON string without its quotes: its own quotes are still escaped.
        if found.fault and '\\"' in text:
            unescaped = yield from self.schema.reading(key, f'"{text.strip()}"')
            found = found if unescaped.fault else unescaped
        if found.fault and key not in self.values and self.schema.leaves_out(key, texts[0]):
            self.mends.append("null_dropped")
        else:
            self._found(key, found)

    def _found(self, key: str, found: Value) -> None:
        self.mends += ("python_value" if mend == "python_literal" else mend for mend in found.mends)
        self.faults[key] = found.fault
        self.values[key] = found.value

    def finishing(self) -> Turns[None]:
        """All values have been given."""
        for key, found in (yield from self._listing.finishing()):
            self._found(key, found)


def group(match: re.Match[str], name: str) -> str:
    """The name a tag carries, whichever way it was quoted."""
    groups = match.groupdict()
    found: str = groups.get(name) or groups.get(name + "1") or groups.get(name + "2") or ""
    return found.strip()


def begin_call(call: Call, arguments: Arguments) -> None:
    """The commit point, for a call whose name needed no mend."""
    # A name that was mended may still turn out to be another tool's, and what has gone out cannot be taken back.
    if not call.mends:
        arguments.begin(call.name)


def read_call(
    cur: Cursor, call: Call, hint: object, arguments: Arguments, *, meant: bool = False
) -> Generator[Draft | None, None, None]:
    """The call behind its opener: its parameters or JSON body, its closer; yields its draft.

    `meant`: what stands before it says that it is one, whatever follows.
    """
    way = Way.of(hint)
    call.in_lines = (yield from cur.ws()) > 0
    first = yield from cur.peek(1)
    around = (yield from _around_json(cur, call)) if first == "<" else None
    # Models that have learned both write JSON into the tags.
    if first == "{" or around:
        yield from json_arguments(cur, call, around or call.form.closer, hint)
        yield from cur.ws()
        if around and not (yield from cur.lit(around)):
            call.mends.append("closer_foreign")
        yield from read_call_end(cur, call, way)
        yield (yield from draft_of(cur, call))
        return
    if first != "<" or not (yield from _opens_well(cur, call)):
        # `<parameter=command=view</parameter>`: https://github.com/OpenHands/OpenHands/pull/10539
        raise Reject("no parameter", attempted=meant or (yield from cur.starts("<parameter=")), name=call.name)
    if not (yield from _holds_container(cur, call)):
        begin_call(call, arguments)
    yield from read_parameters(cur, call, way, arguments)
    end = yield from read_call_end(cur, call, way)
    yield (yield from draft_of(cur, call, end))


def draft_of(cur: Cursor, call: Call, end: int | None = None) -> Steps:
    """The call as it was read."""
    yield from cur.work(call.finishing())
    values = call.values
    # More than one parameter: then `input` is one of them, and nothing to be opened.
    if len(values) == 1 and call.tool is not None:
        values = yield from cur.work(_unwrapped(call, values))
    return Draft(
        name=call.name,
        tool=call.tool,
        arguments=values,
        form="function",
        mends=tuple(dict.fromkeys(call.mends)),
        fault=next(filter(None, call.faults.values()), None),
        end=end,
    )


def _unwrapped(call: Call, values: dict[str, object]) -> Turns[dict[str, object]]:
    """The arguments inside a sole parameter that only holds them: `arguments`, `input`."""
    ((key, value),) = values.items()
    if key in call.schema.properties or key not in _CONTAINERS or not isinstance(value, str | dict):
        return values
    opened = yield from call.schema.opening(value)
    if opened is None or not all(name in call.schema.properties for name in opened.arguments):
        return values
    adapted = yield from call.schema.adapting(opened.arguments)
    call.mends += ["wrapped", *opened.mends, *adapted.mends]
    return adapted.arguments


_CONTAINERS = frozenset({"arguments", "args", "input", "parameters", "params", "properties"})


def _around_json(cur: Cursor, call: Call) -> Steps:
    """Consume the opener of an element that only holds JSON, as `<arguments>`; returns its closer, or None."""
    tag = yield from cur.tag()
    word = tag.strip("<>") if tag else ""
    if word not in _CONTAINERS or word in call.schema.properties:
        return None
    cur.anchor = start = cur.offset
    cur.pos += len(tag)
    yield from cur.ws()
    found = yield from cur.starts("{")
    if not found:
        cur.back(start)
    cur.anchor = None
    return f"</{word}>" if found else None


def _holds_container(cur: Cursor, call: Call) -> Steps:
    """Whether the first parameter may only hold the arguments, so that it must be seen whole."""
    found = call.form.param.match((yield from cur.tag()) or "")
    return found is not None and group(found, "key") in _CONTAINERS - call.schema.properties.keys()


def _opens_well(cur: Cursor, call: Call) -> Steps:
    """Whether what follows the opener can be the inside of a call."""
    tag = yield from cur.tag()
    if tag is None:
        return False
    # What follows decides: tags alone are what anybody writes about tags.
    kind, _ = call.kind(tag, "")
    if kind in ("param", "call_close", "section_close", "stray_close", "noise") or tag == _NAMED_AS_TEXT:
        return True
    plain = _PLAIN_TAG.match(tag)
    call.own_tags = bool(
        call.form.property_tags
        and plain
        and not plain.group(1)
        and call.parameter(plain.group(2)) in call.schema.properties
    )
    call.distinct = not call.own_tags
    return call.own_tags


def read_parameters(cur: Cursor, call: Call, way: Way, arguments: Arguments) -> Steps:
    """All parameters, up to whatever is not one."""
    while (yield from _parameter(cur, call, way, arguments)):
        pass


def _parameter(cur: Cursor, call: Call, way: Way, arguments: Arguments) -> Steps:
    """One parameter; False where none stands."""
    yield from cur.ws()
    if (yield from cur.peek(1)) != "<":
        return False
    tag = yield from cur.tag()
    if tag is None:
        return False
    if call.is_noise(tag):
        cur.pos += len(tag)
        return True
    found = call.form.param.match(tag)
    plain = None if found else _PLAIN_TAG.match(tag)
    call.written = ""
    if found:
        written, empty = group(found, "key"), bool(found.groupdict().get("empty"))
    elif tag == _NAMED_AS_TEXT and (yield from _named_as_text(cur, call, arguments)):
        return True
    elif plain and not plain.group(1) and call.own_tags and call.parameter(plain.group(2)) in call.schema.properties:
        call.written = written = plain.group(2)
        empty = bool(plain.group(3))
    else:
        return False
    key, mends = resolve_parameter(written, call.schema, call.texts)
    call.mends += mends
    cur.pos += len(tag)
    if empty:
        if arguments.live and key in call.texts:
            raise Reject("parameter given twice")
        call.store(key, (found and found.groupdict().get("held")) or "")
        show_value(call, key, arguments)
    else:
        yield from read_parameter(cur, call, key, tag, way, arguments, shown=not mends)
    return True


def read_parameter(
    cur: Cursor, call: Call, key: str, tag: str, way: Way, arguments: Arguments, *, shown: bool
) -> Steps:
    """The value of one parameter, behind its opener `tag`; `shown` if it may flow under this name."""
    prop = call.schema.prop(key)
    edges = call.form.edges
    proto = call.is_prototype(key)
    typed = whole(call.form.typed(call, tag, key, "")) is not None
    sink = Sink(
        arguments,
        key,
        body=edges != "all",
        flows=(prop.flows or typed) and shown and key not in call.texts and not proto,
        trim=edges != "none",
        paired=edges == "pair",
        entities=not typed,
        cur=cur,
    )
    if cur.literal_breaks:
        sink.pause()
    closers = (f"</{call.written}>",) if call.written else call.form.cdata_closers
    cdata = yield from read_cdata(cur, sink, closers)
    how = "closed" if cdata else (yield from read_value(cur, call, key, body=prop.body, way=way, sink=sink))
    call.last_body = key if prop.body and not cdata else None
    if how != "closed":
        call.mends.append("document_closed_by_next" if how == "by_next" and prop.body else MEND_OF_END[how])
    call.is_closed = how == "swapped"
    call.last_tag = last_tag(sink.raw)
    inner = unwrap_cdata(sink.raw) if cdata else None
    text = inner if inner is not None else _bare(sink.value(), raw=prop.body or edges == "none")
    if how in _UNCLOSED:
        text = yield from _unclosed(cur, call, text, sink.raw, how, body=prop.body)
    text = without_breaks(cur, text, is_text=prop.is_string)
    if inner is None and not typed:
        text = _decoded(call, key, text)
    repeated = key in call.texts
    told = yield from cur.work(call.form.typed(call, tag, key, text))
    yield from cur.work(call.storing(key, text, told))
    if arguments.live and not proto and key in call.values:
        if repeated:
            raise Reject("parameter given twice")
        yield from cur.work(sink.closing(call.values[key]))


def _decoded(call: Call, key: str, text: str) -> str:
    """The value without the entities of one that was escaped as a whole, as servers that want XML have taught it."""
    if call.schema.prop(key).body and awaits_path(call.schema.properties, call.values):
        return text
    plain = decode_entities(key, text, call.values.get)
    if plain != text:
        call.mends.append("entities")
    return plain


_UNCLOSED = frozenset({"by_next", "by_call", "by_end"})


def _unclosed(cur: Cursor, call: Call, text: str, raw: str, how: str, *, body: bool) -> Steps:
    """A value whose closer is missing: of the white space behind it, what stands around closers is no part of it.

    A document keeps its own line break at the end; with several, or a wrap of line breaks, there is no telling.
    """
    edges = call.form.edges
    if edges == "all" or (body and how == "by_next"):
        return text
    if not body:
        return trimmed(text.rstrip(), body=True)
    if (edges == "pair" and raw[:1] in ("\n", "\r")) or (edges == "lines" and _BREAKS.search(raw)):
        yield from doubt(cur)
    return raw.removesuffix("\n").removesuffix("\r") if edges != "lines" and call.in_lines else text


_BREAKS = re.compile(r"\n\r?\n\Z")


def _bare(text: str, *, raw: bool) -> str:
    """The value without an element around all of it that only says that it is one."""
    # `<parameter=path><value>a.py</value></parameter>`, as other formats nest it; a document may be such an element
    # itself.
    core = text.strip()
    if raw or not core.startswith(_VALUE_OPEN) or not core.endswith(_VALUE_CLOSE):
        return text
    return core[len(_VALUE_OPEN) : -len(_VALUE_CLOSE)]


def show_value(call: Call, key: str, arguments: Arguments) -> None:
    """Pass on a value that came at once, where the call has begun."""
    if arguments.live and key in call.values:
        arguments.key(key)
        arguments.piece(dumps(call.values[key]))


def _named_as_text(cur: Cursor, call: Call, arguments: Arguments) -> Steps:
    """`<parameter>K</parameter> V`: the name as the element's text, the value behind it up to the next one."""
    cur.anchor = start = cur.offset
    cur.pos += len(_NAMED_AS_TEXT)
    yield from cur.ws()
    written = yield from cur.match(_KEY_RUN, 64)
    yield from cur.ws()
    closed = yield from cur.lit("</parameter>")
    key = call.parameter(written)
    if not closed or key not in call.schema.properties or key in call.texts:
        cur.back(start)
        cur.anchor = None
        return False
    cur.anchor = None
    pieces: list[str] = []
    while True:
        if not (yield from cur.until("<", pieces.append)):
            raise Reject("value not closed", attempted=True)
        tag = yield from cur.tag()
        if tag == _NAMED_AS_TEXT or (tag and call.kind(tag, key)[0] in ("call_close", "section_close", "stray_close")):
            break
        size = len(tag) if tag else 1
        pieces.append(cur.text[cur.pos : cur.pos + size])
        cur.pos += size
    text = "".join(pieces).strip()
    if text.endswith("</parameter>"):
        text = text[: -len("</parameter>")].strip()
    call.mends.append("names_as_text")
    call.store(key, text)
    show_value(call, key, arguments)
    return True


def read_call_end(cur: Cursor, call: Call, way: Way) -> Steps:
    """The call's own closer, what stands in its place, or the end of the answer; returns where the call ends."""
    form = call.form
    yield from cur.ws()
    if call.is_closed:
        return (yield from _end_of_call(cur, call, way, closed=True))
    if (yield from cur.at_stub(call.ends)):
        if cur.cut:
            raise Reject("cut", attempted=True)
        cur.pos = len(cur.text)
        yield from _miss_closer(cur, call)
        return None
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    if tag is None:
        raise (yield from refusal(cur, call, "text between parameters"))
    closed = True
    if form.call_close.match(tag):
        cur.pos += len(tag)
    elif form.section_close.match(tag):
        cur.pos += len(tag)
        yield from _miss_closer(cur, call)
    # https://github.com/anthropics/claude-code/issues/44826
    elif form.wrong_close.match(tag) or CALL_END.match(tag):
        cur.pos += len(tag)
        call.mends.append("call_closer_wrong")
    # Several calls at once, each without its closer: the next opener is as good as one.
    elif form.call.match(tag) or form.section_open.match(tag):
        yield from _miss_closer(cur, call)
        closed = False
    else:
        raise (yield from refusal(cur, call, "not closed"))
    return (yield from _end_of_call(cur, call, way, closed=closed))


def _miss_closer(cur: Cursor, call: Call) -> Steps:
    """The call's closer is missing; where its last value ends with one, there is no telling which."""
    # One closer was written and two are needed: it may be the file's last line, or the call's.
    if call.form.call_close.match(call.last_tag):
        yield from doubt(cur)
    call.mends.append("call_closer_missing")


def _end_of_call(cur: Cursor, call: Call, way: Way, *, closed: bool) -> Steps:
    """Where the call ends, behind its closer."""
    if closed and call.form.takes_section:
        yield from read_section_close(cur, call.form)
    end = cur.offset
    if call.last_body is None:
        return None
    yield from confirm_end(cur, call, call.last_body, way, lacks=call.schema.lacks(call.texts), closed=closed)
    return end


def read_section_close(cur: Cursor, form: Form) -> Steps:
    """Consume the section's closer, if it stands here."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    if tag and form.section_close.match(tag):
        cur.pos += len(tag)
    else:
        cur.back(start)
    cur.anchor = None
