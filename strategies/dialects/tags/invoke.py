"""Claude's calls in text, and the families that learned them: `<invoke name="N">` with named parameters.

    block  = [ "<" P "function_calls>" ws ] invoke { ws invoke } [ ws "</" P "function_calls>" ]
    invoke = "<" P 'invoke name="' NAME '">' ws { param ws } "</" P "invoke>" | "<" P 'invoke name="' NAME '"/>'
    param  = "<" P 'parameter name="' KEY '"' { attribute } ">" RAW "</" P "parameter>"
    P      = "" | a namespace prefix with its colon, of a few that are looked for

Values are verbatim, but for one line break on each side where both are there. Also read: the first form with the name
and every parameter as an element of its own, and what `parameter_calls` mends. Without the block the name must be a
declared tool's, at the start of a line or behind a sentence. MiniMax M2 and dots write the same inside blocks of
their own, Grok Code with `xai:function_call` in the place of `invoke`. Bounds: an opener without a name and a parameter
or closer behind it is refused at once.
"""

import re
from collections.abc import Generator
from functools import cache

from attrs import evolve

from strategies.dialects.tags.form import (
    QUOTED,
    Call,
    Form,
    begin_call,
    draft_of,
    group,
    read_call,
    read_call_end,
    read_parameters,
    read_section_close,
)
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.inline import in_line
from strategies.grammar.json_payload import marked_json
from strategies.grammar.raw_value import Way
from strategies.text.cursor import Cursor, Reject, Steps, pass_over
from strategies.writing.element_renderer import ParameterRenderer

__all__ = [
    "BARE_INVOKE",
    "CLAUDE_INVOKE",
    "DOTS",
    "INVOKE",
    "LOST_HEAD",
    "XAI",
    "invoke_open",
    "invoke_param",
    "read_invoke",
]

# What Claude's own tags carry before their structure is taken off.
_PREFIX = "antml:"
# Muse Glimmer has a prefix of its own: https://github.com/raullenchai/Rapid-MLX/issues/1791
_P = r"(?:[A-Za-z][\w.-]{0,30}:)?"
# Models write a prefix of their own as well (https://github.com/openclaw/openclaw/issues/97750). These few are looked
# for: were any, each tag of a page would be held back until it is seen to be none.
_OTHERS = (
    *("ai:", "anthropic:", "claude:", "deepseek:", "dsml:", "fn:", "glm:", "kimi:", "llm:", "mcp:", "minimax:", "mm:"),
    *("ns:", "ns0:", "qwen:", "tool:", "tools:", "xai:"),
)
# Parameters of other families carry more, such as DSML's `string`.
_ATTRIBUTES = r"""(?:\s+[\w:-]{1,40}\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))*"""
_BLOCKS = "function_calls|tool_calls?|dots_function_call"


@cache
def _form(p: str, close: str, plain: str = "") -> Form:
    """The tags with one prefix, or any; `p` and `close` are patterns for those that open and that close."""
    return Form(
        # The letter belongs to tokens that were lost: https://github.com/NousResearch/hermes-agent/pull/73472
        call=re.compile(rf"<\s?{p}(?:invoke|rivoke)\s+name\s*=\s*{QUOTED.format('name')}\s*(?P<empty>/?)>\Z"),
        closer=f"</{plain}invoke>",
        call_close=re.compile(rf"</{close}(?:invoke|rivoke)>\Z"),
        param=re.compile(rf"<{p}parameter(?:\s+r?name)?\s*=\s*{QUOTED.format('key')}{_ATTRIBUTES}\s*(?P<empty>/?)>\Z"),
        close=re.compile(rf"</{close}parameter>\Z"),
        loose=re.compile(rf"</\s*{close}param[^<>]{{0,60}}>\Z"),
        stub=f"</{plain}parameter",
        section_open=re.compile(rf"<{p}(?:{_BLOCKS})>\Z"),
        section_close=re.compile(rf"</{close}(?:{_BLOCKS})>\Z"),
        wrong_close=re.compile(r"</(?:function|tool|tool_use)>\Z"),
        edges="pair",
        takes_section=bool(plain),
        cdata_closers=("</parameter>", f"</{plain or _PREFIX}parameter>", "</steptml:parameter>"),
    )


