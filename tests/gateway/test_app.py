"""The rows O1, O9, O12 and O14 of deploy/FAULTS.md: stopping, reloading, broken plug-ins, no descriptors."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import attrs
import pytest

from gateway.app import build, tell_lasting
from gateway.config.load import inspect, load
from gateway.core.errors import ConfigError
from tests.support.client import TOOLS, Answer, ask, chat, get, open_connection, post_bytes
from tests.support.faulty_upstream import (
    DONE,
    STREAM_HEAD,
    Connection,
    FaultyUpstream,
    Received,
    answer_json,
    close_at_once,
    completion,
    event,
    stream,
    text,
)
from tests.support.processes import until

FINISH = event(finish="stop")

WHOLE = (text("hello"), FINISH, DONE)


class Gate:
    """An upstream whose streams end when the test says so."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    async def script(self, connection, received):
        await connection.send(STREAM_HEAD, text("hel"))
        self.begun.release()
        await self.open.wait()
        await connection.send(text("lo"), FINISH, DONE)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            for _ in range(count):
                await self.begun.acquire()


async def test_o1_streams_end_whole_within_the_drain_time(connect, gateway, upstream, client):
    gate = Gate()
    upstream.script = gate.script
    running = await gateway(upstream.url, GATEWAY_DRAIN_S="10")
    idle_reader, idle_writer = await connect(running.url)
    idle_writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await idle_reader.readuntil(b'"ok"}')
    client.connector._limit = 0
    asking = [asyncio.ensure_future(ask(client, running.url)) for _ in range(50)]
    await gate.until(50)
    draining = asyncio.ensure_future(running.drain())
    await asyncio.sleep(0)
    idle_writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    last = await asyncio.wait_for(idle_reader.read(), 2)
    assert last.startswith(b"HTTP/1.1 503")
    assert b"Connection: close" in last
    with pytest.raises(OSError, match="onnect"):
        await connect(running.url)
    assert not draining.done()
    gate.open.set()
    answers = await asyncio.gather(*asking)
    await asyncio.wait_for(draining, 5)
    assert all(got.content == "hello" and got.is_done for got in answers)


async def test_o1_what_outlives_the_drain_time_is_told_before_it_is_cut(gateway, upstream, client):
    gate = Gate()
    upstream.script = gate.script
    running = await gateway(upstream.url, GATEWAY_DRAIN_S="0.2")
    streamed = asyncio.ensure_future(ask(client, running.url))
    await gate.until(1)
    await asyncio.wait_for(running.drain(), 5)
    got = await streamed
    assert got.content == "hel"
    assert got.error == "draining"
    await upstream.until_all_gone()


async def test_o1_a_request_still_without_an_answer_gets_a_503(gateway, upstream, client):
    async def never(connection, received):
        await connection.until_gone()

    upstream.script = never
    running = await gateway(upstream.url, GATEWAY_DRAIN_S="0.1")
    asking = asyncio.ensure_future(ask(client, running.url, chat(stream=False)))
    await upstream.asked.wait()
    await running.drain()
    got = await asking
    assert (got.status, got.error) == (503, "draining")
    assert got.headers["Connection"] == "close"


async def test_o9_a_reload_takes_effect_from_the_next_request(gateway, upstream, client):
    gate = Gate()
    upstream.script = gate.script
    running = await gateway(upstream.url)
    old = asyncio.ensure_future(ask(client, running.url))
    await gate.until(1)
    running.reload(load({"UPSTREAM_URL": upstream.url, "GATEWAY_API_KEYS": "sk-new"}))
    assert (await ask(client, running.url)).status == 401
    gate.open.set()
    assert (await old).content == "hello"
    assert (await ask(client, running.url, headers={"Authorization": "Bearer sk-new"})).content == "hello"


async def test_o9_a_bad_reload_keeps_what_is_in_force(gateway, upstream, client):
    upstream.script = stream(*WHOLE)
    running = await gateway(upstream.url)
    with pytest.raises(ConfigError):
        running.reload(load({"UPSTREAM_URL": upstream.url, "STRATEGY_RULES": "*=nope"}))
    assert (await ask(client, running.url)).content == "hello"


