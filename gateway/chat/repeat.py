"""Asking the model server a second time within one request: for a broken call, never without a reason in the log."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator

import structlog
from msgspec.structs import replace

from gateway.answer.body import BodyExchange
from gateway.answer.same_wire import SameWireReading
from gateway.answer.second_answer import SecondRequest
from gateway.answer.stream import StreamExchange
from gateway.core.errors import GatewayError, UpstreamTimeout
from gateway.request.deadline import Deadline
from gateway.request.state import ClientGone, RequestState
from gateway.upstream.reply_shape import whole_body
from gateway.upstream.translated import open_chat

__all__ = ["ask_again", "in_turns", "second_answer", "second_answer_in_company"]

Ask = Callable[[bytes], Awaitable[bytes]]
Tell = Callable[[], Awaitable[None]]

log = structlog.get_logger("toolgate")


async def in_turns(steps: Generator[None, None, bytes]) -> bytes:
    """Work off a long answer in turns, so that nobody waits for all of it."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return bytes(done.value)
        await asyncio.sleep(0)


async def ask_again(
    state: RequestState, exchange: StreamExchange | SameWireReading | BodyExchange, wanted: SecondRequest, ask: Ask
) -> bytes:
    """Ask for what is `wanted`, and give the exchange what came of it; its bytes for the client."""
    budget = state.shared.second_questions
    if not budget.take(state.shared.admission.active):
        _record(state, wanted, "no_budget", None)
        return await in_turns(exchange.no_second_steps())
    started = state.deadline.now()
    result = "cancelled"
    try:
        second = await ask(wanted.body())
        result = "error"
        out = await _timed(state, exchange, second)
        result = "repaired" if exchange.facts.has_second_answer else "failed"
        return out
    except GatewayError as error:
        result = "error"
        log.info("repair_unanswered", error=error.code)
    except ClientGone:
        raise
    except Exception:
        result = "error"
        log.exception("repair_failed")
    finally:
        budget.give_back()
        _record(state, wanted, result, state.deadline.now() - started)
    return await in_turns(exchange.no_second_steps())


async def second_answer(state: RequestState, body: bytes) -> bytes:
    """The whole answer to one more request."""
    # A copy: times and status of this question must not stand for those of the first.
    asking = replace(state)
    try:
        # A second question is not put a third time because a connection broke.
        with await open_chat(asking, body, stream=False, repeatable=False) as reply:
            return await whole_body(asking, reply)
    finally:
        _measure(asking)


async def second_answer_in_company(
    state: RequestState, body: bytes, *, due: float, tell: Callable[[], Awaitable[None]]
) -> bytes:
    """The same, while the client is told at intervals that there is more to come; ends with its client."""
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(_outcome(state, body))
        fault = await _keep_company(state, asking, due, tell)
        if fault is not None:
            asking.cancel()
    outcome = asking.result() if fault is None else fault
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def _outcome(state: RequestState, body: bytes) -> bytes | Exception:
    """The answer or what kept it from coming: a task of a group that raised would take the others with it."""
    deadline = Deadline()
    try:
        return await second_answer(replace(state, deadline=deadline), body)
    except Exception as error:  # noqa: BLE001 - raised again by the one who waits
        return error
    finally:
        deadline.close()


async def _keep_company(
    state: RequestState, asking: "asyncio.Task[bytes | Exception]", due: float, tell: Tell
) -> Exception | None:
    deadline = state.deadline
    keepalive_s = state.configuration.settings.keepalive_s
    while not asking.done():
        now = deadline.now()
        if now >= due:
            return UpstreamTimeout("the model server took too long for its whole answer")
        try:
            # Shielded: when it is time for a sign of life the question itself goes on.
            await deadline.within(min(due, now + keepalive_s), asyncio.shield(asking))
        except TimeoutError:
            try:
                await tell()
            except (GatewayError, ClientGone) as error:
                return error
        except GatewayError as error:
            return error
    return None


async def _timed(
    state: RequestState, exchange: StreamExchange | SameWireReading | BodyExchange, second: bytes
) -> bytes:
    started = time.perf_counter()
    try:
        return await in_turns(exchange.second_steps(second))
    finally:
        state.found.read_s += time.perf_counter() - started


def _measure(asking: RequestState) -> None:
    if not asking.upstream_started:
        return
    asking.shared.telemetry.observe(
        "toolgate_upstream_request_duration_seconds",
        {"upstream": asking.upstream.name, "code": asking.upstream_code},
        asking.deadline.now() - asking.upstream_started,
    )


def _record(state: RequestState, wanted: SecondRequest, result: str, seconds: float | None) -> None:
    state.shared.telemetry.count("toolgate_repairs_total", {"result": result})
    state.found.asked_again = result
    if seconds is None:
        log.info("repair_left_out", reason=wanted.reason, result=result)
        return
    log.info("request_repaired", reason=wanted.reason, number=wanted.number, result=result, seconds=round(seconds, 4))
