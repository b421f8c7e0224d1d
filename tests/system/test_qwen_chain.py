"""A server that keeps the conversation itself, behind two gateways that share a store: nothing is said to it twice."""

import asyncio
import itertools
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from attrs import define, field

from gateway.wire.chat_reshape import stream_to_body
from tests.support.client import TOOLS
from tests.support.many_server import HEADER, ManyServers
from tests.support.processes import Program
from tests.support.qwen_web_server import QwenWebServer
from tests.support.redis_server import RedisServer, needs_redis
from tests.support.turns import Turn
from tests.support.wire_server import listening

TURNS = 30
CONVERSATIONS = 6
TABLES = """
[upstreams.web]
kind = "qwen_web"
url = "{url}"
api_key = "web-token"
"""


def script(conversation: int) -> list[Turn]:
    """Every third answer is a call."""
    return [
        Turn(text=f"Answer {number} of {conversation}.")
        if number % 3
        else Turn(text=f"I look.\n\n<read_file>\n<path>src/{conversation}/{number}.py</path>\n</read_file>")
        for number in range(TURNS)
    ]


@define
class Talk:
    """One conversation, as its client keeps it."""

    number: int
    server: QwenWebServer
    history: list[dict[str, Any]] = field(factory=list)
    said: int = 0

    @classmethod
    def begun(cls, number: int) -> "Talk":
        system = {"role": "system", "content": f"You are number {number}."}
        return cls(number, QwenWebServer(script(number)), [system])

    async def turn(self, session: aiohttp.ClientSession, url: str, *, stream: bool) -> None:
        """One more question, or the results of the last answer's calls."""
        calls = self.history[-1].get("tool_calls") or []
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            assert arguments["path"].startswith(f"src/{self.number}/")
            content = f"Result {self.said} of {self.number}"
            self.history.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        if not calls:
            self.history.append({"role": "user", "content": f"Question {self.said} of {self.number}?"})
        self.said += 1
        body = {"model": "qwen3-max", "messages": self.history, "tools": TOOLS, "stream": stream}
        headers = {HEADER: str(self.number)}
        async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
            data = await response.read()
            assert response.status == 200, data
        answer = json.loads(stream_to_body(data) if stream else data)
        self.history.append(answer["choices"][0]["message"])

    def assert_each_message_was_sent_once(self) -> None:
        [(chat, messages)] = self.server.chats.items()
        assert len(messages) == TURNS
        line = self.server.line(chat, list(messages)[-1])
        told = [text for role, text in line if role != "assistant"]
        wanted = [str(message["content"]) for message in self.history if message["role"] != "assistant"]
        assert len(told) == len(wanted)
        assert all(one in other for one, other in zip(wanted, told, strict=True))
        assert [text for role, text in line if role == "assistant"] == [turn.text for turn in script(self.number)]


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shared.db"
        return
    server = await RedisServer(tmp_path).start()
    yield server.url
    await server.close()


@pytest.mark.timeout(120)
async def test_long_conversations_over_two_gateways_and_a_restart(
    store: str, tmp_path: Path, client: aiohttp.ClientSession, no_leaks: None
) -> None:
    talks = [Talk.begun(number) for number in range(CONVERSATIONS)]
    folders = [tmp_path / name for name in ("first", "second", "third")]
    for folder in folders:
        folder.mkdir()
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(
            listening(ManyServers({str(talk.number): talk.server for talk in talks}))
        )
        (tmp_path / "toolgate.toml").write_text(TABLES.format(url=address))

        async def started(folder: Path) -> Program:
            settings = {"GATEWAY_CONFIG": str(tmp_path / "toolgate.toml"), "STORE_URL": store}
            # A machine that is busy with other tests must not look like a store that is away.
            program = Program(folder, **settings, STORE_TIMEOUT_MS="10000")
            await stack.enter_async_context(program)
            return await program.serving()

        async def go_on(talk: Talk, programs: list[Program], until: int) -> None:
            """To one gateway and the other in turn, at once when the last answer is there."""
            urls = itertools.cycle([program.url for program in programs])
            while talk.said < until:
                await talk.turn(client, next(urls), stream=talk.said % 5 != 0)

        programs = list(await asyncio.gather(*map(started, folders[:2])))
        await asyncio.gather(*(go_on(talk, programs, TURNS // 2) for talk in talks))
        programs[0].signal(signal.SIGTERM)
        assert await programs[0].exit_code() == 0
        programs[0] = await started(folders[2])
        await asyncio.gather(*(go_on(talk, programs, TURNS) for talk in talks))
    for talk in talks:
        talk.assert_each_message_was_sent_once()
