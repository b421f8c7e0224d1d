"""A gateway that is attacked over real sockets: once the attack is over, it has to be as it was before."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from attrs import define, field

from tests.support.client import Answer, ask, chat, exchange
from tests.support.faulty_upstream import DONE, FaultyUpstream, event, stream, text

CALL = "<read_file>\n<path>a.py</path>\n</read_file>"
HONEST = stream(text("Let me look.\n"), text(CALL), event(finish="stop"), DONE)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} does it.",
            "parameters": {"type": "object", "properties": {what: {"type": "string"}}, "required": [what]},
        },
    }
    for name, what in (("read_file", "path"), ("run", "command"))
]


@define(kw_only=True)
class Arena:
    """A gateway, the model server behind it, and clients that mean it well."""

    gateway: Callable[..., Awaitable[Any]]
    upstream: FaultyUpstream
    client: aiohttp.ClientSession
    log: Any
    running: Any = None
    settings: dict[str, str] = field(factory=dict)

    async def begin(self, **settings: str) -> Any:
        """Start the gateway under these settings."""
        self.upstream.script = HONEST
        self.settings = settings
        self.running = await self.gateway(self.upstream.url, **settings)
        return self.running

    @property
    def url(self) -> str:
        return str(self.running.url)

    def headers(self, key: str = "") -> dict[str, str]:
        keys = self.settings.get("GATEWAY_API_KEYS", "")
        key = key or keys.partition(",")[0]
        return {"Authorization": f"Bearer {key}"} if key else {}

    async def ask(self, model: str = "some-model", *, stream: bool = True, key: str = "", **fields: Any) -> Answer:
        """A request with tools."""
        body = chat(model=model, stream=stream, **{"tools": TOOLS, **fields})
        return await ask(self.client, self.url, body, headers=self.headers(key))

    async def send(self, data: bytes, seconds: float = 20.0) -> bytes:
        """Bytes on a connection of their own, and what comes until it closes."""
        return await exchange(self.url, data, seconds=seconds)

    async def post(self, data: bytes, path: str = "/v1/chat/completions", **headers: str) -> tuple[int, bytes]:
        named = {"Content-Type": "application/json", **self.headers(), **headers}
        async with self.client.post(self.url + path, data=data, headers=named) as response:
            return response.status, await response.read()

    async def unharmed(self) -> None:
        """Nothing is left of what was tried, nothing was a fault of ours, and who means it well is served."""
        if self.running is None:
            return
        assert await self.running.shared.under_way.ended(10.0), "a request never ended"
        self.upstream.script = HONEST
        got = await self.ask()
        is_live = got.headers["X-Toolgate-Arm"] == "live"
        assert calls_of(got) == [("read_file", {"path": "a.py"})] * is_live, "an honest request is not served as before"
        assert is_live or CALL in got.content
        written = await self.log.until('"event":"request_ended"')
        assert "Traceback" not in written
        assert "internal_error" not in written
        assert self.running.shared.admission.active == 0


def calls_of(answer: Answer) -> list[tuple[str, Any]]:
    """The calls of an answer, streamed or whole, as a client adds them up."""
    if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
        choices = answer.json.get("choices", [])
        found = [call["function"] for choice in choices for call in choice["message"].get("tool_calls") or ()]
        return [(call["name"], json.loads(call["arguments"])) for call in found]
    joined: dict[tuple[int, int | str], list[str]] = {}
    for chunk in answer.chunks:
        for choice in chunk.get("choices", []):
            calls = [(call["index"], call["function"]) for call in choice["delta"].get("tool_calls") or ()]
            legacy = choice["delta"].get("function_call")
            for index, function in [*calls, *([("older form", legacy)] if legacy else [])]:
                known = joined.setdefault((choice["index"], index), ["", ""])
                known[0] += function.get("name") or ""
                known[1] += function.get("arguments") or ""
    return [(name, json.loads(arguments)) for name, arguments in joined.values()]


async def all_of(*work: Awaitable[Any]) -> list[Any]:
    """At once, none of them for longer than half a minute."""
    async with asyncio.timeout(30):
        return list(await asyncio.gather(*work))


@pytest.fixture
async def arena(gateway: Any, upstream: FaultyUpstream, client: Any, log: Any) -> AsyncIterator[Arena]:
    """A gateway under attack."""
    made = Arena(gateway=gateway, upstream=upstream, client=client, log=log)
    yield made
    await made.unharmed()
