"""A stream from the model server to the client: read what is there, write once, and never wait for ever.

The awaited write is the back-pressure: while the client does not take its bytes, nothing is read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from operator import sub
from time import monotonic

import structlog
from aiohttp import web

from gateway.answer.rescue.faces import Swallowed
from gateway.answer.rescue.lookout import Lookout
from gateway.answer.same_wire import SameWireReading, SameWireStream
from gateway.answer.stream import StreamExchange
from gateway.answer.watch import WatchedStream
from gateway.chat.accept import keep_answer
from gateway.chat.repeat import ask_again, second_answer_in_company
from gateway.chat.rescue import Chance
from gateway.core.errors import GatewayError, InternalError, UpstreamTimeout
from gateway.core.ports import Taken
from gateway.request.responses import Streamed
from gateway.request.state import ClientGone, RequestState
from gateway.upstream.client import UpstreamReply
from gateway.upstream.translated import ChatReply
from gateway.wire.calm import LONGEST, MOST, Calm, Ends, Lane, lane_of
from gateway.wire.chat_chunks import token_counts
from gateway.wire.sse import Framer, block_of

__all__ = ["pump"]

Exchange = StreamExchange | SameWireReading | WatchedStream

# More at once is worked off in turns, as others of the process wait meanwhile.
PIECE_BYTES = 16 << 10
PASSED, WAKE, LEFT = Taken.PASSED, Taken.WAKE, Taken.LEFT  # to look a member up costs more than a call
LINGER_S = 1.0
"""How long after `[DONE]` the body's end is waited for, so that the connection can be used again."""

log = structlog.get_logger("toolgate")


async def pump(
    state: RequestState,
    reply: ChatReply,
    exchange: Exchange,
    response: Streamed,
    *,
    first: bytes,
    lookout: Lookout | None = None,
    chance: Chance | None = None,
) -> web.StreamResponse:
    """Send `response` and everything that `exchange` makes of the reply; a fault becomes the stream's last event.

    The exchange gives chat, and the state's telling says it in the client's own wire.
    The `lookout` holds the end of a stream of which nothing could be seen, until the `chance` of another is taken;
    beside an untouched answer it holds nothing.
    """
    active = state.shared.active_streams
    active[0] += 1
    stream = _Stream(state, reply, exchange, response, lookout)
    closed = False
    # A proxy that compresses may hold events until it has enough:
    # https://www.rfc-editor.org/rfc/rfc9111#section-5.2.2.6
    response.headers["Cache-Control"] = "no-cache, no-transform"
    # nginx holds a stream back by default: https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering
    response.headers["X-Accel-Buffering"] = "no"
    try:
        state.start(response)
        stream.begin()
        error = await stream.run(first)
        is_over = stream.is_over
        if not is_over:
            if error is None:
                error = await stream.rescue(chance)
            if error is None:
                await stream.ask_again()
        closed = True
        await stream.close(error, is_over=is_over and error is None)
    finally:
        active[0] -= 1
        if not closed:
            await _give_up(exchange)
    return response


