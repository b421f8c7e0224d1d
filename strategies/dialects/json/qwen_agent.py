"""Qwen-Agent: the name and the arguments behind tokens made of flowers.

    calls = { "✿FUNCTION✿" [":"] NAME { "✿ARGS✿" [":"] args } }
    args  = JSON object [ comment ] | a code fence | nothing

Each `✿ARGS✿` of one `✿FUNCTION✿` is a call of its own; without any, the tool is called without arguments. From
`✿RESULT✿` on everything is invented. A call counts when what follows its arguments is known.
"""

import re
from collections.abc import Generator, Mapping
from typing import Any

from gateway.core.tools import Tool
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Fence, Opening
from strategies.grammar.fences import read_line, read_rest
from strategies.grammar.json_calls import drafting
from strategies.grammar.json_payload import json_ahead, read_json, refuse_torn
from strategies.schema.tool_schema import ToolSchema
from strategies.text.cursor import Cursor, Reject, Steps, pass_over
from strategies.text.tape import Taken
from strategies.writing.block_renderer import BlockRenderer
from strategies.writing.renderer import CannotExpress
from strategies.writing.token_renderer import json_text

__all__ = ["QWEN_AGENT"]

_FUNCTION, _ARGS, _RESULT, _RETURN = "✿FUNCTION✿", "✿ARGS✿", "✿RESULT✿", "✿RETURN✿"
_STOPS = (_FUNCTION, _ARGS, _RESULT, _RETURN)
_BLANKS = re.compile(r"[ \t]*")
_NAME = re.compile(r"[\w.:/-]*")
_BACKTICKS = re.compile(r"`*")
_CODE_KEYS = ("code", "command", "script", "query")


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from _colon(cur)
    name: str = yield from cur.match(_NAME, 128)
    name = name.rstrip(":")
    found = context.resolve(name) if name else None
    if found is None:
        yield from pass_over(name, json_ahead(cur))
        return
    calls = 0
    while (yield from _follows(cur, _ARGS)):
        yield from _colon(cur)
        value, steps = yield from _args(cur, context, opening, found[0])
        given = {"name": name, "arguments": value}
        yield from (yield from cur.work(drafting(given, context, form="function", steps=steps)))
        calls += 1
    if not calls:
        if cur.cut and (yield from cur.at_end()):
            raise Reject("cut", attempted=True)
        yield from (yield from cur.work(drafting({"name": name, "arguments": {}}, context, form="function")))


def _colon(cur: Cursor) -> Steps:
    yield from cur.match(_BLANKS, 64)
    yield from cur.lits((":", "："))
    yield from cur.ws()


def _follows(cur: Cursor, marker: str) -> Steps:
    """Consume `marker` if it comes next, behind white space."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    found = yield from cur.lit(marker)
    if not found:
        cur.back(start)
    cur.anchor = None
    return found


def _args(cur: Cursor, context: Context, opening: Opening, tool: Tool) -> Steps:
    """The arguments of one call, and the mends they needed."""
    first = yield from cur.peek(1)
    if first == "{":
        payload = yield from read_json(cur, context, opening, _STOPS, tool=tool)
        yield from refuse_torn(cur, opening)
        yield from _comment(cur)
        return payload.value, payload.steps
    if first == "`" and (yield from cur.starts("```")):
        return (yield from _fenced(cur, context.schema(tool))), ()
    if not (first or cur.cut) or (yield from _at_token(cur)):
        return {}, ()
    raise Reject("no arguments", attempted=True)


def _at_token(cur: Cursor) -> Steps:
    """Whether one of the tokens comes next."""
    for token in _STOPS:
        if (yield from cur.starts(token)):
            return True
    return False


def _comment(cur: Cursor) -> Steps:
    """A comment behind the object is nobody's."""
    cur.anchor = start = cur.offset
    yield from cur.match(_BLANKS, 64)
    found = yield from cur.lit("<!--")
    if not found:
        cur.back(start)
    cur.anchor = None
    if found:
        if not (yield from cur.until("-->", _ignored)):
            raise Reject("comment never ends", attempted=True)
        cur.pos += 3


def _ignored(_text: str) -> None:
    pass


def _fenced(cur: Cursor, schema: ToolSchema) -> Steps:
    """A code fence is the code of a tool that runs some."""
    key = next((key for key in _CODE_KEYS if key in schema.properties and schema.prop(key).is_string), None)
    run: str = yield from cur.match(_BACKTICKS, 64)
    head: list[str] = []
    pieces = Taken(cur)
    if key is None or not (yield from read_line(cur, head.append)):
        raise Reject("code for a tool that takes none", attempted=True)
    if not (yield from read_rest(cur, Fence(mark="`", size=len(run), info=""), pieces.add)):
        raise Reject("fence is not closed", attempted=True)
    yield from cur.match(_BLANKS, 4)
    yield from cur.match(_BACKTICKS, 256)
    code: dict[str, Any] = {key: pieces.text().removesuffix("\n")}
    return code


def _written(name: str, arguments: Mapping[str, Any]) -> str:
    text = f"{_FUNCTION}: {name}\n{_ARGS}: {json_text(dict(arguments))}"
    if not _NAME.fullmatch(name) or name.endswith(":"):
        raise CannotExpress("the name cannot be written", text)
    return text


# https://github.com/QwenLM/Qwen-Agent/blob/main/qwen_agent/llm/fncall_prompts/qwen_fncall_prompt.py
QWEN_AGENT = Dialect(
    id="qwen_agent",
    family="qwen_agent",
    level="C",
    openers=lambda _context: (_FUNCTION,),
    parse=_parse,
    # Its prompts stop the server there, which servers with a limit of stop words do not do:
    # https://github.com/QwenLM/Qwen-Agent/blob/main/qwen_agent/llm/fncall_prompts/qwen_fncall_prompt.py
    results=(_RESULT,),
    renderer=BlockRenderer(
        id="qwen_agent",
        form=_written,
        shown=f"{_FUNCTION}: NAME\n{_ARGS}: {{...}}",
        answer=lambda _name, content: f"{_RESULT}: {content}",
        # The flowers were chosen as no text holds them; a tool's output about this form does.
        marks=(re.compile("✿(\u200b*(?:FUNCTION|ARGS|RESULT|RETURN)✿)"),),
        markerless=False,
    ),
    models=("qwen1.5*", "qwen2-*", "qwen-*"),
    carriers=("", "text"),
    example='✿FUNCTION✿: read\n✿ARGS✿: {"filePath": "src/app.py"}',
)
