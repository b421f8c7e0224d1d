"""How many Python functions one request, and one event of a stream, has called: exact, and the same on any machine.

Run `python -m tests.bench.counts`, with `--rooms` for where they are. Gateway, model server and client share one
process and one uvloop, the last two as bare protocols; what those call by themselves is counted first, without the
gateway between them, and taken off. An event is sent when the client has the one before it, so that each is a read of
its own; it comes in the mould that model servers cast theirs in. `event` is one that says a word of prose, of which
some end in what may begin a marker; `quiet` one of which nobody has to be told at once. `stream` is a whole stream of
one word, its request included: what all streams cost beside their events.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, cast

import structlog
import uvloop
from attrs import field, frozen

from gateway.telemetry.logs import configure_logging
from tests.bench.requests import HEAD_END, LAST_CHUNK, PROSE, _body, _event, _Peer, begun, repeat

__all__ = ["ROUTES", "Counts", "Route", "claude_code_request", "counts", "post"]

_PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_NAMES = ("write", "read")
_QUESTION = "Tell me of files."
_ID = "resp_68a1f0c2d4e6b8a0c2d4e6f80a1b2c3d4e5f60718293a4b5"
_ITEM = "msg_68a1f0c2d4e6b8a0c2d4e6f80a1b2c3d"


@frozen(kw_only=True)
class Route:
    """What a client asks, what its server answers, and how the gateway stands between them."""

    path: str
    ask: Callable[[bool], dict[str, Any]]
    """The request, streamed or not."""
    mark: bytes
    """What stands in every event of text that the client gets."""
    whole: bytes
    begin: bytes = b""
    """Events before the first word."""
    word: Callable[[int, str], bytes]
    """The event of a word, by its number."""
    end: Callable[[int], bytes]
    server_mark: bytes
    """What stands in every such event of the server's."""
    environ: Mapping[str, str] = field(factory=dict)


def _named(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


# --- requests


def _chat(stream: bool) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name, "parameters": _PARAMETERS}} for name in _NAMES]
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": _QUESTION}]
    return {"model": "bench", "messages": messages, "tools": tools, "stream": stream}


def _messages(stream: bool) -> dict[str, Any]:
    tools = [{"name": name, "input_schema": _PARAMETERS} for name in _NAMES]
    messages = [{"role": "user", "content": _QUESTION}]
    asked = {"model": "bench", "max_tokens": 4096, "system": "You are terse.", "messages": messages}
    return {**asked, "tools": tools, "stream": stream}


def _responses(stream: bool) -> dict[str, Any]:
    tools = [{"type": "function", "name": name, "parameters": _PARAMETERS} for name in _NAMES]
    asked = {"model": "bench", "instructions": "You are terse.", "input": _QUESTION, "store": False}
    return {**asked, "tools": tools, "stream": stream}