class _Stream:
    """The state of one pump."""

    __slots__ = (
        "_calm",
        "_came_at",
        "_exchange",
        "_first_due",
        "_flowing",
        "_framer",
        "_held_since",
        "_idle_s",
        "_is_decided",
        "_is_due",
        "_is_replaced",
        "_is_stream",
        "_keepalive_s",
        "_lane",
        "_linger_due",
        "_lookout",
        "_may_pass",
        "_owed",
        "_passes",
        "_pinged_at",
        "_reply",
        "_response",
        "_sent_at",
        "_state",
        "_telling",
        "_tells",
        "_total_due",
    )

    def __init__(
        self,
        state: RequestState,
        reply: ChatReply,
        exchange: Exchange,
        response: Streamed,
        lookout: Lookout | None,
    ) -> None:
        settings = state.configuration.settings
        self._state = state
        self._telling = state.telling
        self._reply = reply
        self._exchange = exchange
        self._response = response
        self._is_stream = reply.content_type == "text/event-stream"
        self._idle_s = state.upstream.idle_timeout_s
        self._keepalive_s = settings.keepalive_s
        self._first_due = state.upstream_started + state.upstream.first_byte_timeout_s
        self._total_due = state.upstream_started + state.upstream.total_timeout_s
        self._came_at: float | None = None
        """When the last bytes came."""
        self._sent_at = self._pinged_at = state.deadline.now()
        self._framer = None if isinstance(exchange, WatchedStream) else Framer()
        """What is relayed goes on as it comes, all else in whole events."""
        self._lookout = lookout
        self._is_decided = False
        """It was asked once more, which is all that one request may cost."""
        self._is_replaced = False
        """The client was given another answer than the one that the exchange has."""
        self._held_since: float | None = None
        self._linger_due: float | None = None
        self._flowing: asyncio.Transport | None = None
        """Where the client's bytes may go in the call chain that has read the upstream's."""
        self._may_pass = isinstance(exchange, SameWireStream | SameWireReading | StreamExchange | WatchedStream)
        """Events may go on unread at times."""
        self._tells = None if self._telling.is_identity else self._telling.feed
        """Tells in the client's wire what goes on."""
        self._passes: Callable[[bytes], bytes | None] | None = None
        """What says of events what goes there unread."""
        self._calm = exchange.calm if self._tells is None and isinstance(reply, UpstreamReply) else None
        """How the events look that may go by a lane now."""
        self._lane: Lane | None = None
        """The one that was opened last."""
        self._owed = b""
        """What the exchange has given and the client has not got yet."""
        self._is_due = False
        """What an event of a lane came to has to be done before the next one is looked at."""

    def begin(self) -> None:
        """What the client can be told before anything has come."""
        if opening := self._telling.begin(self._state.input_tokens):
            self._state.put(self._response, opening)

    async def run(self, first: bytes) -> GatewayError | None:
        """Relay to the end of the reply; returns what ended it early, if anything did."""
        return await self._guarded(self._run(first))

    async def _run(self, first: bytes) -> None:
        data = first or await self._next()
        while data:
            await self._relay(self._seen(data if self._framer is None else self._framer.feed(data)))
            data = await self._next()
        if self._framer is not None and (rest := self._framer.finish()):
            await self._relay(self._seen(rest))

    async def _guarded(self, work: Awaitable[None]) -> GatewayError | None:
        try:
            await work
        except GatewayError as error:
            return error
        except ClientGone:
            raise
        except Exception:
            # Part of the answer is out and its status with it: only a last event can still tell of the fault.
            log.exception("stream_failed")
            return InternalError(f"internal error; request id {self._state.id}")
        return None

    def _seen(self, data: bytes) -> bytes:
        """What may go on now of what came."""
        if self._lookout is None:
            return data
        if self._framer is not None:
            return self._lookout.pass_on(data)
        with suppress(Exception):  # beside an answer that is not changed
            self._lookout.pass_on(data)
        return data

    @property
    def is_over(self) -> bool:
        """The answer has ended as most do: nothing of it is held, or is to be had otherwise."""
        return self._exchange.is_over and not self._owed and (self._lookout is None or self._lookout.is_still)

    async def rescue(self, chance: Chance | None) -> GatewayError | None:
        """Put another answer in the place of one that was swallowed, or let the end of this one go."""
        if self._lookout is None or self._framer is None:
            return None
        return await self._guarded(self._rescue(self._lookout, chance))

    async def _rescue(self, lookout: Lookout, chance: Chance | None) -> None:
        await self._relay(lookout.finish())
        out, swallowed = None, lookout.swallowed
        if chance is not None and swallowed is not None and await self._is_in_reasoning(swallowed, lookout):
            chance.note_read(swallowed)
        elif chance is not None and swallowed is not None:
            self._reply.close()
            self._state.flush()  # the answer to that may take long
            ask = partial(second_answer_in_company, self._state, due=self._total_due, tell=self._keep_alive)
            out = await chance.instead_of_stream(lookout, ask)
            self._is_decided = out is not None or chance.is_spent
        if out is None:
            await self._relay(lookout.release())
            return
        self._is_replaced = True
        await self._send(out)

    async def _is_in_reasoning(self, swallowed: Swallowed, lookout: Lookout) -> bool:
        """Whether the reasoning, of which the exchange has all, ends in a call: then it gives that at the end."""
        exchange = self._exchange
        if not swallowed.face.may_have_thought or not isinstance(exchange, StreamExchange):
            return False
        if lookout.last_words is not None:
            exchange.hear_ahead(lookout.last_words)
        exchange.read_reasoning()
        while exchange.busy:
            await self._turn()
            await self._send(self._feed(b""))
        return exchange.read_reasoning()

    async def _relay(self, data: bytes) -> None:
        while data:
            piece = block_of(data, PIECE_BYTES)
            await self._send(self._feed(piece))
            while self._exchange.busy:
                await self._turn()  # a long read is worked off in turns, so that nobody waits for all of it
                await self._send(self._feed(b""))
            data = data[len(piece) :]
            if data:
                await self._turn()

    async def _send(self, out: bytes) -> None:
        if out:
            self._state.deliver(out)
            told = self._telling.feed(out)
            if (self._exchange.finished or self._is_replaced) and not self._telling.is_identity:
                # Kept before it is sent: a client may go on with this answer as soon as it has its end.
                await keep_answer(self._state)
            if told:
                state = self._state
                self._note_sent(state.deadline.now())
                state.put(self._response, told)
                # What has come by now is told in a moment: a write costs as much as a dozen events.
                if not self._reply.is_ready or len(state.owed) > PIECE_BYTES:
                    state.flush()
                    await state.room()

    def _flush_before_wait(self) -> None:
        """Send what is put there, if nothing more is."""
        if self._state.owed and not self._reply.is_ready:
            self._state.flush()

    async def _turn(self) -> None:
        """Let others have their turn; a client that waits gets what there is for it first."""
        self._state.flush()
        await asyncio.sleep(0)

    async def ask_again(self) -> None:
        """Ask again, as long as the exchange wants it, for a call that the answer broke."""
        if isinstance(self._exchange, WatchedStream) or self._is_decided:
            return
        self._exchange.end_choices()
        await self._work_off()
        while (wanted := self._exchange.ask_again) is not None:
            self._reply.close()
            self._state.flush()  # the answer to that may take long
            ask = partial(second_answer_in_company, self._state, due=self._total_due, tell=self._keep_alive)
            await self._send(await ask_again(self._state, self._exchange, wanted, ask))
            await self._work_off()

    async def close(self, error: GatewayError | None, *, is_over: bool) -> None:
        """The last bytes, and the end of the answer."""
        self._state.error = error
        if not self._is_replaced:
            facts, lookout = self._exchange.facts, self._lookout
            if lookout is not None and self._framer is not None and not facts.usage and lookout.usage is not None:
                facts.usage = token_counts(lookout.usage)
            if not is_over:
                await self._close_exchange(error)
        if rest := self._telling.finish():
            await keep_answer(self._state)
            await self._state.write(self._response, rest)
        await self._state.end(self._response)

    async def _close_exchange(self, error: GatewayError | None) -> None:
        if self._lookout is not None and self._framer is not None:
            await self._relay(self._lookout.release())
        await self._send(self._exchange.close(error))
        while self._exchange.busy:
            await self._turn()
            await self._send(self._exchange.step())

    async def _next(self) -> bytes:
        """What the upstream sent, `b""` at its end; sends comments while there is nothing."""
        while not self._exchange.finished:
            if self._lookout is not None and self._lookout.ended and self._framer is not None:
                return b""
            try:
                data = await self._flow()
            except TimeoutError:
                await self._waited()
                data = None
            finally:
                self._take_down()
            if data is None or self._is_due:
                await self._work_off()
            if data is None:
                continue
            now = self._state.deadline.now()
            if now >= self._total_due:
                raise UpstreamTimeout("the model server took too long for its whole answer")
            self._came_at = now
            if self._state.upstream_first is None:
                self._state.upstream_first = now
            return data
        return await self._lingering()

    def take(self, data: bytes, chunk: bytes = b"") -> Taken:
        """What has come while the task sleeps, made into the client's bytes in the same call chain.

        The task is left what needs its turns or a wait: the first bytes, much at once, work that goes on, the end, a
        client that does not take its bytes or has gone.
        """
        if self._lane is not None:
            self._take_down()
            if self._is_due:
                return LEFT
        passes, transport = self._passes, self._flowing
        # Whatever is not the usual case is left to the task, which can wait.
        if len(data) > PIECE_BYTES or transport is None or transport.is_closing():
            return LEFT
        if passes is not None and (out := passes(data)) is not None:
            # That the answer takes too long as a whole is found out by who waits for it.
            state, self._came_at = self._state, (now := monotonic())
            if self._held_since is not None or len(out) != len(data):
                self._note_hold(now)
            if out and self._tells is not None:
                out = self._tells(out)
            if not out:
                return PASSED
            if now - self._sent_at > state.longest_gap_s:
                state.longest_gap_s = now - self._sent_at
            self._sent_at = now
            state.bytes_out += len(out)
            # As the chunk that came, if nothing was made of it; else it is framed here: aiohttp's own `write` has to be
            # awaited, and in this call chain nothing can be.
            transport.write(chunk if chunk and out is data else b"%x\r\n%b\r\n" % (len(out), out))
            if chunk and self._calm is not None and self._held_since is None:
                self._open_lane(self._calm(), transport)
            # What the system has not taken at once is waited for by the task: that is the back-pressure.
            return WAKE if transport.get_write_buffer_size() else PASSED
        return self._take_in(data, transport)

    def _open_lane(self, calm: Calm | None, transport: asyncio.Transport) -> None:
        """Let calm events go by themselves from here on, as the one has that has just gone."""
        if calm is None or not isinstance(self._reply, UpstreamReply):
            return
        lane = self._lane
        if lane is None or lane.calm is not calm:
            # Of an answer that is not changed nothing ever waits.
            may_hold = isinstance(self._exchange, StreamExchange)
            ends = Ends(transport.write, self._reply.leave_lane, self._reply.fail_lane, monotonic)
            lane = self._lane = lane_of(calm, ends, may_hold=may_hold)
        self._reply.open_lane(lane.takes, (MOST + 2) * LONGEST)

    def _take_down(self) -> None:
        """Say what has gone by the lane: first of all, whatever comes next."""
        gone = self._lane.gone() if self._lane is not None else None
        if gone is None or not isinstance(self._reply, UpstreamReply):
            return
        state, times, found, facts = self._state, gone.times, self._state.found, self._exchange.facts
        if times:
            state.longest_gap_s = max(state.longest_gap_s, times[0] - self._sent_at, *map(sub, times[1:], times))
            self._came_at = self._sent_at = times[-1]
            state.bytes_out += gone.size
            self._exchange.overlook(gone.texts, gone.last)
        self._reply.note_gone(gone.size + len(gone.waiting))
        if gone.held_bytes:
            facts.held_bytes_max = max(facts.held_bytes_max, gone.held_bytes)
            found.longest_hold_s = max(found.longest_hold_s, gone.held_s)
        if gone.waiting:
            # It waits on where all others do.
            self._came_at = self._held_since = gone.since
            self._owed += self._feed(gone.waiting)
            self._is_due = bool(self._owed) or self._exchange.busy

    def _take_in(self, data: bytes, transport: asyncio.Transport) -> Taken:
        """The same of what has to be read."""
        state, exchange = self._state, self._exchange
        self._came_at = now = monotonic()
        if now >= self._total_due:
            return LEFT
        if self._framer is not None:
            data = self._framer.feed(data)
        if self._lookout is not None:
            data = self._seen(data)
        out = self._feed(data) if data else b""
        if exchange.finished or exchange.busy or self._has_ended:
            self._owed = out
            return WAKE
        if out:
            state.deliver(out)
            out = self._telling.feed(out)
        if out:
            self._note_sent(now)
            state.bytes_out += len(out)
            transport.write(b"%x\r\n%b\r\n" % (len(out), out))
            if transport.get_write_buffer_size():
                return WAKE
        if self._may_pass:
            self._passes = self._passing()
        return PASSED

    def _passing(self) -> Callable[[bytes], bytes | None] | None:
        """What says of events what goes out unread, while nothing but the exchange has a say in it."""
        state, lookout, exchange = self._state, self._lookout, self._exchange
        if isinstance(exchange, SameWireStream):  # it says itself between which events it stands
            return exchange.listens()
        if isinstance(exchange, WatchedStream):  # so does this one
            is_free = state.delivered is None and not (lookout and not lookout.is_still)
            return exchange.passes if is_free and self._telling.is_identity else None
        if self._framer is None or not self._framer.is_between:
            return None
        if isinstance(exchange, SameWireReading):
            return exchange.listens()
        if not isinstance(exchange, StreamExchange):
            return None
        if state.delivered is not None or (lookout and not lookout.is_still):
            return None
        return exchange.passes

    def _flow(self) -> Awaitable[bytes | None]:
        """What comes next, or `None` when what came has been taken and there is something to do."""
        state = self._state
        self._flush_before_wait()
        is_open = state.is_chunked and state.first_sent is not None and state.upstream_first is not None
        self._flowing = state.http.transport if is_open else None
        self._passes = self._passing() if self._may_pass else None
        return self._reply.flow(min(self._data_due, self._total_due, self._quiet_since + self._keepalive_s), self)

    @property
    def _data_due(self) -> float:
        return self._first_due if self._came_at is None else self._came_at + self._idle_s

    @property
    def _quiet_since(self) -> float:
        return max(self._sent_at, self._pinged_at)

    @property
    def _has_ended(self) -> bool:
        """What ends the stream is held, as it may have to be another one."""
        return self._lookout is not None and self._lookout.ended and self._framer is not None

    async def _work_off(self) -> None:
        """Do what was left to do when bytes were taken."""
        owed, self._owed, self._is_due = self._owed, b"", False
        await self._send(owed)
        while self._exchange.busy:
            await self._turn()
            await self._send(self._feed(b""))
        if self._state.is_chunked:
            await self._state.room()

    async def _lingering(self) -> bytes:
        if self._reply.is_over and self._exchange.is_over:
            return b""
        if self._exchange.ask_again is not None:
            return b""
        self._state.is_told = True
        if self._linger_due is None:
            # Read to its end, so that the connection can be used once more.
            self._linger_due = self._state.deadline.now() + LINGER_S
        if self._state.deadline.now() >= self._linger_due:
            return b""
        self._flush_before_wait()
        # The client has all of its answer: what fails now costs the connection alone.
        try:
            return await self._reply.read(self._linger_due)
        except (TimeoutError, GatewayError):
            return b""

    async def _waited(self) -> None:
        self._take_down()
        now = self._state.deadline.now()
        if now >= self._total_due:
            raise UpstreamTimeout("the model server took too long for its whole answer")
        if now >= self._data_due:
            raise UpstreamTimeout("the model server has been silent for too long")
        if now < self._quiet_since + self._keepalive_s:
            return  # something has gone out since this wait began
        self._pinged_at = now
        await self._keep_alive()

    async def _keep_alive(self) -> None:
        # An exchange that reads gives whole events only, and so does a telling that makes its own; what is relayed as
        # it came may stand within one.
        exchange, is_relayed = self._exchange, self._telling.is_identity
        if is_relayed and isinstance(exchange, WatchedStream) and not (self._is_stream and exchange.at_boundary):
            return
        if words := self._telling.keep_alive():
            await self._state.write(self._response, words)

    def _feed(self, data: bytes) -> bytes:
        """The exchange's answer to what came, timed."""
        found = self._state.found
        started = time.perf_counter()
        out = self._exchange.step(data)
        ended = time.perf_counter()
        found.read_s += ended - started
        if self._held_since is not None:
            found.longest_hold_s = max(found.longest_hold_s, ended - self._held_since)
        if not self._exchange.held:
            self._held_since = None
        elif self._held_since is None or out:
            self._held_since = started
        return out

    def _note_hold(self, now: float) -> None:
        """An event waits, or one that has waited has gone."""
        found = self._state.found
        if self._held_since is not None:
            found.longest_hold_s = max(found.longest_hold_s, now - self._held_since)
        self._held_since = now if self._exchange.held else None

    def _note_sent(self, now: float) -> None:
        state = self._state
        if state.first_sent is None:
            state.first_sent = self._sent_at = now
        if now - self._sent_at > state.longest_gap_s:
            state.longest_gap_s = now - self._sent_at
        self._sent_at = now


async def _give_up(exchange: Exchange) -> None:
    """The client has left: what the answer held is told to nobody, but counted."""
    exchange.close(InternalError("the client has left"))
    while exchange.busy:
        await asyncio.sleep(0)
        exchange.step()
