"""Events through the running gateway over sockets, in lock-step: the next is sent when the one before has arrived."""

import asyncio

import pytest

from gateway.answer.stream import StreamExchange
from tests.support.client import TOOLS, chat, get
from tests.support.faulty_upstream import DONE, STREAM_HEAD, event, stream, text
from tests.support.lateness import CUTS
from tests.support.samples import SAMPLES

BEHIND = 1
"""How many events may have been sent behind one that has not arrived."""
MODELS = ["gpt-4o", "qwen3-coder", "deepseek-chat"]


class Arrived:
    """What the client has, and who waits for it."""

    def __init__(self) -> None:
        self.body = b""
        self._changed = asyncio.Condition()

    async def add(self, data: bytes) -> None:
        self.body += data
        async with self._changed:
            self._changed.notify_all()

    async def until(self, size: int) -> None:
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(lambda: len(self.body) >= size), 20)


def in_step(events: list[bytes], arrived: Arrived):
    """Sends an event when all but the last one before it have come through the gateway."""

    async def script(connection, received):
        await connection.send(STREAM_HEAD)
        ends = [0]
        for data in events:
            await connection.send(data)
            ends.append(ends[-1] + len(data))
            await arrived.until(ends[max(0, len(ends) - 1 - BEHIND)])

    return script


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cut", ["words", "random"])
async def test_each_event_arrives_before_the_next_but_one_is_sent(gateway, upstream, client, model, cut):
    parts = list(CUTS[cut](SAMPLES["english"][1]))
    events = [*map(text, parts), event(finish="stop"), DONE]
    arrived = Arrived()
    upstream.script = in_step(events, arrived)
    running = await gateway(upstream.url)
    body = chat(model=model, tools=TOOLS)
    async with client.post(f"{running.url}/v1/chat/completions", json=body) as response:
        async for data in response.content.iter_any():
            await arrived.add(data)
    assert arrived.body == b"".join(events)
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_stream_late_events_total{strategy="xml_prompt"} 0.0' in exposition


async def test_events_that_leave_late_are_counted(gateway, upstream, client):
    parts = ["First.", "\n", "\n", "```json", "\n", "{", '"name"', ": ", '"nobody"', "}\n```\n"]
    events = [*map(text, parts), event(finish="stop"), DONE]
    upstream.script = stream(*events)
    running = await gateway(upstream.url)
    body = chat(model="qwen3-coder", tools=TOOLS)
    take = StreamExchange.step

    def by_one(self: StreamExchange, data: bytes = b"") -> bytes:
        return b"".join(take(self, one) for one in cut(data)) if data else take(self)

    async def exposed() -> float:
        told = (await get(client, f"{running.url}/metrics")).body.decode()
        return float(told.partition('toolgate_stream_late_events_total{strategy="xml_prompt"} ')[2].partition("\n")[0])

    assert await exposed() == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamExchange, "step", by_one)
        async with client.post(f"{running.url}/v1/chat/completions", json=body) as response:
            assert await response.read() == b"".join(events)
    assert await exposed() == 6


def cut(data: bytes) -> list[bytes]:
    """The events of a read, as if each had been read by itself."""
    return [one + b"\n\n" for one in data.split(b"\n\n") if one]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", SAMPLES)
async def test_bytes_are_the_servers_own_however_many_come_at_once(gateway, upstream, client, model, kind):
    events = [*map(text, CUTS["tokens"](SAMPLES[kind][0])), event(finish="stop"), DONE]
    upstream.script = stream(*[b"".join(events[at : at + 7]) for at in range(0, len(events), 7)])
    running = await gateway(upstream.url)
    body = chat(model=model, tools=TOOLS)
    async with client.post(f"{running.url}/v1/chat/completions", json=body) as response:
        assert await response.read() == b"".join(events)
