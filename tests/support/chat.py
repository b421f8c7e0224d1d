"""Scripted answers in the OpenAI chat shapes, and what a client makes of the bytes that come out."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any

from attrs import define, field

from gateway.answer.body import BodyExchange
from gateway.answer.same_wire import Carrier, SameWireReading, heard_whole, hearing
from gateway.answer.stream import StreamExchange
from gateway.answer.watch import WatchedStream
from gateway.core.errors import GatewayError
from gateway.core.limits import Limits
from gateway.core.tools import ToolSet
from gateway.kinds.shared.port import Reply, Situation
from gateway.wire.calm import Calm, Ends, Lane, lane_of
from gateway.wire.chat_request import request_of
from strategies.base import Options, Prepared, Shape
from strategies.reading.factory import reader_factory
from strategies.recovery import RecoveryStrategy
from tests.support.reading import AGENT_TOOLS

__all__ = ["READ", "SAYINGS", "Paced", "Taking", "event_ends", "framed", "read_stream", "read_whole", "reading"]


HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": "fp"}


SHORT = 32
_written = json.JSONEncoder(ensure_ascii=False).encode


def event(delta: Any, finish: str | None = None, *, index: int = 0, **more: Any) -> bytes:
    """One chunk as an SSE event."""
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: " + _written({**HEAD, "choices": [choice], **more}).encode() + b"\n\n"


@lru_cache(maxsize=4096)
def _short(content: str) -> bytes:
    """The chunk of a short piece of content: where answers are cut everywhere, the same ones come again and again."""
    return event({"content": content})


DONE = b"data: [DONE]\n\n"


def answer_events(parts: Iterable[str], finish: str = "stop") -> list[bytes]:
    """A streamed answer: the role, each part of the content, the finish, `[DONE]`."""
    return [
        event({"role": "assistant", "content": ""}),
        *(_short(part) if len(part) < SHORT else event({"content": part}) for part in parts),
        event({}, finish),
        DONE,
    ]


def answer_body(content: str | None, finish: str = "stop", **message: Any) -> bytes:
    """A whole answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return json.dumps({**HEAD, "object": "chat.completion", "choices": [choice]}, ensure_ascii=False).encode()


@define
class Heard:
    """What a client makes of an answer."""

    content: str | None = None
    calls: list[dict[str, Any]] = field(factory=list)
    finish: str | None = None
    error: Any = None
    done: bool = False
    roles: list[str] = field(factory=list)

    @property
    def meaning(self) -> tuple[Any, ...]:
        """All but the ids."""
        return (self.content, [(call["name"], call["arguments"]) for call in self.calls], self.finish)


def chunks_of(data: bytes) -> Iterator[Any]:
    """Each event's object; None for `[DONE]`. Comments are passed over."""
    for block in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
        lines = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
        if lines:
            yield None if lines == [b"[DONE]"] else json.loads(b"\n".join(lines))


def hear_stream(data: bytes, index: int = 0) -> Heard:
    """Read a stream as strictly as the SDKs do."""
    heard = Heard()
    for chunk in chunks_of(data):
        assert not heard.done, "something after [DONE]"
        if chunk is None:
            heard.done = True
            continue
        if "error" in chunk:
            heard.error = chunk["error"]
            continue
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            _add(heard, choice)
    return heard


def _add(heard: Heard, choice: dict[str, Any]) -> None:
    delta = choice["delta"]
    assert heard.finish is None or not (delta.get("content") or delta.get("tool_calls")), "content after the finish"
    if delta.get("role"):
        heard.roles.append(delta["role"])
    if delta.get("content"):
        heard.content = (heard.content or "") + delta["content"]
    for call in delta.get("tool_calls") or []:
        number, function = call["index"], call.get("function") or {}
        if number == len(heard.calls):
            assert call["id"]
            assert call["type"] == "function"
            heard.calls.append({"id": call["id"], "name": function["name"], "arguments": ""})
        else:
            assert "name" not in function
            assert "id" not in call
        heard.calls[number]["arguments"] += function.get("arguments") or ""
    if choice["finish_reason"]:
        assert heard.finish is None, "two finish reasons"
        heard.finish = choice["finish_reason"]


def hear_body(data: bytes) -> Heard:
    """Read a whole answer."""
    choice = json.loads(data)["choices"][0]
    message = choice["message"]
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message.get("tool_calls") or []
    ]
    return Heard(content=message["content"] or None, calls=calls, finish=choice["finish_reason"], done=True)


def prepared(
    *,
    tools: ToolSet | None = AGENT_TOOLS,
    prompted: str | None = "generic_xml",
    first_only: bool = False,
    keep_trailing: bool = False,
    wait: bool = False,
    reasons: bool = False,
    **options: Any,
) -> Prepared:
    """A prepared request whose answer is read; with `tools=None` it is not."""
    made = reader_factory(tools=tools, options=Options(**options), model="m", prompted=prompted) if tools else None
    return Prepared(
        strategy="test",
        body=b"{}",
        make_reader=made,
        reads_reasoning=reasons,
        shape=Shape(first_only=first_only, keep_trailing=keep_trailing, wait_for_finish=wait),
    )


def numbered_ids() -> Any:
    """Ids as the gateway's own look, one after the other."""
    made = 0

    def make(_dialect: str) -> str:
        nonlocal made
        made += 1
        return f"call_{made:024d}"

    return make


