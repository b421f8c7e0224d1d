"""DeepSeek V3.2 and V4, GigaChat 3.5: invoke blocks whose every tag carries the token of the family.

    block  = "<" T W ">" ws { invoke ws } "</" T W ">"                      W = function_calls | tool_calls
    invoke = "<" T 'invoke name="' NAME '"' ( "/>" | ">" ws ( { param ws } | object ) "</" T "invoke>" )
    param  = "<" T 'parameter name="' KEY '" string="' ( "true" | "false" ) '">' RAW "</" T "parameter>"
    T      = the word DSML, or GCML for GigaChat, between fullwidth bars

Values are verbatim; `string="true"` makes them text where the schema allows it, `"false"` JSON. Bars may be doubled, of
another kind, missing on one side or surrounded by spaces, in tags only. Also read: no block, a block that never ends,
parameters that close themselves with their value in the tag, or whose openers have no token, what `parameter_calls`
mends. Bounds: an opener that is no such tag is refused at once.
"""

import re
from collections.abc import Callable, Generator

from attrs import evolve

from strategies.dialects.tags.form import QUOTED, Call, Form, Typed, group, read_call, untyped
from strategies.dialects.tags.invoke import read_invoke
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.text.cursor import Cursor, Reject
from strategies.text.turns import Turns
from strategies.writing.element_renderer import ParameterRenderer

__all__ = ["DSML", "GCML"]

# Hosts turn the full-width bars into others, double them or put blanks beside them:
# https://github.com/lsdefine/GenericAgent/issues/804 https://github.com/AgentFlocks/flocks/issues/687
_T = r"\s?[|｜‖]{0,2}\s?(?:DSML|GCML)\s?[|｜‖]{0,2}\s?"
_STRING = re.compile(r"""string\s*=\s*["']?(true|false)""")
# The word changed between V3.2, V4 and V4.1, which also writes a blank before it; models write all of them.
_BLOCK = r"(?:function_calls|tool_calls|calls)"
_BLOCK_OPEN = re.compile(rf"<{_T}{_BLOCK}\s*>\Z")
_BLOCK_CLOSE = re.compile(rf"</{_T}{_BLOCK}\s*>\Z")


def _typed(call: Call, tag: str, key: str, text: str) -> Turns[Typed | None]:
    """What the tag says: text, or JSON that fits; None where the schema has to say."""
    said = _STRING.search(tag)
    is_text = said is not None and said.group(1) == "true"
    # `string="true"` on a parameter that only holds the arguments says nothing of their own types.
    if said is None or (is_text and key in _CONTAINERS):
        return None
    told = yield from call.schema.reading_told(key, text, is_text=is_text)
    return None if told is None else Typed(told.value, told.mends)


_CONTAINERS = frozenset({"arguments", "input"})
# V4 Flash, with the value in the place of its type: https://github.com/MetaFARS/codex-relay/pull/49
# Nothing says how such a value is escaped: one that may be is none.
_HELD = r"""\s+string\s*=\s*"(?!(?:true|false)"|[^"]*&#?\w+;)(?P<held>[^"<>\\]*)"(?=\s*/)"""
_HOLDS = r"""[^<>]*\sstring\s*=\s*"(?!(?:true|false)")[^<>]*/>"""
FORM = Form(
    call=re.compile(rf"<{_T}invoke\s+name\s*=\s*{QUOTED.format('name')}\s*(?P<empty>/?)>\Z"),
    closer="</｜DSML｜invoke>",
    call_close=re.compile(rf"</{_T}invoke\s*>\Z"),
    param=re.compile(
        rf"<{_T}(?:parameter|invoke(?={_HOLDS}))\s+name\s*=\s*{QUOTED.format('key')}"
        rf"""(?:\s+string\s*=\s*["']?(?:true|false)["']?|{_HELD})?\s*(?P<empty>/?)>\Z"""
    ),
    close=re.compile(rf"</{_T}parameter\s*>\Z"),
    # Misspelt now and then: https://github.com/ggml-org/llama.cpp/pull/28612
    loose=re.compile(rf"</{_T}p[^<>]{{0,20}}>\Z"),
    section_open=_BLOCK_OPEN,
    section_close=_BLOCK_CLOSE,
    wrong_close=re.compile(r"</(?:invoke|function_calls|tool_calls)>\Z"),
    # As the template writes values: every line break in them is the model's own.
    edges="none",
    cdata_closers=("</｜DSML｜parameter>", "</｜GCML｜parameter>"),
    # A section may end under another word than it began with: https://github.com/TokenRhythm/opensquilla/issues/985
    takes_section=True,
    # Its documents are full of tags, and its own carry a token: no plain one is a parameter.
    property_tags=False,
    typed=_typed,
)


