"""One request under way: its identity, its waits, and what is kept of it for the log and the metrics."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, TypedDict

import structlog
from aiohttp import StreamReader, web
from attrs import evolve
from msgspec import Struct, field
from structlog.contextvars import STRUCTLOG_KEY_PREFIX

from gateway.core.errors import BodyTooLarge, GatewayError, InvalidRequest, RateLimited, UnknownEncoding
from gateway.core.limits import Limits
from gateway.core.ports import RequestSpan
from gateway.core.rules import Quota, told
from gateway.request import head
from gateway.request.deadline import Deadline
from gateway.request.findings import Findings
from gateway.request.head import HttpRequest
from gateway.request.headers import add_told, bearer_token, new_id, request_id, trace_id
from gateway.request.responses import Streamed, Whole, Written
from gateway.request.servers import Upstream
from gateway.request.shared import Configuration, Shared
from gateway.surfaces.chat import CHAT, telling
from gateway.surfaces.port import Surface, Telling
from gateway.traffic.door import Verdict
from gateway.traffic.lesson_rules import PROBED, Lesson
from strategies.factory import Capability

__all__ = ["ID_TOLD", "SERVER_NAME", "TRACE_TOLD", "UNTOLD", "ClientGone", "RequestState"]

SERVER_NAME = "toolgate"
log = structlog.get_logger("toolgate")

READ_CODINGS = frozenset({"identity", "gzip", "deflate", ""})
_WHO_CHARS = 12
MAX_CHOICES = 1024
"""Of one answer, whatever was asked for."""
_UNKNOWN = Capability()
_TELLING = telling()
BODY_WINDOW_S = 15.0
BODY_WINDOW_BYTES = 16 << 10
"""A body must bring this much for each window of waiting, or be complete."""


class ClientGone(Exception):
    """The client has left, or has not read its answer for too long: nothing more can be said to it."""


def too_large(cap: int) -> BodyTooLarge:
    """What is said of a body beyond its bound."""
    return BodyTooLarge(f"the body is larger than {cap} bytes")


class Deadlines(TypedDict):
    """How long a whole answer may take, as the reading of it asks."""

    first_due: float
    idle_s: float
    total_due: float


ID_TOLD: ContextVar[object] = ContextVar(f"{STRUCTLOG_KEY_PREFIX}request_id")
TRACE_TOLD: ContextVar[object] = ContextVar(f"{STRUCTLOG_KEY_PREFIX}trace_id")
UNTOLD = ...
"""What structlog takes for a word that is not bound: one task may answer many requests."""


class RequestState(Struct, kw_only=True, eq=False):
    """A client's request from its head to the end of its answer."""

    http: HttpRequest
    shared: Shared
    configuration: Configuration
    deadline: Deadline
    id: str
    route: str
    started: float
    entry: Verdict
    """Whether it is let in, and what its answer says to a browser."""
    upstream: Upstream
    """The model server that is asked."""
    bearer: str | None
    """The token that the client has sent."""
    credential: str | None
    """What the client shows who it is with: its bearer token, else its `X-Api-Key`."""
    trace: str | None = None
    ended: float = 0.0
    """When it ended, on the same clock."""
    model: str | None = None
    stream: bool = False
    surface: Surface = CHAT
    """The wire that the client speaks."""
    telling: Telling = _TELLING
    """How it is told its answer."""
    input_tokens: int | None = None
    """What the request takes, by an estimate, where its client is told so before the answer comes."""
    told: dict[str, str] = field(default_factory=dict)
    """Headers that its answer has in any case."""
    delivered: list[bytes] | None = None
    """The chat answer that the client was told, where the model server's kind has to know."""
    retries: int = 0
    upstream_status: int | None = None
    upstream_started: float = 0.0
    upstream_first: float | None = None
    first_sent: float | None = None
    longest_gap_s: float = 0.0
    status: int = 0
    is_chunked: bool = False
    """The answer goes out in chunks."""
    owed: bytes = b""
    """What of the answer goes out with the next piece, or before anything is waited for."""
    bytes_in: int = 0
    bytes_out: int = 0
    error: GatewayError | None = None
    client_gone: bool = False
    is_told: bool = False
    """The client has all of its answer: that it leaves now is no abort."""
    key_name: str = ""
    """The name of the key that let the client in."""
    key: str | None = None
    """The same, where that has limits."""
    quota: Quota | None = None
    key_headers: Mapping[str, str] = field(default_factory=dict)
    """What the answer says of how the key stands."""
    learned: Lesson | None = None
    """What was known of its model when it was last looked up."""
    told_at_s: float = 0.0
    """How old it was when the log was last told that it is still going on."""
    span: RequestSpan | None = None
    """Where spans are kept."""
    found: Findings = field(default_factory=Findings)
    """What is found out about it by those who answer it."""

    @classmethod
    def begin(
        cls, http: HttpRequest, shared: Shared, route: str, entry: Verdict, surface: Surface = CHAT
    ) -> "RequestState":
        """A new request: it has an id from here on, and an interruption reaches it."""
        headers, configuration = http.headers, shared.configuration
        bearer = bearer_token(headers) if "Authorization" in headers else None
        id = request_id(headers) if "X-Request-Id" in headers else new_id()
        deadline = http.deadline or Deadline()
        state = cls(
            http=http,
            shared=shared,
            configuration=configuration,
            upstream=configuration.default,
            deadline=deadline,
            id=id,
            trace=trace_id(headers) if "traceparent" in headers else None,
            route=route,
            started=time.monotonic(),
            entry=entry,
            bearer=bearer,
            credential=bearer or headers.get("X-Api-Key"),
            surface=surface,
        )
        if not surface.is_identity:
            state.told.update(surface.head(id))
        if shared.tracing is not None:
            asked = {"http.request.method": http.method, "http.route": route, "toolgate.request_id": id}
            state.span = shared.tracing.begin(headers, f"{http.method} {route}", asked)
            if state.span is not None:
                state.trace = state.span.trace
        shared.under_way.waits[deadline] = state
        (shared.in_flights.get(route) or shared.in_flight(route))[0] += 1
        ID_TOLD.set(id)
        if state.trace is not None:
            TRACE_TOLD.set(state.trace)
        return state

    def __repr__(self) -> str:
        return f"<{self.route} {self.id}>"  # what clients show who they are with stands in here

    @property
    def limits(self) -> Limits:
        """The bounds that its answer meets."""
        limits, request = self.configuration.limits, self.found.enrolled.request
        if request is None or (limits.max_choices == 1 and request.body.get("n") in (None, 1)):
            return limits
        return evolve(limits, max_choices=min(request.choices, MAX_CHOICES))

    def lesson(self, model: str) -> Lesson | None:
        """What was learned of the model, where that may be used."""
        may_use = self.configuration.settings.native_fallback
        now = self.deadline.now()
        return self.shared.lessons.recall(self.upstream.name, model, now) if may_use else None

    def capability(self, model: str) -> Capability:
        """What is known of the model."""
        lesson = self.learned = self.lesson(model)
        if lesson is None:
            return _UNKNOWN
        if lesson.reason == PROBED:
            return Capability(native_tools=lesson.is_native, strategy=lesson.strategy, dialect=lesson.dialect)
        return Capability(native_tools=lesson.is_native)

    @property
    def who(self) -> str:
        """Whose request it is, in a short word; empty where nobody looks at what clients show."""
        if not (self.key_name or self.credential):
            return ""
        return self.shown if self.key_name or self.upstream.forwards_credentials else ""

    @property
    def shown(self) -> str:
        """The same word of what the client shows, whoever looks at it; empty if it shows nothing."""
        shown = self.key_name or self.credential
        if not shown:
            return ""
        key = self.shared.secret[: blake2b.MAX_KEY_SIZE]
        # aiohttp decodes bytes that are no UTF-8 to lone surrogates.
        return blake2b(shown.encode("utf-8", "surrogatepass"), key=key, person=b"who").hexdigest()[:_WHO_CHARS]

    def make_call_id(self, dialect: str) -> str:
        """The id of the next call that this request's answer is given."""
        enrolled = self.found.enrolled
        epoch = enrolled.assignment.epoch if enrolled.assignment is not None else 0
        return self.shared.call_ids.make(
            arm=enrolled.arm or "off", strategy=self.found.way.strategy or "none", dialect=dialect, epoch=epoch
        )

    async def count_key(self, key: str, quota: Quota) -> None:
        """Count the request for its key, whose limits it meets; raises `RateLimited`."""
        self.key, self.quota = key, quota
        try:
            self.key_headers = told(await self.shared.quotas.enter(key, quota))
        except RateLimited as error:
            self.key_headers = error.headers
            raise

    async def count_stream(self) -> None:
        """A stream begins: it takes one of its key's places, until the request has ended."""
        if self.quota is not None and self.key is not None:
            await self.shared.quotas.lease(self.key, self.quota, self.id)

    async def read_body(self) -> bytes:
        """The request's whole body."""
        content, headers = self.http.content, self.http.headers
        # A compressed body has another size than it says, and one that is expected is not there yet.
        is_plain = "Content-Encoding" not in headers and "Expect" not in headers and type(content) is StreamReader
        if not (is_plain and head.BODIES_ARE_KNOWN and content._eof and content._exception is None):
            return b"".join([piece async for piece in self.body()])
        # All of it is here: no need to watch the time, nor for the reader's own ways to say so, which cost ten calls.
        # Nor is the connection to be set going: while it is paused its parser is, and no body is at its end.
        data = b"".join(content._buffer)
        content._buffer.clear()
        self.http.is_read = True
        self.bytes_in += len(data)
        if self.bytes_in > (cap := self.configuration.settings.max_body_bytes):
            raise too_large(cap)
        return data

    async def body(self) -> AsyncIterator[bytes]:
        """The request's body as it comes; raises `BodyTooLarge` before more than the cap is held."""
        cap = await self._permit_body()
        waited_s, window_bytes = 0.0, 0
        content = self.http.content
        due = self.started + self.configuration.settings.body_timeout_s
        while True:
            asked = self.deadline.now()
            try:
                if content.is_eof():  # all that is left is here: no need to watch the time
                    data = content.read_nowait(-1)
                else:
                    async with asyncio.timeout(min(BODY_WINDOW_S - waited_s, due - asked)):
                        data = await content.readany()
            except TimeoutError:
                raise InvalidRequest("the body did not arrive in time") from None
            except web.RequestPayloadError as error:
                raise InvalidRequest("the body cannot be read") from error
            if not data:
                return
            self._counted(data, cap)
            waited_s += self.deadline.now() - asked
            window_bytes += len(data)
            if window_bytes >= BODY_WINDOW_BYTES:
                waited_s, window_bytes = 0.0, 0
            yield data

    def _counted(self, data: bytes, cap: int) -> bytes:
        self.bytes_in += len(data)
        if self.bytes_in > cap:
            raise too_large(cap)
        return data

    async def _permit_body(self) -> int:
        """How many bytes the body may have; a client that waits for it (`Expect: 100-continue`) is told to send it."""
        cap = self.configuration.settings.max_body_bytes
        length = self.http.content_length
        # Refused before a byte of it is read, which a client that asks with `Expect` need not even send.
        if length is not None and length > cap:
            raise too_large(cap)
        coding = self.http.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in READ_CODINGS:
            raise UnknownEncoding(f"the body's Content-Encoding {coding[:32]!r} is not read here: gzip is")
        if self.http.headers.get("Expect", "").lower() == "100-continue":
            writer = self.http.writer
            await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            writer.output_size = 0  # aiohttp takes anything written for the beginning of the answer
        return cap

    def start(self, response: Streamed) -> None:
        """Begin an answer that comes in pieces: its head goes out with the first of them, or with `flush`."""
        self._dress(response)
        self.owed, self.is_chunked = response.begin(self.http), response.is_chunked

    def _dress(self, response: Written) -> None:
        """Add what every answer says of itself."""
        # A client that keeps the connection would send its next request to a process that is going.
        if self.shared.draining:
            response.force_close()
        headers, found = response.headers, self.found
        headers["Server"] = SERVER_NAME
        headers["X-Request-Id"] = self.id
        strategy, arm = found.way.strategy, found.enrolled.arm
        if strategy is not None:
            headers["X-Toolgate-Strategy"] = strategy
        if arm is not None:
            headers["X-Toolgate-Arm"] = arm
        if self.told:
            headers.update(self.told)
        if self.entry.headers:
            add_told(headers, self.entry.headers)
        if self.key_headers:
            headers.update(self.key_headers)
        self.status = response.status

    async def write(self, response: Streamed, data: bytes) -> None:
        """Send a piece of the answer; returns when there is room for the next one."""
        self.put(response, data)
        self.flush()
        await self.room()

    def put(self, response: Streamed, data: bytes) -> None:
        """A piece of the answer, which goes out with `flush`, as it has to before anything is waited for."""
        self.bytes_out += len(data)
        self.owed += response.framed(data)

    def flush(self) -> None:
        """Send what was put there."""
        owed, self.owed = self.owed, b""
        if not owed:
            return
        transport = self.http.protocol.transport
        if transport is None or transport.is_closing():
            raise ClientGone("has closed")
        self.http.is_begun = True
        transport.write(owed)

    async def room(self) -> None:
        """Return when there is room for the next piece of the answer."""
        transport = self.http.protocol.transport
        if transport is not None and transport.get_write_buffer_size():
            await self._to_client(self.http.writer.drain())

    def deliver(self, chat: bytes) -> None:
        """Take down what the client is told, where somebody has to know: as chat, whatever its own wire."""
        if self.delivered is not None:
            self.delivered.append(chat)

    async def end(self, response: Streamed) -> None:
        """Send the end of the answer."""
        self.owed += response.end()
        self.flush()
        await self.room()
        self.is_told = True

    async def send(self, answer: Whole) -> Whole:
        """Send a whole answer."""
        self._dress(answer)
        try:
            answer.write_to(self.http)
        except ConnectionError as error:
            raise ClientGone("has closed") from error
        self.bytes_out += len(answer.body)
        transport = self.http.protocol.transport
        if transport is not None and transport.get_write_buffer_size():
            await self.room()
        self.is_told = True
        return answer

    def cut(self) -> None:
        """Close the client's connection at once, whatever is still in its buffers."""
        transport, owed = self.http.protocol.transport, self.owed
        if transport is not None:
            if owed and not transport.is_closing():
                transport.write(owed)
            # `close` would wait until a client that reads nothing has taken all that is buffered.
            transport.abort()

    def close(self) -> None:
        """The request has ended, however it did: it is written down, exactly once."""
        # A deadline of the connection serves its next request, too.
        if self.http.deadline is None:
            self.deadline.close()
        shared = self.shared
        if self.key is not None:
            shared.quotas.release(self.id)
        under_way = shared.under_way
        under_way.waits.pop(self.deadline, None)
        if under_way.is_empty is not None and not under_way.waits:
            under_way.is_empty.set()
        shared.in_flights[self.route][0] -= 1

    def lasts(self, age_s: float) -> None:
        """Say that it is still going on, and what it waits for."""
        self.told_at_s = age_s
        waits_for = "model_server" if self.upstream_started and self.upstream_status is None else "first_bytes"
        log.info(
            "request_lasts",
            request_id=self.id,
            route=self.route,
            model=self.model,
            upstream=self.upstream.name,
            age_s=round(age_s, 1),
            waits_for="" if self.bytes_out else waits_for,
            bytes_out=self.bytes_out,
        )

    @property
    def deadlines(self) -> Deadlines:
        """Those of the answer that the upstream was asked for last."""
        return Deadlines(
            first_due=self.upstream_started + self.upstream.first_byte_timeout_s,
            idle_s=self.upstream.idle_timeout_s,
            total_due=self.upstream_started + self.upstream.total_timeout_s,
        )

    @property
    def upstream_code(self) -> str:
        """The class of the upstream's status, as metrics name it."""
        return "none" if self.upstream_status is None else f"{self.upstream_status // 100}xx"

    async def _to_client(self, sending: Any) -> None:
        due = self.deadline.now() + self.configuration.settings.client_write_timeout_s
        try:
            await self.deadline.within(due, sending)
        except TimeoutError:
            raise ClientGone("does not read") from None
        except ConnectionError as error:
            raise ClientGone("has closed") from error
