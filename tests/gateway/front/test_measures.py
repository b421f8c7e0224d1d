"""What requests add to the metrics: by their end, by what was read in them and why it stayed text, and with traces."""

from tests.gateway.front.test_server import ANSWER
from tests.integration.test_calls import FINISH, ROLE, WRITTEN
from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import (
    DONE,
    answer_json,
    event,
    stream,
    text,
)


async def test_what_was_done_is_counted_and_written_down(gateway, upstream, client, log):
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    upstream.script = stream(ROLE, text(WRITTEN), FINISH, event(choices=[], usage=usage), DONE)
    running = await gateway(upstream.url)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"X-Request-Id": "mine-7", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    await ask(client, running.url, chat(model="deepseek", tools=TOOLS), headers=headers)
    record = await log.record("request_ended")
    assert record["request_id"] == "mine-7"
    assert record["trace_id"] == trace
    assert (record["model"], record["strategy"], record["arm"], record["status"]) == (
        "deepseek",
        "recovery",
        "live",
        200,
    )
    assert record["calls"][0]["tool"] == "read_file"
    assert record["calls"][0]["score"] >= 0.9
    assert record["usage"] == {"input": 11, "output": 7}
    assert record["end"] == "completed"
    assert "src/a.py" not in await log.until("request_ended")
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    dialect = record["calls"][0]["dialect"]
    for series in (
        f'toolgate_recovered_calls_total{{dialect="{dialect}"}} 1.0',
        f'toolgate_transforms_total{{arm="live",dialect="{dialect}",outcome="success",strategy="recovery"}} 1.0',
        'toolgate_transforms_by_tool_total{arm="live",outcome="success",tool="read_file"} 1.0',
        'toolgate_transforms_by_model_total{arm="live",model="deepseek",outcome="success"} 1.0',
        'toolgate_tokens_total{type="input",upstream="default"} 11.0',
        'toolgate_tokens_total{type="output",upstream="default"} 7.0',
        'toolgate_transform_overhead_seconds_count{phase="total",strategy="recovery"} 1.0',
        "toolgate_hold_seconds_count 1.0",
    ):
        assert series in exposition


async def test_a_call_that_stays_text_is_counted_with_its_reason(gateway, upstream, client, log):
    upstream.script = stream(ROLE, text("<read_file>\n<path>src/a.py"), FINISH, DONE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="deepseek", tools=TOOLS))
    assert got.content == "<read_file>\n<path>src/a.py"
    assert (await log.record("request_ended"))["refused"]
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_transform_errors_total{reason="not_closed",strategy="recovery"} 1.0' in exposition
    assert 'outcome="error",strategy="recovery"} 1.0' in exposition


async def test_a_failed_stream_is_unhealthy_and_a_refused_request_is_not(gateway, upstream, client, log):
    upstream.script = stream(ROLE, text("hel"))
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(model="deepseek", tools=TOOLS))
    assert (await log.record("request_ended"))["failure"] == "upstream_truncated"
    upstream.script = answer_json({"error": {"code": "context_length_exceeded"}}, status="400 X")
    await ask(client, running.url)
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'code="2xx",health="unhealthy",route="chat",stream="true"} 1.0' in exposition
    assert 'code="4xx",health="ok",route="chat",stream="true"} 1.0' in exposition
    assert 'toolgate_stream_ends_total{arm="live",reason="upstream_error"} 1.0' in exposition


async def test_requests_are_counted_by_their_end(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    await ask(client, running.url)
    await ask(client, running.url, b"no json".decode())
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_requests_total{arm="live",code="2xx",health="ok",route="chat",stream="true"} 1.0' in exposition
    assert 'toolgate_requests_total{arm="off",code="4xx",health="ok",route="chat",stream="false"} 1.0' in exposition
    assert 'toolgate_stream_ends_total{arm="live",reason="completed"} 1.0' in exposition
    assert 'toolgate_upstream_requests_total{code="2xx",upstream="default"} 1.0' in exposition
    assert "toolgate_active_streams 0.0" in exposition
    assert 'toolgate_requests_in_flight{route="chat"} 0.0' in exposition


async def test_times_lead_to_their_traces(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    await ask(client, running.url, headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    asked = {"Accept": "application/openmetrics-text; version=1.0.0"}
    exposition = (await get(client, f"{running.url}/metrics", headers=asked)).body.decode()
    for name in ("toolgate_request_duration_seconds", "toolgate_time_to_first_token_seconds"):
        traced = [line for line in exposition.splitlines() if line.startswith(f"{name}_bucket{{") and trace in line]
        assert len(traced) == 1
        assert f'# {{trace_id="{trace}"}}' in traced[0]
    plain = (await get(client, f"{running.url}/metrics")).body.decode()
    assert trace not in plain