async def test_o9_a_setting_that_needs_a_restart_is_named_as_long_as_it_waits_for_one(gateway, upstream, log):
    running = await gateway(upstream.url, LOG_FORMAT="json")
    for port, form in (("1", "json"), ("1", "json"), (str(running.settings.port), "console")):
        running.reload(load({"UPSTREAM_URL": upstream.url, "GATEWAY_PORT": port, "LOG_FORMAT": form}))
    written = await log.until('"setting":"LOG_FORMAT"')
    assert written.count('"setting":"GATEWAY_PORT"') == 2
    assert running.settings.log_format == "json"


async def test_o9_a_reload_may_name_an_upstream_in_place_of_the_demo_but_not_take_one_away(gateway, upstream, client):
    upstream.script = stream(*WHOLE)
    running = await gateway(None)
    running.reload(load({"UPSTREAM_URL": upstream.url}))
    assert (await ask(client, running.url)).content == "hello"
    other = await gateway(upstream.url)
    with pytest.raises(ConfigError):
        other.reload(load({}))


async def test_o12_a_strategy_that_breaks_costs_its_request_only_the_reading(gateway, upstream, client, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    upstream.script = stream(*WHOLE)
    running = await gateway(upstream.url)
    monkeypatch.setattr("strategies.recovery.RecoveryStrategy.prepare", broken)
    got = await ask(
        client, running.url, chat(model="deepseek", tools=[{"type": "function", "function": {"name": "f"}}])
    )
    assert got.content == "hello"
    assert got.headers["X-Toolgate-Strategy"] == "passthrough"


async def test_a_fault_of_ours_is_a_500_that_says_nothing(gateway, upstream, client, monkeypatch, log):
    def broken(*_, **__):
        raise ZeroDivisionError("a secret detail")

    running = await gateway(upstream.url)
    monkeypatch.setattr("gateway.surfaces.chat.parse_request", broken)
    got = await ask(client, running.url, headers={"X-Request-Id": "mine"})
    assert (got.status, got.error) == (500, "internal_error")
    assert got.json["error"]["message"] == "internal error; request id mine"
    assert "ZeroDivisionError" in (await log.record("request_failed"))["exception"]


async def test_a_fault_of_ours_within_a_stream_is_its_last_event(gateway, upstream, client, monkeypatch):
    upstream.script = stream(*WHOLE)
    running = await gateway(upstream.url)

    def broken(*_):
        raise ZeroDivisionError("a secret detail")

    monkeypatch.setattr("gateway.answer.stream.StreamExchange.step", broken)
    got = await ask(client, running.url)
    assert got.error == "internal_error"
    assert b"secret" not in got.body


async def test_a_taken_metrics_port_is_a_fault_only_if_it_was_asked_for(gateway, upstream, client, log):
    first = await gateway(upstream.url)
    taken = first.metrics_url.split(":")[2].split("/")[0]
    with pytest.raises(ConfigError, match="METRICS_PORT"):
        await gateway(upstream.url, METRICS_PORT=taken)
    by_default = attrs.evolve(
        load({"UPSTREAM_URL": upstream.url, "GATEWAY_PORT": "0", "METRICS_PORT": taken}), sources={}
    )
    second = await build(by_default)
    try:
        assert second.metrics_url is None
        assert (await get(client, f"{second.url}/metrics")).status == 200
        await log.until("metrics_port_unavailable")
    finally:
        await second.close()


async def test_a_taken_port_leaves_nothing_behind(gateway, upstream):
    first = await gateway(upstream.url)
    with pytest.raises(OSError, match="in use"):
        await gateway(upstream.url, GATEWAY_PORT=first.url.rsplit(":", 1)[1])


async def test_the_demo_answers_when_no_upstream_is_named(gateway, client):
    running = await gateway(None)
    models = (await get(client, f"{running.url}/v1/models")).json["data"]
    assert "demo-xml" in {model["id"] for model in models}
    assert (await ask(client, running.url, chat(model="demo-prose"))).is_done


async def until_refused(url: str) -> None:
    """Nothing listens any more; the loop may take a moment to close the socket."""
    async with asyncio.timeout(5):
        while True:
            try:
                _, writer = await open_connection(url)
            except ConnectionRefusedError:
                return
            writer.transport.abort()
            await asyncio.sleep(0.01)


class Process:
    """The real program, told of its settings by the environment."""

    def __init__(self, **environ: str) -> None:
        self._environ = environ
        self.log: list[str] = []

    async def __aenter__(self) -> "Process":
        environ = {"PATH": os.environ["PATH"], "GATEWAY_PORT": "0", "METRICS_PORT": "0", **self._environ}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", "serve", env=environ, stderr=asyncio.subprocess.PIPE
        )
        self.url = json.loads(await self.until_logged("gateway_started"))["url"]
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self.exit_code()

    async def until_logged(self, event_name: str) -> str:
        """Read the log up to the next event of that name."""
        assert self._process.stderr is not None
        async with asyncio.timeout(20):
            async for line in self._process.stderr:
                self.log.append(line.decode())
                if f'"event":"{event_name}"' in self.log[-1]:
                    return self.log[-1]
        raise AssertionError(self.log)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def exit_code(self, seconds: float = 10) -> int:
        """Read the log to its end, and see how the program ended."""
        assert self._process.stderr is not None
        async with asyncio.timeout(seconds):
            self.log += [line.decode() async for line in self._process.stderr]
            return await self._process.wait()


