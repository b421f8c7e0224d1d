"""A chat answer in blocks: one after the other, each begun, filled and ended, numbered without gaps.

The order is what clients break on, so one writer owns it: a block is ended before the next begins, and every piece
fits its block. A client runs a call when its block ends (Claude Code does, also where the stream breaks behind it), so
one is ended only where nothing can be missing of its call: one that was cut stays open, and nothing is said behind it.
"""

import json
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.core.ports import Memory
from gateway.surfaces.heard import Heard, hear_whole
from gateway.surfaces.messages.faults import told_error
from gateway.surfaces.seals import Seals

__all__ = ["PING", "THINKING", "MessagesTelling", "Terms", "Thinking"]

Thinking = Literal["shown", "omitted", "hidden"]
"""Thoughts are shown, stand there unread, or are left out."""
THINKING = "thinking"
"""What the seal of a thought is for."""
BYTES_PER_TOKEN = 3.6
"""Before anything better is known."""
MAX_EVENT_BYTES = 1 << 30
"""What is heard here was bounded where it came in."""
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
"""Claude Code and the SDKs take no comment line for a sign of life."""
_REASONS = {"stop": "end_turn", "length": "max_tokens"}
_MOST_TOKENS = 1 << 53
_DELTA_HEAD = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":'
_TEXT_END = b'"}}\n\n'


def _same(name: str) -> str:
    return name


class Terms(Struct, frozen=True, kw_only=True):
    """How one answer is told."""

    message_id: str
    model: str
    thinking: Thinking
    seals: Seals
    own_name: Callable[[str], str] = _same
    """The name that the client knows a tool by."""
    stops: tuple[str, ...] = ()
    """The sequences at which the client wants answers to stop."""


