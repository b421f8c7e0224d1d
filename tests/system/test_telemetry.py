"""A real Prometheus scrapes a real gateway under mixed load, answers every panel, and sends alerts on their way."""

import asyncio
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.grafana.queries import DASHBOARDS, METRICS, filled, panels
from tests.support.client import TOOLS, ask, chat
from tests.support.cost import Pulse
from tests.support.faulty_upstream import (
    DONE,
    STREAM_HEAD,
    FaultyUpstream,
    Script,
    answer_json,
    close_at_once,
    completion,
    event,
    stream,
    text,
)
from tests.support.processes import (
    Program,
    Prometheus,
    alertmanager,
    free_port,
    needs_prometheus,
    prometheus,
    receiver,
    until_received,
)

pytestmark = needs_prometheus

HERMES = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.py"}}\n</tool_call>'
TAGS = "<read_file>\n<path>a.py</path>\n</read_file>"
USAGE: Any = {"usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}}
REFUSAL = {"error": {"message": "registry.ollama.ai/library/m does not support tools", "code": "bad", "type": "x"}}
NAMELESS = {
    "tool_calls": [{"index": 0, "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}]
}


def said(*pieces: str) -> Script:
    return stream(*map(text, pieces), event(finish="stop"), event(**USAGE), DONE)


STREAMED: dict[str, Script] = {
    "hermes": said("I will look.\n", HERMES),
    "tags": said("I will look.\n", *TAGS),
    "fence": said("```tool_call\n", '{"name": "read_file", "arguments": {"path": "a.py"}}', "\n```"),
    "prose": said("There is nothing ", "to look at."),
    "broken": said("<read_file>\n<path>a.py</path>\n"),
    "misfit": said("<tool_call>\n", '{"name": "read_file", "arguments": {}}', "\n</tool_call>"),
    "doubtful": said('I would say {"name": "read_file", "arguments": {"path": "a.py"}} here.'),
    "twice": said(HERMES, "\n", HERMES, "\nand more"),
    "qwen-twice": said(HERMES, "\n", HERMES),
    "gpt-nameless": stream(event(NAMELESS), event(finish="stop"), event(**USAGE), DONE),
    "cut": stream(text("half an ans")),
    "failing": answer_json({"error": {"message": "no", "code": "oops"}}, status="500 Internal Server Error"),
    "busy": answer_json(
        {"error": {"message": "later"}}, status="503 Service Unavailable", headers={"Retry-After": "0"}
    ),
    "gone": close_at_once,
    "toolless": answer_json(REFUSAL, status="400 Bad Request"),
}
"""What a model server says, by the model's name."""

ENDLESS = "endless"

WITHOUT_SERIES = {"Given up or failed at nginx", "Models with the highest error share"}
"""Panels that may have nothing to show here: no exporter, too few answers."""

AT_REST = WITHOUT_SERIES | {
    "Decisions",
    "Dropped for time, by dialect",
    "Ignored by rule",
    "Left alone after failures",
    "Lost on the way",
    "Native tools given up",
    "Noise",
    "Reads that disagree",
    "Repairs",
    "Broken calls asked for again",
    "Requests above 50 ms",
    "Restarts",
    "Retries",
    "Slices switched off",
    "Store lag",
    "Structured, mended",
    "Swallowed turns, brought back",
    "The gateway's part of the first token",  # the difference of two times, which may fall into one bucket
    "What became of misfits",
}
"""Panels of what need not happen, or not all the time."""


def conversations() -> Iterator[dict[str, Any]]:
    """Requests without end: every model, streamed and not, with answers to calls and complaints in between."""
    number = 0
    while True:
        for model in STREAMED:
            number += 1
            asked: dict[str, Any] = {"role": "user", "content": f"Read a.py for me, {number}"}
            call = {
                "id": "call_1",
                "type": "function",
                "function": {"name": "read_file", "arguments": '{"path":"a.py"}'},
            }
            results = ("done", "Error: invalid arguments for tool read_file", "[ERROR] You did not use a tool")
            told: list[dict[str, Any]] = [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": results[number // 6 % 2]},
            ]
            if number % 6 == 0:
                told = [{"role": "assistant", "content": "Hm."}, {"role": "user", "content": results[2]}]
            messages = [asked, *told] if number % 3 == 0 else [asked]
            yield chat(model=model, stream=number % 4 != 0, messages=messages, tools=TOOLS)


async def answered(connection: Any, received: Any) -> None:
    """The scripted answer of the model that the request names, streamed or not."""
    body = received.json
    if body["model"] == ENDLESS:
        await connection.send(STREAM_HEAD, text("and so on"))
        await connection.until_gone()
        return
    script = STREAMED[body["model"]]
    if not body.get("stream") and body["model"] not in ("failing", "busy", "gone", "toolless"):
        script = answer_json(completion(HERMES if body["model"] == "hermes" else "Nothing.") | USAGE)
    if body["model"] == "toolless" and "tools" not in body:
        script = said(TAGS) if body.get("stream") else answer_json(completion(TAGS) | USAGE)
    await script(connection, received)


@asynccontextmanager
async def load(client: aiohttp.ClientSession, url: str, tasks: int = 3) -> AsyncIterator[None]:
    """Clients that ask until the test has seen enough."""
    requests = conversations()

    async def asking() -> None:
        for request in requests:
            with suppress(aiohttp.ClientError):
                answer = await ask(client, url, request)
                if answer.status == 200 and request["model"] == "hermes":
                    rating = {"completion_id": "chatcmpl-1", "rating": "good"}
                    async with client.post(f"{url}/v1/feedback", json=rating):
                        pass
            await asyncio.sleep(0.005)  # leaves the machine to the others

    async def listening() -> None:
        await ask(client, url, chat(model=ENDLESS, tools=TOOLS))

    running = [asyncio.ensure_future(asking()) for _ in range(tasks)] + [asyncio.ensure_future(listening())]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.fixture
async def started(upstream: FaultyUpstream, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Program]]]:
    """A gateway of its own process, in front of the scripted models."""
    upstream.script = answered
    running: list[Program] = []

    async def start(**environ: str) -> Program:
        gateway = Program(tmp_path, UPSTREAM_URL=upstream.url, LOG_FORMAT="json", **environ)
        running.append(await gateway.__aenter__())
        return await gateway.serving()

    yield start
    for gateway in running:
        await gateway.__aexit__()


async def test_every_panel_has_an_answer(
    started: Callable[..., Awaitable[Program]], client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    gateway = await started(TRANSFORM_MODE="canary", CANARY_PERCENT="50", ROLLBACK_EVIDENCE="1000000000000")
    metrics_url = gateway.events("gateway_started")[0]["metrics_url"]
    async with prometheus(tmp_path, client, metrics_url) as asked, load(client, gateway.url):
        await asked.until('count_over_time(up{job="toolgate"}[1m]) >= 12')
        faults: list[str] = []
        for name, dashboard in DASHBOARDS.items():
            for panel in panels(dashboard):
                faults += [f"{name}: {panel['title']}: {fault}" for fault in await faults_of(asked, panel)]
        assert faults == []
        assert await asked.value('count(scrape_samples_scraped{job="toolgate"} > 100)') == 1
        series = [f"{name}_count" if metric.kind == "histogram" else name for name, metric in METRICS.items()]
        there = await asked.value(f'count(count by (__name__) ({{__name__=~"{"|".join(series)}"}}))')
        assert there > len(METRICS) / 2
        for rule in ("job_arm:toolgate_requests_unhealthy:ratio_rate5m", "job_phase:toolgate_overhead_seconds:p95_5m"):
            await asked.until(f"count({rule})")


async def faults_of(asked: Prometheus, panel: dict[str, Any]) -> list[str]:
    """What is wrong with the answers to a panel's queries."""
    faults: list[str] = []
    values: list[float] = []
    for target in panel["targets"]:
        query = filled(target["expr"], interval="5s", range_="30s")
        series = await asked.over_time(query, seconds=8)
        found = [value for line in series for value in line]
        if (found and all(map(math.isnan, found))) or (" / " in query and any(map(math.isnan, found))):
            faults.append(f"not a number: {query}")
        values += found
    if not values and panel["title"] not in WITHOUT_SERIES:
        faults.append("no series")
    if not any(value and not math.isnan(value) for value in values) and panel["title"] not in AT_REST:
        faults.append("nothing but zero")
    return faults


async def test_alerts_reach_their_receivers(
    started: Callable[..., Awaitable[Program]], client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """A reload that is refused is a ticket; a rollback, by the program's own command, is a page and a mark."""
    settings = tmp_path / "gateway.env"
    settings.write_text("LOG_LEVEL=info\n")
    gateway = await started(GATEWAY_ENV_FILE=str(settings), TRANSFORM_MODE="canary")
    metrics_url = gateway.events("gateway_started")[0]["metrics_url"]
    port = free_port()
    async with (
        receiver() as (received, receiver_url),
        alertmanager(tmp_path, port, receiver_url),
        prometheus(tmp_path, client, metrics_url, alertmanager=port) as asked,
    ):
        await asked.until('toolgate_rollout_state{state="canary"} == 1')
        settings.write_text("CANARY_PERCENT=many\n")
        gateway.signal(signal.SIGHUP)
        ticket = await until_received(received)
        await rolled_back(tmp_path)
        page = await until_received(received)
        for dashboard in DASHBOARDS.values():
            (mark,) = (mark for mark in dashboard["annotations"]["list"] if mark["name"] == "Rollbacks")
            assert await asked.over_time(filled(mark["expr"]), seconds=20)
    for (path, message), name, severity in (
        (ticket, "GatewayConfigRejected", "ticket"),
        (page, "GatewayRolledBack", "page"),
    ):
        assert (path, message["status"]) == (f"/{severity}s", "firing")
        (alert,) = message["alerts"]
        assert alert["labels"] == {"alertname": name, "job": "toolgate", "severity": severity}
        assert alert["annotations"]["runbook_url"] == f"grafana/RUNBOOK.md#{name.lower()}"


async def rolled_back(folder: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "STORE_URL": f"sqlite:///{folder}/store.db", "TRANSFORM_MODE": "canary"}
    command = (sys.executable, "-m", "gateway", "rollout", "rollback", "--reason", "a test", "--yes")
    process = await asyncio.create_subprocess_exec(*command, env=environ, stderr=asyncio.subprocess.PIPE)
    _, fault = await process.communicate()
    assert process.returncode == 0, fault.decode()


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