@pytest.mark.system
async def test_o1_sigterm_lets_two_hundred_streams_end_whole(upstream):
    gate = Gate()
    upstream.script = gate.script
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client, Process(UPSTREAM_URL=upstream.url) as process:
        asking: list[asyncio.Task[Answer]] = [asyncio.ensure_future(ask(client, process.url)) for _ in range(200)]
        await gate.until(200)
        process.signal(signal.SIGTERM)
        await process.until_logged("gateway_draining")
        await until_refused(process.url)
        gate.open.set()
        answers = await asyncio.gather(*asking)
        assert await process.exit_code() == 0
    assert all(got.content == "hello" and got.is_done for got in answers)
    assert sum('"event":"request_ended"' in line for line in process.log) == 200


@pytest.mark.system
async def test_a_second_interrupt_ends_at_once(connect, upstream):
    gate = Gate()
    upstream.script = gate.script
    async with Process(UPSTREAM_URL=upstream.url) as process:
        _, writer = await connect(process.url)
        writer.write(post_bytes(chat()))
        await gate.until(1)
        process.signal(signal.SIGINT)
        await process.until_logged("gateway_draining")
        process.signal(signal.SIGINT)
        assert await process.exit_code(5) == 0
        writer.close()


@pytest.mark.system
async def test_o9_sighup_reads_the_settings_anew_and_keeps_the_old_ones_when_they_are_bad(upstream, tmp_path):
    upstream.script = answer_json(completion())
    settings = tmp_path / "env"
    settings.write_text("GATEWAY_API_KEYS=sk-one\n")
    async with (
        aiohttp.ClientSession() as client,
        Process(UPSTREAM_URL=upstream.url, GATEWAY_ENV_FILE=str(settings)) as process,
    ):

        async def status(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            return (await ask(client, process.url, chat(stream=False), headers=headers)).status

        assert (await status("sk-one"), await status("sk-two")) == (200, 401)
        settings.write_text("GATEWAY_API_KEYS=sk-two\nUPSTREAM_API_KEY=sk-later-9\n")
        process.signal(signal.SIGHUP)
        await process.until_logged("reloaded")
        assert (await status("sk-one"), await status("sk-two")) == (401, 200)
        settings.write_text("GATEWAY_API_KEYS=sk-three\nGATEWAY_MAX_CONCURRENCY=many\n")
        process.signal(signal.SIGHUP)
        await process.until_logged("reload_failed")
        assert (await status("sk-two"), await status("sk-three")) == (200, 401)
        assert upstream.last.headers["authorization"] == "Bearer sk-later-9"
        exposition = (await get(client, f"{process.url}/metrics")).body.decode()
        assert "toolgate_config_last_reload_successful 0.0" in exposition


@pytest.mark.system
async def test_o14_without_descriptors_requests_are_refused_and_it_recovers(upstream):
    import resource

    upstream.script = answer_json(completion())
    async with aiohttp.ClientSession() as client, Process(UPSTREAM_URL=upstream.url) as process:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        connected = await get(client, f"{process.url}/healthz")
        assert connected.status == 200
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, hard))
        got = await ask(client, process.url, chat(stream=False))
        assert (got.status, got.error) == (503, "no_capacity")
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1024, hard))
        assert (await ask(client, process.url, chat(stream=False))).status == 200


