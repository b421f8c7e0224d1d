"""Run on a host of its own: `serve ADDRESS PORT` is a model server; `load URL KEY TIMES AT_ONCE` asks a gateway.

`load` prints JSON: how often each status came, the arm that each conversation was in, and of each request that was let
through when it began and ended, by the clock that all processes of a machine share.
"""

import asyncio
import json
import ssl
import sys
import time
from collections import Counter

import aiohttp
from aiohttp import web

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


async def serve(address: str, port: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response(ANSWER)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, address, port).start()
    await asyncio.Event().wait()


async def load(url: str, key: str, times: int, at_once: int) -> None:
    trusted = ssl.create_default_context()
    trusted.check_hostname = False
    trusted.verify_mode = ssl.CERT_NONE  # of a certificate that the test has made
    statuses: Counter[str] = Counter()
    arms: dict[int, str] = {}
    admitted: list[tuple[float, float]] = []
    left = iter(range(times))

    async def ask(session: aiohttp.ClientSession) -> None:
        for number in left:
            body = {"model": "m", "messages": [{"role": "user", "content": f"conversation {number % 40}"}]}
            began = time.monotonic()
            try:
                async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                    await response.read()
                    statuses[str(response.status)] += 1
                    if response.status == 200:
                        arms[number % 40] = response.headers["X-Toolgate-Arm"]
                        admitted.append((began, time.monotonic()))
            except (aiohttp.ClientError, TimeoutError) as error:
                statuses[type(error).__name__] += 1

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trusted),
        headers={"Authorization": f"Bearer {key}"},
        timeout=aiohttp.ClientTimeout(total=30),
    ) as session:
        await asyncio.gather(*(ask(session) for _ in range(at_once)))
    print(json.dumps({"statuses": statuses, "arms": arms, "admitted": admitted}))


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "serve":
        asyncio.run(serve(given[0], int(given[1])))
    else:
        asyncio.run(load(given[0], given[1], int(given[2]), int(given[3])))
