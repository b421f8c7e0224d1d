"""A stream watched until something of it can be seen: its last events wait until it is known whether it was swallowed.

As long as nothing but a role, reasoning and blanks has come, the events that end the stream (the finish, the usage,
an error, `[DONE]`) are held, all others go on at once. With the first visible text or call nothing is held any more,
and nothing is taken apart.
"""

import re
from typing import Any

import msgspec

from gateway.answer.rescue.faces import Swallowed, of_end, of_error
from gateway.core.errors import UpstreamBadReply
from gateway.wire.chat_chunks import NOT_GIVEN, BadChunk, Chunk, Delta, any_in, decode_chunk, is_given, string_in
from gateway.wire.sse import DONE, EventTooLong, SseDecoder, SseEvent, block_of

__all__ = ["Lookout"]

# The first events say most; a first read may be of megabytes, which nobody need take apart.
_LOOK_BYTES = 2 << 10
"""How much is taken apart at a time, until something can be seen."""
_NO_CHOICES = re.compile(rb'"choices"\s*+:\s*+\[\s*+\]')
# llama.cpp gave errors a field of their own: https://github.com/ggml-org/llama.cpp/blob/b5000/examples/server/utils.hpp
_ERROR_FIELD = b"error:"


class Lookout:
    """Watches one stream; its bytes go through `pass_on`, and what was held comes with `release`."""

    __slots__ = (
        "_decoder",
        "_drops_usage",
        "_error",
        "_finish",
        "_held",
        "_is_open",
        "_reasoned",
        "ended",
        "id",
        "last_words",
        "usage",
    )

    def __init__(self, *, max_event_bytes: int, drops_usage: bool = False) -> None:
        self._decoder = SseDecoder(max_event_bytes)
        self._drops_usage = drops_usage
        """The client has not asked for usage: the event with it alone is ours."""
        self._held: list[SseEvent] = []
        self._is_open = False
        self._reasoned = False
        self._finish: str | None = None
        self._error: Any = None
        self.ended = False
        """Nothing more is to come, and what came last is held."""
        self.last_words: Delta | None = None
        """The reasoning that stands in the event with the finish reason, and is held with it."""
        self.usage: Any = None
        self.id: str | None = None
        """Of the answer."""

    @property
    def is_open(self) -> bool:
        """Something could be seen: it is too late for any other answer."""
        return self._is_open

    @property
    def is_still(self) -> bool:
        """Nothing is held or under way: only an event without any choice could still be held."""
        return self._is_open and not self._decoder.pending

    def pass_on(self, data: bytes) -> bytes:
        """What of these bytes may go on now."""
        out: list[bytes] = []
        while data:
            if self.is_still and not (self._drops_usage and self._may_hold_usage(data)):
                out.append(data)  # a first read may hold half of the answer: what opens it stands in the first events
                break
            piece = block_of(data, _LOOK_BYTES)
            try:
                out.append(self._sorted(self._decoder.feed(piece)))
            except EventTooLong as error:
                raise UpstreamBadReply(f"the model server sent {error}") from error
            data = data[len(piece) :]
        return b"".join(out)

    def finish(self) -> bytes:
        """What of an event that the stream ended within may go on."""
        return self._sorted(self._decoder.finish())

    def release(self) -> bytes:
        """What was held: the stream goes on as it came."""
        held, self._held = self._held, []
        self._is_open = True
        return b"".join(raw for raw, data in held if not self._is_own_usage(data))

    @property
    def swallowed(self) -> Swallowed | None:
        """The turn, if the server's parser swallowed it; asked once the stream has ended."""
        if self._is_open:
            return None
        if self._error is not None:
            return of_error(self._error)
        return of_end(self._finish, self.usage, has_reasoned=self._reasoned)

    def _may_hold_usage(self, data: bytes) -> bool:
        return b"\r" in data or _NO_CHOICES.search(data) is not None

    def _sorted(self, events: list[SseEvent]) -> bytes:
        out: list[bytes] = []
        for raw, data in events:
            if self._is_open:
                if not (self._drops_usage and self._is_own_usage(data)):
                    out.append(raw)
            # Asked before it is known whether anything can be seen: the asking itself may open the stream.
            elif self._is_last(raw, data):
                self._held.append((raw, data))
            elif self._is_open:  # by this very event
                out += [self.release(), raw]
            elif self._held:
                self._held.append((raw, data))
            else:
                out.append(raw)
        return b"".join(out)

    def _is_own_usage(self, data: bytes | None) -> bool:
        """Whether an event is one that only the gateway has asked for."""
        if not self._drops_usage or data is None or b'"usage"' not in data:
            return False
        chunk = _chunk(data)
        if chunk is None or chunk.choices or not is_given(chunk.usage) or is_given(chunk.error):
            return False
        self.usage = any_in(chunk.usage)
        return True

    def _is_last(self, raw: bytes, data: bytes | None) -> bool:
        """Whether an event ends the stream, or may be part of its end; one that can be seen opens it."""
        if data is None:
            return raw.startswith(_ERROR_FIELD) and self._fails(any_in(msgspec.Raw(raw[len(_ERROR_FIELD) :].strip())))
        if data == DONE:
            self.ended = True
            return True
        if not data.strip():
            return False
        chunk = _chunk(data)
        if chunk is None:
            self._is_open = True
            return False
        if self.id is None:
            self.id = string_in(chunk.id)
        if chunk.error is not NOT_GIVEN and is_given(chunk.error) and not chunk.choices:
            return self._fails({"error": any_in(chunk.error)})
        if chunk.usage is not NOT_GIVEN and is_given(chunk.usage):
            self.usage = any_in(chunk.usage)
        if not chunk.choices:
            return is_given(chunk.usage)
        return self._is_end(chunk)

    def _is_end(self, chunk: Chunk) -> bool:
        choice = (chunk.choices or [])[0]
        delta = choice.delta
        is_other = len(chunk.choices or []) > 1 or choice.index != 0
        if is_other or (
            delta is not None
            and (
                (delta.content or "").strip()
                or (delta.tool_calls is not NOT_GIVEN and is_given(delta.tool_calls))
                or (delta.function_call is not NOT_GIVEN and is_given(delta.function_call))
            )
        ):
            self._is_open = True
            return False
        self._reasoned = self._reasoned or (delta is not None and delta.reasons)
        if choice.finish_reason:
            self.last_words = delta if delta is not None and delta.reasons else None
            self._finish = choice.finish_reason
        return bool(choice.finish_reason)

    def _fails(self, error: Any) -> bool:
        self._error = error if isinstance(error, dict) and "error" in error else {"error": error}
        self.ended = True
        return True


def _chunk(data: bytes) -> Chunk | None:
    try:
        return decode_chunk(data)
    except BadChunk:
        return None