# --- OpenTelemetry: a span a request and one a try, within the client's trace, with what came of it and no text of
# it.


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


LOADED = """
import ssl, sys, gateway.process.worker, gateway.upstream.certificates
from aiohttp import connector
few = {"opentelemetry", "redis", "rich", "pygments"}
print(sorted(few & set(sys.modules)))
context = connector._SSL_CONTEXT_VERIFIED
trusted = ssl.create_default_context().cert_store_stats()
assert sum(context.cert_store_stats().values()) == 0, "nobody has asked for them"
assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="example.org")
assert context.cert_store_stats() == trusted and type(context) is ssl.SSLContext
context.__class__ = gateway.upstream.certificates._Late
gateway.upstream.certificates.read_ahead()
assert context.cert_store_stats() == trusted and type(context) is ssl.SSLContext
import rich.console
"""


@pytest.mark.system
def test_nothing_is_loaded_that_only_few_ask_for() -> None:
    """Each of these takes megabytes of every worker; `rich` draws tables, and whoever wants one still gets it.

    Certificates of others are read before the first connection that needs them.
    """
    told = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False)
    assert (told.stdout.strip(), told.stderr, told.returncode) == ("[]", "", 0)


def test_it_cannot_be_switched_on_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.config.declared.values.find_spec", lambda name: None)
    _, faults = inspect({"UPSTREAM_URL": "http://127.0.0.1:1/v1", "GATEWAY_TRACES": "otel"})
    assert faults == ["GATEWAY_TRACES: needs the extra: pip install 'toolgate[otel]' (got 'otel')"]
    assert inspect({"UPSTREAM_URL": "http://127.0.0.1:1/v1", "GATEWAY_TRACES": "off"})[1] == []


# --- Requests that go on for more than five seconds are told of while they do, once and then ever more rarely


async def test_what_still_goes_on_is_told_of(
    gateway: Callable[..., Any], upstream: FaultyUpstream, client: aiohttp.ClientSession, log: Any
) -> None:
    may_begin, may_end = asyncio.Event(), asyncio.Event()

    async def slow(connection: Connection, received: Received) -> None:
        await may_begin.wait()
        await connection.send(STREAM_HEAD, text("first"))
        await may_end.wait()
        await connection.send(event(finish="stop"), DONE)

    upstream.script = slow
    running = await gateway(upstream.url)
    asking = asyncio.ensure_future(ask(client, running.url, chat(model="slow-one")))
    await until(lambda: upstream.requests)
    (state,) = running.shared.under_way.lasting(float("inf"))
    told: list[float] = []
    for age_s in (4.9, 5.1, 6.0, 30.0):
        tell_lasting(running.shared, state.started + age_s)
        told.append(state.told_at_s)
    assert [round(each, 1) for each in told] == [0.0, 5.1, 5.1, 5.1], "not again before it is six times as old"
    first = await log.record("request_lasts")
    assert (first["model"], first["waits_for"], first["bytes_out"]) == ("slow-one", "model_server", 0)
    may_begin.set()
    await until(lambda: state.bytes_out)
    tell_lasting(running.shared, state.started + 31.0)
    await log.until('"waits_for":""')
    second = await log.record("request_lasts")
    assert second["bytes_out"] > 0
    may_end.set()
    answer = await asking
    assert answer.is_done
    assert first["request_id"] == second["request_id"] == answer.headers["X-Request-Id"]
    assert list(running.shared.under_way.lasting(float("inf"))) == []
