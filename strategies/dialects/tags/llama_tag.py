"""Llama 3 with custom tools, Functionary 3.1: `<function=NAME>` with a JSON object inside.

    call = "<function=" NAME ">" ws object ws [ "</function>" ]

The braces say where the object ends. Also read: the name as an attribute, quotes and braces around the tag's inside, a
lost `>`, `<function>` as the closer, a `>` behind the object. Bounds: those of the cursor; without `{` it is no call.
"""

import re
from collections.abc import Generator

from strategies.dialects.tags.form import Call, draft_of, group, read_call_end
from strategies.dialects.tags.qwen3_coder import FUNCTION
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_bodies import json_arguments
from strategies.grammar.raw_value import Way
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.writing.token_renderer import JsonRenderer

__all__ = ["LLAMA3_TAG"]

_NOISY = re.compile(r"""<\{\s*["']function=(?P<name>[\w.:/-]{1,128})["']\s*\}>\Z""")
_NAME_RUN = re.compile(r"[\w.:/-]*")
# What Llama on Groq writes around the object when it mixes this form with others:
# https://github.com/tashfeenahmed/freellmapi/issues/291 https://github.com/blogminhquy/javis-os/pull/63
_OPENERS = ("<function=", "<function(", "(function=")
_BETWEEN = re.compile(r"[=,(\[>)\s]*")
_BEHIND = re.compile(r"""[)\]">\s]*""")


def _parse(
    cur: Cursor, context: Context, opening: Opening, _arguments: Arguments
) -> Generator[Draft | None, None, None]:
    call = yield from _head(cur, context)
    yield from cur.match(_BETWEEN, 8)
    first = yield from cur.peek(1)
    if first != "{":
        # Where the first brace is lost, so may be more.
        raise Reject("no JSON inside", attempted=first == '"', name=call.name)
    yield from json_arguments(cur, call, FUNCTION.closer, opening.hint)
    # The bracket moved behind the object: https://github.com/huggingface/smolagents/issues/1119
    if (yield from cur.match(_BEHIND, 8)).strip():
        call.mends.append("stray_closer")
    end = yield from read_call_end(cur, call, Way())
    yield (yield from draft_of(cur, call, end))


def _head(cur: Cursor, context: Context) -> Steps:
    tag = yield from cur.tag()
    found = (FUNCTION.call.match(tag) or _NOISY.match(tag)) if tag else None
    if found:
        cur.pos += len(tag)
        name = group(found, "name")
    elif (yield from cur.lits(_OPENERS)):
        name = yield from cur.match(_NAME_RUN, 128)
    else:
        raise Reject("no function")
    call = Call.of(FUNCTION, context, name)
    if call.tool is None:
        raise Reject("unknown tool", name=call.name)
    if not found or _NOISY.match(tag):
        call.mends.append("function_tag")
    return call


# https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/; where it is written for JSON, Groq answers 400:
# https://github.com/tashfeenahmed/freellmapi/issues/291
LLAMA3_TAG = Dialect(
    id="llama3_tag",
    family="tool_call",
    level="C",
    openers=lambda _context: (*_OPENERS, "<function ", '<{"function='),
    parse=_parse,
    models=("llama-3*", "llama3*", "*functionary*"),
    renderer=JsonRenderer(
        id="llama3_tag", body=lambda name, arguments: f"<function={name}>{arguments}</function>", between="\n"
    ),
    example='<function=read>{"filePath": "src/app.py"}</function>',
)
