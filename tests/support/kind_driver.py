"""An OpenAI client, a session store and a kind, joined without sockets: conversations go through as they would."""

import json
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode

from attrs import define, field, frozen

from gateway.kinds.shared.port import Dialogue, HttpAsk, Kind, Reply, Situation
from gateway.wire.chat_reshape import stream_to_body
from tests.support.turns import Exchange
from tests.support.wire_server import Answered, WireServer

Cut = Callable[[bytes], Iterable[bytes]]


def whole(data: bytes) -> list[bytes]:
    """Not cut at all."""
    return [data]


def in_pieces(size: int) -> Cut:
    """Cut into pieces of this many bytes."""
    return lambda data: [data[start : start + size] for start in range(0, len(data), size)]


@frozen
class Got:
    """What the client's side got."""

    status: int
    body: bytes
    """As it came: a stream, or one body."""
    streamed: bool

    @property
    def completion(self) -> dict[str, Any]:
        """The whole answer."""
        value: dict[str, Any] = json.loads(stream_to_body(self.body) if self.streamed else self.body)
        return value

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = self.completion["choices"][0]["message"]
        return message

    @property
    def finish_reason(self) -> str | None:
        reason: str | None = self.completion["choices"][0]["finish_reason"]
        return reason


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its arguments decoded."""
    told = {key: message.get(key) for key in ("role", "content", "reasoning_content") if message.get(key) is not None}
    told.setdefault("content", None)
    if message.get("tool_calls"):
        told["tool_calls"] = [
            [call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])]
            for call in message["tool_calls"]
        ]
    return told


@define(kw_only=True)
class Driver:
    """One client's way through a kind to a server."""

    kind: Kind
    server: WireServer
    key: str
    model: str
    cut: Cut = whole
    store: dict[str, bytes] = field(factory=dict)
    asks: list[HttpAsk] = field(factory=list)

    def ask(self, body: dict[str, Any], *, delivered: dict[str, Any] | None = None) -> Got:
        """One request, to its end."""
        keys = self.kind.keys(body, scope="s")
        known = {key: self.store[key] for key in keys if key in self.store}
        situation = Situation(now=1_700_000_000.0, make_id=lambda _: "call_made", answer_id="chatcmpl-1", scope="s")
        dialogue = self.kind.begin(body, json.dumps(body).encode(), situation=situation, known=known)
        got = self._through(dialogue, dialogue.ask)
        if 200 <= got.status < 300:
            for memory in dialogue.remember(delivered):
                self.store[memory.key] = memory.value
        return got

    def _through(self, dialogue: Dialogue, ask: HttpAsk) -> Got:
        for _ in range(6):
            answered = self._sent(ask)
            if ask.streams and answered.status == 200 and answered.content_type.startswith("text/event-stream"):
                out = b"".join(dialogue.feed(piece) for piece in self.cut(answered.body)) + dialogue.finish()
                if dialogue.again is None:
                    return Got(200, out, streamed=True)
                assert out == b""
                ask = dialogue.again
                continue
            told = dialogue.answered(answered.status, {}, answered.body)
            if isinstance(told, Reply):
                return Got(told.status, told.body, streamed=False)
            ask = told
        raise AssertionError("the dialogue never ends")

    def _sent(self, ask: HttpAsk) -> Answered:
        self.asks.append(ask)
        target = f"/v1{ask.path}" + (f"?{urlencode(ask.query)}" if ask.query else "")
        headers = {name.lower(): value for name, value in (*ask.headers, *self.kind.credentials(self.key))}
        return self.server.respond(ask.method, target, headers, ask.body)

    def converse(self, exchanges: list[Exchange], *, stream: bool) -> list[Got]:
        """A whole conversation, its history kept as OpenAI clients keep it."""
        history: list[dict[str, Any]] = []
        gots = []
        for exchange in exchanges:
            history += exchange.news
            body = {"model": self.model, "messages": history, **exchange.fields}
            if stream:
                body |= {"stream": True, "stream_options": {"include_usage": True}}
            got = self.ask(body)
            assert got.status == 200, got.body
            gots.append(got)
            kept = {key: value for key, value in got.message.items() if key != "reasoning_content"}
            history.append(kept)
        return gots
