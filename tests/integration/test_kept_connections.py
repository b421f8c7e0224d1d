"""A model server that keeps its connections: each one serves one request at a time, whatever became of the last."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.support.chat import hear_body, hear_stream
from tests.support.client import TOOLS, ask, chat
from tests.support.faulty_upstream import DONE, completion, event, text


@pytest.fixture
async def keeping(no_leaks: None) -> AsyncIterator[str]:
    """Answers every request with its own number, some of them broken at first, and keeps every connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        number = asked["messages"][0]["content"]
        is_broken = len(asked["messages"]) == 1 and int(number) % 10 in (0, 5)
        written = f"<read_file>\n<path>{number}.py" + ("" if is_broken else "</path>\n</read_file>")
        if not asked.get("stream"):
            return web.json_response(completion(written))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in (text(written[:12]), text(written[12:]), event(finish="stop"), DONE):
            await response.write(piece)
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{site.port}/v1"
    await runner.cleanup()


async def test_no_answer_reaches_another_request(gateway, keeping, client):
    running = await gateway(keeping, NATIVE_FALLBACK="false")
    client.connector._limit = 0

    async def one(number: int) -> str:
        message = [{"role": "user", "content": str(number)}]
        got = await ask(client, running.url, chat(model="m", tools=TOOLS, stream=bool(number % 2), messages=message))
        assert got.status == 200, got.body
        told = hear_stream(got.body) if number % 2 else hear_body(got.body)
        # Only so many are asked again at a time; the others get their broken call as the text that it is.
        paths = [json.loads(call["arguments"])["path"] for call in told.calls]
        return str(paths[0] if paths else (told.content or "").rpartition(">")[2])

    for _ in range(4):
        told = await asyncio.gather(*(one(number) for number in range(60)))
        assert told == [f"{number}.py" for number in range(60)]
