"""DeepSeek V3, R1 and V3.1: calls between tokens with fullwidth bars.

    section = "<｜tool▁calls▁begin｜>" call { ws call } "<｜tool▁calls▁end｜>"
    call    = "<｜tool▁call▁begin｜>" head JSON [ fence ] ws "<｜tool▁call▁end｜>"
    head    = "function" "<｜tool▁sep｜>" NAME "\\n```json\\n"   (V3, R1)
            | NAME "<｜tool▁sep｜>"                             (V3.1)

The JSON ends by its braces, so a fence inside a string is data. Also read: the tokens with underscores or spaces as
distilled models write them, either token of the section missing, V3's type missing, a declared name without the
separator, no fence, a fence without its word, the JSON on the name's line, and V3's form with all tokens stripped.
ASCII look-alikes are no calls of this family.
"""

import re
from collections.abc import Generator
from functools import partial

from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import (
    STOPS,
    Payload,
    named_drafts,
    read_arguments,
    read_json,
    read_surplus,
    with_mends,
)
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.writing.token_renderer import JsonRenderer

__all__ = ["DEEPSEEK", "DEEPSEEK_V31", "STRIPPED"]


def _spelt(*words: str) -> tuple[str, ...]:
    """A token in every spelling."""
    return tuple(f"<｜{separator.join(words)}｜>" for separator in ("▁", "_", " ", "\\_"))


# Distilled models spell the tokens with what is on a keyboard; llama.cpp reads the same spellings:
# https://github.com/ggml-org/llama.cpp/blob/master/common/chat.cpp
_SECTION = (*_spelt("tool", "calls", "begin"), "<｜tool▁calls｜>")
_SECTION_END = _spelt("tool", "calls", "end")
_CALL = _spelt("tool", "call", "begin")
_CALL_END = _spelt("tool", "call", "end")
_SEPARATOR = _spelt("tool", "sep")
_RESULTS = (*_spelt("tool", "outputs", "begin"), *_spelt("tool", "output", "begin"))
# Servers that stop by text and not by token let it through.
_EOS = "<｜end▁of▁sentence｜>"
_HEAD = re.compile(r"[^<{\[`\n]*")


