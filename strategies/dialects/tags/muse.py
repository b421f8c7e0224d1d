"""Muse Glimmer: invoke tags with their own prefix in messages that are headed by their recipient.

    message = "<|start|>assistant to=" NAME "<|message|>" block [ "<|eom|>" ]
    block   = "<atem:function_calls>" { '<atem:invoke name="N">' { param } "</atem:invoke>" } "</atem:function_calls>"
    param   = '<atem:parameter name="K">' RAW "</atem:parameter>"

Only a message to a tool holds calls, and only at the begin of the answer or behind another message: markup in a
message to the user or to the model itself is text. What of the header stands in the prompt may be missing, and then the
arguments may be JSON. Values are
text as it is. A tool's name may be doubled by its namespace. Bounds: those of `harmony` for the header and of `invoke`
for the block.
"""

import re
from collections.abc import Generator

from attrs import evolve

from strategies.dialects.tags.form import Call, group, read_call
from strategies.dialects.tags.invoke import INVOKE
from strategies.dialects.tokens.harmony import Header, read_header
from strategies.grammar.closers import CLOSER_AT_END
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import STOPS, named_drafts, read_end, read_json, with_mends
from strategies.text.cursor import Cursor, Reject

__all__ = ["MUSE"]

_FORM = evolve(
    INVOKE,
    closer="</atem:invoke>",
    section_close=re.compile(r"</atem:function_calls>\Z"),
    edges="none",
    takes_section=True,
    cdata_closers=("</atem:parameter>",),
)
_NOT_TOOLS = frozenset({"user", "self", "assistant", "all", "system"})
_BLOCK, _BLOCK_END = "<atem:function_calls>", "</atem:function_calls>"
_ENDS = ("<|eom|>", "<|end|>", "<|eot|>", "<|call|>")


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    if opening.marker.startswith("<|start|>"):
        header: Header = yield from read_header(cur, opening.marker)
        # Thoughts go to `self` in the same form, and are full of drafts.
        if not header.recipient or header.recipient in _NOT_TOOLS:
            raise Reject("no call")
    yield from cur.ws()
    if opening.marker.startswith("to=") and (yield from cur.peek(1)) == "{":
        name = opening.marker.removeprefix("to=").removesuffix("<|message|>")
        payload = yield from read_json(cur, context, opening, _ENDS, tool=context.find(name))
        yield from with_mends(
            (yield from named_drafts(cur, context, name, payload)), (yield from read_end(cur, (*_ENDS, *STOPS)))
        )
        return
    if opening.marker != _BLOCK and not (yield from cur.lit(_BLOCK)):
        raise Reject("no call")
    yield from cur.ws()
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    found = _FORM.call.match(tag) if tag else None
    if found is None or found.group("empty"):
        raise Reject("no invoke")
    name = group(found, "name")
    # Without its head a block is more likely shown than meant, unless the tool is named just so:
    # https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/muse_glimmer_detector.py
    if opening.marker == _BLOCK and context.find(name) is None:
        raise Reject("unknown tool", name=name)
    cur.pos += len(found.group())
    yield from read_call(cur, Call.of(_FORM, context, name), opening.hint, arguments)


def _may_open(_context: Context, opening: Opening) -> bool:
    before = opening.before.rstrip()
    # A header in the middle of a sentence is talked about.
    return not before or before.endswith((*_ENDS, _BLOCK_END)) or CLOSER_AT_END.search(before) is not None


# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/muse_glimmer_tool_parser.py
MUSE = Dialect(
    id="muse_glimmer",
    family="muse",
    level="A",
    openers=lambda _context: ("<|start|>assistant", _BLOCK),
    # The head of the message stands in the prompt: https://github.com/ggml-org/llama.cpp/issues/29240
    line_openers=lambda context: tuple(f"to={name}<|message|>" for name in context.tools.names),
    may_open=_may_open,
    parse=_parse,
    models=("muse*",),
    example=(
        '<|start|>assistant to=read<|message|><atem:function_calls>\n<atem:invoke name="read">\n'
        '<atem:parameter name="filePath">src/app.py</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
    ),
)
