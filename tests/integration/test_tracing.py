"""OpenTelemetry: a span a request and one a try, within the client's trace, with what came of it and no text of it."""

import re
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from gateway.config.load import inspect
from tests.support.client import TOOLS, ask, chat
from tests.support.faulty_upstream import (
    DONE,
    FaultyUpstream,
    answer_json,
    close_at_once,
    completion,
    event,
    stream,
    text,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "secret-place.py"}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "read_file", "arguments": {"file": ["secret-place.py"]}}\n</tool_call>'
STRANGE = '<tool_call>\n{"name": "launch <b>", "arguments": {"path": "secret-place.py"}\n</tool_call>'
USAGE: Any = {"usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}}
BODY = chat(
    model="m", tools=TOOLS, stream=True, messages=[{"role": "user", "content": "secret-question about secret-place.py"}]
)


@pytest.fixture
async def spans(gateway: Callable[..., Any], upstream: FaultyUpstream) -> Any:
    """A gateway whose spans are handed to a list: `running, ended = await spans()`."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from gateway.telemetry.tracing import OpenTelemetry

    opened = []

    async def started(**environ: str) -> tuple[Any, Callable[[], list[Any]]]:
        exporter = InMemorySpanExporter()
        tracing = OpenTelemetry.to(exporter)
        opened.append(tracing)
        running = await gateway(upstream.url, STRATEGY_RULES="*=recovery", **environ)
        running.shared.tracing = tracing

        def ended() -> list[Any]:
            tracing._provider.force_flush()
            return list(exporter.get_finished_spans())

        return running, ended

    yield started
    for tracing in opened:
        tracing.close()


def said(span: Any) -> str:
    """Everything that a span says."""
    told: str = span.to_json()
    return told


async def test_a_request_and_its_try_are_spans_of_the_clients_trace(
    spans: Any, upstream: FaultyUpstream, client: aiohttp.ClientSession, log: Any
) -> None:
    upstream.script = stream(text("I will look.\n"), text(CALL), event(finish="stop"), event(**USAGE), DONE)
    running, ended = await spans()
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
    answer = await ask(client, running.url, BODY, headers=headers)
    asked, request = ended()
    assert f"{request.context.trace_id:032x}" == f"{asked.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT
    assert asked.parent.span_id == request.context.span_id
    assert (request.kind.name, asked.kind.name) == ("SERVER", "CLIENT")
    assert asked.name == "chat m"
    # The model server goes on with the trace, within the try.
    went = upstream.last.headers
    assert went["traceparent"] == f"00-{TRACE}-{asked.context.span_id:016x}-01"
    assert went["tracestate"] == "vendor=1"
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["toolgate.request_id"] == answer.headers["X-Request-Id"]
    assert request.attributes["toolgate.strategy"] == "recovery"
    assert request.attributes["toolgate.calls.recovered"] == 1
    (call,) = request.events
    assert call.name == "toolgate.call"
    assert call.attributes["gen_ai.tool.name"] == "read_file"
    assert call.attributes["toolgate.dialect"] == "hermes"
    assert asked.attributes["gen_ai.operation.name"] == "chat"
    assert asked.attributes["gen_ai.request.model"] == "m"
    assert asked.attributes["gen_ai.usage.input_tokens"] == 7
    assert asked.attributes["gen_ai.usage.output_tokens"] == 5
    assert asked.attributes["server.port"] > 0
    assert (await log.record("request_ended"))["trace_id"] == TRACE
    assert request.start_time <= asked.start_time <= asked.end_time <= request.end_time


async def test_no_span_has_a_text(spans: Any, upstream: FaultyUpstream, client: aiohttp.ClientSession) -> None:
    running, ended = await spans()
    for answer in (CALL, BROKEN, STRANGE, "secret-answer"):
        upstream.script = stream(text(answer), event(finish="stop"), DONE)
        await ask(client, running.url, BODY, headers={"Authorization": "Bearer secret-key"})
    shown = "".join(map(said, ended()))
    assert "secret" not in shown
    assert "<b>" not in shown
    assert "toolgate.stayed_text" in shown


async def test_each_try_is_a_span_and_faults_are_named(
    spans: Any, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    running, ended = await spans()
    upstream.script = answer_json({"error": {"message": "later"}}, status="503 X", headers={"Retry-After": "0"})
    await ask(client, running.url, chat(model="m", stream=False))
    *tries, request = ended()
    assert [each.attributes["error.type"] for each in tries] == ["upstream_rejected"] * 2
    assert [each.attributes["http.request.resend_count"] for each in tries] == [0, 1]
    assert request.attributes["error.type"] == "upstream_rejected"
    assert {each.status.status_code.name for each in (*tries, request)} == {"ERROR"}
    upstream.script = close_at_once
    await ask(client, running.url, chat(model="m", stream=False))
    assert ended()[-1].attributes["toolgate.cause"] == "disconnected"


async def test_a_trace_begins_here_where_the_client_names_none(
    spans: Any, upstream: FaultyUpstream, client: aiohttp.ClientSession, log: Any
) -> None:
    upstream.script = answer_json(completion())
    running, ended = await spans()
    await ask(client, running.url, chat(model="m", stream=False), headers={"traceparent": "nonsense"})
    _, request = ended()
    assert request.parent is None
    assert re.fullmatch(
        rf"00-{request.context.trace_id:032x}-[0-9a-f]{{16}}-0[13]", upstream.last.headers["traceparent"]
    )
    assert (await log.record("request_ended"))["trace_id"] == f"{request.context.trace_id:032x}"


async def test_without_it_the_clients_trace_goes_on_as_it_came(
    gateway: Callable[..., Any], upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    assert running.shared.tracing is None
    given = f"00-{TRACE}-{PARENT}-01"
    await ask(client, running.url, chat(model="m", stream=False), headers={"traceparent": given})
    assert upstream.last.headers["traceparent"] == given


async def test_spans_that_fail_cost_no_request(
    spans: Any, upstream: FaultyUpstream, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise RuntimeError("no")

    upstream.script = answer_json(completion())
    running, _ = await spans()
    given = f"00-{TRACE}-{PARENT}-01"
    tracer = running.shared.tracing._tracer
    with monkeypatch.context() as broken:
        broken.setattr(tracer, "start_span", fails)
        answer = await ask(client, running.url, chat(model="m", stream=False), headers={"traceparent": given})
        assert answer.json == completion()
        assert upstream.last.headers["traceparent"] == given
    begun = running.shared.tracing.begin

    def begin(*arguments: Any) -> Any:
        span = begun(*arguments)
        monkeypatch.setattr(span._tracer, "start_span", fails)
        monkeypatch.setattr(span._span, "set_attributes", fails)
        return span

    monkeypatch.setattr(running.shared, "tracing", SimpleNamespace(begin=begin, close=lambda: None))
    answer = await ask(client, running.url, chat(model="m", stream=False), headers={"traceparent": given})
    assert answer.json == completion()
    assert upstream.last.headers["traceparent"] == given


def test_nothing_of_it_is_imported_unless_it_is_asked_for() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import sys, gateway.cli.root, gateway.app; print('opentelemetry' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "False"


def test_it_cannot_be_switched_on_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.config.declared.values.find_spec", lambda name: None)
    _, faults = inspect({"UPSTREAM_URL": "http://127.0.0.1:1/v1", "GATEWAY_TRACES": "otel"})
    assert faults == ["GATEWAY_TRACES: needs the extra: pip install 'toolgate[otel]' (got 'otel')"]
    assert inspect({"UPSTREAM_URL": "http://127.0.0.1:1/v1", "GATEWAY_TRACES": "off"})[1] == []