def claude_code_request(size: int = 76_000, tools: int = 24) -> dict[str, Any]:
    """A request as large as Claude Code's, with as many tools."""
    about = "Says at length what the tool does, when it is to be used and when it is not. "
    each = size * 5 // 6 // tools
    declared = [
        {
            "name": f"Tool{number}",
            "description": about * (each // len(about)),
            "input_schema": {
                "type": "object",
                "properties": {name: {"type": "string", "description": about} for name in ("path", "text", "how")},
                "required": ["path"],
            },
        }
        for number in range(tools)
    ]
    system = [{"type": "text", "text": about * (size // 6 // len(about)), "cache_control": {"type": "ephemeral"}}]
    return {**_messages(False), "system": system, "tools": declared}


# --- what servers answer


def _message_event(_: int, word: str) -> bytes:
    return _named("content_block_delta", index=0, delta={"type": "text_delta", "text": word})


_MESSAGE = {
    **{"id": "msg_01", "type": "message", "role": "assistant", "model": "bench", "content": []},
    **{"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1}},
}
_MESSAGE_BEGIN = _named("message_start", message=_MESSAGE) + _named(
    "content_block_start", index=0, content_block={"type": "text", "text": ""}
)
_MESSAGE_END = (
    _named("content_block_stop", index=0)
    + _named("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 100})
    + _named("message_stop")
)
_MESSAGE_WHOLE = json.dumps(
    {**_MESSAGE, "content": [{"type": "text", "text": PROSE}], "stop_reason": "end_turn"}
).encode()
_PLACE = {"item_id": _ITEM, "output_index": 0, "content_index": 0}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item(text: str | None) -> dict[str, Any]:
    content = [] if text is None else [_part(text)]
    status = "in_progress" if text is None else "completed"
    return {"id": _ITEM, "type": "message", "role": "assistant", "status": status, "content": content}


def _response(text: str | None) -> dict[str, Any]:
    return {
        **{"id": _ID, "object": "response", "created_at": 1, "model": "bench", "parallel_tool_calls": True},
        **{"status": "in_progress" if text is None else "completed", "tools": [], "tool_choice": "auto"},
        "output": [] if text is None else [_item(text)],
        "usage": None if text is None else {"input_tokens": 10, "output_tokens": 100, "total_tokens": 110},
    }


def _responses_event(number: int, word: str) -> bytes:
    told = {"delta": word, "logprobs": [], "obfuscation": "x" * 8}
    return _named("response.output_text.delta", sequence_number=4 + number, **_PLACE, **told)


def _responses_end(words: int) -> bytes:
    text = PROSE  # what it holds is not what was said: nobody reads it here
    number = 4 + words
    return (
        _named("response.output_text.done", sequence_number=number, **_PLACE, text=text, logprobs=[])
        + _named("response.content_part.done", sequence_number=number + 1, **_PLACE, part=_part(text))
        + _named("response.output_item.done", sequence_number=number + 2, output_index=0, item=_item(text))
        + _named("response.completed", sequence_number=number + 3, response=_response(text))
    )


_RESPONSES_BEGIN = (
    _named("response.created", sequence_number=0, response=_response(None))
    + _named("response.in_progress", sequence_number=1, response=_response(None))
    + _named("response.output_item.added", sequence_number=2, output_index=0, item=_item(None))
    + _named("response.content_part.added", sequence_number=3, **_PLACE, part=_part(""))
)


def _chat_event(_: int, word: str) -> bytes:
    return _event({"content": word})


def _chat_end(_: int) -> bytes:
    return _event({}, "stop") + b"data: [DONE]\n\n"


def _message_end(_: int) -> bytes:
    return _MESSAGE_END


_CHAT_SERVER: dict[str, Any] = {
    "whole": _body(False),
    "word": _chat_event,
    "end": _chat_end,
    "server_mark": b'"content": "',
}
_MESSAGES_SERVER: dict[str, Any] = {
    **{"whole": _MESSAGE_WHOLE, "begin": _MESSAGE_BEGIN, "word": _message_event, "end": _message_end},
    "server_mark": b"text_delta",
    "environ": {"UPSTREAM_KIND": "anthropic", "UPSTREAM_API_KEY": "sk-bench"},
}
_RESPONSES_SERVER: dict[str, Any] = {
    **{"whole": json.dumps(_response(PROSE)).encode(), "begin": _RESPONSES_BEGIN},
    **{"word": _responses_event, "end": _responses_end},
    "server_mark": b"output_text.delta",
    "environ": {"UPSTREAM_KIND": "responses", "UPSTREAM_API_KEY": "sk-bench"},
}
_CHAT_CLIENT: dict[str, Any] = {"path": "/v1/chat/completions", "ask": _chat, "mark": b'"content": "'}
_MESSAGES_CLIENT: dict[str, Any] = {"path": "/v1/messages", "ask": _messages, "mark": b"text_delta"}
_RESPONSES_CLIENT: dict[str, Any] = {"path": "/v1/responses", "ask": _responses, "mark": b"output_text.delta"}

ROUTES: Mapping[str, Route] = {
    "chat": Route(**_CHAT_CLIENT, **_CHAT_SERVER),
    "chat, watched": Route(**_CHAT_CLIENT, **_CHAT_SERVER, environ={"TRANSFORM_MODE": "dry_run"}),
    "messages": Route(**_MESSAGES_CLIENT, **_CHAT_SERVER),
    "responses": Route(**_RESPONSES_CLIENT, **_CHAT_SERVER),
    "messages, same wire": Route(**_MESSAGES_CLIENT, **_MESSAGES_SERVER),
    "responses, same wire": Route(**_RESPONSES_CLIENT, **_RESPONSES_SERVER),
}


EVENT_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUESTS = 200
ROUND = 8
"""So many requests, one after the other, do all that is done for some only; the fewest calls of a round count."""
GARBAGE = 25
EVENTS = 400
WARM = 60
LONGEST_S = 20.0


@frozen(kw_only=True)
class Counts:
    """Calls of Python functions."""

    request: float
    """Of one request whose answer comes whole."""
    event: float
    """Of one event of a stream in which nothing is called."""
    quiet: float
    """Of one of which the reader is told later."""
    stream: float
    """Of one request whose answer is a stream of one word, all of which is there."""
    garbage: float
    """Objects that one request leaves for Python's collector, and with them what it held."""
    by_code: dict[str, Counter[CodeType]]
    """Of the gateway alone, by what was called; of all requests or events."""


class _Counter:
    """Counts the calls of this thread while it is on."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()

    def __enter__(self) -> "Counter[CodeType]":
        sys.setprofile(self._count)
        return self.calls

    def __exit__(self, *raised: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            self.calls[frame.f_code] += 1


def counts(strategy: str = "recovery", route: str = "chat") -> Counts:
    """What a request and an event cost with this strategy, between a client and a server of these wires."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(_counted(strategy, ROUTES[route]), LONGEST_S))


def post(port: int, path: str, asked: dict[str, Any]) -> bytes:
    """A request."""
    body = json.dumps(asked).encode()
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


class _Server:
    """A model server: whole answers at once, events one at a time, each when it is asked for."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.stream: _Peer | None = None
        self.left = 0
        self.words = PROSE.split()
        self.is_short = False
        """Streams are of one word, and come at once."""

    def asked(self, peer: _Peer, message: bytes) -> None:
        if b'"stream": true' in message or b'"stream":true' in message:
            self.stream, self.left = peer, EVENTS + WARM
            if self.is_short:
                data = b"".join((self.route.begin, self.route.word(0, self.words[0]), self.route.end(1)))
                peer.transport.write(b"%b%x\r\n%b\r\n%b" % (EVENT_HEAD, len(data), data, LAST_CHUNK))
                return
            peer.transport.write(EVENT_HEAD)
            if self.route.begin:
                self._write(self.route.begin, b"")
            self.go_on()
            return
        whole = self.route.whole
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(whole)}\r\n\r\n"
        peer.transport.write(head.encode() + whole)

    def go_on(self) -> None:
        assert self.stream is not None
        self.left -= 1
        if self.left < 0:
            self._write(self.route.end(EVENTS + WARM), LAST_CHUNK)
            return
        self._write(self.route.word(EVENTS + WARM - self.left, f" {self.words[self.left % len(self.words)]}"), b"")

    def _write(self, data: bytes, end: bytes) -> None:
        assert self.stream is not None
        self.stream.transport.write(b"%x\r\n%b\r\n%b" % (len(data), data, end))


class _Reader(asyncio.Protocol):
    """A client of a stream: tells of each read that brings a word."""

    def __init__(self, mark: bytes, on_read: Callable[[], None], done: "asyncio.Future[None]") -> None:
        self._mark, self._on_read, self._done = mark, on_read, done
        self._held = b""
        self._begun = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            self._held += data
            if HEAD_END not in self._held:
                return
            assert self._held.startswith(b"HTTP/1.1 200"), self._held
            self._begun, data = True, self._held.partition(HEAD_END)[2]
        if data.endswith(LAST_CHUNK):
            self._done.set_result(None)
        elif self._mark in data:
            self._on_read()


async def _events(port: int, server: _Server, counter: _Counter, *, is_gateway: bool) -> float:
    """Calls for one event: of all that say the same word the fewest, as timers of others run between them."""
    fewest: dict[int, int] = {}
    before = 0
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        nonlocal before
        if server.left < EVENTS:
            total, word = counter.calls.total(), server.left % len(server.words)
            fewest[word] = min(total - before, fewest.get(word, total))
            before = total
        if server.left == EVENTS:
            counter.__enter__()
        if server.left == 0:
            counter.__exit__()
        server.go_on()

    route = server.route
    mark = route.mark if is_gateway else route.server_mark
    transport, _ = await loop.create_connection(lambda: _Reader(mark, read, done), "127.0.0.1", port)
    transport.write(post(port, route.path, route.ask(True)))
    await done
    transport.close()
    return sum(fewest.values()) / len(fewest)


async def _requests(port: int, message: bytes, counter: _Counter) -> float:
    """Calls for one of these requests."""
    await repeat(port, message, WARM)
    totals: list[int] = []
    with counter:
        await repeat(port, message, REQUESTS, lambda: totals.append(counter.calls.total()))
    # The rest is of timers, which run between requests: the more the busier a machine is.
    return min(after - before for before, after in zip(totals, totals[ROUND:], strict=False)) / ROUND


async def _counted(strategy: str, route: Route) -> Counts:
    loop = asyncio.get_running_loop()
    server = _Server(route)
    upstream = await loop.create_server(lambda: _Peer(server.asked), "127.0.0.1", 0)
    upstream_port = upstream.sockets[0].getsockname()[1]
    gateway, port = await begun(upstream_port, strategy, route.environ)
    asked = route.ask(False)
    found: dict[str, Counter[CodeType]] = {}
    costs: dict[str, float] = {}
    for at, each in enumerate((port, upstream_port)):
        message = post(each, route.path, asked)
        counted = {"request": _Counter(), "event": _Counter(), "quiet": _Counter(), "stream": _Counter()}
        server.words, server.is_short = PROSE.split(), True
        stream = await _requests(each, post(each, route.path, route.ask(True)), counted["stream"])
        server.is_short = False
        whole = await _requests(each, message, counted["request"])
        gc.collect()
        gc.disable()
        await repeat(each, message, GARBAGE)
        costs.setdefault("garbage", gc.collect() / GARBAGE)
        gc.enable()
        for kind, cost in (("request", whole), ("stream", stream)):
            costs[kind] = cost if at == 0 else costs[kind] - cost
        for kind, words in (("event", PROSE.split()), ("quiet", ["mild"])):
            server.words = words
            cost = await _events(each, server, counted[kind], is_gateway=at == 0)
            costs[kind] = cost if at == 0 else costs[kind] - cost
        for kind, counter in counted.items():
            if at == 0:
                found[kind] = counter.calls
            else:
                found[kind].subtract(counter.calls)
    await gateway.close()
    upstream.close()
    return Counts(
        request=costs["request"],
        event=costs["event"],
        quiet=costs["quiet"],
        stream=costs["stream"],
        garbage=costs["garbage"],
        by_code=found,
    )


def _where(code: CodeType) -> str:
    parts = code.co_filename.split(os.sep)
    for root in ("gateway", "strategies", "aiohttp", "structlog"):
        if root in parts:
            return ".".join(parts[len(parts) - parts[::-1].index(root) - 1 :]).removesuffix(".py")
    return parts[-1].removesuffix(".py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", default="recovery")
    parser.add_argument("--route", default="chat", choices=ROUTES)
    parser.add_argument("--rooms", action="store_true", help="where the calls are, by module")
    parser.add_argument("--names", type=int, default=0, metavar="N", help="the N functions that are called most")
    asked = parser.parse_args()
    with open(os.devnull, "wb") as nowhere:
        writer = configure_logging(fd=nowhere.fileno())
        found = counts(asked.strategy, asked.route)
        writer.close()
    structlog.reset_defaults()
    print(f"request {found.request:8.1f}\nstream  {found.stream:8.1f}")
    print(f"event   {found.event:8.2f}\nquiet   {found.quiet:8.2f}")
    for kind, per in (("request", REQUESTS), ("stream", REQUESTS), ("event", EVENTS), ("quiet", EVENTS)):
        rooms: Counter[str] = Counter()
        for code, number in found.by_code[kind].items():
            rooms[_where(code)] += number
        if asked.rooms:
            print(f"\n{kind}:")
            for name, number in rooms.most_common(45):
                if number >= per / 4:
                    print(f"{number / per:8.2f} {name}")
        for code, number in found.by_code[kind].most_common(asked.names):
            print(f"{number / per:8.2f} {_where(code)}.{code.co_qualname}")


if __name__ == "__main__":
    main()
