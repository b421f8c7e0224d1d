"""An answer in the wire that the client speaks too: its own bytes, and what they come to in chat heard beside.

What is heard gives the facts, and what a strategy would have made of the answer, by the same rules as everywhere.
"""

from collections.abc import Callable, Mapping

from gateway.answer.watch import WatchedStream, WatchTerms
from gateway.core.errors import GatewayError
from gateway.kinds.rows import KINDS
from gateway.kinds.shared.port import Dialogue, Reply, Situation
from gateway.wire.sse import Boundary

__all__ = ["HEARD_WIRES", "SameWireStream", "heard_whole", "hearing"]

HEARD_WIRES = frozenset(row.wire for row in KINDS.values())
"""Wires whose answers can be heard as chat: some kind of servers speaks them."""
TellError = Callable[[GatewayError], bytes]


def hearing(wire: str, model: str, situation: Situation, *, stream: bool) -> Dialogue:
    """What hears answers in a wire as chat: the kind of servers that speak it."""
    row = next(row for row in KINDS.values() if row.wire == wire)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "."}],
        "stream": stream,
        "stream_options": {"include_usage": True},
    }
    return row.made(None).begin(body, b"{}", situation=situation, known={})


def heard_whole(dialogue: Dialogue, headers: Mapping[str, str], body: bytes) -> bytes:
    """What a whole answer is in chat; an object that says nothing where it is none."""
    outcome = dialogue.answered(200, headers, body)
    return outcome.body if isinstance(outcome, Reply) and outcome.status == 200 else b"{}"


class SameWireStream(WatchedStream):
    """A streamed answer whose bytes are not changed."""

    def __init__(self, terms: WatchTerms, dialogue: Dialogue, tell_error: TellError) -> None:
        super().__init__(terms)
        self._dialogue = dialogue
        self._tell_error = tell_error
        self._relayed = Boundary()

    @property
    def at_boundary(self) -> bool:
        return self._relayed.is_here

    def step(self, data: bytes = b"") -> bytes:
        super().step(self._dialogue.feed(data) if data else b"")
        self._relayed.feed(data)
        return data

    def close(self, error: GatewayError | None = None) -> bytes:
        if error is None:
            super().step(self._dialogue.finish())
        is_told = super().close(error) != b""
        if error is None or not is_told:
            return b""
        return (b"" if self.at_boundary else b"\n\n") + self._tell_error(error)
