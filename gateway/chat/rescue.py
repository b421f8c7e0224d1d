"""The turn that a server's own parser swallowed, saved: its text read, else the request asked once more in the prompt.

Only while nothing of the answer can be seen. Where neither helps, the first error or answer stands as it came.
"""

import time
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web
from msgspec import Struct

from gateway.answer.rescue.faces import Swallowed, of_refusal
from gateway.answer.rescue.lookout import Lookout
from gateway.answer.rescue.remedies import Remedy, from_answer, from_text, is_in_reasoning, paid, streamed
from gateway.chat.accept import keep_answer
from gateway.chat.lessons_learnt import fall_back, may_rescue, note_rescue
from gateway.chat.opening import prompted
from gateway.chat.prepare import options_for
from gateway.chat.repeat import second_answer
from gateway.core.errors import GatewayError, UpstreamRejected
from gateway.request.headers import client_of
from gateway.request.responses import Streamed, json_response
from gateway.request.state import ClientGone, RequestState
from gateway.traffic.routing import Route
from gateway.wire.chat_request import ChatRequest
from strategies.asking.renderers import own_dialect
from strategies.base import Prepared
from strategies.factory import NATIVE_STRATEGIES

__all__ = ["Chance", "chance_of"]

Ask = Callable[[bytes], Awaitable[bytes]]
NATIVE = "native"

log = structlog.get_logger("toolgate")


def chance_of(state: RequestState, request: ChatRequest, prepared: Prepared, route: Route) -> "Chance | None":
    """What another answer to this request can be had from; None where its answer stands as it comes."""
    reads = prepared.strategy in NATIVE_STRATEGIES or prepared.strategy == "xml_prompt"
    if state.found.enrolled.arm != "live" or not reads or not may_rescue(state, request):
        return None
    return Chance(state, request, prepared, route)


