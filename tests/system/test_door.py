"""Who is let in where several workers share the port, and each has a port for its metrics."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.client import answer_to, status_of
from tests.support.faulty_upstream import FaultyUpstream, answer_json
from tests.support.processes import Program

EVIL = "https://evil.example"
CHAT = "https://chat.example"


@pytest.fixture
async def workers(upstream: FaultyUpstream, tmp_path: Path) -> AsyncIterator[Program]:
    """Two workers without keys."""
    environ = {"UPSTREAM_URL": upstream.url, "GATEWAY_WORKERS": "2", "GATEWAY_ALLOWED_ORIGINS": CHAT}
    async with Program(tmp_path, **environ) as program:
        yield await program.serving()


async def test_every_worker_keeps_the_door_on_both_of_its_ports(workers: Program, upstream: FaultyUpstream) -> None:
    asked = [answer_to(workers.url, "/v1/files", "Host: evil.example") for _ in range(12)]
    asked += [answer_to(workers.url, "/metrics", "Host: evil.example") for _ in range(4)]
    asked += [answer_to(f"http://{target}", "/metrics", "Host: evil.example") for target in workers.targets.values()]
    assert {status_of(answer) for answer in await asyncio.gather(*asked)} == {421}
    asked = [answer_to(workers.url, "/v1/files", "Host: localhost", f"Origin: {EVIL}") for _ in range(12)]
    asked += [
        answer_to(f"http://{target}", "/metrics", "Host: localhost", f"Origin: {EVIL}")
        for target in workers.targets.values()
    ]
    assert {status_of(answer) for answer in await asyncio.gather(*asked)} == {403}
    assert upstream.requests == []
    upstream.script = answer_json({})
    asked = [answer_to(workers.url, "/v1/files", "Host: localhost", f"Origin: {CHAT}") for _ in range(4)]
    asked += [answer_to(f"http://{target}", "/metrics", "Host: localhost") for target in workers.targets.values()]
    assert {status_of(answer) for answer in await asyncio.gather(*asked)} == {200}
