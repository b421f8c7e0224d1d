"""The JavaScript SDKs through the gateway: openai-node and the Vercel AI SDK each complete a tool round trip."""

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.app import Gateway
from tests.sdk.routes import Route

NODE = Path(__file__).parent / "node"
HAS_NODE = shutil.which("node") is not None and (NODE / "node_modules").is_dir()

pytestmark = pytest.mark.skipif(
    not HAS_NODE and "TOOLGATE_CI" not in os.environ,
    reason="needs node, and `npm ci` in tests/sdk/node",
)


async def run(script: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "node", str(NODE / script), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("streamed", ["whole", "streamed"])
@pytest.mark.parametrize("script", ["openai_sdk.mjs", "ai_sdk.mjs"])
async def test_a_tool_round_trip_is_completed(
    demo_gateway: Callable[..., Awaitable[Gateway]], route: Route, script: str, streamed: str
) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    seen = json.loads(await run(script, f"{running.url}/v1", route.model, streamed))
    assert seen["calls"] == [{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]
    assert seen["finishes"] == ["tool_calls", "stop"]
    assert "sunny, 21 degrees" in seen["answer"]


def test_the_pinned_packages_are_the_ones_that_ran() -> None:
    wanted = json.loads((NODE / "package.json").read_bytes())["dependencies"]
    found = {
        name: json.loads((NODE / "node_modules" / name / "package.json").read_bytes())["version"] for name in wanted
    }
    assert found == wanted
    assert "resolved" not in (NODE / "package-lock.json").read_text()