class Chance(Struct):
    """One request's chance of another answer."""

    _state: RequestState
    _request: ChatRequest
    _prepared: Prepared
    _route: Route
    is_spent: bool = False
    """It was asked once more: that is all that one request may cost."""

    def lookout(self) -> Lookout:
        """What watches the stream of the answer."""
        size = self._state.configuration.settings.max_event_bytes
        return Lookout(max_event_bytes=size, drops_usage=self._state.found.asks_usage)

    async def instead_of(self, error: UpstreamRejected) -> bytes | None:
        """A whole answer in the place of an error."""
        swallowed = of_refusal(error.upstream_status, error.payload)
        # A refusal of schemas has been dealt with when the answer was opened, which costs no generation.
        if swallowed is None or swallowed.face.refuses_schema:
            return None
        remedy = await self._remedy(swallowed, self._ask)
        return remedy.body if remedy is not None else None

    async def instead_of_body(self, swallowed: Swallowed, body: bytes) -> bytes | None:
        """A whole answer in the place of another, which is that turn."""
        if self._is_in_reasoning(swallowed, body):
            return None
        remedy = await self._remedy(swallowed, self._ask)
        return paid(remedy, body) if remedy is not None else None

    def _is_in_reasoning(self, swallowed: Swallowed, body: bytes) -> bool:
        """Whether the call is one that is read in the reasoning, as every answer is."""
        if not swallowed.face.may_have_thought:
            return False
        make_id, limits = self._state.make_call_id, self._state.configuration.limits
        is_there = is_in_reasoning(body, self._prepared, make_id=make_id, limits=limits)
        if is_there:
            self.note_read(swallowed)
        return is_there

    def note_read(self, swallowed: Swallowed) -> None:
        """Take down that the call stands in the reasoning of the answer, where it is read."""
        note_rescue(self._state, swallowed, "read")

    async def instead_of_stream(self, lookout: Lookout, ask: Ask) -> bytes | None:
        """The rest of a stream, in the place of the end that is held."""
        swallowed = lookout.swallowed
        remedy = await self._remedy(swallowed, ask) if swallowed is not None else None
        if remedy is None:
            return None
        remedy.facts.add_usage(lookout.usage)
        has_begun = self._state.first_sent is not None
        return self.as_stream(remedy.body, answer_id=lookout.id, used=lookout.usage, has_begun=has_begun)

    def as_stream(self, body: bytes, *, answer_id: str | None = None, used: object = None, has_begun: bool) -> bytes:
        """A whole answer as this request's stream."""
        options = self._request.body.get("stream_options")
        wants = isinstance(options, dict) and bool(options.get("include_usage"))
        return streamed(body, answer_id=answer_id, used=used, has_role=has_begun, wants_usage=wants)

    async def send(self, answer: bytes) -> web.StreamResponse:
        """A whole answer in the place of an error or of another, in the shape that was asked for."""
        state, telling = self._state, self._state.telling
        if not self._request.stream:
            state.deliver(answer)
            told = telling.whole(answer)
            await keep_answer(state)
            return await state.send(json_response(told))
        response = Streamed()
        response.headers["Content-Type"] = "text/event-stream"
        response.headers["Cache-Control"] = "no-cache, no-transform"
        response.headers["X-Accel-Buffering"] = "no"
        state.start(response)
        state.first_sent = state.deadline.now()
        out = self.as_stream(answer, has_begun=False)
        state.deliver(out)
        told = telling.begin(state.input_tokens) + telling.feed(out) + telling.finish()
        await keep_answer(state)
        await state.write(response, told)
        await state.end(response)
        return response

    async def _ask(self, body: bytes) -> bytes:
        return await second_answer(self._state, body)

    async def _remedy(self, swallowed: Swallowed, ask: Ask) -> Remedy | None:
        started = time.perf_counter()
        remedy = self._read(swallowed)
        self._state.found.read_s += time.perf_counter() - started
        if remedy is not None:
            self._state.found.facts = remedy.facts
            note_rescue(self._state, swallowed, "read")
            return remedy
        return await self._asked(swallowed, ask)

    def _read(self, swallowed: Swallowed) -> Remedy | None:
        """The call that the error's own text holds; a fault of the reader is none of the client's."""
        state = self._state
        if not swallowed.text:
            return None
        try:
            return from_text(
                swallowed,
                self._reading(),
                model=self._request.model,
                answer_id=f"chatcmpl-{state.id.removeprefix('req_')}",
                now=int(state.shared.wall()),
                make_id=state.make_call_id,
                limits=state.configuration.limits,
            )
        except Exception:
            log.exception("rescue_unread")
            return None

    def _reading(self) -> Prepared:
        """How the text of an answer to this request is read; native ones are looked through for little alone."""
        if self._prepared.make_reader is not None and self._prepared.strategy != NATIVE:
            return self._prepared
        state = self._state
        selection = state.configuration.factory.reading("parser_failed")
        return selection.strategy.prepare(self._request, options_for(state, selection, client_of(state.http.headers)))

    async def _asked(self, swallowed: Swallowed, ask: Ask) -> Remedy | None:
        state, face, model = self._state, swallowed.face, self._request.model
        upstream, asked_for = state.upstream.name, state.model or ""
        rescues, budget = state.shared.rescues, state.shared.second_questions
        is_native = self._prepared.strategy in NATIVE_STRATEGIES
        may_ask = is_native and rescues.may_ask(upstream, asked_for, face.name, state.deadline.now())
        # Ollama's parsers look at prompted answers too, and fail at their own family's form there as well:
        # https://github.com/ollama/ollama/issues/18563
        dialect = None if face.parses_prompted else own_dialect(model)
        other = prompted(state, self._request, self._route, "parser_failed", dialect=dialect) if may_ask else None
        if other is None or not budget.take(state.shared.admission.active):
            note_rescue(state, swallowed, "not_possible")
            return None
        self.is_spent = True
        first, remedy = state.found.way, None
        try:
            body = await ask(other.prepared.body)
            other.take(state)  # its calls' ids say how they were made
            limits = state.configuration.limits
            remedy = from_answer(body, other.prepared, make_id=state.make_call_id, limits=limits)
        except GatewayError as error:
            log.info("rescue_unanswered", error=error.code)
        except ClientGone:
            raise
        except Exception:
            log.exception("rescue_failed")
        finally:
            budget.give_back()
            # The first answer stands after all, and is told as what it was.
            if remedy is None:
                state.found.way = first
        note_rescue(state, swallowed, "failed" if remedy is None else "asked")
        rescues.asked(upstream, asked_for, face.name, state.deadline.now(), is_cured=remedy is not None)
        if remedy is None:
            return None
        remedy.facts.has_second_answer = remedy.has_call
        state.found.facts = remedy.facts
        if state.configuration.settings.native_fallback and rescues.answered(upstream, asked_for, is_cured=True):
            fall_back(state, "parser_failed")
        return remedy
