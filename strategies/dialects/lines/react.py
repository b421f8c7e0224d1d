"""ReAct: an action and its input on lines of their own.

    call  = "Action:" NAME newline "Action Input:" input
    input = JSON object | a code fence | text to the next keyword at a line start, or to the end

Keywords may be bold, numbered or in another case; both may stand on one line. Also read: a Python call or a JSON
object, also in a fence, behind `Action:`, `Input:` alone, no input for a tool that needs none, a thought that a fence
holds together with its action. A call counts where an observation, a thought, an answer, another action or the end
follows; everything from an observation on is invented. The name must be declared.
"""

import re
from collections.abc import Generator, Mapping
from typing import Any

from attrs import evolve

from gateway.core.tools import Tool
from strategies.dialects.lines.plain_input import sole, text_arguments
from strategies.dialects.lines.python import call_drafts
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Fence, Opening
from strategies.grammar.fences import read_line, read_rest
from strategies.grammar.json_calls import CONTAINER_KEYS, drafting
from strategies.grammar.json_payload import read_json, read_surplus
from strategies.grammar.lexicon import LEFTOVERS
from strategies.grammar.literal import is_announced_example
from strategies.schema.tool_schema import ToolSchema
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.python_text import PythonFault, bracketed, reading_calls
from strategies.text.shell_lines import Heredocs
from strategies.text.tape import Taken
from strategies.text.tolerant_json import JsonFault, parsing
from strategies.writing.block_renderer import BlockRenderer
from strategies.writing.renderer import CannotExpress
from strategies.writing.token_renderer import json_text

__all__ = ["REACT"]

_THOUGHT = "Thought:"
_MOST_THOUGHTS = 20
"""Lines of a thought in a fence."""
_OPENERS = ("Action:", "action:", "ACTION:", "Action：", "**Action:**", "**Action**:", "Action ", "**Action ")
# Where the stop word fails, the model goes on with a result of its own making:
# https://github.com/QwenLM/Qwen-Agent/issues/928
_RESULTS = (
    "Observation:",
    "observation:",
    "OBSERVATION:",
    "**Observation:**",
    "**Observation**:",
    "Observation：",
    "[Observation]",
    "Action Result:",
)
_HEADING = re.compile(r"[0-9]{0,3}[ ]?(?:\*\*)?[:：](?:\*\*)?\Z")
_HEADING_RUN = re.compile(r"[0-9 *:：]*")
_BLANKS = re.compile(r"[ \t]*")
_NAME = re.compile(r"[\w.:/-]*")
_DECORATION = re.compile(r"[`*\"']*")
_INFO = re.compile(r"[a-z]*")
_LINE = re.compile(r"[^\n]*")
_NO_SPACE = re.compile(r"[*`,.; \t]*")
_INPUTS = ("Action Input", "action input", "ACTION INPUT", "Action input", "Input", "Arguments")
_HEADS = r"observation|thought|action(?: input| result)?|final answer"
_SPEAKERS = r"(?:\*\*)?(?-i:Answer|Question|User|Human)(?:\*\*)?[:：]"
"""Who goes on behind a blank line: LlamaIndex ends with an answer of this kind, others write the whole talk.
https://github.com/run-llama/llama_index/blob/main/llama-index-core/llama_index/core/agent/react/output_parser.py"""
_ANY_RESULT = r"<(?:tool_response|tool_result|function_results)>"
"""A result that the model made up, in another family's form."""
_STOP = re.compile(
    rf"\n {{0,3}}(?:(?:\*\*)?(?:{_HEADS})(?: [0-9]{{1,3}})?(?:\*\*)?[:：]|\[observation\]|```|{_ANY_RESULT})"
    rf"|\n[ \t\r]{{0,8}}\n {{0,3}}{_SPEAKERS}",
    re.IGNORECASE,
)
_STOP_WORD = re.compile(r"\n {0,3}(?:\*\*)?observation(?:\*\*)?\s*+\Z", re.IGNORECASE)
"""The stop word itself, which some servers leave in without its colon."""
_BLANK_LINE = re.compile(r"\n[ \t\r]*+\n")
_LONGEST_BLANK = 10
_COMMANDS = frozenset({"cmd", "command"})
_STOP_SIZE = 40
_STOPS = ("\nObservation:", "\nThought:", "\nAction:", "\nFinal Answer:", "\n```")
_NEXT = re.compile(
    rf"(?:\*\*)?(?:{_HEADS})(?: ?[0-9]{{1,3}})?(?:\*\*)?[:：]|\[observation\]|{_SPEAKERS}|{_ANY_RESULT}"
    r"|(?:\*\*)?observation(?:\*\*)?\s{0,4}\Z",
    re.IGNORECASE,
)
_LONGEST_NEXT = 24
_POINT = re.compile(r" {0,3}\*[ \t]")
"""A point of a list that is marked by a star."""
_REFUSED = re.compile(
    r"^(?:\*\*)?action ?[0-9]{0,3}(?:\*\*)?[:：](?:\*\*)?[ \t]{0,8}[`\"']?([\w.:/-]{1,128}+)[`\"']?[ \t]{0,8}\r?\n"
    r"(?:\*\*)?action input",
    re.IGNORECASE | re.MULTILINE,
)
_CYCLE = re.compile(r"\s*(?:thought|question)\s*[0-9]{0,3}\s*[:：][^\n]*\Z", re.IGNORECASE)


