"""What the tests of kinds share: what a model says in one turn, in no wire's words, and conversations of such turns;
servers of foreign wires, and a socket to give their answers through; and a client, a store and a kind without sockets.
"""

import base64
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlencode

from attrs import define, field, frozen

from gateway.kinds.shared.port import Dialogue, HttpAsk, Kind, Reply, Situation
from gateway.wire.chat_reshape import stream_to_body
from tests.support.faulty_upstream import Connection, FaultyUpstream, Received

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
READ = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "range": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
                "mode": {"const": "text"},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    },
}
RUN = {
    "type": "function",
    "function": {
        "name": "run",
        "parameters": {
            "type": "object",
            "$defs": {"env": {"type": "object", "additionalProperties": {"type": "string"}}},
            "properties": {
                "command": {"type": "string"},
                "env": {"$ref": "#/$defs/env"},
                "timeout": {"type": ["integer", "null"], "exclusiveMinimum": 0},
            },
            "required": ["command", "timeout"],
        },
    },
}
PING = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
TOOLS = [READ, RUN, PING]
WORDS = (
    "read",
    "the",
    "file",
    "naïve",
    "日本語",
    "🙂",
    "a\nb",
    "  indented",
    "<tag>",
    '"quoted"',
    "\\n",
    "\u2028",
    "end.",
)


@frozen
class Call:
    """A call in an answer."""

    id: str
    name: str
    arguments: dict[str, Any]


@frozen(kw_only=True)
class Turn:
    """One answer of a model."""

    text: str = ""
    thought: str = ""
    signature: str = ""
    calls: tuple[Call, ...] = ()
    end: str = "stop"
    """stop, length or content_filter."""
    fresh: int = 7
    """Input tokens that were not in the cache."""
    cached: int = 0
    output: int = 11
    thinking: int = 0
    """How many tokens of the output were thought."""

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls and self.end == "stop" else self.end

    def message(self) -> dict[str, Any]:
        """The message that an OpenAI client should get, arguments decoded."""
        told: dict[str, Any] = {"role": "assistant", "content": self.text or (None if self.calls else "")}
        if self.thought:
            told["reasoning_content"] = self.thought
        if self.calls:
            told["tool_calls"] = [[call.id, call.name, call.arguments] for call in self.calls]
        return told


@frozen(kw_only=True)
class Exchange:
    """What a client adds to its conversation, and what the model then says."""

    news: tuple[dict[str, Any], ...]
    turn: Turn
    fields: dict[str, Any] = field(factory=dict)
    """More fields of the request."""


def split(text: str, rng: random.Random) -> list[str]:
    """The text in pieces of its own length."""
    pieces = []
    while text:
        size = rng.randint(1, 9)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def _prose(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)) + "."


def _arguments(name: str, rng: random.Random) -> dict[str, Any]:
    if name == "ping":
        return {}
    if name == "read_file":
        return {"path": _prose(rng, 2), **({"range": [1, rng.randint(2, 9)]} if rng.random() < 0.5 else {})}
    return {
        "command": _prose(rng, 4),
        "timeout": rng.randint(1, 90),
        "env": {"A": "ü", "deep": "x" * rng.randint(0, 40)},
    }


def _turn(rng: random.Random, number: str, *, may_call: bool, is_last: bool) -> Turn:
    calls: tuple[Call, ...] = ()
    if may_call and not is_last:
        names = [rng.choice(("read_file", "run", "ping")) for _ in range(rng.choice((1, 1, 2, 3)))]
        calls = tuple(Call(f"toolu_{number}_{i}", name, _arguments(name, rng)) for i, name in enumerate(names))
    thinks = rng.random() < 0.5
    text = "" if calls and rng.random() < 0.4 else _prose(rng, rng.randint(1, 12))
    end = rng.choice(("stop", "stop", "length", "content_filter")) if is_last else "stop"
    return Turn(
        text=text,
        thought=_prose(rng, 5) if thinks else "",
        signature=base64.b64encode(f"signed {number}".encode()).decode() if thinks else "",
        calls=calls,
        end=end,
        fresh=rng.randint(1, 500),
        cached=rng.choice((0, 300)),
        output=rng.randint(20, 90),
        thinking=rng.randint(1, 19) if thinks else 0,
    )


