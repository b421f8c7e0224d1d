"""A chat answer told to a Messages client: the frame around its blocks."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.surfaces.heard import Heard, hear_whole
from gateway.surfaces.messages.blocks import Blocks, Terms, event
from gateway.surfaces.port import Memory

__all__ = ["PING", "MessagesTelling"]

MAX_EVENT_BYTES = 1 << 30
"""What is heard here was bounded where it came in."""
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
"""Claude Code and the SDKs take no comment line for a sign of life."""


class MessagesTelling:
    """One answer."""

    __slots__ = ("_blocks", "_heard", "_terms")

    is_identity = False

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._blocks = Blocks(terms, streams=True)
        self._heard = Heard(self._blocks, max_event_bytes=MAX_EVENT_BYTES, pieces=self._blocks)
        self._blocks.stopped_at = lambda: self._heard.stopped_at

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
            "usage": {
                "input_tokens": input_tokens or 0,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 0,
            },
        }
        return event("message_start", {"message": message})

    def feed(self, data: bytes) -> bytes:
        self._heard.feed(data)
        return self._taken()

    def finish(self) -> bytes:
        self._heard.finish()
        if not self._blocks.is_over:
            self._blocks.error({"message": "the model server's answer ended too early"})
        return self._taken()

    def whole(self, body: bytes) -> bytes:
        blocks = self._blocks = Blocks(self._terms, streams=False)
        stopped_at = hear_whole(body, blocks, pieces=blocks)
        blocks.stopped_at = lambda: stopped_at
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

    def keep_alive(self) -> bytes:
        return b"" if self._blocks.is_over else PING

    def remember(self) -> tuple[Memory, ...]:
        return ()

    def _taken(self) -> bytes:
        out, self._blocks.out = self._blocks.out, []
        return out[0] if len(out) == 1 else b"".join(out)
