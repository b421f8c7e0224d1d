"""Tag-per-tool XML: Roo Code, Kilo, Cline, and any OpenAI tool written as a tag.

    call  = "<" TOOL ">" ws { param ws } "</" TOOL ">"
    param = "<" PARAM ">" RAW "</" PARAM ">"

Also read: attributes in place of parameters, a self-closing tag, JSON, YAML or the sole parameter as the body,
`<parameter=K>` and `<parameter name="K">`, a container around the parameters, a wrapper around the call, the name as a
child or as a line of its own, spaces in the tool's tag, a wrong or missing closer of the call. A tool's tag is evidence
only together with one of its own parameters.

Bounds: an opener that is not followed by a parameter is refused within a few hundred characters; values are bounded by
the reader. Commit point: the first parameter of a declared tool whose tag is written as it is declared.
"""

import re
from collections.abc import Generator

from gateway.core.tools import Tool
from strategies.dialects.tool_tags.bodies import (
    read_attributes,
    read_json_body,
    read_name_attribute,
    read_sole_text,
    read_sole_value,
    read_unclosed_tag,
    read_words,
    read_yaml_body,
)
from strategies.dialects.tool_tags.call import CONTAINERS, TagCall, parameter_of, tag_parts, tools_named
from strategies.dialects.tool_tags.nested_forms import holds_args, is_adapted, is_older_form
from strategies.dialects.tool_tags.parameters import read_end, read_line_value, read_parameters
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.inline import in_line
from strategies.grammar.raw_value import Way
from strategies.schema.known_tools import known_tools
from strategies.schema.names import resolve_parameter
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.writing.renderer import GenericTags