class _Blocks:
    """Told what an answer says, it writes events or, where the answer is whole, content."""

    __slots__ = (
        "_calls",
        "_is_stuck",
        "_kind",
        "_number",
        "_reason",
        "_stopped_at",
        "_terms",
        "_thought",
        "_usage",
        "content",
        "dropped",
        "input_tokens",
        "is_over",
        "out",
        "said",
        "streams",
        "word_head",
    )

    def __init__(self, terms: Terms, *, streams: bool) -> None:
        self.streams = streams
        self.out: list[bytes] = []
        """Events."""
        self.content: list[dict[str, Any]] = []
        """Of a whole answer."""
        self.dropped: dict[str, int] = {}
        """What the client is not told, by kinds."""
        self.input_tokens: int | None = None
        """What the request takes, by an estimate, where the server does not say."""
        self.is_over = False
        self.word_head = b""
        """What stands before the text in the events of the block of text that is open."""
        self._terms = terms
        self._number = -1
        """Of the block that was begun last."""
        self._kind = ""
        """What kind of block is open."""
        self._is_stuck = False
        """A call that was cut stands open."""
        self._calls = 0
        """How many were told whole."""
        self._thought: list[bytes] = []
        """The open block's thoughts, or the arguments of a call in a whole answer."""
        self.said = 0
        self._reason: str | None = None
        self._stopped_at: str | None = None
        """The sequence that the server says the answer stopped at."""
        self._usage: Mapping[str, Any] | None = None

    def text(self, body: bytes) -> None:
        if self._is_stuck:
            self._drop("text_behind_cut_call")
            return
        if self._kind != "text":
            self._begin("text", {"type": "text", "text": ""})
            self.word_head = _DELTA_HEAD % self._number + b'"text_delta","text":"'
        self.said += len(body)
        if self.streams:
            self.out.append(self.word_head + body + _TEXT_END)
        else:
            self.content[-1]["text"] += _decoded(body)

    def refusal(self, body: bytes) -> None:
        self.text(body)

    def reasoning(self, body: bytes) -> None:
        if self._terms.thinking == "hidden" or self._is_stuck:
            self.dropped.setdefault("thinking", 1)
            return
        if self._kind != THINKING:
            # Both fields from the start: SDKs add what comes to what is there.
            self._begin(THINKING, {"type": "thinking", "thinking": "", "signature": ""})
        self.said += len(body)
        self._thought.append(body)
        if self._terms.thinking == "shown" and self.streams:
            self._delta(b'"thinking_delta","thinking":"' + body + b'"')

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """A whole call; calls are told in pieces, so that nobody waits for a long one."""
        self.call_begins(call_id, name)
        self.call_piece(msgspec.json.encode(arguments)[1:-1])
        self.call_ends(is_whole=True)

    def call_begins(self, call_id: str, name: str) -> None:
        if self._is_stuck:
            return
        # Results find their calls by ids, so each has one; this one is the same each time the answer is told.
        made_up = f"toolu_{self._terms.message_id.removeprefix('msg_')}{self._number + 1}"
        own = self._terms.own_name(name)
        self._begin("tool_use", {"type": "tool_use", "id": call_id or made_up, "name": own, "input": {}})

    def call_piece(self, body: bytes) -> None:
        if self._is_stuck:
            return
        self.said += len(body)
        if self.streams:
            self._delta(b'"input_json_delta","partial_json":"' + body + b'"')
        else:
            self._thought.append(body)

    def call_ends(self, *, is_whole: bool) -> None:
        if self._is_stuck or not is_whole:
            self._drop("cut_call")
            # In a whole answer a call that was cut can still be left out.
            if not self._is_stuck and not self.streams:
                self.content.pop()
                self._number -= 1
                self._kind = ""
            self._is_stuck = True
            return
        self._calls += 1
        self._end()

    def finish_reason(self, reason: str, stopped_at: str | None = None) -> None:
        self._reason, self._stopped_at = reason, stopped_at

    def usage(self, told: Mapping[str, Any]) -> None:
        self._usage = told

    def plain(self, body: bytes, reason: str, stopped_at: str | None, usage: Mapping[str, Any] | None) -> None:
        self.content.append({"type": "text", "text": _decoded(body)})
        self._number, self.said, self.is_over = 0, len(body), True
        self._reason, self._stopped_at, self._usage = reason, stopped_at, usage

    def error(self, error: Mapping[str, Any]) -> None:
        """What is open stays open, and no end is told: so a client knows that the answer is not whole."""
        self.is_over = True
        self.out.append(_event("error", {"error": told_error(error)}))

    def end(self) -> None:
        self.is_over = True
        if not self._is_stuck:
            self._end()
        if self.streams:
            self.out.append(_event("message_delta", {"delta": self.stop(), "usage": self.told_usage()}))
            self.out.append(_event("message_stop", {}))

    def stop(self) -> dict[str, str | None]:
        """Why the answer ends, in Anthropic's words; the calls that were told count, whatever the server says."""
        told = self._stopped_at
        reason = _REASONS.get(self._reason or "", "end_turn")
        # Clients go by this word: behind `end_turn` they take the answer for finished.
        if reason != "max_tokens" and self._calls:
            reason = "tool_use"
        elif self._reason == "content_filter" and self._number < 0:
            reason = "refusal"
        elif told in self._terms.stops and reason == "end_turn":
            return {"stop_reason": "stop_sequence", "stop_sequence": told}
        return {"stop_reason": reason, "stop_sequence": None}

    def told_usage(self) -> dict[str, Any]:
        """What the answer took; where the server does not say, an estimate, as the fields must be numbers."""
        if self._usage is not None:
            return _told_usage(self._usage)
        return {
            "input_tokens": self.input_tokens or 0,
            **_NO_CACHE,
            "output_tokens": ceil(self.said / BYTES_PER_TOKEN),
        }

    def _begin(self, kind: str, block: dict[str, Any]) -> None:
        self._end()
        self._number += 1
        self._kind = kind
        if self.streams:
            self.out.append(_event("content_block_start", {"index": self._number, "content_block": block}))
        else:
            self.content.append(block)

    def _end(self) -> None:
        """End the block that is open."""
        kind, self._kind, self.word_head = self._kind, "", b""
        if not kind:
            return
        if kind == THINKING:
            self._sign()
        elif kind == "tool_use" and not self.streams and (given := _decoded(b"".join(self._thought)).strip()):
            self.content[-1]["input"] = msgspec.Raw(given.encode())
        self._thought = []
        if self.streams:
            self.out.append(_event("content_block_stop", {"index": self._number}))

    def _sign(self) -> None:
        """A thought ends with a seal, by which it is known for ours when it comes back."""
        body = b"".join(self._thought)
        text = _decoded(body)
        # One that is shown comes back itself; of one too long for a seal only the proof goes.
        seals, shown = self._terms.seals, self._terms.thinking == "shown"
        signature = seals.seal({"text": text}, purpose=THINKING) or seals.seal({"text": ""}, purpose=THINKING) or ""
        if self.streams:
            self._delta(b'"signature_delta","signature":' + msgspec.json.encode(signature))
        else:
            self.content[-1].update(thinking=text if shown else "", signature=signature)

    def _delta(self, delta: bytes) -> None:
        self.out.append(_DELTA_HEAD % self._number + delta + b"}}\n\n")

    def _drop(self, what: str) -> None:
        self.dropped[what] = self.dropped.get(what, 0) + 1


