"""Llama 3.1, 3.2, 3.3 and 4: JSON objects, a built-in's call, or code behind `<|python_tag|>`.

    calls = "<|python_tag|>" ws object { ws [ ";" | "," ] ws object }
          | "<|python_tag|>" NAME ".call(" keywords ")"
          | "<|python_tag|>" Python calls of declared tools, in brackets or not
          | "<|python_tag|>" CODE

What follows decides. Objects end by their braces; only the final brace may be missing. Code is a call where the request
declares a tool that runs it, and ends with the message. Bare objects without the tag are read as any other bare JSON.
"""

import re
from collections.abc import Generator

from strategies.dialects.lines.python import call_drafts
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import STOPS, Payload, begins_objects, code_draft, named_drafts, read_objects
from strategies.text.cursor import Cursor, Reject
from strategies.text.python_text import PythonFault, parse_calls, reading_calls
from strategies.text.tape import Taken
from strategies.text.turns import Turns
from strategies.writing.token_renderer import JsonRenderer, named_object

__all__ = ["LLAMA_JSON"]

_TAG = "<|python_tag|>"
_END = re.compile("|".join(map(re.escape, (_TAG, *STOPS))))
_LONGEST = max(map(len, (_TAG, *STOPS)))
_CALLS = re.compile(r"\[?\s*+[\w.:/-]++\(")
_BUILT_IN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\.call\(")


def _parse(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    if (yield from begins_objects(cur)):
        yield from read_objects(cur, context, opening, (), stops=(_TAG, *STOPS))
        return
    pieces = Taken(cur)
    ended = yield from cur.until_match(_END, _LONGEST - 1, pieces.add)
    if not ended and cur.cut:
        raise Reject("cut", attempted=True)
    code = pieces.text().strip()
    is_built_in = _BUILT_IN.match(code) is not None
    if not is_built_in and _CALLS.match(code) and (drafts := (yield from cur.work(_declared(code, context)))):
        yield from drafts
        return
    if not is_built_in:
        # The tag was made for code, by which the models were taught tools first:
        # https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/
        yield code_draft(context, code)
        return
    for name, arguments in _built_in(code):
        yield from (yield from named_drafts(cur, context, name, Payload(value=arguments)))


def _declared(code: str, context: Context) -> Turns[list[Draft]]:
    """The calls that the code is, where it is nothing but calls of declared tools."""
    try:
        calls = yield from reading_calls(code)
        found = yield from call_drafts(calls, context, form="special", aliases=False)
    except (PythonFault, Reject):
        return []
    return found if all(draft.tool is not None for draft in found) else []


def _built_in(code: str) -> list[tuple[str, dict[str, object]]]:
    """`brave_search.call(query="...")`: the name is what the call is made on."""
    try:
        found = parse_calls(code)
    except PythonFault as fault:
        raise Reject(fault.reason, attempted=True) from None
    if not all(name.endswith(".call") for name, _ in found):
        raise Reject("not a built-in's call")
    return [(name.removesuffix(".call"), arguments) for name, arguments in found]


# https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/llama_tool_parser.py
LLAMA_JSON = Dialect(
    id="llama3_json",
    family="llama",
    level="A",
    openers=lambda _context: (_TAG,),
    parse=_parse,
    results=("<|start_header_id|>ipython", "<|start_header_id|>tool"),
    models=("llama-3*", "llama3*", "llama-4*", "meta-llama-3*"),
    carriers=("", "json", "python", "tool_call", "tool_code", "tool", "tools", "function"),
    renderer=JsonRenderer(
        id="llama3_json",
        body=lambda name, arguments: named_object(name, arguments, "parameters"),
        opening=_TAG,
        # As its models part them: https://github.com/ai-dynamo/dynamo/issues/9536
        between="; ",
        tokens=("<|python_tag|>", "<|eot_id|>", "<|eom_id|>", "<|start_header_id|>"),
    ),
    example='<|python_tag|>{"name": "read", "parameters": {"filePath": "src/app.py"}}',
)
