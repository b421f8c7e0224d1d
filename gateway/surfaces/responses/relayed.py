"""What must be known of an answer that goes on in its server's own bytes, to say something of our own in it.

Clients hold an answer to its id: what is said here is said of the response that the server has begun.
"""

import re
from collections import deque
from typing import Any

import msgspec

from gateway.wire.chat_chunks import any_in
from gateway.wire.sse import EventTooLong, SseDecoder

__all__ = ["Relayed"]

_LAST_BYTES = 4096
"""In so many the number of the last event is looked for."""
_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d{1,18})')
_MOST_EVENTS = 4
"""Among so many the response is begun, or it is none."""


class Relayed:
    """One answer."""

    __slots__ = ("_decoder", "_last", "_looked_at", "_size", "response")

    def __init__(self, *, max_event_bytes: int) -> None:
        self.response: dict[str, Any] | None = None
        """As the server has told it first."""
        self._decoder: SseDecoder | None = SseDecoder(max_event_bytes)
        self._looked_at = 0
        self._last: deque[bytes] = deque()
        self._size = 0

    def feed(self, data: bytes) -> None:
        """More of it, on its way to the client."""
        if self._decoder is not None:
            self._look(self._decoder, data)
        self._last.append(data)
        self._size += len(data)
        while self._size - len(self._last[0]) >= _LAST_BYTES:
            self._size -= len(self._last.popleft())

    def next_number(self) -> int:
        """The number of an event behind the last."""
        found = _NUMBER.findall(b"".join(self._last))
        return int(found[-1]) + 1 if found else 0

    def _look(self, decoder: SseDecoder, data: bytes) -> None:
        try:
            events = decoder.feed(data)
        except EventTooLong:
            self._decoder = None
            return
        for _, event in events:
            told = any_in(msgspec.Raw(event)) if event else None
            response = told.get("response") if isinstance(told, dict) else None
            self._looked_at += 1
            if isinstance(response, dict):
                self.response = response
            if self.response is not None or self._looked_at >= _MOST_EVENTS:
                self._decoder = None
                return
