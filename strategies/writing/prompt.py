"""The section of the system prompt that tells a model about its tools: the same bytes for the same tools.

It stands behind the client's own system text: a separator, a hidden marker, then the rules and the tools as the
dialect's renderer words them. What comes from a tool definition, or from a tool's result, is data: `guarded` and
`shielded` keep it from being taken for our own markup.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from attrs import field, frozen

from gateway.core.tools import Tool
from gateway.wire.chat_request import INSTRUCTING, is_system, texts_of
from gateway.wire.known_texts import made_of

__all__ = [
    "MARKER",
    "SEPARATOR",
    "DescribesTools",
    "add_section",
    "firm_instruction",
    "guarded",
    "holds_section",
    "section",
    "shielded",
]

MARKER = "<!-- toolgate:tools:5f1c9ad27e3b -->"
"""Marks our section, so that a prompt which holds it is not given a second one."""

SEPARATOR = "\n\n---\n\n"

_OWN_WORDS = frozenset({"tools", "tool_call", "tool_response"})
_ZERO_WIDTH_SPACE = "\u200b"
_TAG = re.compile(r"<(?=[\s/]{0,4}([A-Za-z_][A-Za-z0-9_.:-]{0,79})|!--\s{0,4}toolgate:)")
# What tokenizers of the known families read as one token wherever it stands, of chat templates and of calls:
# https://github.com/ggml-org/llama.cpp/blob/master/src/llama-chat.cpp
_SPECIAL = re.compile(
    r"(?P<tag><)(?=[|｜‖]{1,2}\S|/?(?:s|bos|eos|pad|unk|mask|sop|eop|sep|think|thinking|(?:start|end)_of_[a-z_]+"
    r"|(?:start|end)_function_[a-z_]+|escape|extra_id_\d+|reserved_special_token_\d+|seed:[a-z_]+|tool_calls?"
    r"|TOOLCALL|[a-z_]+\|)>|<SYS>>|</SYS>>)"
    r"|(?P<sign>[\[\]✿])(?=/?(?:INST|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|SYSTEM_PROMPT|ARGS|CALL_ID|IMG"
    r"|THINK)\]|e~\[|~[a-z]+\]|<\]minimax\[>\[|(?:FUNCTION|ARGS|RESULT|RETURN)✿)"
)
_BEGINS = re.compile(r"[<\[\]✿]")
"""What all of these begin with: most of what a tool says of itself has none of it."""
_MARKER_START = re.compile(f"<({_ZERO_WIDTH_SPACE}*!--\\s{{0,4}}toolgate:)")


_MAX_KEPT = 1 << 20
"""Sections are remembered, so none may be of more tools than any client has."""


class DescribesTools(Protocol):
    """The part of a renderer that words the section."""

    @property
    def id(self) -> str: ...

    def tool_section(self, tools: Sequence[Tool], *, parallel: bool) -> str: ...


@frozen(kw_only=True)
class _Ask:
    """What the section depends on; the tools themselves are compared by their content."""

    renderer: DescribesTools
    parallel: bool
    content: bytes
    tools: tuple[Tool, ...] = field(eq=False)


def section(renderer: DescribesTools, tools: Iterable[Tool], *, parallel: bool) -> str:
    """The marked section for these tools; made once for the same content."""
    return made_of(tools, ("section", renderer, parallel), lambda: _section_of(renderer, tools, parallel=parallel))


def _section_of(renderer: DescribesTools, tools: Iterable[Tool], *, parallel: bool) -> str:
    chosen = tuple(tools)
    content = msgspec.json.encode([(tool.name, tool.description, dict(tool.parameters)) for tool in chosen])
    ask = _Ask(renderer=renderer, parallel=parallel, content=content, tools=chosen)
    # Remembered by its content, as clients send the same tools anew with each request.
    return _kept_section(ask) if len(content) <= _MAX_KEPT else _section(ask)


def _section(ask: _Ask) -> str:
    return f"{MARKER}\n{ask.renderer.tool_section(ask.tools, parallel=ask.parallel)}"


_kept_section = lru_cache(maxsize=32)(_section)


def firm_instruction(name: str | None) -> str:
    """What is added when a call is required: of any tool, or of the named one."""
    which = f"the tool `{name}`" if name else "one of the tools above"
    return (
        f"\n\nYou must call {which} now. An answer without that call is not accepted: "
        "do not reply with text alone, and do not ask first."
    )


def holds_section(messages: Iterable[Mapping[str, Any]]) -> bool:
    """A system prompt of this conversation carries our section already: the marker on a line of its own."""
    # Asked of each of thousands of messages: a call for each would cost more than all else that is done with them.
    instructing = [message for message in messages if message.get("role") in INSTRUCTING]
    for message in instructing:
        content = message.get("content")
        for text in (content,) if isinstance(content, str) else texts_of(content):
            # On a line of its own: a prompt may speak of the marker, or hold a file of ours that does.
            if MARKER in text and f"\n{MARKER}\n" in f"\n{text}":
                return True
    return False


def add_section(messages: Sequence[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The messages with `text` behind the client's first system prompt, or in a new one where none leads."""
    if not messages or not is_system(messages[0]):
        # Templates refuse a system message that is not the first: https://github.com/vllm-project/vllm/issues/41114
        return [{"role": "system", "content": text}, *messages]
    first = messages[0]
    content = first.get("content")
    joined: Any
    # A list stays one: its parts may carry a mark for the server's prompt cache.
    if isinstance(content, list) and content:
        joined = [*content, {"type": "text", "text": SEPARATOR + text}]
    elif isinstance(content, str) and content:
        joined = content + SEPARATOR + text
    else:
        joined = text
    return [{**first, "content": joined}, *messages[1:]]


def guarded(text: str, words: Iterable[str] = (), *, opening: str = "&lt;") -> str:
    """The text, unable to open or close one of our tags, the own ones and those named by `words`, and without special
    tokens: what a client's tool says of itself must not end the system's turn and begin another."""
    if _BEGINS.search(text) is None:
        return text
    is_json = opening.startswith("\\u")

    def broken(found: re.Match[str]) -> str:
        if sign := found["sign"]:
            # In JSON an escape is exact; in prose there is no other way that a reader does not see.
            return f"\\u{ord(sign):04x}" if is_json else sign + _ZERO_WIDTH_SPACE
        return opening

    text = _SPECIAL.sub(broken, text)
    if "<" not in text:
        return text
    closed = _OWN_WORDS.union(word.lower() for word in words)

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        # A name may stand before a full stop or a colon, which then belong to the sentence.
        return opening if name is None or name.rstrip(".:-").lower() in closed else "<"

    return _TAG.sub(replace, text)


def shielded(text: str, *patterns: re.Pattern[str]) -> str:
    """The text with our section marker, and what else the patterns name, broken by a zero-width space.

    A pattern's group 1 is what the space is put before; it lets any number of such spaces through, so that taking one
    away again from each place gives the original.
    """
    for pattern in (_MARKER_START, *patterns):
        text = pattern.sub(_break, text)
    return text


def _break(match: re.Match[str]) -> str:
    start = match.start(1) - match.start()
    return match[0][:start] + _ZERO_WIDTH_SPACE + match[0][start:]
