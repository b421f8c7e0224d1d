"""Requests that go on for more than five seconds are told of while they do, once and then ever more rarely."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from gateway.app import tell_lasting
from tests.support.client import ask, chat
from tests.support.faulty_upstream import DONE, STREAM_HEAD, Connection, FaultyUpstream, Received, event, text
from tests.support.processes import until


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
