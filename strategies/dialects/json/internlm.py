"""InternLM 2, 2.5 and 3: one JSON object behind two tokens, or code for the interpreter.

    call = "<|action_start|>" ws "<|plugin|>" ws object ws "<|action_end|>"
         | "<|action_start|>" ws "<|interpreter|>" RAW "<|action_end|>"

The object ends by its braces; the closer may be missing at the end of the answer. Code goes to the declared tool that
runs it.
"""

from collections.abc import Generator

from attrs import evolve

from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import STOPS, code_draft, read_objects
from strategies.text.cursor import Cursor, Reject
from strategies.writing.token_renderer import JsonRenderer, named_object

__all__ = ["INTERNLM"]

_CLOSER = "<|action_end|>"


def _parse(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    kind = yield from cur.lits(("<|plugin|>", "<|interpreter|>"))
    if kind is None:
        raise Reject("no kind")
    if kind == "<|plugin|>":
        yield from cur.ws()
        yield from read_objects(cur, context, opening, (_CLOSER,), stops=STOPS)
        return
    pieces: list[str] = []
    closed = yield from cur.until(_CLOSER, pieces.append)
    if not closed and cur.cut:
        raise Reject("cut", attempted=True)
    draft = code_draft(context, "".join(pieces).strip("\r\n"))
    if closed:
        cur.pos += len(_CLOSER)
    yield draft if closed else evolve(draft, mends=("call_closer_missing",))


# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/internlm2_tool_parser.py
INTERNLM = Dialect(
    id="internlm",
    family="internlm",
    level="A",
    openers=lambda _context: ("<|action_start|>",),
    parse=_parse,
    results=("<|im_start|>environment",),
    models=("internlm*",),
    renderer=JsonRenderer(
        id="internlm",
        body=lambda name, arguments: f"<|action_start|><|plugin|>\n{named_object(name, arguments)}{_CLOSER}",
        between="\n",
        tokens=("<|action_", "<|plugin|>", "<|im_"),
    ),
    example='<|action_start|><|plugin|>\n{"name": "read", "parameters": {"filePath": "src/app.py"}}<|action_end|>',
)
