"""The JavaScript SDKs through the gateway: OpenAI's, Vercel's and Anthropic's each complete a tool round trip."""

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.app import Gateway
from tests.sdk.conftest import Route
from tests.support.faulty_upstream import STREAM_HEAD, Connection, FaultyUpstream, Received, answer_json, event, stream

NODE = Path(__file__).parent / "node"
HAS_NODE = shutil.which("node") is not None and (NODE / "node_modules").is_dir()

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not HAS_NODE and "TOOLGATE_CI" not in os.environ,
        reason="needs node, and `npm ci` in tests/sdk/node",
    ),
]


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


def assert_completed(told: str, finishes: list[str]) -> None:
    """Whole and streamed alike."""
    both = [json.loads(line) for line in told.splitlines()]
    assert len(both) == 2
    for seen in both:
        assert seen["calls"] == [{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]
        assert seen["finishes"] == finishes
        assert "sunny, 21 degrees" in seen["answer"]


@pytest.mark.parametrize("script", ["openai_sdk.mjs", "ai_sdk.mjs"])
async def test_a_tool_round_trip_is_completed(
    demo_gateway: Callable[..., Awaitable[Gateway]], route: Route, script: str
) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    told = await run("each.mjs", script, f"{running.url}/v1", route.model, "whole", "streamed")
    assert_completed(told, ["tool_calls", "stop"])


async def test_a_tool_round_trip_in_messages_is_completed(
    demo_gateway: Callable[..., Awaitable[Gateway]], route: Route
) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    told = await run("each.mjs", "anthropic_sdk.mjs", running.url, route.model, "whole", "streamed")
    assert_completed(told, ["tool_use", "end_turn"])


async def test_a_tool_round_trip_in_responses_is_completed(
    demo_gateway: Callable[..., Awaitable[Gateway]], route: Route
) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    seen = json.loads(await run("openai_responses.mjs", f"{running.url}/v1", route.model, "streamed"))
    assert seen["calls"] == [{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]
    assert seen["finishes"] == ["completed", "completed"]
    assert "sunny, 21 degrees" in seen["answer"]


@pytest.mark.parametrize("way", ["whole", "chained"])
async def test_a_conversation_in_responses_goes_on_whole_and_by_the_id_of_an_answer(
    demo_gateway: Callable[..., Awaitable[Gateway]], way: str
) -> None:
    running = await demo_gateway()
    seen = json.loads(await run("openai_responses.mjs", f"{running.url}/v1", "demo-hermes", way))
    assert "sunny, 21 degrees" in seen["answer"]
    assert seen["kept"] == (seen["answer"] if way == "chained" else None)


async def test_faults_and_cancellation_in_responses_are_the_sdks_own(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    upstream.script = answer_json({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, status="429 Slow")
    running = await gateway(upstream.url)
    seen = json.loads(await run("openai_responses.mjs", f"{running.url}/v1", "m", "errors"))
    assert seen == {"error": "RateLimitError", "status": 429, "code": "rate_limit_exceeded"}
    upstream.script = stream(event({"content": "Let me"}), b'data: {"error": {"message": "gone"}}\n\n')
    seen = json.loads(await run("openai_responses.mjs", f"{running.url}/v1", "m", "errors"))
    assert seen == {"error": "response.failed", "code": "server_error"}
    upstream.script = endless
    seen = json.loads(await run("openai_responses.mjs", f"{running.url}/v1", "m", "cancelled"))
    assert seen == {"pieces": 1}
    await upstream.until_all_gone(5)


async def endless(connection: Connection, received: Received) -> None:
    await connection.send(STREAM_HEAD, event({"content": "Words."}))
    await connection.until_gone()


async def test_faults_and_cancellation_in_messages_are_the_sdks_own(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    upstream.script = answer_json({"error": {"message": "slow down"}}, status="429 Too Many Requests")
    running = await gateway(upstream.url)
    seen = json.loads(await run("anthropic_sdk.mjs", running.url, "m", "errors"))
    assert seen == {"error": "RateLimitError", "status": 429, "type": "rate_limit_error"}
    upstream.script = stream(event({"content": "Let me"}), b'data: {"error": {"message": "gone"}}\n\n')
    seen = json.loads(await run("anthropic_sdk.mjs", running.url, "m", "errors"))
    assert seen["error"] in ("APIError", "AnthropicError")
    upstream.script = endless
    seen = json.loads(await run("anthropic_sdk.mjs", running.url, "m", "cancelled"))
    assert seen == {"pieces": 1}
    await upstream.until_all_gone(5)


def test_the_pinned_packages_are_the_ones_that_ran() -> None:
    wanted = json.loads((NODE / "package.json").read_bytes())["dependencies"]
    found = {
        name: json.loads((NODE / "node_modules" / name / "package.json").read_bytes())["version"] for name in wanted
    }
    assert found == wanted
    assert "resolved" not in (NODE / "package-lock.json").read_text()
