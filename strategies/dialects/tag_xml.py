"""Tag-per-tool XML: Roo Code, Kilo, Cline, and any OpenAI tool written as a tag.

    call  = "<" TOOL ">" ws { param ws } "</" TOOL ">"
    param = "<" PARAM ">" RAW "</" PARAM ">"

Also read: attributes in place of parameters, a self-closing tag, a JSON object or the sole parameter as the body,
`<parameter=K>` and `<parameter name="K">`, a container around the parameters, a wrapper around the call, the name as a
child, a wrong or missing closer of the call. A tool's tag is evidence only together with one of its own parameters.
Bounds: an opener that is not followed by a parameter is refused at once; values are bounded by the reader.
"""

import re
from collections.abc import Generator

from attrs import define, field

from gateway.core.tools import Tool
from strategies.cursor import Cursor, Reject, Steps
from strategies.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.dialects.tag_forms import adapt_forms, holds_args
from strategies.jsonish import JsonFault, parse
from strategies.names import resolve_parameter
from strategies.rawvalue import (
    Kind,
    Sink,
    Way,
    decode_entities,
    read_cdata,
    read_value,
    settle_end,
    trimmed,
    unwrap_cdata,
)
from strategies.registry import known_tools
from strategies.schema import ToolSchema

__all__ = ["GENERIC", "WRAPPED"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
_NAME_RUN = re.compile(r"[A-Za-z0-9_.:-]*")
_TAG_NAME = re.compile(r"<(/?)\s*([A-Za-z_][\w.:-]*)\s*(/?)>\Z")
_PARAMETER = re.compile(r"""<(?:parameter|param|arg|argument)(?:\s+name)?\s*=\s*["']?([\w.:-]+)["']?\s*>\Z""")
_PARAMETER_CLOSERS = frozenset({"</parameter>", "</param>", "</arg>", "</argument>"})
_CONTAINERS = frozenset({"parameters", "arguments", "input", "params", "args"})
_STRAY_CLOSERS = frozenset({"</tool>", "</tool_call>", "</invoke>", "</tool_use>", "</function>", "</function_calls>"})
_WRAPPERS = ("<tool_call>", "<tool_use>", "<tools>", "<function_calls>", "<xml>", "<tool>", "<action>")
_NAMED = ("<tool_name>", "<actual_tool_name>", "<name>")
_SHORT = frozenset({"read", "write", "edit", "list", "task", "patch", "grep", "glob", "bash", "question", "skill"})
_ATTRIBUTE_BOUND = 1 << 16


@define
class _Call:
    """One call while it is read: its tool, its schema, the values it has so far."""

    tag: str
    tool: Tool
    schema: ToolSchema
    context: Context
    mends: list[str] = field(factory=list)
    values: dict[str, object] = field(factory=dict)
    texts: dict[str, list[str]] = field(factory=dict)
    fault: str | None = None
    last_body: str | None = None
    written: str = ""
    """How the parameter under way was written: `parameter` for `<parameter=K>`, else its own tag."""
    container: str = ""
    stub: str = ""
    distinct: bool = False
    name_run: re.Pattern[str] | None = None

    def kind(self, tag: str, key: str) -> tuple[Kind, str]:
        if tag == f"</{key}>" or (self.written == "parameter" and tag in _PARAMETER_CLOSERS):
            return "close", key
        if tag == f"</{self.tag}>":
            return "call_close", ""
        match = _TAG_NAME.match(tag)
        if match is None:
            named = _PARAMETER.match(tag)
            return ("param", self.parameter(named.group(1))) if named else ("other", "")
        slash, name, empty = match.groups()
        if slash:
            if name == key:
                return "close", key
            if name == self.tag:
                return "call_close", ""
            if tag in _STRAY_CLOSERS or name == self.container:
                return "section_close", ""
            return ("loose", name) if self.parameter(name) in self.schema.properties else ("other", "")
        if name == self.tag and not empty:
            return "call_open", name
        return "param", self.parameter(name)

    def parameter(self, name: str) -> str:
        """The schema's name of a parameter written as `name`."""
        if name in self.schema.properties:
            return name
        return resolve_parameter(name, self.schema, self.texts)[0]

    def may_follow(self, name: str) -> bool:
        if name in self.schema.properties:
            return name not in self.texts or "array" in self.schema.prop(name).types
        return not self.schema.properties


def _openers(context: Context) -> tuple[str, ...]:
    names = {name for name in context.tools.names if _NAME.fullmatch(name)}
    return tuple(f"<{name}" for name in (*names, *(name for name in known_tools() if name not in names)))


def _variants(context: Context, name: str) -> tuple[Tool, ...]:
    """The tools that a tag of this name may mean: the declared one, else those a name like it stands for."""
    tool = context.find(name)
    if tool is not None:
        return (tool,)
    found = context.resolve(name)
    return (*((found[0],) if found else ()), *context.known(name))


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    name = opening.marker[1:]
    if (yield from cur.match(_NAME_RUN, 64)):
        raise Reject("another tag")
    tools = _variants(context, name)
    if not tools:
        raise Reject("unknown tool")
    yield from _call(cur, context, name, tools, opening, arguments)


def _call(
    cur: Cursor, context: Context, tag: str, tools: tuple[Tool, ...], opening: Opening, arguments: Arguments
) -> Steps:
    """The call behind its tag's name."""
    call = _Call(tag=tag, tool=tools[0], schema=context.schema(tools[0]), context=context)
    if tools[0].name != tag:
        call.mends.append("tool_name")
    way = Way.of(opening.hint)
    if (yield from cur.peek(1)) != ">":
        closed = yield from _attributes(cur, call)
        if closed:
            if not call.texts and (call.schema.required or not opening.starts_line):
                raise Reject("no parameter")
            yield from _drafts(call)
            return
    else:
        cur.pos += 1
    if not call.texts:
        yield from _first(cur, call, tools, opening)
    if call.tool.name in context.tools and not call.mends:
        arguments.begin(call.tool.name)
    yield from _parameters(cur, call, way, arguments)
    yield from _drafts(call, (yield from _call_end(cur, call, way)))


def _first(cur: Cursor, call: _Call, tools: tuple[Tool, ...], opening: Opening) -> Steps:
    """What follows the opener decides whether it is one: a parameter of the tool, or one of the other bodies."""
    start = cur.offset
    yield from cur.ws()
    first = yield from cur.peek(1)
    if first == "{":
        yield from _json_body(cur, call)
        return
    tag = (yield from cur.tag()) if first == "<" else None
    if tag is None:
        cur_moved = cur.offset != start
        yield from _sole_parameter(cur, call, line=cur_moved)
        return
    match = _TAG_NAME.match(tag)
    if match and match.group(1):
        if match.group(2) != call.tag or call.schema.required or not opening.starts_line:
            raise Reject("no parameter")
        return
    if match and match.group(2) == "args" and holds_args(call.tag, call.schema):
        return
    if match and match.group(2) in _CONTAINERS and match.group(2) not in call.schema.properties:
        call.container = match.group(2)
        cur.pos += len(tag)
        yield from cur.ws()
        if (yield from cur.peek(1)) == "{":
            yield from _json_body(cur, call)
            return
        tag = (yield from cur.tag()) or ""
        match = _TAG_NAME.match(tag)
    for tool in tools:
        call.tool, call.schema = tool, call.context.schema(tool)
        named = _PARAMETER.match(tag)
        name = named.group(1) if named else match.group(2) if match else ""
        if not name:
            break
        known = call.parameter(name)
        if known in call.schema.properties or (not call.schema.properties and name not in _HTML):
            return
    raise Reject("no parameter of this tool")


_HTML = frozenset(
    {"a", "b", "br", "div", "em", "i", "li", "ol", "p", "pre", "span", "strong", "table", "td", "tr", "ul"}
)


def _parameters(cur: Cursor, call: _Call, way: Way, arguments: Arguments) -> Steps:
    """All parameters, up to whatever is not one."""
    while True:
        yield from cur.ws()
        if (yield from cur.peek(1)) != "<":
            return
        tag = (yield from cur.tag()) or ""
        named = _PARAMETER.match(tag)
        match = None if named else _TAG_NAME.match(tag)
        if named:
            written = named.group(1)
        elif match and not match.group(1):
            written = match.group(2)
        else:
            return
        call.written = "parameter" if named else written
        key, mends = (
            (written, ()) if written in call.schema.properties else resolve_parameter(written, call.schema, call.texts)
        )
        call.mends += mends
        cur.pos += len(tag)
        if match and match.group(3):
            _store(call, key, "")
            continue
        yield from _value(cur, call, key, way, arguments, shown=not mends)


def _value(cur: Cursor, call: _Call, key: str, way: Way, arguments: Arguments, *, shown: bool) -> Steps:
    prop = call.schema.prop(key)
    flows = prop.only_string and shown and key not in call.texts
    sink = Sink(arguments, key, body=prop.body, flows=flows)
    tag = key if call.written == "parameter" else call.written
    if (yield from read_cdata(cur, sink, (f"</{tag}>", "</parameter>"))):
        how = "closed"
    else:
        how = yield from read_value(cur, call, tag, body=prop.body, way=way, sink=sink)
    call.last_body = tag if prop.body else None
    if how == "by_call":
        call.mends.append("value_closed_by_call")
    elif how == "by_next":
        call.mends.append("value_closed_by_next")
    elif how == "loose":
        call.mends.append("value_closer_wrong")
    value = unwrap_cdata(sink.raw)
    if value is None:
        value = decode_entities(key, sink.value(), call.values.get)
        if value != sink.value():
            call.mends.append("entities")
    elif not prop.body:
        value = trimmed(value, body=False)
    _store(call, key, value)
    if arguments.live:
        if len(call.texts[key]) > 1:
            raise Reject("parameter given twice")
        sink.close(call.values[key])


def _store(call: _Call, key: str, text: str) -> None:
    """Keep a value; given again it joins a list, or the last that is not empty counts."""
    texts = call.texts.setdefault(key, [])
    prop = call.schema.prop(key)
    if texts and prop.body and prop.is_string:
        call.mends.append("parameter_repeated")
        return
    if texts and "array" not in prop.types:
        call.mends.append("parameter_repeated")
        texts[:] = [text if text.strip() else texts[0]]
    else:
        texts.append(text)
    found = call.schema.from_text(key, texts[0]) if len(texts) == 1 else call.schema.from_texts(key, texts)
    call.mends += found.mends
    call.fault = call.fault or found.fault
    call.values[key] = found.value


def _call_end(cur: Cursor, call: _Call, way: Way) -> Steps:
    """The call's own closer, one that stands in its place, or the end of the answer; returns where the call ends."""
    yield from cur.ws()
    if call.container and (yield from cur.lit(f"</{call.container}>")):
        yield from cur.ws()
    if (yield from cur.at_end()):
        if cur.cut:
            raise Reject("cut", attempted=True)
        call.mends.append("call_closer_missing")
        return None
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    if tag is None or not tag.startswith("</"):
        raise Reject("text between parameters", attempted=True)
    match = _TAG_NAME.match(tag)
    if match and match.group(2) == call.tag:
        cur.pos += len(tag)
    elif tag in _STRAY_CLOSERS:
        cur.pos += len(tag)
        call.mends.append("call_closer_wrong")
    else:
        raise Reject("not closed", attempted=True)
    end = cur.offset
    if call.last_body is None:
        return None
    yield from settle_end(cur, call, call.last_body, way)
    return end


def _drafts(call: _Call, end: int | None = None) -> Generator[Draft, None, None]:
    """The calls that the values stand for: one, or one per file."""
    forms = adapt_forms(call.tool.name, call.schema, call.values)
    adapted = forms != [call.values]
    for values in forms:
        yield Draft(
            name=call.tool.name,
            tool=call.tool,
            arguments=values,
            form="tag",
            mends=tuple(call.mends),
            fault=None if adapted else call.fault,
            end=end,
        )


def _attributes(cur: Cursor, call: _Call) -> Steps:
    """Attributes of the tool's tag as parameters; True when the tag closes itself."""
    while True:
        spaces = yield from cur.ws()
        if (yield from cur.lit("/>")):
            return True
        if (yield from cur.lit(">")):
            return False
        name = yield from cur.match(_NAME_RUN, 64)
        if not name or not spaces or not (yield from cur.lit("=")):
            raise Reject("another tag")
        key, mends = resolve_parameter(name, call.schema, call.texts)
        if key not in call.schema.properties:
            raise Reject("no parameter of this tool")
        quote = yield from cur.lits(('"', "'"))
        pieces: list[str] = []
        if quote is None or not (yield from cur.until(quote, pieces.append)):
            raise Reject("attribute not closed")
        cur.pos += 1
        call.mends += mends
        _store(call, key, "".join(pieces))


def _json_body(cur: Cursor, call: _Call) -> Steps:
    """`<read_file>{"path": "a"}</read_file>`: an object whose keys are parameters."""
    pieces: list[str] = []
    if not (yield from cur.json(pieces.append)):
        raise Reject("value not closed", attempted=True)
    try:
        parsed = parse(
            "".join(pieces), closed=True, body_keys=call.schema.body_keys, known_keys=tuple(call.schema.properties)
        )
    except JsonFault as fault:
        raise Reject(fault.reason, attempted=True) from None
    found = call.schema.open_container(parsed.value)
    if found is None or not all(key in call.schema.properties for key in found.arguments):
        raise Reject("no parameter of this tool")
    adapted = call.schema.from_json(found.arguments)
    call.mends += (*parsed.steps, *found.mends, *adapted.mends)
    call.values.update(adapted.arguments)
    call.texts.update({key: [""] for key in adapted.arguments})


def _sole_parameter(cur: Cursor, call: _Call, *, line: bool) -> Steps:
    """`<read_file>a.py</read_file>`: the only required parameter, a string of one line that is no document."""
    required = [name for name in call.schema.required if call.schema.prop(name).only_string]
    if line or len(call.schema.required) != 1 or not required or call.schema.prop(required[0]).body:
        raise Reject("no parameter")
    pieces: list[str] = []
    closer = f"</{call.tag}>"
    while True:
        text = yield from cur.peek(len(closer))
        if text == closer:
            break
        if not text or text[0] in "\n<" or len(pieces) > 1024:
            raise Reject("no parameter")
        pieces.append(text[0])
        cur.pos += 1
    _store(call, required[0], "".join(pieces))


def _parse_wrapped(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    """A wrapper around the call, or around its name and its parameters; its closer is a leftover."""
    cur.pos += len(opening.marker)
    child = opening.marker if opening.marker in _NAMED else None
    if opening.marker == "<tool ":
        name = yield from _name_attribute(cur)
    elif child is None:
        yield from cur.ws()
        child = yield from cur.lits(_NAMED)
        if child is None and not (yield from cur.lit("<")):
            raise Reject("no call inside")
        name = "" if child else (yield from cur.match(_NAME_RUN, 64))
    if child is not None:
        name = yield from _name_child(cur, child)
    tools = _variants(context, name) if name else ()
    if not tools:
        raise Reject("unknown tool")
    if child is None and opening.marker != "<tool ":
        yield from _call(cur, context, name, tools, opening, arguments)
    else:
        yield from _named_call(cur, context, opening.marker.strip("<> "), tools, opening)


def _named_call(cur: Cursor, context: Context, tag: str, tools: tuple[Tool, ...], opening: Opening) -> Steps:
    """A call whose name was given apart: its parameters are siblings of the name."""
    call = _Call(tag=tag, tool=tools[0], schema=context.schema(tools[0]), context=context)
    way = Way.of(opening.hint)
    yield from _first(cur, call, tools, opening)
    yield from _parameters(cur, call, way, Arguments(None))
    yield from _drafts(call, (yield from _call_end(cur, call, way)))


def _name_child(cur: Cursor, opener: str) -> Steps:
    """The tool's name as the text of an element."""
    yield from cur.ws()
    name = yield from cur.match(_NAME_RUN, 64)
    yield from cur.ws()
    if not (yield from cur.lit("</" + opener[1:])):
        raise Reject("no name")
    return name


def _name_attribute(cur: Cursor) -> Steps:
    """`<tool name="read_file">`."""
    yield from cur.ws()
    if not (yield from cur.lit("name=")):
        raise Reject("no name")
    quote = yield from cur.lits(('"', "'"))
    name = yield from cur.match(_NAME_RUN, 64)
    if (quote and not (yield from cur.lit(quote))) or not (yield from cur.lit(">")):
        raise Reject("no name")
    return name


GENERIC = Dialect(
    id="generic_xml",
    family="tag XML",
    level="C",
    openers=_openers,
    parse=_parse,
    results=("<tool_response>", "<tool_result>", "[Tool Result:", "Tool Result from "),
    carriers=("", "xml", "tool_call", "tool_code", "tool", "tools", "function", "html"),
    example="<read_file>\n<path>src/app.py</path>\n</read_file>",
)
WRAPPED = Dialect(
    id="wrapped_xml",
    family="tag XML",
    level="C",
    openers=lambda _context: (*_WRAPPERS, "<tool ", *_NAMED[:2]),
    parse=_parse_wrapped,
    carriers=GENERIC.carriers,
    example="<tool_use>\n<read_file><path>src/app.py</path></read_file>\n</tool_use>",
)
