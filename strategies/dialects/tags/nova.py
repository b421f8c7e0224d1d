"""Amazon Nova, where its server finds a call malformed and shows what it wrote.

    block = [ "<tools>" ] ws { call ws } [ "</tools>" ]
    call  = "<__function=" NAME ">" ws { param ws } "</__function>"
    param = "<__parameter=" KEY ">" RAW "</__parameter>"

One underscore may be lost. Values are text as it is, objects and lists JSON. Bounds: an opener without a declared name
and a parameter or closer behind it is refused at once.
"""

import re
from collections.abc import Generator

from attrs import evolve

from strategies.dialects.tags.form import NEVER, QUOTED, Call, group, read_call
from strategies.dialects.tags.qwen3_coder import FUNCTION
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.text.cursor import Cursor, Reject, pass_over
from strategies.writing.element_renderer import ParameterRenderer, in_lines

__all__ = ["NOVA"]

_FORM = evolve(
    FUNCTION,
    call=re.compile(rf"<_{{1,2}}function=[ \t]*{QUOTED.format('name')}[ \t]*>\Z"),
    closer="</__function>",
    call_close=re.compile(r"</_{0,2}function>\Z"),
    param=re.compile(rf"<_{{1,2}}parameter=[ \t]*{QUOTED.format('key')}[ \t]*(?P<empty>/?)>\Z"),
    close=re.compile(r"</_{0,2}parameter>\Z"),
    loose=NEVER,
    section_open=re.compile(r"<tools>\Z"),
    section_close=re.compile(r"</tools>\Z"),
    edges="pair",
    stub="</__parameter",
    takes_section=True,
    cdata_closers=("</__parameter>",),
)
_BLOCK = "<tools>"


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    if opening.marker == _BLOCK:
        cur.pos += len(_BLOCK)
        yield from cur.ws()
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    found = _FORM.call.match(tag) if tag else None
    if tag is None or found is None:
        raise Reject("no function inside")
    cur.pos += len(tag)
    call = Call.of(_FORM, context, group(found, "name"))
    if call.tool is None:
        yield from pass_over(call.name, read_call(cur, call, opening.hint, Arguments(None)))
    yield from read_call(cur, call, opening.hint, arguments, meant=True)


# https://github.com/vercel/ai/issues/16926
NOVA = Dialect(
    id="nova",
    family="nova",
    level="B",
    openers=lambda _context: ("<__function=", "<_function=", _BLOCK),
    parse=_parse,
    models=("*nova-*", "nova*"),
    renderer=ParameterRenderer(
        id="nova",
        marker="<__function=",
        parse=_parse,
        call_open=lambda name: f"<__function={name}>\n",
        call_close="</__function>",
        param=lambda key, _value, text: f"<__parameter={key}>{in_lines(text)}</__parameter>\n",
        tokens=("<__", "</__"),
    ),
    example="<tools>\n<__function=read>\n<__parameter=filePath>src/app.py</__parameter>\n</__function>\n</tools>",
)