def stream(
    parts: Sequence[bytes], how: Prepared, error: GatewayError | None = None, limits: Limits | None = None
) -> tuple[bytes, StreamExchange]:
    """Feed upstream bytes to an exchange and finish it."""
    exchange = StreamExchange(how, make_id=numbered_ids(), limits=limits or Limits())
    out = []
    try:
        out = [exchange.feed(part) for part in parts]
    except GatewayError as fault:
        error = fault
    out.append(exchange.finish(error))
    assert not exchange.held
    return b"".join(out), exchange


def whole(body: bytes, how: Prepared) -> tuple[bytes, BodyExchange]:
    """Put a whole body through an exchange."""
    exchange = BodyExchange(how, make_id=numbered_ids(), limits=Limits())
    return exchange.transform(body), exchange


def framed(event: bytes) -> bytes:
    """A chunk of its own."""
    return b"%x\r\n%b\r\n" % (len(event), event)


class Taking(asyncio.Transport):
    """A client that takes all that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []
        self.left: list[bytes] = []
        self.faults: list[Exception] = []
        """What a lane to it has left to others, and told."""

    def write(self, data: Any) -> None:
        self.taken.append(bytes(data))

    def lane(self, calm: Calm, *, may_hold: bool = False) -> Lane:
        """A lane to it."""
        return lane_of(calm, Ends(self.write, self.left.append, self.faults.append, monotonic), may_hold=may_hold)


@define
class Paced:
    """Lets the calm events of an exchange go by a lane, as a connection does that reads each event by itself."""

    exchange: StreamExchange | SameWireReading | WatchedStream
    client: Taking = field(factory=Taking)
    count: int = 0
    """How many have gone so."""
    _lane: Lane | None = None
    _is_open: bool = False

    def goes(self, data: bytes) -> bytes | None:
        """What goes out with it by the lane, as it may wait there; None where it does not, and all is told that did."""
        if self._lane is not None and self._is_open and self._lane.takes(framed(data)):
            sent = b"".join(self.client.taken)
            self.client.taken.clear()
            self.count += 1
            return _unframed(sent)
        self.end()
        return None

    def end(self) -> None:
        """Tell all that went by the lane, and give what waits there."""
        self._is_open = False
        gone = self._lane.gone() if self._lane is not None else None
        if gone is not None and gone.texts:
            self.exchange.overlook(gone.texts, gone.last)
        if gone is not None and gone.waiting:
            assert self.exchange.step(gone.waiting) == b"", "it waits on where all others do"

    def passed(self) -> None:
        """One has gone unread: those behind it that are calm need not be asked about."""
        calm = self.exchange.calm()
        self._is_open = calm is not None
        if calm is not None and (self._lane is None or self._lane.calm is not calm):
            self._lane = self.client.lane(calm, may_hold=isinstance(self.exchange, StreamExchange))


def _unframed(chunks: bytes) -> bytes:
    """The events in these chunks."""
    events = []
    while chunks:
        line, _, rest = chunks.partition(b"\r\n")
        events.append(rest[: int(line, 16)])
        assert rest[int(line, 16) :].startswith(b"\r\n")
        chunks = rest[int(line, 16) + 2 :]
    return b"".join(events)


# --- Answers in a client's own wire, read for calls as the gateway reads them


READ = {
    "type": "function",
    "function": {"name": "Read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}

_CALL = '<tool_call>\n{"name": "Read", "arguments": {"path": "a.py"}}\n</tool_call>'
SAYINGS = (
    "Some plain words",
    " ",
    "\n\n",
    "<",
    "<tool",
    "a < b",
    _CALL,
    'say "no" ',
    "C:\\new",
    "🙂",
    "é",
    "```\n",
    "`",
)
"""What a model may say: a call, and what could begin one."""
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


def event_ends(stream: bytes) -> list[int]:
    """Where the events of a stream end."""
    return [at + 2 for at in range(len(stream)) if stream.startswith(b"\n\n", at)]


def read_stream(carrier: Carrier, stream: bytes, *cuts: int, reads_all: bool = False) -> bytes:
    """What the client is told of a stream that comes in these pieces.

    What may go on unread does so, unless the answer `reads_all`.
    """
    exchange, out, at = reading(carrier), b"", 0
    paced = Paced(exchange)
    for cut in (*sorted(cuts), len(stream)):
        data, at = stream[at:cut], cut
        if (told := paced.goes(data)) is not None:
            out += told
            continue
        passes = None if reads_all else exchange.listens()
        gone = passes(data) if passes is not None else None
        out += exchange.step(data) if gone is None else gone
        if gone == data and not exchange.held:
            paced.passed()
        while exchange.busy:
            out += exchange.step()
    paced.end()
    out += exchange.close()
    while exchange.busy:
        out += exchange.step()
    return out


def read_whole(wire: str, raw: bytes, whole: Callable[[bytes, bytes], bytes]) -> bytes:
    """What the client is told of a whole answer."""
    situation = Situation(now=0.0, make_id=lambda dialect: dialect)
    chat = heard_whole(wire, "m", situation, {}, raw)
    outcome = hearing(wire, "m", situation, stream=False).answered(200, {}, raw)
    assert isinstance(outcome, Reply), outcome
    assert json.loads(chat) == json.loads(outcome.body), "whatever is heard faster"
    exchange = BodyExchange(_prepared(), make_id=lambda dialect: f"call_{dialect}", limits=Limits())
    answer = exchange.transform(chat)
    return raw if answer == chat else whole(raw, answer)
