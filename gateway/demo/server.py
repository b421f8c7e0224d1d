"""The embedded demo: an OpenAI-compatible model server on loopback whose models are scripted.

It lets the gateway be tried without a model: each demo model writes its tool calls in another way, at a human pace.
It spends nobody's key and knows nobody's words, so whoever finds its port may ask it.
"""

import asyncio
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from aiohttp import web
from attrs import field, frozen

from gateway.demo.script import MODELS, ScriptedAnswer, answer

__all__ = ["DemoServer", "Pace", "start_demo"]

_TOKEN = re.compile(r"\s{0,8}\S{1,6}|\s{1,8}")
_CHARS_PER_TOKEN = 4
_MAX_BODY_BYTES = 32 << 20


@frozen(kw_only=True)
class Pace:
    """How fast the models write, and how long `demo-slow` pauses; zero waits for nothing."""

    tokens_per_s: float = 30.0
    pause_s: float = 25.0

    @property
    def token_s(self) -> float:
        return 1 / self.tokens_per_s if self.tokens_per_s else 0.0


@frozen
class DemoServer:
    """A running demo; `url` includes `/v1`."""

    url: str
    _runner: web.AppRunner = field(repr=False, alias="runner")

    async def close(self) -> None:
        """Stop answering, unfinished answers included."""
        await self._runner.cleanup()


async def start_demo(pace: Pace | None = None) -> DemoServer:
    """Start the demo on a free port of 127.0.0.1."""
    models = _Models(pace or Pace())
    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app.router.add_get("/v1/models", models.listed)
    app.router.add_post("/v1/chat/completions", models.complete)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return DemoServer(f"http://{host}:{port}/v1", runner=runner)


class _Models:
    """The two routes of the demo."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def listed(self, request: web.Request) -> web.Response:
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "toolgate-demo"} for name in MODELS]
        return web.json_response({"object": "list", "data": models})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        try:
            body = json.loads(await request.read())
        except (ValueError, RecursionError):
            return _error(400, "invalid_request", "the body is not valid JSON")
        if not isinstance(body, dict) or body.get("model") not in MODELS:
            return _error(404, "model_not_found", f"the demo has the models {', '.join(MODELS)}")
        reply = _Reply(body, answer(body))
        if body.get("stream") is True:
            return await self._streamed(request, reply)
        for _ in reply.answer.pieces[1:]:
            await asyncio.sleep(self._pace.pause_s)
        return web.json_response(reply.whole())

    async def _streamed(self, request: web.Request, reply: "_Reply") -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        async for chunk in self._chunks(reply):
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _chunks(self, reply: "_Reply") -> AsyncIterator[dict[str, Any]]:
        yield reply.chunk({"role": "assistant", "content": ""})
        for number, piece in enumerate(reply.answer.pieces):
            if number:
                await asyncio.sleep(self._pace.pause_s)
            for token in _tokens(piece):
                await asyncio.sleep(self._pace.token_s)
                yield reply.chunk({"content": token})
        for delta in reply.call_deltas():
            await asyncio.sleep(self._pace.token_s)
            yield reply.chunk(delta)
        yield reply.chunk({}, finish=reply.finish)
        if reply.wants_usage:
            yield reply.usage_chunk()


class _Reply:
    """One answer in the shapes of the wire."""

    def __init__(self, body: Mapping[str, Any], answer: ScriptedAnswer) -> None:
        self.answer = answer
        self.finish = "tool_calls" if answer.call else "stop"
        options = body.get("stream_options")
        self.wants_usage = isinstance(options, dict) and options.get("include_usage") is True
        self._head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": body["model"]}
        self._call_id = f"call_{secrets.token_hex(12)}"
        written = len(answer.call.arguments) if answer.call else len(answer.text)
        spoken = sum(len(str(message)) for message in body.get("messages") or [])
        prompt, completion = 1 + spoken // _CHARS_PER_TOKEN, 1 + written // _CHARS_PER_TOKEN
        self._usage = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.answer.text or None}
        if call := self.answer.call:
            function = {"name": call.name, "arguments": call.arguments}
            message["tool_calls"] = [{"id": self._call_id, "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": self._usage}

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def usage_chunk(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": self._usage}

    def call_deltas(self) -> Iterator[dict[str, Any]]:
        call = self.answer.call
        if call is None:
            return
        function = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": 0, "id": self._call_id, "type": "function", "function": function}]}
        for token in _tokens(call.arguments):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": token}}]}


def _tokens(text: str) -> Iterator[str]:
    """The text in pieces about as long as a model's tokens."""
    return (match[0] for match in _TOKEN.finditer(text))


def _error(status: int, code: str, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status)