def _question(rng: random.Random) -> dict[str, Any]:
    text = _prose(rng, 6)
    roll = rng.random()
    if roll < 0.6:
        return {"role": "user", "content": text}
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if roll < 0.8:
        parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}})
    else:
        parts.append({"type": "image_url", "image_url": {"url": "https://example.com/picture.png"}})
    return {"role": "user", "content": parts}


def _result(call: Call, rng: random.Random) -> dict[str, Any]:
    roll = rng.random()
    content: Any = _prose(rng, 8)
    if roll < 0.2:
        content = ""
    elif roll < 0.4:
        content = json.dumps({"error": "no such file", "path": "ü"})
    elif roll < 0.5:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
        content = [{"type": "text", "text": "seen"}, picture]
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def conversation(seed: int, *, with_calls: bool = True) -> list[Exchange]:
    """A conversation of some turns, the same for the same seed."""
    rng = random.Random(seed)
    turns = rng.randint(1, 4)
    may_call = with_calls and rng.random() < 0.8
    news: list[dict[str, Any]] = []
    if rng.random() < 0.8:
        news.append({"role": rng.choice(("system", "developer")), "content": _prose(rng, 5)})
    news.append(_question(rng))
    fields: dict[str, Any] = {}
    if rng.random() < 0.5:
        fields["reasoning_effort"] = rng.choice(("low", "medium", "high"))
    if may_call:
        fields["tools"] = TOOLS
    fields.update(rng.choice(({}, {"temperature": 1.3}, {"max_tokens": 4000, "stop": ["END"]}, {"top_p": 0.9})))
    exchanges = []
    for number in range(turns):
        turn = _turn(rng, f"{seed}_{number}", may_call=may_call, is_last=number == turns - 1)
        exchanges.append(Exchange(news=tuple(news), turn=turn, fields=fields))
        news = [_result(call, rng) for call in turn.calls]
        rng.shuffle(news)
        if not news or rng.random() < 0.2:
            news.append(_question(rng))
    return exchanges


def conversations(count: int, *, with_calls: bool = True) -> Iterator[list[Exchange]]:
    """Many conversations."""
    return (conversation(seed, with_calls=with_calls) for seed in range(count))


REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@frozen(kw_only=True)
class Answered:
    """One HTTP answer."""

    status: int = 200
    content_type: str
    body: bytes

    @classmethod
    def json(cls, value: Any, status: int = 200) -> "Answered":
        return cls(status=status, content_type="application/json", body=json.dumps(value, ensure_ascii=False).encode())

    @classmethod
    def stream(cls, body: bytes) -> "Answered":
        return cls(content_type="text/event-stream; charset=utf-8", body=body)


class WireServer(Protocol):
    """A server that needs no socket."""

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered: ...


def wire_error(status: int, value: Any) -> Answered:
    """An error in the server's own form."""
    return Answered.json(value, status)


def sse(value: Any, *, name: str | None = None, end: str = "\n") -> bytes:
    """One event."""
    head = f"event: {name}{end}" if name else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}{end}{end}".encode()


@asynccontextmanager
async def listening(server: WireServer) -> AsyncIterator[str]:
    """The server on a real socket; gives its address."""

    async def script(connection: Connection, received: Received) -> None:
        answered = server.respond(received.method, received.target, received.headers, received.body)
        head = (
            f"HTTP/1.1 {answered.status} {REASONS.get(answered.status, 'Error')}\r\n"
            f"Content-Type: {answered.content_type}\r\nConnection: close\r\n"
        )
        if answered.content_type.startswith("text/event-stream"):
            await connection.send(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            pieces = [answered.body[start : start + 61] for start in range(0, len(answered.body), 61)]
            await connection.send_chunked(*pieces)
        else:
            await connection.send(f"{head}Content-Length: {len(answered.body)}\r\n\r\n".encode() + answered.body)

    upstream = await FaultyUpstream(script).start()
    try:
        yield f"http://127.0.0.1:{upstream.port}"
    finally:
        await upstream.close()


# --- Many servers behind one address: each conversation has one of its own, told by a header that goes all the way.


HEADER = "X-Conversation"


@define
class ManyServers:
    """Hands each request to the server of its conversation."""

    servers: Mapping[str, WireServer]

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        server = self.servers.get(headers.get(HEADER.lower(), ""))
        if server is None:
            return wire_error(404, {"error": {"message": "no such conversation"}})
        return server.respond(method, target, headers, body)


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