class MessagesTelling:
    """One answer."""

    __slots__ = ("_blocks", "_heard", "_terms")

    is_identity = overhears = False
    mended: Mapping[str, int] = {}

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._blocks = _Blocks(terms, streams=True)
        self._heard: Heard | None = None
        """Hears the stream, once there is one."""

    @property
    def answer_id(self) -> str:
        return self._terms.message_id

    @property
    def dropped(self) -> Mapping[str, int]:
        return self._blocks.dropped

    def begin(self, input_tokens: int | None = None) -> bytes:
        """`message_start`, which nothing of the answer has to be known for."""
        self._blocks.input_tokens = input_tokens
        message: dict[str, Any] = {
            "id": self._terms.message_id,
            "type": "message",
            "role": "assistant",
            "model": self._terms.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            # Numbers, though nothing is known yet: clients add them up.
            "usage": {
                "input_tokens": input_tokens or 0,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 0,
            },
        }
        return _event("message_start", {"message": message})

    def feed(self, data: bytes) -> bytes:
        blocks, heard = self._blocks, self._heard
        if heard is None:
            heard = self._heard = Heard(blocks, max_event_bytes=MAX_EVENT_BYTES, pieces=blocks)
        head = blocks.word_head
        if head and (body := heard.word(data)) is not None:
            blocks.said += len(body)
            return head + body + _TEXT_END
        heard.feed(data)
        return self._taken()

    def finish(self) -> bytes:
        if self._heard is not None:
            self._heard.finish()
        if not self._blocks.is_over:
            self._blocks.error({"message": "connection lost: the model server's answer ended too early"})
        return self._taken()

    def whole(self, body: bytes) -> bytes:
        blocks = self._blocks
        if blocks.is_over or blocks.out or self._heard is not None:
            blocks = self._blocks = _Blocks(self._terms, streams=False)
        blocks.streams = False
        hear_whole(body, blocks, pieces=blocks)
        message = {
            "id": self._terms.message_id,
            "type": "message",
            "role": "assistant",
            "model": self._terms.model,
            "content": blocks.content,
            **blocks.stop(),
            "usage": blocks.told_usage(),
        }
        return msgspec.json.encode(message)

    def overhear(self, data: bytes) -> None:
        """Neither pings nor errors say of which answer they are."""

    def keep_alive(self) -> bytes:
        # Behind `message_stop` nothing is expected any more.
        return b"" if self._blocks.is_over else PING

    def remember(self) -> tuple[Memory, ...]:
        return ()

    def _taken(self) -> bytes:
        out, self._blocks.out = self._blocks.out, []
        return out[0] if len(out) == 1 else b"".join(out)


_NO_CACHE = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    """One event: its name stands there twice, as clients go by either."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def _told_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """A chat answer's usage: what was read from a cache, or written to one, is no input of its own."""
    details, hit = usage.get("prompt_tokens_details"), usage.get("prompt_cache_hit_tokens")
    read = written = 0
    # The second is DeepSeek's: https://api-docs.deepseek.com/guides/kv_cache
    if details is not None or hit is not None:
        details = details if isinstance(details, dict) else {}
        read = _count(details.get("cached_tokens"), hit)
        written = _count(details.get("cache_write_tokens"), details.get("cache_creation_tokens"))
    return {
        # Anthropic counts only what stands behind the cached part:
        # https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
        "input_tokens": max(0, _count(usage.get("prompt_tokens")) - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": _count(usage.get("completion_tokens")),
    }


def _count(first: object, other: object = None) -> int:
    if type(first) is int and 0 <= first < _MOST_TOKENS:
        return first
    return other if type(other) is int and 0 <= other < _MOST_TOKENS else 0


def _decoded(body: bytes) -> str:
    """The text of the inside of a JSON string; half a character in it is a replacement character."""
    quoted = b'"' + body + b'"'
    try:
        return msgspec.json.decode(quoted, type=str)
    except (msgspec.DecodeError, ValueError):
        return _replaced(quoted)


def _replaced(quoted: bytes) -> str:
    try:
        text = json.loads(quoted, strict=False)
    except ValueError:
        return ""
    # By way of UTF-16, in which two halves that stand apart in the text find each other again.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(text, str) else ""
