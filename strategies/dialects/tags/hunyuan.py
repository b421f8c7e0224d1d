"""Hunyuan: a list of calls in JSON (A13B), or calls of keys and values (Hy3), inside `<tool_calls>`.

    A13B = "<tool_calls>" "[" object { "," object } "]" "</tool_calls>"
    Hy3  = "<tool_calls>" { "<tool_call>" NAME "<tool_sep>" { pair } "</tool_call>" } "</tool_calls>"

The pairs are those of `glm`; each tag of Hy3 may carry the suffix of its tokenizer. The brackets of the list may be
missing. Bounds: those of `glm` and `payload`.
"""

import re
from collections.abc import Generator

from strategies.dialects.tags.glm import FORM, read_pairs
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import marked_json
from strategies.text.cursor import Cursor, Reject
from strategies.writing.element_renderer import ParameterRenderer
from strategies.writing.token_renderer import JsonRenderer

__all__ = ["HUNYUAN", "HY3"]

_LIST = marked_json(("</tool_calls>",), form="hermes")


def _parse_list(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.anchor = start = cur.offset
    cur.pos += len(opening.marker)
    yield from cur.ws()
    # `<tool_calls>` opens four families' blocks; each looks at what stands first inside.
    if (yield from cur.peek(1)) != "[":
        raise Reject("no list inside")
    cur.back(start)
    cur.anchor = None
    yield from _LIST(cur, context, opening, arguments)


_SUFFIX_RUN = re.compile(r"[^<>]*")


def _parse_pairs(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    # Hy3's tokenizer hangs a suffix on each tag.
    if not opening.marker.endswith(">"):
        yield from cur.match(_SUFFIX_RUN, 40)
        if not (yield from cur.lit(">")):
            raise Reject("no call")
    yield from cur.ws()
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    if tag is None or not FORM.call.match(tag):
        raise Reject("no call inside")
    cur.pos += len(tag)
    yield from read_pairs(cur, context, opening, arguments, undeclared=context.prompted == HY3.id)


def _result(_name: str, _call_id: str, content: str) -> str:
    return f"<tool_response>{content}</tool_response>"


_RESULTS = ("<tool_response>", "<tool_responses>")
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/hunyuan_a13b_tool_parser.py
HUNYUAN = Dialect(
    id="hunyuan",
    family="tool_call",
    level="B",
    openers=lambda _context: ("<tool_calls>",),
    parse=_parse_list,
    results=_RESULTS,
    models=("hunyuan*",),
    renderer=JsonRenderer(
        id="hunyuan",
        opening="<tool_calls>[",
        closing="]</tool_calls>",
        between=", ",
        answer=_result,
        tokens=("<tool_response>", "</tool_response>"),
    ),
    example='<tool_calls>[{"name": "glob", "arguments": {"pattern": "**/*.py"}}]</tool_calls>',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/hy_v3_tool_parser.py
HY3 = Dialect(
    id="hy3",
    family="tool_call",
    level="B",
    openers=lambda _context: ("<tool_calls>", "<tool_calls:"),
    parse=_parse_pairs,
    results=_RESULTS,
    models=("hy3*", "hy-v3*"),
    renderer=ParameterRenderer(
        id="hy3",
        marker="<tool_calls>",
        parse=_parse_pairs,
        opening="<tool_calls>\n",
        closing="\n</tool_calls>",
        call_open=lambda name: f"<tool_call>{name}<tool_sep>\n",
        call_close="</tool_call>",
        param=lambda key, _value, text: f"<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n",
        answer=_result,
        tokens=("<tool_response>", "</tool_response>"),
    ),
    example=(
        "<tool_calls>\n<tool_call>read<tool_sep>\n<arg_key>filePath</arg_key>\n<arg_value>a.py</arg_value>\n"
        "</tool_call>\n</tool_calls>"
    ),
)