def _may_open(_context: Context, opening: Opening) -> bool:
    """Whether the keyword counts: where nobody thinks, a bold one right under a starred point belongs to it."""
    # Else each point of such a list would wait to be seen not to be one: the star may be the first of two.
    # https://spec.commonmark.org/0.31.2/#lazy-continuation-line
    if opening.marker == _THOUGHT:
        return opening.fence is not None
    if opening.marker[:1] != "*" or "hought" in opening.before:
        return True
    lines = opening.before.rstrip(" \t").rsplit("\n", 2)
    return len(lines) < 2 or lines[-1] != "" or _POINT.match(lines[-2]) is None


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    # A thought may speak of an example without announcing one.
    if is_announced_example(_CYCLE.sub("", opening.before.rstrip())):
        raise Reject("announced as an example")
    # One that was refused was to be carried out before this one, and what it led to is made up.
    if any(context.find(name) is not None for name in _REFUSED.findall(opening.before)):
        raise Reject("behind an action that is none", attempted=True)
    cur.pos += len(opening.marker)
    if opening.marker == _THOUGHT:
        yield from _thought(cur)
    if opening.marker.endswith(" ") and not _HEADING.match((yield from cur.match(_HEADING_RUN, 12)).rstrip()):
        raise Reject("no action")
    yield from cur.match(_BLANKS, 64)
    run = yield from _fence_ahead(cur)
    if run or (yield from cur.peek(1)) == "{":
        drafts = yield from _object(cur, context, opening)
        yield from _fence_end(cur, run)
    else:
        yield from cur.match(_DECORATION, 4)
        name: str = yield from cur.match(_NAME, 128)
        found = context.resolve(name) if name else None
        if found is None:
            raise Reject("unknown_tool", name=name)
        if (yield from cur.starts("(")):
            drafts = yield from _python(cur, context, name)
        else:
            given, steps = yield from _input(cur, context, opening, found[0])
            value = {"name": name, "arguments": given}
            drafts = yield from cur.work(drafting(value, context, form="react", steps=steps))
    end = cur.offset
    if not (yield from _may_end(cur, opening)):
        raise Reject("text behind the action", attempted=True)
    for draft in drafts:
        yield draft if draft.end is not None else _ending(draft, end)


def _ending(draft: Draft, end: int) -> Draft:
    return evolve(draft, end=end)


def _thought(cur: Cursor) -> Steps:
    """The lines of a thought, up to its action."""
    # https://github.com/crewAIInc/crewAI/blob/main/lib/crewai/src/crewai/translations/en.json
    for _ in range(_MOST_THOUGHTS):
        yield from cur.match(_LINE, 500)
        if not (yield from cur.lit("\n")):
            break
        if (yield from cur.lits(("Action:", "**Action:**"))):
            return
        if (yield from cur.starts("```")):
            break
    raise Reject("no action")