INVOKE = _form(_P, _P)
_WITH_SECTION = evolve(INVOKE, takes_section=True)


def _form_of(marker: str) -> Form:
    """The tags that belong to this opener: behind a prefix of no family all that open have the same one."""
    prefix = marker[1 : marker.find(":") + 1]
    if prefix in _OTHERS:
        return _form(re.escape(prefix), f"(?:{re.escape(prefix)})?", prefix)
    return _WITH_SECTION if prefix else INVOKE


_XAI = evolve(
    INVOKE,
    call=re.compile(
        rf"<(?:xai:function_call\s+name|call_record\s+tool)\s*=\s*{QUOTED.format('name')}\s*(?P<empty>/?)>\Z"
    ),
    closer="</xai:function_call>",
    # The closer may repeat the name, or a part of what stands behind it in the opener.
    call_close=re.compile(r"""</(?:call_record|xai:function_call(?:\s+name\s*=\s*"[^"<>]{0,128}")?\s*"?)>\Z"""),
    wrong_close=re.compile(r"</(?:invoke|function|function_call|tool|tool_use)>\Z"),
)
_LEGACY = evolve(
    INVOKE,
    section_close=re.compile(r"</(?:parameters|function_calls)>\Z"),
)
_NAME_RUN = re.compile(r"[\w.:/-]*")


def read_invoke(
    cur: Cursor,
    context: Context,
    opening: Opening,
    arguments: Arguments,
    form: Form,
    *,
    undeclared: bool,
    bare: Form | None = None,
) -> Generator[Draft | None, None, None]:
    """One call from its opener on; `undeclared` lets pass names that nobody declared.

    `bare` is the form of a call whose first parameter is none of `form`, but one of this.
    """
    yield from cur.ws()
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    if tag == "<invoke>":
        cur.pos += len(tag)
        yield from _legacy(cur, context, opening, arguments)
        return
    found = form.call.match(tag) if tag else None
    lost = (yield from _without_end(cur)) if tag is None and form is not _XAI else ""
    if lost:
        call = Call.of(form, context, lost)
        call.mends.append("function_tag")
        if call.tool is None:
            raise Reject("unknown tool", name=call.name)
        yield from read_call(cur, call, opening.hint, arguments)
        return
    if found is None:
        # Some models lose the brackets of all tags in a block: https://github.com/exo-explore/exo/issues/1882
        raise Reject("no invoke", attempted=(yield from cur.starts("invoke name=")))
    cur.pos += len(found.group())
    call = Call.of(form, context, group(found, "name"))
    if call.tool is None and not undeclared:
        if found.group("empty"):
            raise Reject("unknown tool", name=call.name)
        yield from pass_over(call.name, read_call(cur, call, opening.hint, Arguments(None)))
    if found.group("empty"):
        begin_call(call, arguments)
        if form.takes_section:
            yield from read_section_close(cur, form)
        yield (yield from draft_of(cur, call))
        return
    if bare is not None and (yield from _begins_bare(cur, bare)):
        call.form = bare
        call.mends.append("parameter_tag")
    yield from read_call(cur, call, opening.hint, arguments)


