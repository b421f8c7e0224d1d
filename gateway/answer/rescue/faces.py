"""How a turn looks that a model server parsed, and failed to: one table, a row for each server and way of saying so.

A server that offers tools parses what its model writes, and some answer with an error, or with nothing, where that
fails. What is not told in a server's own words, at their beginning, is none of it: a message that quotes such an error
is an error of its own.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from attrs import field, frozen

from gateway.wire.chat_chunks import has_reasoning

__all__ = ["FACES", "Face", "Swallowed", "of_answer", "of_body", "of_end", "of_error", "of_refusal", "spoken_tokens"]

MIN_TOKENS = 5
"""An answer of fewer tokens may be empty in earnest: a model that has nothing to say ends its turn."""
# An error that quotes more than this quotes no single turn.
MAX_CHARS = 1 << 20
_MAX_RAW = 1 << 16


@frozen(kw_only=True)
class Face:
    """One way in which a swallowed turn shows."""

    name: str
    server: str
    shown_by: str
    """A report of it."""
    said: re.Pattern[str] | None = field(default=None, repr=False)
    """What the error's message begins with; its group `text` is what the model wrote, `at` where the rest begins."""
    code: str | None = None
    """The error's code, which decides where it is given."""
    statuses: frozenset[int] = frozenset({500})
    """Of an answer that is an error; within a stream it has none."""
    refuses_schema: bool = False
    """Nothing was generated: the server cannot make a grammar of the tools."""
    may_have_thought: bool = False
    """The call may stand in the answer's reasoning, which is read before anything is asked."""
    parses_prompted: bool = False
    """It parses the model's own form also where no tools were sent, so that only plain tags pass it."""


def _said(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.DOTALL)


FACES: tuple[Face, ...] = (
    Face(
        name="failed_generation",
        server="Groq and those like it",
        shown_by="https://github.com/huggingface/smolagents/issues/1119",
        code="tool_use_failed",
        statuses=frozenset({400, 422, 500}),
    ),
    Face(
        name="parse_input",
        server="llama.cpp to about b10000",
        shown_by="https://github.com/ggml-org/llama.cpp/issues/24644",
        said=_said(r"Failed to parse input at pos (?P<at>\d+)(?:: ?(?P<text>.*))?"),
    ),
    Face(
        name="peg_format",
        server="llama.cpp later",
        shown_by="https://github.com/ggml-org/llama.cpp/issues/27025",
        said=_said(r"The model produced output that does not match the expected [\w.+-]+ format"),
    ),
    Face(
        name="xml_syntax",
        server="Ollama, its parsers of tags",
        shown_by="https://github.com/ollama/ollama/issues/18563",
        said=_said(
            r"(?:failed to parse XML: )?XML syntax error on line \d+: "
            r"|(?:failed to parse XML: )?expected element type <[^>]*> but have <"
        ),
        # https://github.com/ollama/ollama/issues/14986
        parses_prompted=True,
    ),
    Face(
        name="raw_call",
        server="Ollama, its parsers of JSON",
        shown_by="https://github.com/ollama/ollama/issues/12884",
        said=_said(r"error parsing tool call(?:: raw='(?P<text>.*)', err=|: )"),
        parses_prompted=True,
    ),
    # A cut connection to the runner says more than this.
    Face(
        name="parser_eof",
        server="Ollama, its parsers at the end of a text",
        shown_by="https://github.com/ollama/ollama/issues/14986",
        said=_said(r"(?:EOF|unexpected end of JSON input)\Z"),
        parses_prompted=True,
    ),
    Face(
        name="no_grammar",
        server="llama.cpp and those that make a grammar of the tools",
        shown_by="https://github.com/ggml-org/llama.cpp/issues/26596",
        said=_said(
            r"(?:[^\n]{0,80}: )?(?:JSON schema conversion failed|failed to parse grammar|Unsupported JSON schema)"
        ),
        statuses=frozenset({400, 422, 500}),
        refuses_schema=True,
    ),
    Face(
        name="silent",
        server="Ollama, LM Studio and several",
        shown_by="https://github.com/ollama/ollama/issues/17274",
        parses_prompted=True,
    ),
    Face(
        name="no_call",
        server="vLLM and several",
        shown_by="https://github.com/vllm-project/vllm/issues/53255",
        may_have_thought=True,
    ),
)
"""In the order in which they are tried."""
_BY_NAME = {face.name: face for face in FACES}


