"""The main job: a chat request in, the answer of its model server out, read by the strategy that was chosen."""

import asyncio
import time
from collections.abc import Generator
from functools import partial

import structlog
from aiohttp import web
from attrs import evolve

from gateway.core.errors import GatewayError, UpstreamRejected
from gateway.exchange import StreamExchange
from gateway.net.again import chat_headers, repair, second_answer
from gateway.net.attempts import open_reply
from gateway.net.audit import audit
from gateway.net.headers import client_of, response_headers
from gateway.net.learning import fall_back, learn_from, may_fall_back
from gateway.net.middleware import json_response
from gateway.net.replies import stream_opening, whole_body
from gateway.net.streams import pump
from gateway.net.turn import Turn
from gateway.net.upstream import UpstreamReply
from gateway.policy.routing import route
from gateway.whole import BodyExchange
from gateway.wire.openai_chat import ChatRequest, parse_request
from strategies.base import Prepared
from strategies.factory import Passthrough, Selection

__all__ = ["chat"]

OWN_HEADERS = frozenset({"content-type", "content-encoding"})

log = structlog.get_logger("toolgate")


async def chat(turn: Turn) -> web.StreamResponse:
    """`POST /v1/chat/completions`."""
    request = parse_request(await turn.read_body())
    turn.model, turn.stream = request.model, request.stream
    route(request.model)
    prepared = _prepare(turn, request)
    try:
        reply, prepared = await _opened(turn, request, prepared)
        with reply:
            answer = _stream if request.stream else _whole
            return await answer(turn, reply, prepared)
    finally:
        learn_from(turn)
        audit(turn)


async def _opened(turn: Turn, request: ChatRequest, prepared: Prepared) -> tuple[UpstreamReply, Prepared]:
    """The answer's head; where native tools are refused, that to the request with its tools in the prompt."""
    headers = chat_headers(turn, stream=request.stream)
    url = turn.configuration.chat_url
    try:
        return await open_reply(turn, "POST", url, headers=headers, body=prepared.body), prepared
    except UpstreamRejected as error:
        if not may_fall_back(turn, error):
            raise
        other = _prepare_prompted(turn, request)
        if other is None:
            raise
    fall_back(turn, "refused")
    return await open_reply(turn, "POST", url, headers=headers, body=other.body), other


def _prepare_prompted(turn: Turn, request: ChatRequest) -> Prepared | None:
    """The request with its tools in the prompt; where it cannot be had the refusal stands."""
    selection = turn.configuration.factory.prompted("refused")
    started = time.perf_counter()
    try:
        prepared = selection.strategy.prepare(request, turn.configuration.options(selection.dialect))
    except GatewayError as error:
        log.info("native_fallback_impossible", error=error.code, message=error.message)
        return None
    except Exception:
        log.exception("strategy_failed", strategy=selection.strategy.name)
        return None
    turn.prepare_s += time.perf_counter() - started
    turn.strategy, turn.reason = prepared.strategy, selection.reason
    turn.notes.extend(prepared.warnings)
    return prepared


def _prepare(turn: Turn, request: ChatRequest) -> Prepared:
    configuration = turn.configuration
    client = client_of(turn.http.headers)
    selection = configuration.decide(request, turn.capability(request.model), client)
    turn.arm, turn.reason = configuration.arm, selection.reason
    started = time.perf_counter()
    try:
        options = configuration.options(selection.dialect)
        if selection.reason == "client":
            options = evolve(options, client=client)
        prepared = selection.strategy.prepare(request, options)
    except GatewayError:
        turn.strategy = selection.strategy.name
        raise
    except Exception:
        log.exception("strategy_failed", strategy=selection.strategy.name)
        prepared = _unchanged(turn, request, selection)
    turn.prepare_s = time.perf_counter() - started
    turn.strategy = prepared.strategy
    turn.notes.extend(prepared.warnings)
    return prepared


def _unchanged(turn: Turn, request: ChatRequest, failed: Selection) -> Prepared:
    """A broken strategy costs its request the transformation, not the answer."""
    turn.reason = f"{failed.strategy.name}_failed"
    return Passthrough().prepare(request, turn.configuration.options(None))


async def _whole(turn: Turn, reply: UpstreamReply, prepared: Prepared) -> web.StreamResponse:
    body = await whole_body(turn, reply)
    exchange = BodyExchange(
        prepared, make_id=turn.make_call_id, limits=turn.configuration.limits, repairs=_repairs(turn)
    )
    turn.facts = exchange.facts
    started = time.perf_counter()
    answer = await _in_turns(exchange.steps(body))
    turn.read_s += time.perf_counter() - started
    while (wanted := exchange.repair) is not None:
        answer = await repair(turn, exchange, wanted, partial(second_answer, turn))
    response = json_response(answer)
    response.headers.extend(response_headers(reply.headers, also_dropped=OWN_HEADERS))
    return await turn.send(response)


async def _in_turns(steps: Generator[None, None, bytes]) -> bytes:
    """Work off a long answer in turns, so that nobody waits for all of it."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return bytes(done.value)
        await asyncio.sleep(0)


async def _stream(turn: Turn, reply: UpstreamReply, prepared: Prepared) -> web.StreamResponse:
    exchange = StreamExchange(
        prepared, make_id=turn.make_call_id, limits=turn.configuration.limits, repairs=_repairs(turn)
    )
    turn.facts = exchange.facts
    first = b"" if reply.content_type == "text/event-stream" else await stream_opening(turn, reply)
    response = web.StreamResponse(headers=response_headers(reply.headers, also_dropped=OWN_HEADERS))
    response.headers["Content-Type"] = "text/event-stream"
    response.headers["Cache-Control"] = "no-cache, no-transform"
    response.headers["X-Accel-Buffering"] = "no"
    return await pump(turn, reply, exchange, response, first=first)


def _repairs(turn: Turn) -> int:
    """How often this request may be asked again for a broken call."""
    return turn.configuration.settings.repair_attempts if turn.arm == "live" else 0