def _begins_bare(cur: Cursor, bare: Form) -> Steps:
    """Whether a parameter of this form comes first; nothing is consumed."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    cur.back(start)
    cur.anchor = None
    return tag is not None and bare.param.match(tag) is not None


def _without_end(cur: Cursor) -> Steps:
    """The name in `<invoke name="N"` that lost its `>`, where the next tag follows; nothing is consumed elsewhere."""
    # https://github.com/nullclaw/nullclaw/blob/main/src/agent/dispatcher.zig
    cur.anchor = start = cur.offset
    name = ""
    if (yield from cur.lit('<invoke name="')):
        name = yield from cur.match(_NAME_RUN, 128)
        is_ended = yield from cur.lit('"')
        yield from cur.ws()
        if not is_ended or not (yield from cur.starts("<parameter")):
            name = ""
    if not name:
        cur.back(start)
    cur.anchor = None
    return name


def _legacy(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    """`<invoke><tool_name>N</tool_name><parameters><k>v</k></parameters></invoke>`."""
    yield from cur.ws()
    if not (yield from cur.lit("<tool_name>")):
        raise Reject("no name")
    yield from cur.ws()
    name = yield from cur.match(_NAME_RUN, 128)
    yield from cur.ws()
    if not (yield from cur.lit("</tool_name>")):
        raise Reject("no name")
    call = Call.of(_LEGACY, context, name)
    if call.tool is None:
        raise Reject("unknown tool", name=call.name)
    call.own_tags, call.distinct = True, False
    yield from cur.ws()
    if not (yield from cur.lit("<parameters>")) and not (yield from cur.starts("</invoke>")):
        raise Reject("no parameters")
    begin_call(call, arguments)
    way = Way.of(opening.hint)
    yield from read_parameters(cur, call, way, arguments)
    yield from cur.lit("</parameters>")
    end = yield from read_call_end(cur, call, way)
    yield (yield from draft_of(cur, call, end))


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    # A block alone is what documents about agents hold (https://github.com/AmanCode22/deeperseeker/issues/12); who was
    # told to write so means it.
    undeclared = context.prompted == CLAUDE_INVOKE.id
    yield from read_invoke(cur, context, opening, arguments, _form_of(opening.marker), undeclared=undeclared)


def _parse_bare(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    yield from read_invoke(cur, context, opening, arguments, _form_of(opening.marker), undeclared=False)


def _parse_xai(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    yield from read_invoke(cur, context, opening, arguments, _XAI, undeclared=False)


def _parse_named(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    """`<function>`, the name as an element of its own, then parameters: closers of any family follow."""
    # The server took the tag's beginning for a stop: https://github.com/anthropics/anthropic-sdk-python/issues/936
    if opening.marker[0] == "=":
        cur.pos += len(opening.marker)
        call = Call.of(INVOKE, context, opening.marker[2:-2])
        call.mends.append("call_opener_broken")
        yield from read_call(cur, call, opening.hint, arguments)
        return
    is_whole = opening.marker == _FUNCTION
    cur.pos += len(opening.marker) if is_whole else len("<name>")
    yield from cur.ws()
    if is_whole and not (yield from cur.lit("<name>")):
        raise Reject("no name")
    name = (yield from cur.match(_NAME_RUN, 128)).strip()
    yield from cur.ws()
    if not is_whole:
        yield from _lost_head(cur, context, name)
    if not (yield from cur.lit("</name>")):
        raise Reject("no name")
    call = Call.of(_NAMED, context, name)
    if call.tool is None:
        raise Reject("unknown tool", name=name)
    yield from read_call(cur, call, opening.hint, arguments)


def _lost_head(cur: Cursor, context: Context, name: str) -> Steps:
    """A call whose first tags the server took: what is left of them cannot be told, so it is asked for again."""
    if context.find(name) is not None and (yield from cur.starts("</parameter>")):
        if (yield from cur.until("</function>", len)):
            cur.pos += len("</function>")
        raise Reject("the head of the call is lost", attempted=True, name=name)
    raise Reject("another element")


_FUNCTION = "<function>"
_NAMED = evolve(
    INVOKE,
    closer="</function>",
    call_close=re.compile(r"</(?:function|invoke)>\Z|</\s?[|｜]{1,2}\s?DSML\s?[|｜]{1,2}\s?invoke>\Z"),
    close=re.compile(r"</parameter>\Z|</\s?[|｜]{1,2}\s?DSML\s?[|｜]{1,2}\s?parameter>\Z"),
    wrong_close=re.compile(r"</(?:tool|tool_use|tool_call)>\Z"),
)
_DOTS_JSON = marked_json(("</dots_function_call>",), form="invoke")


def _parse_dots(cur: Cursor, context: Context, opening: Opening, arguments: Arguments) -> Steps:
    cur.anchor = start = cur.offset
    cur.pos += len(opening.marker)
    yield from cur.ws()
    is_json = (yield from cur.peek(1)) in ("{", "[")
    if is_json:
        cur.back(start)
    cur.anchor = None
    if is_json:
        yield from _DOTS_JSON(cur, context, opening, arguments)
    else:
        yield from read_invoke(cur, context, opening, arguments, INVOKE, undeclared=context.prompted == DOTS.id)


def invoke_open(name: str) -> str:
    """The opener of a call on a line of its own."""
    return f'<invoke name="{name}">\n'


def invoke_param(key: str, _value: object, text: str) -> str:
    """One parameter on a line of its own."""
    # A value with line breaks at both ends would lose them to the reader, which takes a pair for markup.
    wrap = "\n" if text[:1] in ("\n", "\r") and text[-1:] == "\n" else ""
    return f'<parameter name="{key}">{wrap}{text}{wrap}</parameter>\n'


def _result(name: str, _call_id: str, content: str) -> str:
    inner = f"<result>\n<name>{name}</name>\n<output>{content}</output>\n</result>"
    return f"<function_results>\n{inner}\n</function_results>"


_RESULTS = ("<function_results>",)
# Claude, where its structure is lost on the way: https://github.com/anthropics/claude-code/issues/71508
CLAUDE_INVOKE = Dialect(
    id="claude_invoke",
    family="invoke",
    level="B",
    openers=lambda _context: tuple(f"<{prefix}function_calls>" for prefix in ("", _PREFIX, *_OTHERS)),
    parse=_parse,
    results=_RESULTS,
    # Later ones call natively.
    models=("claude-2*", "claude-instant*"),
    renderer=ParameterRenderer(
        id="claude_invoke",
        marker="<function_calls>",
        parse=_parse,
        opening="<function_calls>\n",
        closing="\n</function_calls>",
        call_open=invoke_open,
        call_close="</invoke>",
        param=invoke_param,
        answer=_result,
        tokens=("<function_results>", "</function_results>", "</output>", "</result>"),
    ),
    example=(
        '<function_calls>\n<invoke name="read">\n<parameter name="filePath">src/app.py</parameter>\n</invoke>\n'
        "</function_calls>"
    ),
)
# The block's own tags are lost before the calls: https://github.com/anthropics/claude-code/issues/64700
BARE_INVOKE = Dialect(
    id="bare_invoke",
    family="invoke",
    level="C",
    openers=lambda _context: (
        *(f"<{prefix}invoke " for prefix in ("", _PREFIX, *_OTHERS)),
        *("< invoke name=", "<rivoke name="),
    ),
    parse=in_line(_parse_bare),
    inline=True,
    results=(*_RESULTS, "<response>"),
    example='<invoke name="read">\n<parameter name="filePath">src/app.py</parameter>\n</invoke>',
)
# Grok Code: https://github.com/MadAppGang/claudish/blob/main/tests/grok-tool-format.test.ts
# Gemini 3, in the tags of a history that it was shown: https://github.com/can1357/oh-my-pi/issues/92
XAI = Dialect(
    id="xai",
    family="invoke",
    level="B",
    openers=lambda _context: ("<xai:function_call ", "<call_record "),
    parse=_parse_xai,
    models=("grok*",),
    example=(
        '<xai:function_call name="read">\n<parameter name="filePath">src/app.py</parameter>\n</xai:function_call>'
    ),
)
# https://github.com/adolfousier/opencrabs/issues/419, and without its head https://github.com/signalnine/q27/issues/24
LOST_HEAD = Dialect(
    id="named_function",
    family="invoke",
    level="C",
    line_openers=lambda context: (
        _FUNCTION,
        *(head for name in context.tools.names for head in (f"<name>{name}", f'="{name}">')),
    ),
    parse=_parse_named,
    example='<function>\n<name>read</name>\n<parameter name="filePath">src/app.py</parameter>\n</function>',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/dots_tool_parser.py
DOTS = Dialect(
    id="dots",
    family="invoke",
    level="B",
    openers=lambda _context: ("<dots_function_call>",),
    parse=_parse_dots,
    models=("dots*",),
    example=(
        '<dots_function_call><invoke name="read"><parameter name="filePath">a.py</parameter></invoke>'
        "</dots_function_call>"
    ),
)
