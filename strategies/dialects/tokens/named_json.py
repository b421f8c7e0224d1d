"""A tool's name and the JSON of its arguments, each behind a token of its own.

    PLaMo 3    REQUESTS { REQUEST NAME_OPEN NAME NAME_END ARGS [ "<|plamo:constrain|>json" ] "<|plamo:msg|>" object
               ARGS_END REQUEST_END } REQUESTS_END
    Solar Open [ "<|tool_calls|>" ] "<|tool_call:begin|>" ID "<|tool_call:name|>" NAME "<|tool_call:args|>" object
               "<|tool_call:end|>" [ "<|calls|>" ]

A call's JSON ends by its braces, so a token inside a string is data. The tokens around all calls may be missing, and at
the end of the answer those that close. Bounds: each part is refused at the first token that is another.
"""

import re
from collections.abc import Generator
from functools import partial

from attrs import frozen

from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import STOPS, named_drafts, read_arguments, read_end, with_mends
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.writing.token_renderer import JsonRenderer

__all__ = ["PLAMO3", "SOLAR_OPEN"]

_NAME = re.compile(r"[\w.:/-]*")
_ID = re.compile(r"[\w.:-]*")


@frozen(kw_only=True)
class _Tokens:
    """What stands around the parts of a call."""

    sections: tuple[str, ...]
    section_end: str
    call: str
    name: str
    """Behind an id, where the family has one."""
    before_arguments: tuple[str, ...]
    """One of them ends the name."""
    ends: tuple[str, ...]
    """Each of them stands behind the arguments; only the first needs to."""


def _parse(
    cur: Cursor, context: Context, opening: Opening, _: Arguments, *, tokens: _Tokens
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    if opening.marker in tokens.sections:
        yield from cur.ws()
        if not (yield from cur.lit(tokens.call)):
            raise Reject("no call inside")
    while True:
        yield from (yield from _call(cur, context, opening, tokens))
        yield from cur.ws()
        if not (yield from cur.lit(tokens.call)):
            yield from cur.lit(tokens.section_end)
            return


def _call(cur: Cursor, context: Context, opening: Opening, tokens: _Tokens) -> Steps:
    """One call behind its opening token."""
    yield from cur.ws()
    yield from cur.match(_ID, 128)
    if not (yield from cur.lit(tokens.name)):
        raise Reject("no name")
    yield from cur.ws()
    name: str = yield from cur.match(_NAME, 128)
    yield from cur.ws()
    if not name or not (yield from cur.lits(tokens.before_arguments)):
        raise Reject("no name")
    yield from cur.ws()
    found = context.resolve(name)
    stops = (*tokens.ends, tokens.section_end, *STOPS)
    payload = yield from read_arguments(cur, context, opening, stops, tool=found[0] if found else None)
    if payload is None:
        raise Reject("no arguments", attempted=True)
    mends = yield from read_end(cur, tokens.ends[:1])
    for end in tokens.ends[1:]:
        yield from cur.ws()
        yield from cur.lit(end)
    return with_mends((yield from named_drafts(cur, context, name, payload)), mends)


def _plamo(word: str) -> str:
    return f"<|plamo:{word}:plamo|>"


_ARGUMENTS = f"{_plamo('end_tool_name')}{_plamo('begin_tool_arguments')}"
_PLAMO = _Tokens(
    sections=(_plamo("begin_tool_requests"),),
    section_end=_plamo("end_tool_requests"),
    call=_plamo("begin_tool_request"),
    name=_plamo("begin_tool_name"),
    # Without a grammar that holds the model to JSON it leaves out the word that says so.
    before_arguments=(f"{_ARGUMENTS}<|plamo:constrain|>json<|plamo:msg|>", f"{_ARGUMENTS}<|plamo:msg|>"),
    ends=(_plamo("end_tool_arguments"), _plamo("end_tool_request")),
)
_HEAD = "<|begin|>assistant<|tool_calls|>"
_SOLAR = _Tokens(
    # The message before it ends first, and its end is no text either.
    sections=(f"<|end|>{_HEAD}", _HEAD, "<|tool_calls|>"),
    section_end="<|calls|>",
    call="<|tool_call:begin|>",
    name="<|tool_call:name|>",
    before_arguments=("<|tool_call:args|>",),
    ends=("<|tool_call:end|>",),
)


# https://github.com/vllm-project/vllm/blob/main/vllm/parser/plamo3.py
PLAMO3 = Dialect(
    id="plamo3",
    family="plamo3",
    level="A",
    openers=lambda _context: (*_PLAMO.sections, _PLAMO.call),
    parse=partial(_parse, tokens=_PLAMO),
    models=("plamo-3*", "plamo3*"),
    renderer=JsonRenderer(
        id="plamo3",
        body=lambda name, arguments: (
            f"{_PLAMO.call}{_PLAMO.name}{name}{_PLAMO.before_arguments[0]}{arguments}{''.join(_PLAMO.ends)}"
        ),
        opening=_PLAMO.sections[0],
        closing=_PLAMO.section_end,
        tokens=("<|plamo:",),
    ),
    example=(
        f"{_PLAMO.sections[0]}{_PLAMO.call}{_PLAMO.name}read{_PLAMO.before_arguments[0]}"
        f'{{"filePath": "src/app.py"}}{"".join(_PLAMO.ends)}{_PLAMO.section_end}'
    ),
)
# https://github.com/ggml-org/llama.cpp/pull/18511
SOLAR_OPEN = Dialect(
    id="solar_open",
    family="solar",
    level="A",
    openers=lambda _context: (*_SOLAR.sections, _SOLAR.call),
    parse=partial(_parse, tokens=_SOLAR),
    results=("<|begin|>tool",),
    models=("solar-open*",),
    renderer=JsonRenderer(
        id="solar_open",
        body=lambda name, arguments: f"{_SOLAR.call}0{_SOLAR.name}{name}<|tool_call:args|>{arguments}{_SOLAR.ends[0]}",
        opening="<|tool_calls|>",
        closing=_SOLAR.section_end,
        tokens=("<|tool_call", "<|begin|>", "<|calls|>"),
    ),
    example=(
        '<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>read<|tool_call:args|>{"filePath": "src/app.py"}'
        "<|tool_call:end|><|calls|>"
    ),
)
