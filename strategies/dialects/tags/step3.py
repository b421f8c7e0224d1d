"""Step3: invoke tags with their own prefix between begin and end tokens.

    block  = BEGIN { call [ SEP ] } END
    call   = "<｜tool_call_begin｜>" [ "function" SEP ] invoke "<｜tool_call_end｜>"
    invoke = '<steptml:invoke name="N">' { '<steptml:parameter name="K">' RAW "</steptml:parameter>" } closer

The white space around a value is markup. Bounds: those of `invoke`.
"""

import re
from collections.abc import Generator

from attrs import evolve

from strategies.dialects.tags.invoke import INVOKE, read_invoke
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.text.cursor import Cursor
from strategies.writing.element_renderer import ParameterRenderer

__all__ = ["STEP3"]

_FORM = evolve(
    INVOKE,
    closer="</steptml:invoke>",
    section_open=re.compile(r"<｜tool_(?:calls?_begin|sep)｜>\Z"),
    section_close=re.compile(r"<｜tool_calls?_end｜>\Z"),
    edges="all",
)
_LEAD = (
    "<｜tool_calls_begin｜>",
    "<｜tool_call_begin｜>",
    "function<｜tool_sep｜>",
    "<｜tool_sep｜>",
    "function <｜tool_sep｜>",
)


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    # Each of the tokens may be missing.
    for _ in _LEAD:
        if not (yield from cur.lits(_LEAD)):
            break
        yield from cur.ws()
    yield from read_invoke(cur, context, opening, arguments, _FORM, undeclared=True)


# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/step3_tool_parser.py
STEP3 = Dialect(
    id="step3",
    family="step3",
    level="A",
    openers=lambda _context: (*_LEAD[:2], "<steptml:invoke"),
    parse=_parse,
    results=("<｜tool_outputs_begin｜>", "<｜tool_output_begin｜>"),
    models=("step3*", "step-3"),
    renderer=ParameterRenderer(
        id="step3",
        marker=_LEAD[0],
        parse=_parse,
        opening=_LEAD[0],
        closing="<｜tool_calls_end｜>",
        between=_LEAD[3],
        call_open=lambda name: f'{_LEAD[1]}{_LEAD[2]}<steptml:invoke name="{name}">',
        call_close="</steptml:invoke><｜tool_call_end｜>",
        param=lambda key, _value, text: f'<steptml:parameter name="{key}">{text}</steptml:parameter>',
        answer=lambda _name, _call_id, content: (
            f"<｜tool_outputs_begin｜><｜tool_output_begin｜>{content}<｜tool_output_end｜><｜tool_outputs_end｜>"
        ),
        tokens=("<｜tool",),
    ),
    example=(
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="read">'
        '<steptml:parameter name="filePath">a.py</steptml:parameter></steptml:invoke><｜tool_call_end｜>'
        "<｜tool_calls_end｜>"
    ),
)
