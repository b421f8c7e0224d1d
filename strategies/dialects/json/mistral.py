"""Mistral: JSON behind `[TOOL_CALLS]`, as a list of objects or behind the tool's name.

    old = "[TOOL_CALLS]" ws ( "[" object { "," object } "]" | object )
    new = "[TOOL_CALLS]" NAME [ "[CALL_ID]" ID ] [ "[ARGS]" ] JSON

The first character behind the marker decides; several calls repeat the marker. There is no closer: the value ends by
its braces, and what follows is text. Also read: a marker that lost its bracket, a declared tool without arguments at
the end of the answer, and the new form without its marker at a line start.
"""

import re
from collections.abc import Generator

from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import (
    STOPS,
    Payload,
    named_drafts,
    read_arguments,
    read_json,
    read_objects,
    refuse_torn,
)
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.writing.token_renderer import JsonRenderer, json_text

__all__ = ["MISTRAL", "MISTRAL_OLD", "MISTRAL_STRIPPED"]

_MARKERS = ("[TOOL_CALLS]", "[TOOL_CALLS")
_NAME = re.compile(r"[A-Za-z0-9_.:/-]*")
_STOPS = ("[TOOL_CALLS]", "[/TOOL_CALLS]", *STOPS)


def _parse_old(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    # By the braces: patterns end at the first bracket of a nested list, and text behind the list is no fault of it.
    # https://github.com/NousResearch/hermes-agent/issues/2335 https://github.com/vllm-project/vllm/issues/40531
    yield from read_objects(cur, context, opening, (), stops=_STOPS)
    yield from cur.lit("[/TOOL_CALLS]")


def _parse(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    name = yield from cur.match(_NAME, 128)
    if not name:
        raise Reject("no name")
    yield from cur.ws()
    # Small 3.2 writes an id here; the gateway makes ids of its own.
    if (yield from cur.lit("[CALL_ID]")):
        yield from cur.ws()
        yield from cur.match(_NAME, 64)
    drafts = yield from _named(cur, context, opening, name, form="special")
    yield from refuse_torn(cur, opening)
    yield from drafts


def _named(cur: Cursor, context: Context, opening: Opening, name: str, form: str) -> Steps:
    """The arguments behind the name."""
    yield from cur.ws()
    marked = yield from cur.lit("[ARGS]")
    yield from cur.ws()
    found = context.resolve(name)
    payload = None
    if marked or (yield from cur.peek(1)) == "{":
        payload = yield from read_arguments(cur, context, opening, _STOPS, tool=found[0] if found else None)
    if payload is not None:
        return (yield from named_drafts(cur, context, name, payload, form))
    # A name alone at the end of an answer: small models leave out `{}` for tools that take nothing.
    if not marked and found and not cur.cut and (yield from _ends(cur)):
        return (yield from named_drafts(cur, context, name, Payload(value=None), form))
    raise Reject("no arguments", attempted=found is not None)


def _ends(cur: Cursor) -> Steps:
    """Whether the answer, or its last token, follows."""
    if (yield from cur.at_end()):
        return True
    for stop in _STOPS:
        if (yield from cur.starts(stop)):
            return True
    return False


def _unmarked(context: Context, ends: tuple[str, ...] = ("[ARGS]", "{", "[CALL_ID]")) -> tuple[str, ...]:
    return tuple(f"{name}{end}" for name in context.tools.names for end in ends)


def _parse_unmarked(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    """`NAME[ARGS]{...}`, or `NAME{...}` as the whole message; more of them may be glued to the first."""
    cur.pos += len(opening.marker)
    marker: str | None = opening.marker
    if opening.marker.endswith("{"):
        # `read{...}` in a text is a set in mathematics, a template, a struct of Go.
        if not opening.starts_message:
            raise Reject("not the whole message")
        yield from _whole(cur, context, opening)
        return
    while marker:
        name, _bracket, behind = marker.partition("[")
        if behind == "CALL_ID]":
            yield from cur.ws()
            yield from cur.match(_NAME, 64)
        else:
            cur.pos -= len("[ARGS]")
        drafts = yield from _named(cur, context, opening, name, form="function")
        marker = yield from cur.lits(_unmarked(context, ("[ARGS]", "[CALL_ID]")))
        if marker is None:
            yield from refuse_torn(cur, opening)
        yield from drafts


def _whole(cur: Cursor, context: Context, opening: Opening) -> Steps:
    """Names with their objects, up to the end of the message; the cursor stands behind the first brace."""
    found: list[Draft] = []
    marker: str | None = opening.marker
    while marker:
        name = marker.removesuffix("{")
        cur.pos -= 1
        payload = yield from read_json(cur, context, opening, _STOPS, tool=context.find(name))
        found += yield from named_drafts(cur, context, name, payload, "bare")
        yield from cur.ws()
        marker = yield from cur.lits(_unmarked(context, ("{",)))
    if not (yield from _ends(cur)):
        raise Reject("not the whole message")
    yield from found


def _old_result(name: str, call_id: str, content: str) -> str:
    return f'[TOOL_RESULTS]{{"content": {json_text(content)}}}[/TOOL_RESULTS]'


_TOKENS = ("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[INST]", "[/INST]")
_CARRIERS = ("", "json", "tool_call", "tool_code", "tool", "tools", "function")

# From version 11 of the tokenizer on: https://mistralai.github.io/mistral-common/usage/tools/
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/mistral_tool_parser.py
MISTRAL = Dialect(
    id="mistral",
    family="mistral",
    level="A",
    openers=lambda _context: _MARKERS,
    parse=_parse,
    results=("[TOOL_RESULTS]",),
    models=("mistral*", "ministral*", "magistral*", "devstral*"),
    carriers=_CARRIERS,
    renderer=JsonRenderer(
        id="mistral",
        body=lambda name, arguments: f"[TOOL_CALLS]{name}[ARGS]{arguments}",
        answer=lambda name, call_id, content: f"[TOOL_RESULTS]{content}[/TOOL_RESULTS]",
        tokens=_TOKENS,
    ),
    example='[TOOL_CALLS]read[ARGS]{"filePath": "src/app.py"}',
)
# Up to version 7:
# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/mistralai-Mistral-Small-3.1-24B-Instruct-2503.jinja
MISTRAL_OLD = Dialect(
    id="mistral_old",
    family="mistral",
    level="A",
    openers=lambda _context: _MARKERS,
    parse=_parse_old,
    results=MISTRAL.results,
    models=("open-mistral*", "codestral*", "mistral-7b*", "mistral-nemo*"),
    carriers=_CARRIERS,
    renderer=JsonRenderer(
        id="mistral_old", opening="[TOOL_CALLS] [", closing="]", between=", ", answer=_old_result, tokens=_TOKENS
    ),
    example='[TOOL_CALLS] [{"name": "read", "arguments": {"filePath": "src/app.py"}}]',
)
# Servers that skip special tokens leave the name and what follows it.
MISTRAL_STRIPPED = Dialect(
    id="mistral_stripped",
    family="mistral",
    level="C",
    line_openers=_unmarked,
    parse=_parse_unmarked,
    carriers=_CARRIERS,
    example='read[ARGS]{"filePath": "src/app.py"}',
)
