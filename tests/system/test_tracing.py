"""The program with `toolgate[otel]`: spans reach a collector over OTLP; one that is silent costs nobody anything."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.support.client import ask, chat
from tests.support.cost import Pulse
from tests.support.faulty_upstream import FaultyUpstream, answer_json, completion
from tests.support.processes import Program

proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")


@asynccontextmanager
async def collector(*, is_silent: bool = False) -> AsyncIterator[tuple[str, "asyncio.Queue[bytes]"]]:
    """Takes what is exported; a silent one never answers."""
    came: asyncio.Queue[bytes] = asyncio.Queue()
    over = asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        came.put_nowait(await request.read())
        if is_silent:
            await over.wait()
        return web.Response(body=b"", content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", came
    finally:
        over.set()
        await runner.cleanup()


def environ(upstream: FaultyUpstream, url: str) -> dict[str, str]:
    return {
        "UPSTREAM_URL": upstream.url,
        "LOG_FORMAT": "json",
        "GATEWAY_TRACES": "otel",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_SERVICE_NAME": "toolgate-here",
    }


async def test_spans_reach_a_collector(upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path) -> None:
    upstream.script = answer_json(completion())
    async with collector() as (url, came), Program(tmp_path, **environ(upstream, url)) as program:
        await program.serving()
        assert (await ask(client, program.url, chat(model="m", stream=False))).status == 200
        program.signal(signal.SIGTERM)
        assert await program.exit_code() == 0
        sent = proto.ExportTraceServiceRequest.FromString(came.get_nowait())
    (resource,) = sent.resource_spans
    told = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert told["service.name"] == "toolgate-here"
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    assert sorted(span.name for span in spans) == ["POST chat", "chat m"]
    assert len({span.trace_id for span in spans}) == 1


@pytest.mark.long
async def test_a_silent_collector_costs_no_request_and_no_end(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = answer_json(completion())
    async with collector(is_silent=True) as (url, _), Program(tmp_path, **environ(upstream, url)) as program:
        await program.serving()
        for _ in range(3):
            assert (await ask(client, program.url, chat(model="m", stream=False))).status == 200
        program.signal(signal.SIGTERM)
        async with Pulse() as pulse:
            assert await program.exit_code() == 0
        assert pulse.seconds < 6
