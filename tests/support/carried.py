"""Answers in a client's own wire, read for calls as the gateway reads them."""

from collections.abc import Callable

from gateway.answer.body import BodyExchange
from gateway.answer.same_wire import Carrier, SameWireReading, heard_whole, hearing
from gateway.core.limits import Limits
from gateway.kinds.shared.port import Situation
from gateway.wire.chat_request import request_of
from strategies.base import Options, Prepared
from strategies.recovery import RecoveryStrategy

__all__ = ["READ", "read_stream", "read_whole", "reading"]

READ = {
    "type": "function",
    "function": {"name": "Read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}
_REQUEST = request_of({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [READ], "stream": True})


def _prepared() -> Prepared:
    return RecoveryStrategy().prepare(_REQUEST, Options())


def reading(carrier: Carrier) -> SameWireReading:
    """A streamed answer in which calls of `READ` are looked for."""
    made = iter(range(100))
    return SameWireReading(
        _prepared(),
        carrier,
        make_id=lambda dialect: f"call_{dialect}_{next(made)}",
        limits=Limits(),
        asks=0,
        keep_text=False,
    )


def read_stream(carrier: Carrier, stream: bytes, *cuts: int) -> bytes:
    """What the client is told of a stream that comes in these pieces."""
    exchange, out, at = reading(carrier), b"", 0
    for cut in (*sorted(cuts), len(stream)):
        out += exchange.step(stream[at:cut])
        while exchange.busy:
            out += exchange.step()
        at = cut
    out += exchange.close()
    while exchange.busy:
        out += exchange.step()
    return out


def read_whole(wire: str, raw: bytes, whole: Callable[[bytes, bytes], bytes]) -> bytes:
    """What the client is told of a whole answer."""
    situation = Situation(now=0.0, make_id=lambda dialect: dialect)
    chat = heard_whole(hearing(wire, "m", situation, stream=False), {}, raw)
    exchange = BodyExchange(_prepared(), make_id=lambda dialect: f"call_{dialect}", limits=Limits())
    answer = exchange.transform(chat)
    return raw if answer == chat else whole(raw, answer)