def _fence_ahead(cur: Cursor) -> Steps:
    """The backticks of a fence that opens here, or on the next line, with an object in it; else nothing is consumed."""
    # https://github.com/langchain-ai/langchain/blob/master/libs/langchain/langchain/agents/structured_chat/prompt.py
    cur.anchor = start = cur.offset
    yield from cur.ws()
    run: str = ""
    if (yield from cur.starts("```")):
        run = yield from cur.match(_BACKTICKS, 64)
        yield from cur.match(_INFO, 16)
        yield from cur.ws()
    if not run or (yield from cur.peek(1)) != "{":
        run = ""
        cur.back(start)
    cur.anchor = None
    return run


def _fence_end(cur: Cursor, run: str) -> Steps:
    """The end of such a fence."""
    if run:
        yield from cur.ws()
        if not (yield from cur.lit(run)):
            raise Reject("fence is not closed", attempted=True)


def _object(cur: Cursor, context: Context, opening: Opening) -> Steps:
    """`Action: {"action": N, "action_input": A}`."""
    payload = yield from read_json(cur, context, opening, _STOPS)
    value = payload.value
    if isinstance(value, dict) and isinstance(value.get("action_input"), str):
        found = context.resolve(str(value.get("action")))
        if found is not None:
            given = text_arguments(value["action_input"], context.schema(found[0]))
            value = {**value, "action_input": given}
    if isinstance(value, dict) and not any(key in value for key in CONTAINER_KEYS):
        raise Reject("no arguments", attempted=True)
    return (yield from cur.work(drafting(value, context, form="react", steps=payload.steps)))


def _python(cur: Cursor, context: Context, name: str) -> Steps:
    """`Action: read(filePath="/a")`."""
    pieces = Taken(cur)
    if not (yield from bracketed(cur, pieces.add)):
        raise Reject("brackets are not closed", attempted=True)
    yield from cur.match(_DECORATION, 4)
    try:
        calls = yield from cur.work(reading_calls(name + pieces.text()))
    except PythonFault as fault:
        raise Reject(fault.reason, attempted=True) from None
    return (yield from cur.work(call_drafts(calls, context, form="react")))


def _input(cur: Cursor, context: Context, opening: Opening, tool: Tool) -> Steps:
    """What follows the name: the arguments, and the mends they needed."""
    yield from cur.match(_NO_SPACE, 16)
    cur.anchor = start = cur.offset
    yield from cur.ws()
    if not (yield from _input_heading(cur)):
        cur.back(start)
        cur.anchor = None
        if context.schema(tool).required or (cur.cut and (yield from cur.at_end())):
            raise Reject("no input", attempted=True)
        return {}, ()
    cur.anchor = None
    yield from cur.match(_BLANKS, 256)
    if (yield from cur.starts("\n")):
        cur.pos += 1
        yield from cur.match(_BLANKS, 256)
        if _NEXT.match((yield from cur.peek(_LONGEST_NEXT))):
            return text_arguments("", context.schema(tool)), ()
    first = yield from cur.peek(1)
    if first == "{":
        payload = yield from read_json(cur, context, opening, _STOPS, tool=tool)
        return payload.value, (*payload.steps, *(yield from read_surplus(cur)))
    if first == "`" and (yield from cur.starts("```")):
        return (yield from _fenced(cur, context.schema(tool)))
    if first == "`":
        return (yield from _spanned(cur, context, opening, tool))
    return (yield from _plain(cur, context.schema(tool))), ()


def _plain(cur: Cursor, schema: ToolSchema) -> Steps:
    """The input up to what can follow it; within a heredoc nothing does."""
    pieces = Taken(cur)
    heredocs = Heredocs()

    def add(text: str) -> None:
        pieces.add(text)
        heredocs.add(text)

    while (stopped := (yield from cur.until_match(_STOP, _STOP_SIZE, add))) and heredocs.stands_open():
        add("\n")
        cur.pos += 1
    if not stopped and cur.cut:
        raise Reject("cut", attempted=True)
    if not stopped and heredocs.stopped and heredocs.stands_open():
        raise Reject("heredoc never ends", attempted=True)
    text = pieces.text()
    if not stopped:
        text = _STOP_WORD.sub("", text)
    given = text_arguments(text, schema)
    # Words behind a blank line go on with the answer, not with a name or a path.
    bodies = [key for key in given if schema.prop(key).body]
    # A letter may have such words of its own; a command has not.
    is_told = stopped and _BLANK_LINE.match((yield from cur.peek(_LONGEST_BLANK))) and set(bodies) - _COMMANDS
    if is_told or (not bodies and _BLANK_LINE.search(text.strip())):
        raise Reject("text behind the input", attempted=True)
    return given