@frozen(kw_only=True)
class Swallowed:
    """A turn that the server's parser swallowed, and what the server tells of it."""

    face: Face
    text: str = ""
    """What the model wrote, as far as the error holds it."""
    is_rest: bool = False
    """Of what it wrote the beginning is missing."""


def of_refusal(status: int, payload: bytes | None) -> Swallowed | None:
    """The swallowed turn that an error status and its body stand for."""
    if payload is None or not any(status in face.statuses for face in FACES):
        return None
    try:
        body = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return None
    return of_error(body, status)


def of_error(body: object, status: int | None = None) -> Swallowed | None:
    """The swallowed turn that an error's body stands for; within a stream it has no status."""
    for message, holder in _told(body):
        for face in FACES:
            if status is not None and status not in face.statuses:
                continue
            found = _matched(face, message, holder)
            if found is not None:
                return found
    return None


def of_body(body: bytes) -> Swallowed | None:
    """The swallowed turn that a whole answer of status 200 is."""
    try:
        answer = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None
    return of_answer(answer)


def of_answer(answer: object) -> Swallowed | None:
    """The same, of the decoded body."""
    if not isinstance(answer, dict):
        return None
    choices = answer.get("choices")
    if not choices:
        return of_error(answer) if answer.get("error") else None
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return None
    said = message.get("content")
    if (said and isinstance(said, str) and not said.isspace()) or is_visible(message):
        return None
    return of_end(choice.get("finish_reason"), answer.get("usage"), has_reasoned=has_reasoning(message))


def of_end(finish: object, usage: object, *, has_reasoned: bool) -> Swallowed | None:
    """The swallowed turn that an answer is of which nothing can be seen, by how it ended."""
    # A call was announced and none came: nobody ends a turn so on purpose.
    if finish in ("tool_calls", "function_call"):
        return Swallowed(face=_BY_NAME["no_call"])
    if finish == "stop" and not has_reasoned and spoken_tokens(usage) >= MIN_TOKENS:
        return Swallowed(face=_BY_NAME["silent"])
    return None


def is_visible(message: Mapping[str, Any]) -> bool:
    """Whether a message, or a part of one, holds anything that a client can see or act on; reasoning is neither."""
    content = message.get("content")
    has_text = bool(content.strip()) if isinstance(content, str) else bool(content)
    return has_text or any(bool(message.get(key)) for key in ("tool_calls", "function_call", "refusal", "audio"))


def spoken_tokens(usage: object) -> int:
    """The tokens of an answer that were none of its reasoning; 0 where that is not told."""
    if not isinstance(usage, dict):
        return 0
    details = usage.get("completion_tokens_details")
    thought = details.get("reasoning_tokens") if isinstance(details, dict) else usage.get("reasoning_tokens")
    return _count(usage.get("completion_tokens")) - _count(thought)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _matched(face: Face, message: str, holder: Mapping[str, Any]) -> Swallowed | None:
    # A code of its own says more than words, which are translated and reworded.
    if face.code is not None:
        if holder.get("code") != face.code:
            return None
        written = holder.get("failed_generation")
        return Swallowed(face=face, text=written[:MAX_CHARS] if isinstance(written, str) else "")
    found = face.said.match(message) if face.said is not None else None
    if found is None:
        return None
    groups = found.groupdict()
    text = groups.get("text") or ""
    # Nine digits at most: Python refuses to read a number of thousands.
    return Swallowed(face=face, text=text[:MAX_CHARS], is_rest=int((groups.get("at") or "0")[:9]) > 0)


def _told(body: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What an error says for itself, and the object in which it does."""
    if not isinstance(body, dict):
        return
    error = body.get("error")
    if isinstance(error, str):
        yield error, body
    for holder in (error, body):
        if not isinstance(holder, dict):
            continue
        message = holder.get("message")
        if isinstance(message, str) or "code" in holder:
            yield message if isinstance(message, str) else "", holder
        # OpenRouter's error of the server behind it: https://openrouter.ai/docs/api-reference/errors
        metadata = holder.get("metadata")
        raw = metadata.get("raw") if isinstance(metadata, dict) else None
        if isinstance(raw, str) and len(raw) <= _MAX_RAW:
            yield from _told_behind(raw)


def _told_behind(raw: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        inner = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        yield raw, {}
        return
    error = inner.get("error") if isinstance(inner, dict) else None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        yield error["message"], error
    elif isinstance(error, str):
        yield error, {}
