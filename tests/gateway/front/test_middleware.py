"""What holds for every request: how it is written down when it has ended."""

import asyncio
import json

from gateway.front.measures import measure
from tests.support.client import chat, exchange, post_bytes
from tests.support.faulty_upstream import Connection, Received, answer_json, completion

LAST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
"""Ends its connection."""


async def test_lines_say_the_request_that_they_are_about_and_no_other(gateway, upstream, log, monkeypatch):
    def broken(*args: object) -> None:
        raise OSError("of ours")

    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url)
    monkeypatch.setattr("gateway.front.middleware.measure", broken)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    first = post_bytes(chat(stream=False), "X-Request-Id: mine", f"traceparent: {trace}")
    elsewhere = b"GET /healthz HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n"
    await exchange(running.url, first + elsewhere + post_bytes(chat(stream=False), "X-Request-Id: yours") + LAST)
    written = [json.loads(line) for line in (await log.until('"yours"')).splitlines()]
    ids = [(line["request_id"], line.get("trace_id")) for line in written if line["event"] == "accounting_failed"]
    assert ids == [("mine", trace[3:35]), ("yours", None)]
    assert not {"request_id", "trace_id"} & (await log.record("request_not_let_in")).keys()


async def test_of_requests_that_end_together_a_fault_costs_the_record_of_one(gateway, upstream, log, monkeypatch):
    names = [f"req-{number}" for number in range(12)]
    all_here = asyncio.Event()

    async def together(connection: Connection, received: Received) -> None:
        if len(upstream.requests) == len(names):
            all_here.set()
        await all_here.wait()
        await answer_json(completion("hello"))(connection, received)

    def faulty(summary, telemetry):
        if summary.id == names[3]:
            raise OSError("of ours")
        measure(summary, telemetry)

    upstream.script = together
    running = await gateway(upstream.url)
    monkeypatch.setattr("gateway.front.middleware.measure", faulty)
    asked = [post_bytes(chat(stream=False), f"X-Request-Id: {name}") for name in names]
    await asyncio.gather(*(exchange(running.url, each + LAST) for each in asked))
    await exchange(running.url, post_bytes(chat(stream=False), "X-Request-Id: last") + LAST)
    written = await log.until('"last"')
    lines = [json.loads(line) for line in written.splitlines()]
    assert sorted(
        line["request_id"] for line in lines if line.get("route") == "chat" and line["event"] == "request_ended"
    ) == sorted([*names, "last"])
    assert [line["request_id"] for line in lines if line["event"] == "accounting_failed"] == [names[3]]
    scraped = running.shared.telemetry.render()[0].decode()
    served = [
        line for line in scraped.splitlines() if line.startswith("toolgate_requests_total{") and 'route="chat"' in line
    ]
    assert sum(float(line.rpartition(" ")[2]) for line in served) == len(names)