def _input_heading(cur: Cursor) -> Steps:
    yield from cur.match(_DECORATION, 4)
    if not (yield from cur.lits(_INPUTS)):
        return False
    return _HEADING.match((yield from cur.match(_HEADING_RUN, 12)).strip(" *")) is not None


def _fenced(cur: Cursor, schema: ToolSchema) -> Steps:
    """A fence holds the JSON, or the text of the one parameter."""
    run: str = yield from cur.match(_BACKTICKS, 64)
    line: list[str] = []
    pieces = Taken(cur)
    if not (yield from read_line(cur, line.append)):
        raise Reject("fence is not closed", attempted=True)
    fence = Fence(mark="`", size=len(run), info="")
    closed = yield from read_rest(cur, fence, pieces.add)
    if not closed:
        raise Reject("fence is not closed", attempted=True)
    yield from cur.match(_BACKTICKS, 256)
    text = pieces.text()
    if text.lstrip().startswith("{"):
        try:
            parsed = yield from cur.work(parsing(text, closed=True))
        except JsonFault:
            raise Reject("JSON", attempted=True) from None
        if text[parsed.end :].strip():
            raise Reject("text after the object", attempted=True)
        return parsed.value, parsed.steps
    return {sole(schema): text.removesuffix("\n")}, ()


_BACKTICKS = re.compile(r"`*")
_SPAN = re.compile(r"[^`\n]*")
_LONGEST_SPAN = 1 << 16


def _spanned(cur: Cursor, context: Context, opening: Opening, tool: Tool) -> Steps:
    """The input in inline code: backticks around all of it are none of its own."""
    schema = context.schema(tool)
    run: str = yield from cur.match(_BACKTICKS, 64)
    if (yield from cur.peek(1)) == "{":
        payload = yield from read_json(cur, context, opening, _STOPS, tool=tool)
        steps = (*payload.steps, *(yield from read_surplus(cur)))
        if not (yield from cur.lit(run)):
            raise Reject("inline code is not closed", attempted=True)
        return payload.value, steps
    text: str = yield from cur.match(_SPAN, _LONGEST_SPAN)
    closed = yield from cur.lit(run)
    yield from cur.match(_BLANKS, 256)
    # Backticks belong to shells as well: what goes on behind them is not all of it.
    if not closed or not ((yield from cur.at_end()) or (yield from cur.starts("\n"))):
        raise Reject("backticks inside the input", attempted=True)
    return text_arguments(text, schema), ()


def _may_end(cur: Cursor, opening: Opening) -> Steps:
    """Whether what follows can follow a call; it is to be given back."""
    cur.floor = cur.offset
    while True:
        yield from cur.ws()
        if (yield from cur.at_end()) or opening.fence is not None:
            return True
        if not (yield from cur.lits((*LEFTOVERS, "```"))):
            break
    head: str = yield from cur.peek(_LONGEST_NEXT)
    return _NEXT.match(head) is not None


def _written(name: str, arguments: Mapping[str, Any]) -> str:
    text = f"Action: {name}\nAction Input: {json_text(dict(arguments))}"
    if not _NAME.fullmatch(name):
        raise CannotExpress("the name cannot be written", text)
    return text


# https://github.com/langchain-ai/langchain/blob/master/libs/langchain/langchain/agents/output_parsers/react_single_input.py
# https://github.com/QwenLM/Qwen-Agent/blob/main/qwen_agent/agents/react_chat.py
REACT = Dialect(
    id="react",
    family="react",
    level="C",
    line_openers=lambda _context: (*_OPENERS, _THOUGHT),
    may_open=_may_open,
    parse=_parse,
    results=_RESULTS,
    renderer=BlockRenderer(
        id="react",
        form=_written,
        shown="Thought: what to do next\nAction: NAME\nAction Input: {...}",
        answer=lambda _name, content: f"Observation: {content}",
        marks=(re.compile("^(\u200b*(?:Observation|Action|Thought|Final Answer)\\b)", re.MULTILINE),),
        markerless=False,
    ),
    carriers=("", "text", "plaintext", "react"),
    example='Thought: I must see the file.\nAction: read\nAction Input: {"filePath": "src/app.py"}',
)
