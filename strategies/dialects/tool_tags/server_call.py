"""Calls of a server's tools in the tag that Cline made for them, by models that were taught it for their own tools.

    call   = "<use_mcp_tool>" { triple } "</use_mcp_tool>"
    triple = ws "<server_name>" RAW "</server_name>" ws "<tool_name>" NAME "</tool_name>" ws
             "<arguments>" ws object ws "</arguments>" ws

It means the tool that is named inside, where that is declared and `use_mcp_tool` is not; the server's name is one that
the prompt has made up. Bounds: whatever stands between the tags but white space is refused at once.
"""

import re
from collections.abc import Generator

from attrs import evolve

from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import json_ahead, named_drafts, read_arguments, with_mends
from strategies.text.cursor import Cursor, Reject, Steps, pass_over

__all__ = ["SERVER_CALL"]

_OPEN, _CLOSE = "<use_mcp_tool>", "</use_mcp_tool>"
_ARGUMENTS_END = "</arguments>"
_NAME = re.compile(r"[^<>\r\n]*")


def _parse(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(_OPEN)
    yield from cur.ws()
    found: list[Draft] = []
    while (yield from _element(cur, "server_name")) is not None:
        found += yield from _triple(cur, context, opening)
        yield from cur.ws()
    if not found:
        raise Reject("no server's name")
    if (yield from cur.lit(_CLOSE)):
        yield from found
        return
    if cur.cut or not (yield from cur.at_stub((_CLOSE,))):
        raise Reject("not closed", attempted=True)
    cur.pos = len(cur.text)
    yield from with_mends(found, ("call_closer_missing",))


def _triple(cur: Cursor, context: Context, opening: Opening) -> Steps:
    """What stands behind the server's name."""
    yield from cur.ws()
    name = (yield from _element(cur, "tool_name")) or ""
    tool = context.resolve(name)
    if tool is None:
        yield from pass_over(name, json_ahead(cur))
        return
    yield from cur.ws()
    if not (yield from cur.lit("<arguments>")):
        raise Reject("no arguments", attempted=True)
    yield from cur.ws()
    payload = yield from read_arguments(cur, context, opening, (_ARGUMENTS_END,), tool=tool[0])
    yield from cur.ws()
    if payload is None or not (yield from cur.lit(_ARGUMENTS_END)):
        raise Reject("arguments are not closed", attempted=True)
    drafts = yield from named_drafts(cur, context, name, payload, "hermes")
    return [evolve(draft, mends=(*draft.mends, *tool[1])) for draft in drafts]


def _element(cur: Cursor, word: str) -> Steps:
    """The text of the element that begins here, which is consumed; None where another one does."""
    if not (yield from cur.lit(f"<{word}>")):
        return None
    text: str = yield from cur.match(_NAME, 128)
    if not (yield from cur.lit(f"</{word}>")):
        raise Reject("no name", attempted=True)
    return text.strip()


# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/MiroThinker-v1.jinja
SERVER_CALL = Dialect(
    id="server_call",
    family="server_call",
    level="B",
    openers=lambda context: () if context.find("use_mcp_tool") is not None else (_OPEN,),
    parse=_parse,
    models=("mirothinker*",),
    example=(
        "<use_mcp_tool>\n<server_name>files</server_name>\n<tool_name>read</tool_name>\n<arguments>\n"
        '{"filePath": "src/app.py"}\n</arguments>\n</use_mcp_tool>'
    ),
)