_GCML = evolve(FORM, closer="</｜GCML｜invoke>")
# V4.1 Flash loses the token of an opener: https://github.com/sgl-project/sglang/pull/39435
# Only where a call begins so: its other values may hold such tags.
_BARE = evolve(FORM, param=re.compile(rf"<parameter\s+name\s*=\s*{QUOTED.format('key')}\s*(?P<empty>/?)>\Z"))
# Names behind one letter, the parameters of another family, one more tag for the end:
# https://github.com/OpenHands/software-agent-sdk/issues/4845
_COMPACT = evolve(
    FORM,
    call=re.compile(rf"<{_T}r\s*=\s*{QUOTED.format('name')}\s*>\Z"),
    closer="<｜｜DSML｜｜m>",
    call_close=re.compile(rf"</{_T}[rm]\s*>\Z"),
    section_open=re.compile(rf"<{_T}m\s*>\Z"),
    param=re.compile(rf"<parameter\s*=\s*{QUOTED.format('key')}\s*(?P<empty>/?)>\Z"),
    close=re.compile(r"</parameter>\Z"),
    edges="lines",
    cdata_closers=("</parameter>",),
    typed=untyped,
)


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    tag = yield from cur.tag()
    if tag is None:
        raise Reject("no tag")
    compact = _COMPACT.call.match(tag)
    if compact:
        cur.pos += len(tag)
        yield from read_call(cur, Call.of(_COMPACT, context, group(compact, "name")), opening.hint, arguments)
        return
    if _BLOCK_OPEN.match(tag):
        cur.pos += len(tag)
        start = behind = cur.offset
        yield from cur.ws()
        # A section without a call inside is markup for nobody; what stood in front of it goes on as text, else all
        # behind the first token would be swallowed: https://github.com/XNet-NGO/aiope/issues/119
        following = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
        if _BLOCK_CLOSE.match(following or ""):
            behind = cur.offset + len(following or "")
        if following != "<invoke>" and not FORM.call.match(following or ""):
            is_alone = following is None or behind > start
            raise Reject("no invoke", remains=behind if is_alone else 0)
    form = _GCML if opening.marker == _GCML_OPENER else FORM
    yield from read_invoke(cur, context, opening, arguments, form, undeclared=True, bare=_BARE)


_GCML_OPENER = "<｜GCML｜"


def _param(token: str) -> Callable[[str, object, str], str]:
    """What writes one parameter, with its type in the tag."""

    def write(key: str, value: object, text: str) -> str:
        kind = str(isinstance(value, str)).lower()
        return f'<{token}parameter name="{key}" string="{kind}">{text}</{token}parameter>\n'

    return write


def _result(_name: str, _call_id: str, content: str) -> str:
    return f"<function_results>\n<result>{content}</result>\n</function_results>"


# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/deepseekv32_tool_parser.py
# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/DeepSeek-V3.2.jinja
DSML = Dialect(
    id="dsml",
    family="dsml",
    level="A",
    openers=lambda _context: tuple(
        f"<{space}{bars}{gap}DSML"
        # All spellings are openers of their own, as what may become one is held back, and nothing else.
        for bars in ("｜", "|", "‖", "｜｜", "||", "‖‖", "")
        for space, gap in (("", ""), (" ", ""), ("", " "))
    ),
    parse=_parse,
    # The model goes on with a result of its own making where nothing stops it there.
    results=("<function_results>", "<｜DSML｜function_results>"),
    models=("deepseek-v3.2*", "deepseek-v4*"),
    renderer=ParameterRenderer(
        id="dsml",
        marker="<｜DSML",
        parse=_parse,
        opening="<｜DSML｜function_calls>\n",
        closing="\n</｜DSML｜function_calls>",
        call_open=lambda name: f'<｜DSML｜invoke name="{name}">\n',
        call_close="</｜DSML｜invoke>",
        param=_param("｜DSML｜"),
        answer=_result,
        tokens=("<｜DSML｜", "</｜DSML｜", "<function_results>", "</function_results>", "</result>"),
    ),
    example=(
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read">\n'
        '<｜DSML｜parameter name="filePath" string="true">src/app.py</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    ),
)
# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/GigaChat3.5.jinja
# https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/gigachat35_detector.py
GCML = Dialect(
    id="gcml",
    family="dsml",
    level="A",
    openers=lambda _context: (_GCML_OPENER,),
    parse=_parse,
    models=("gigachat3.5*", "gigachat-3.5*"),
    renderer=ParameterRenderer(
        id="gcml",
        marker=_GCML_OPENER,
        parse=_parse,
        opening="<｜GCML｜tool_calls>\n",
        closing="\n</｜GCML｜tool_calls>",
        call_open=lambda name: f'<｜GCML｜invoke name="{name}">\n',
        call_close="</｜GCML｜invoke>",
        param=_param("｜GCML｜"),
        answer=_result,
        tokens=(_GCML_OPENER, "</｜GCML｜", "<function_results>", "</function_results>", "</result>"),
    ),
    example=(
        '<｜GCML｜tool_calls>\n<｜GCML｜invoke name="read">\n'
        '<｜GCML｜parameter name="filePath" string="true">src/app.py</｜GCML｜parameter>\n'
        "</｜GCML｜invoke>\n</｜GCML｜tool_calls>"
    ),
)
