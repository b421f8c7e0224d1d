"""Command R: a JSON list of `tool_name` and `parameters` behind `Action:`, or between tokens (R7B, A).

    old = "Action:" ws [ "```json" ] ws list ws [ "```" ]
    new = "<|START_ACTION|>" ws ( list | object ) ws "<|END_ACTION|>"

`Action:` followed by a name is ReAct. The pseudo-tool `directly-answer` is no call.
"""

from collections.abc import Generator
from typing import Any

from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import STOPS, marked_json, read_objects
from strategies.text.cursor import Cursor, Reject
from strategies.writing.token_renderer import JsonRenderer, json_text

__all__ = ["COMMAND_R", "COMMAND_R_ACTION"]

# https://github.com/ollama/ollama/issues/14970
_NO_CALL = frozenset({"directly-answer", "directly_answer"})
_RESULTS = ("<|START_TOOL_RESULT|>", "<results>")


def _without_answers(value: Any) -> Any:
    """The calls among the entries: to answer directly is none."""
    entries = value if isinstance(value, list) else [value]
    kept = [entry for entry in entries if not (isinstance(entry, dict) and str(entry.get("tool_name")) in _NO_CALL)]
    if not kept:
        raise Reject("a direct answer")
    return kept


def _parse_action(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    fence = yield from cur.lits(("```json", "```"))
    yield from cur.ws()
    # A name there is ReAct's, which many models of the time were trained on as well.
    if (yield from cur.peek(1)) != "[":
        raise Reject("no list")
    closers = ("```",) if fence else ()
    yield from read_objects(cur, context, opening, closers, form="tool_fence", stops=STOPS, shape=_without_answers)


def _body(name: str, arguments: str) -> str:
    return f'{{"tool_call_id": "0", "tool_name": {json_text(name)}, "parameters": {arguments}}}'


def _action_body(name: str, arguments: str) -> str:
    return f'{{"tool_name": {json_text(name)}, "parameters": {arguments}}}'


def _tool_result(content: str) -> str:
    entry = f'{{"tool_call_id": "0", "results": {{"0": {json_text(content)}}}, "is_error": null}}'
    return f"<|START_TOOL_RESULT|>[{entry}]<|END_TOOL_RESULT|>"


# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/cohere_command_tool_parser.py
COMMAND_R = Dialect(
    id="command_r",
    family="command_r",
    level="A",
    openers=lambda _context: ("<|START_ACTION|>",),
    parse=marked_json(("<|END_ACTION|>",), shape=_without_answers),
    results=_RESULTS,
    models=("command-r7b*", "command-a*"),
    renderer=JsonRenderer(
        id="command_r",
        body=_body,
        opening="<|START_ACTION|>[\n    ",
        closing="\n]<|END_ACTION|>",
        between=",\n    ",
        answer=lambda name, call_id, content: _tool_result(content),
        tokens=("<|START_", "<|END_"),
    ),
    example=(
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "read", "parameters": {"filePath": "src/app.py"}}\n'
        "]<|END_ACTION|>"
    ),
)
# R and R+: https://github.com/ollama/ollama/blob/main/model/parsers/commandr.go
COMMAND_R_ACTION = Dialect(
    id="command_r_action",
    family="command_r",
    level="C",
    line_openers=lambda _context: ("Action:",),
    parse=_parse_action,
    results=_RESULTS,
    models=("command-r*", "c4ai-command-r*"),
    carriers=(),
    renderer=JsonRenderer(
        id="command_r_action",
        body=_action_body,
        opening="Action: ```json\n[\n    ",
        closing="\n]\n```",
        between=",\n    ",
        answer=lambda name, call_id, content: f"<results>\n{content}\n</results>",
        tokens=("<results>", "</results>"),
    ),
    example='Action: ```json\n[{"tool_name": "read", "parameters": {"filePath": "src/app.py"}}]\n```',
)