def _parse(
    cur: Cursor, context: Context, opening: Opening, _: Arguments, *, typed: bool
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    opened: object = True
    if opening.marker in _SECTION:
        yield from cur.ws()
        opened = yield from cur.lits(_CALL)
        # An empty section is what the model writes when it has decided against a call.
        if opened is None and (yield from cur.lits(_SECTION_END)):
            raise Reject("no call in the section", remains=cur.offset)
    while True:
        yield from (yield from _call(cur, context, opening, typed=typed, opened=opened is not None))
        yield from cur.ws()
        opened = yield from cur.lits(_CALL)
        if opened is None:
            yield from cur.lits(_SECTION_END)
            return


def _call(cur: Cursor, context: Context, opening: Opening, *, typed: bool, opened: bool) -> Steps:
    """One call behind its opening token."""
    name = yield from _name(cur, context, typed=typed)
    yield from cur.ws()
    found = context.resolve(name)
    payload = yield from read_arguments(
        cur, context, opening, (*_CALL_END, *_SECTION_END, _EOS, *STOPS), tool=found[0] if found else None
    )
    if payload is None:
        if not (yield from _ends(cur, _CALL_END)):
            raise Reject("no arguments")
        payload = Payload(value=None)
    mends = yield from _end(cur, fenced=payload.fenced)
    # One token may be lost; without both nothing says that it was a call:
    # https://github.com/vllm-project/vllm/blob/main/tests/tool_parsers/test_deepseekv3_tool_parser.py
    if not opened and "call_closer_missing" in mends:
        raise Reject("neither opener nor closer", attempted=True)
    return with_mends((yield from named_drafts(cur, context, name, payload)), mends)


def _name(cur: Cursor, context: Context, *, typed: bool) -> Steps:
    """The tool's name; `function` before the separator is V3's type, unless the JSON follows at once."""
    head = (yield from cur.match(_HEAD, 128)).strip()
    if not (yield from cur.lits(_SEPARATOR)):
        if typed or context.resolve(head, aliases=False) is None:
            raise Reject("no separator")
        return head
    # A tool may itself be called `function`; then the JSON follows at once, where V3 has a name.
    if typed != (head in ("function", "") and (yield from cur.peek(1)) not in ("{", "[")):
        raise Reject("the other form")
    if typed:
        head = (yield from cur.match(_HEAD, 128)).strip()
    if not head:
        raise Reject("no name")
    return head


def _ends(cur: Cursor, tokens: tuple[str, ...]) -> Steps:
    for token in tokens:
        if (yield from cur.starts(token)):
            return True
    return False


def _end(cur: Cursor, *, fenced: bool) -> Steps:
    """The token that closes the call; returns the mends."""
    surplus: tuple[str, ...] = yield from read_surplus(cur)
    yield from cur.ws()
    if (yield from cur.lits(_CALL_END)):
        return surplus
    if (yield from cur.at_end()) and cur.cut:
        raise Reject("cut", attempted=True)
    # Words glued to the object, as the closing token is lost: the object may go on in them.
    if not fenced and not (yield from cur.at_end()) and (yield from cur.peek(1)) != "<":
        raise Reject("text after the object", attempted=True)
    return (*surplus, "call_closer_missing")


def _stripped(context: Context) -> tuple[str, ...]:
    return tuple(f"function{name}" for name in context.tools.names)


def _parse_stripped(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    """V3's form when the server strips special tokens: `functionNAME`, then the fenced JSON."""
    cur.pos += len(opening.marker)
    name = opening.marker.removeprefix("function")
    yield from cur.match(_SPACES, 8)
    # Without tokens nothing but V3's own fence tells this from prose.
    if not (yield from cur.lits(("\n```json", "\r\n```json"))):
        raise Reject("no fence")
    yield from cur.ws()
    if (yield from cur.peek(1)) != "{":
        raise Reject("no JSON")
    payload = yield from read_json(cur, context, opening, ("\n```",), tool=context.find(name))
    drafts = yield from named_drafts(cur, context, name, payload, form="function")
    yield from cur.ws()
    if not (yield from cur.lit("```")):
        raise Reject("fence is not closed", attempted=True)
    yield from drafts


_SPACES = re.compile(r"[ \t]*")
_CARRIERS = ("", "json", "tool_call", "tool_code", "tool", "tools", "function")


def _v3_body(name: str, arguments: str) -> str:
    return f"{_CALL[0]}function{_SEPARATOR[0]}{name}\n```json\n{arguments}\n```{_CALL_END[0]}"


def _v31_body(name: str, arguments: str) -> str:
    return f"{_CALL[0]}{name}{_SEPARATOR[0]}{arguments}{_CALL_END[0]}"


def _output(name: str, call_id: str, content: str) -> str:
    return f"<｜tool▁output▁begin｜>{content}<｜tool▁output▁end｜>"


_TOKENS = ("<｜tool▁", "<｜User｜>", "<｜Assistant｜>", _EOS)

# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/deepseekv3_tool_parser.py
DEEPSEEK = Dialect(
    id="ds_v3",
    family="deepseek",
    level="A",
    openers=lambda _context: (*_SECTION, *_CALL),
    parse=partial(_parse, typed=True),
    results=_RESULTS,
    models=("deepseek-v3*", "deepseek-r1*", "deepseek-chat*", "deepseek-reasoner*"),
    carriers=_CARRIERS,
    renderer=JsonRenderer(
        id="ds_v3",
        body=_v3_body,
        opening=_SECTION[0],
        closing=_SECTION_END[0],
        between="\n",
        answer=_output,
        tokens=_TOKENS,
    ),
    example=(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n```json\n"
        '{"filePath": "src/app.py"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/deepseekv31_tool_parser.py
# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/deepseek-ai-DeepSeek-V3.1.jinja
DEEPSEEK_V31 = Dialect(
    id="ds_v31",
    family="deepseek",
    level="A",
    openers=lambda _context: (*_SECTION, *_CALL),
    parse=partial(_parse, typed=False),
    models=("deepseek-v3.1*",),
    carriers=_CARRIERS,
    renderer=JsonRenderer(
        id="ds_v31",
        body=_v31_body,
        opening=_SECTION[0],
        closing=_SECTION_END[0],
        answer=_output,
        tokens=_TOKENS,
    ),
    example=(
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{"filePath": "src/app.py"}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
)
# Servers that skip special tokens leave the type and the name glued together.
STRIPPED = Dialect(
    id="ds_stripped",
    family="deepseek",
    level="C",
    line_openers=_stripped,
    parse=_parse_stripped,
    carriers=(),
    example='functionread\n```json\n{"filePath": "src/app.py"}\n```',
)