__all__ = ["GENERIC", "PREFIXED", "WRAPPED"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
_NAME_RUN = re.compile(r"[A-Za-z0-9_.:-]*")
_SPACED_RUN = re.compile(r"[A-Za-z0-9_ .:-]*")
_TEXT_RUN = re.compile(r"[^<>\n]*")
_BLANK_RUN = re.compile(r"[ \t]*")
# A tool may be called `a` or `table`, and answers hold markup.
_HTML = frozenset(
    {"a", "b", "br", "div", "em", "i", "li", "ol", "p", "pre", "span", "strong", "table", "td", "tr", "ul"}
)
# Models that know another form put its tags around this one: https://github.com/can1357/oh-my-pi/issues/2759
_WRAPPERS = (
    "<tool_call>",
    "<tool_use>",
    "<tools>",
    "<function_calls>",
    "<function_call>",
    "<xml>",
    "<tool>",
    "<action>",
)
_NAMED_TAGS = ("<tool ", "<tool_call ", "<function_call ", "<tool_use ", "<function ")
"""With the tool's name as an attribute, and its parameters as tags inside."""
_NAMED = ("<tool_name>", "<actual_tool_name>", "<name>")
# LangChain's agents in XML write so (https://github.com/langchain-ai/langchain/blob/master/libs/langchain/langchain/agents/output_parsers/xml.py),
# others in words of their own: https://github.com/cloudwego/kitex/issues/1963
_NAME_ELEMENTS = ("<tool>", "<action>")
_INPUTS = ("<tool_input>", "<action_input>", "<tool_args>", "<parameters>", "<parameter>", "<arguments>", "<input>")
# Some models think aloud in tags of their own first (`<reason>`): a few of those, and short ones.
_MAX_PRELUDE = 4
_PRELUDE_BOUND = 200


# The tool's tag


def _openers(context: Context) -> tuple[str, ...]:
    names = {name for name in context.tools.names if _NAME.fullmatch(name)}
    # Small models put a blank behind the first part of a long name: `<replace_ in_file>`.
    spaced = {name[: at + 1] + " " for name in names for at, sign in enumerate(name[:-1]) if sign == "_"}
    return tuple(f"<{name}" for name in (*names, *(name for name in known_tools() if name not in names), *spaced))


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    name = opening.marker[1:]
    is_spaced = name.endswith("_ ")
    # The blank is the marker's: what stands behind it has to complete the name of a declared tool.
    if is_spaced:
        name = (name + (yield from cur.match(_SPACED_RUN, 64))).replace("_ ", "_")
        if context.find(name) is None or (yield from cur.peek(1)) != ">":
            raise Reject("another tag")
    elif (yield from cur.match(_NAME_RUN, 64)):
        raise Reject("another tag")
    yield from _call(cur, context, name, opening, arguments, mends=("call_opener_broken",) if is_spaced else ())


def _call(
    cur: Cursor, context: Context, tag: str, opening: Opening, arguments: Arguments, *, mends: tuple[str, ...] = ()
) -> Steps:
    """The call behind its tag's name."""
    tools = tools_named(context, tag)
    if not tools:
        raise Reject("unknown tool", name=tag)
    call = TagCall(tag, tools[0], context.schema(tools[0]), context, mends=list(mends))
    # By its name for clients that have it under another one; the mend says so.
    if tools[0].name != tag:
        call.mends.append("tool_name")
    if (yield from cur.peek(1)) == ">":
        cur.pos += 1
    elif (yield from read_unclosed_tag(cur, call)):
        yield from call.drafts(cur)
        return
    elif (yield from read_attributes(cur, call)):
        yield from _closed_at_once(cur, call, opening)
        return
    if not call.texts:
        yield from _body(cur, call, tools, opening)
    yield from _rest(cur, call, opening, arguments)


def _closed_at_once(cur: Cursor, call: TagCall, opening: Opening) -> Steps:
    """`<todoread/>`: no parameters are evidence only where none are required and the tag stands alone on its line."""
    # `<list/>` in prose is markup shown; on a line of its own it does something.
    if not call.texts and not (yield from _stands_alone(cur, call, opening, 0)):
        raise Reject("no parameter")
    yield from call.drafts(cur)


def _stands_alone(cur: Cursor, call: TagCall, opening: Opening, size: int) -> Steps:
    """Whether the tag, `size` more characters of it, has only tags beside it on its line and the tool needs no more."""
    line = opening.line.strip()
    if call.schema.required or (line and not (line.startswith("<") and line.endswith(">"))):
        return False
    cur.anchor = start = cur.offset
    cur.pos += size
    yield from cur.match(_BLANK_RUN)
    beside = yield from cur.peek(1)
    cur.back(start)
    cur.anchor = None
    return beside in ("", "\n", "\r", "<")


def _rest(cur: Cursor, call: TagCall, opening: Opening, arguments: Arguments) -> Steps:
    """The parameters, the end, the call."""
    if call.end is not None:
        yield from call.drafts(cur, call.end)
        return
    way = Way.of(opening.hint)
    if _may_flow(call):
        arguments.begin(call.tool.name)
    yield from read_parameters(cur, call, way, arguments)
    yield from call.drafts(cur, (yield from read_end(cur, call, way)))


def _may_flow(call: TagCall) -> bool:
    """Whether this is the commit point: a declared tool, plainly written, whose arguments are its parameters."""
    is_plain = not call.mends and not call.texts and not call.is_structured
    return is_plain and call.tool.name in call.context.tools and not is_adapted(call.tool.name, call.schema)


# What follows the opener decides whether it is one


def _body(cur: Cursor, call: TagCall, tools: tuple[Tool, ...], opening: Opening) -> Steps:
    """A parameter of the tool comes next, or one of the other bodies, which is then read."""
    spaces = yield from _line_break(cur)
    if spaces and (yield from read_yaml_body(cur, call)):
        return
    spaces += yield from cur.ws()
    first = yield from cur.peek(1)
    if first == "{":
        yield from read_json_body(cur, call)
        return
    tag = (yield from cur.tag()) if first == "<" else None
    if tag is None:
        if (yield from read_words(cur, call, opening)):
            return
        # A sole value stands on the tag's own line: below it may be anything.
        if spaces:
            raise Reject("no parameter")
        yield from read_sole_value(cur, call)
        return
    parts = tag_parts(tag)
    if parts and parts[0]:
        yield from _empty(cur, call, parts[1], tag, opening)
    elif parts and parts[1] == "args" and holds_args(call.tag, call.schema):
        call.is_structured = True
    elif parts and parts[1] in CONTAINERS and parts[1] not in call.schema.properties:
        call.container = parts[1]
        cur.pos += len(tag)
        yield from cur.ws()
        if (yield from cur.peek(1)) == "{":
            yield from read_json_body(cur, call)
        else:
            yield from _first_parameter(cur, call, tools)
    else:
        yield from _first_parameter(cur, call, tools)


def _line_break(cur: Cursor) -> Steps:
    """Whether the line ends here; then it is left behind."""
    return (yield from cur.lit("\r\n")) or (yield from cur.lit("\n"))


def _empty(cur: Cursor, call: TagCall, name: str, tag: str, opening: Opening) -> Steps:
    """`<todoread></todoread>`."""
    if name != call.tag or not (yield from _stands_alone(cur, call, opening, len(tag))):
        raise Reject("no parameter")


def _first_parameter(cur: Cursor, call: TagCall, tools: tuple[Tool, ...]) -> Steps:
    """A parameter of one of the tools that the tag may mean, perhaps behind short ones that nobody knows."""
    cur.anchor = start = cur.offset
    for _ in range(_MAX_PRELUDE):
        name = _opened_parameter((yield from cur.tag()) or "")
        if not name:
            break
        meant = next((tool for tool in tools if _takes(call, tool, name)), None)
        if meant is not None:
            call.mean(meant)
            cur.back(start)
            cur.anchor = None
            return
        # A well-known tool is known with its parameters: what it does not take shows that it is not meant.
        if call.tool.known or not call.schema.required or not (yield from _pass_short(cur, name)):
            break
    raise Reject("no parameter of this tool")


def _takes(call: TagCall, tool: Tool, name: str) -> bool:
    schema = call.context.schema(tool)
    if not schema.properties:
        return name not in _HTML
    parameter = resolve_parameter(name, schema, ())[0]
    return parameter in schema.properties or is_older_form(tool.name, schema, name)


def _opened_parameter(tag: str) -> str:
    """The parameter that this tag opens, whosever it is."""
    named = parameter_of(tag)
    if named:
        return named[0]
    parts = tag_parts(tag)
    return parts[1] if parts and not parts[0] else ""


def _pass_short(cur: Cursor, name: str) -> Steps:
    """Step over `<name>a few words</name>`, if another tag follows."""
    if not (yield from cur.lit(f"<{name}>")):
        return False
    yield from cur.match(_TEXT_RUN, _PRELUDE_BOUND)
    if not (yield from cur.lit(f"</{name}>")):
        return False
    yield from cur.ws()
    return (yield from cur.peek(1)) == "<"


# A wrapper around the call, or around its name and its parameters


def _parse_wrapped(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    """The wrapper's own closer is a leftover."""
    cur.pos += len(opening.marker)
    if opening.marker in _NAMED_TAGS:
        name = yield from read_name_attribute(cur)
        # Words alone in a tag that many forms have may be anybody's.
        if opening.marker != "<tool " and not (yield from _holds_markup(cur)):
            raise Reject("no parameter")
        yield from _named_call(cur, context, opening.marker.strip("< "), name, opening, arguments)
        return
    child = opening.marker if opening.marker in _NAMED else None
    if child is None:
        yield from cur.ws()
        child = yield from cur.lits(_NAMED)
    if child is None and opening.marker in _NAME_ELEMENTS and (yield from cur.peek(1)) not in ("<", "{", "["):
        yield from _parse_pair(cur, context, opening)
        return
    if child is not None:
        name = yield from _name_child(cur, child)
        tag = name if opening.marker in _NAMED else opening.marker.strip("<>")
        yield from _named_call(cur, context, tag, name, opening, arguments)
        return
    if not (yield from cur.lit("<")):
        raise Reject("no call inside")
    name = yield from cur.match(_NAME_RUN, 64)
    yield from _call(cur, context, name, opening, arguments)


def _holds_markup(cur: Cursor) -> Steps:
    """Whether a tag or an object comes next; nothing is consumed."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    found = (yield from cur.peek(1)) in ("<", "{")
    cur.back(start)
    cur.anchor = None
    return found


def _name_child(cur: Cursor, opener: str) -> Steps:
    """The tool's name as the text of an element."""
    yield from cur.ws()
    name = yield from cur.match(_NAME_RUN, 64)
    yield from cur.ws()
    if not (yield from cur.lit("</" + opener[1:])):
        raise Reject("no name")
    return name


def _parse_pair(cur: Cursor, context: Context, opening: Opening) -> Generator[Draft | None, None, None]:
    """`<tool>N</tool>` and, as an element of its own, what the tool is given."""
    name = yield from _name_child(cur, opening.marker)
    tool = context.find(name)
    if tool is None:
        raise Reject("unknown tool", name=name)
    call = TagCall(name, tool, context.schema(tool), context, mends=["names_as_text"])
    yield from cur.ws()
    element = yield from cur.lits(_INPUTS)
    if element is None:
        raise Reject("no input")
    yield from cur.ws()
    closer = f"</{element[1:]}"
    if (yield from cur.peek(1)) == "{":
        yield from read_json_body(cur, call)
        yield from cur.ws()
    else:
        yield from read_sole_text(cur, call)
    if not (yield from cur.lit(closer)):
        raise Reject("the input is not closed", attempted=True)
    yield from call.drafts(cur)


def _named_call(cur: Cursor, context: Context, tag: str, name: str, opening: Opening, arguments: Arguments) -> Steps:
    """A call whose name was given apart: its parameters are siblings of the name."""
    tools = tools_named(context, name)
    if not tools:
        raise Reject("unknown tool", name=name)
    call = TagCall(tag, tools[0], context.schema(tools[0]), context)
    if tools[0].name != name:
        call.mends.append("tool_name")
    yield from _body(cur, call, tools, opening)
    yield from _rest(cur, call, opening, arguments)


# The tool's name as a line, its parameters below


def _parse_prefixed(
    cur: Cursor, context: Context, opening: Opening, _arguments: Arguments
) -> Generator[Draft | None, None, None]:
    """The call ends behind its last parameter; a closer of the tool that was never opened is taken along."""
    cur.pos += len(opening.marker)
    name = opening.marker.rstrip("\r\n:")
    tool = context.find(name)
    if opening.marker.endswith(":"):
        yield from cur.match(_BLANK_RUN)
        if not (yield from _line_break(cur)):
            raise Reject("no call")
    if tool is None:
        raise Reject("no call")
    call = TagCall(tool.name, tool, context.schema(tool), context, mends=["call_opener_broken"])
    way = Way.of(opening.hint)
    yield from cur.match(_BLANK_RUN)
    while True:
        tag = ((yield from cur.tag()) or "") if (yield from cur.peek(1)) == "<" else ""
        parts = tag_parts(tag)
        if parts is None or parts[0] or parts[1] not in call.schema.properties or not call.may_follow(parts[1]):
            break
        cur.pos += len(tag)
        yield from read_line_value(cur, call, parts[1], way)
        cur.floor = cur.offset
        yield from cur.ws()
    if cur.floor is None:
        raise Reject("no parameter")
    if (yield from cur.lit(f"</{call.tag}>")):
        cur.floor = cur.offset
    elif (yield from cur.at_end()) and cur.cut:
        raise Reject("cut", attempted=True)
    yield from call.drafts(cur, cur.floor)


_RESULTS = (
    *("<tool_response>", "<tool_result>", "[Tool Result:", "Tool Result from ", "[switch_mode to '"),
    *(f"[{name}{end}" for name in known_tools() for end in (" for '", "] Result:")),
)
"""The last are the labels of the clients that write calls as tags."""
_CARRIERS = ("", "json", "xml", "tool_call", "tool_code", "tool", "tools", "function", "html")
# Roo Code, Cline and Kilo Code prompted any model for it:
# https://github.com/Kilo-Org/kilocode/blob/b2e5191b0e50d14dc66cbf9c0f4ff0989f2bc6bd/src/core/assistant-message/AssistantMessageParser.ts
GENERIC = Dialect(
    id="generic_xml",
    family="tag XML",
    level="C",
    openers=_openers,
    parse=in_line(_parse),
    inline=True,
    results=_RESULTS,
    carriers=_CARRIERS,
    renderer=GenericTags(),
    example="<read_file>\n<path>src/app.py</path>\n</read_file>",
)
# Models that know another form as well put its wrapper around the tool's tag.
WRAPPED = Dialect(
    id="wrapped_xml",
    family="tag XML",
    level="C",
    openers=lambda _context: (*_WRAPPERS, *_NAMED_TAGS, *_NAMED[:2]),
    parse=_parse_wrapped,
    carriers=_CARRIERS,
    example="<tool_use>\n<read_file><path>src/app.py</path></read_file>\n</tool_use>",
)
# Small models lose the tool's tag and keep its name on a line of its own.
PREFIXED = Dialect(
    id="prefixed_xml",
    family="tag XML",
    level="C",
    line_openers=lambda context: tuple(
        name + end for name in context.tools.names if _NAME.fullmatch(name) for end in ("\n", "\r\n", ":")
    ),
    parse=_parse_prefixed,
    carriers=_CARRIERS,
    example="read_file\n<path>src/app.py</path>",
)
