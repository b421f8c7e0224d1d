"""What a request came to, put together once when it has ended: the log, the metrics and the record are views of it."""

from collections.abc import Sequence

from msgspec import Struct

from gateway.answer.candidates import broken_calls, dialect_of
from gateway.answer.facts import Facts
from gateway.core.errors import (
    BreakerOpen,
    ClientError,
    Draining,
    UpstreamError,
    UpstreamRejected,
    UpstreamTimeout,
)
from gateway.core.events import Verdict
from gateway.core.reasons import Reason
from gateway.core.records import Arm, DryVerdict, Follows
from gateway.request.findings import Findings
from gateway.request.shared import Configuration
from gateway.request.state import RequestState
from gateway.rollout.assignment import Assignment
from gateway.wire.chat_request import ChatRequest

__all__ = ["ABANDONED_STATUS", "MAX_ID_CHARS", "Summary"]

UNHEALTHY_ENDS = frozenset({"upstream_error", "upstream_timeout", "gateway_error"})
ABANDONED_STATUS = 499
"""nginx's word for a client that left before it had a status."""
MAX_ID_CHARS = 128
"""Of an answer's id, which the model server chose."""
_LONGEST_NAME = 128
"""Of a model, which its client may call anything at any length."""
_NO_ANSWER = Facts()
"""Of all requests whose answer is not read; nothing is ever added to it."""


class Summary(Struct, kw_only=True, eq=False):
    """What one request came to; seconds count from its beginning, unless they say otherwise."""

    id: str
    route: str
    surface: str
    """The wire that the client speaks."""
    method: str
    model: str | None
    stream: bool
    configuration: Configuration
    """What was in force."""
    upstream: str
    status: int
    end: str
    """In one word how the answer ended."""
    duration_s: float
    facts: Facts
    """What was found in the answer."""
    kind: tuple[str | int | None, ...]
    """What many requests have in common: all that the labels of their measures and the first half of the line say."""
    trace: str | None = None
    credential: str | None = None
    """What the client has shown who it is with."""
    who: str = ""
    """The same in a short word, where somebody checks it."""
    request: ChatRequest | None = None
    """What was asked for; of the main job alone."""
    assignment: Assignment | None = None
    arm: Arm | None = None
    key: str = ""
    """The conversation."""
    follows: Follows = "nothing"
    strategy: str | None = None
    selected: str | None = None
    """Why the strategy was chosen."""
    notes: Sequence[str] = ()
    is_rewritten: bool = False
    """The model server was sent another request than came."""
    prompted_tools: int = 0
    """How many tools stood in its prompt."""
    asked_again: str = ""
    """What asking the model again for a broken call came to."""
    upstream_status: int | None = None
    upstream_code: str = "none"
    """The class of that status, as metrics name it."""
    retries: int = 0
    is_healthy: bool = True
    error: str | None = None
    """The code of the error that the client was told, or would have been."""
    cause: str | None = None
    """Why the model server could not answer, as far as its connection tells."""
    failure: str | None = None
    """The code of the error that ended the answer for a client that was still there."""
    verdict: DryVerdict | None = None
    noise: bool | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    upstream_s: float | None = None
    """Since the model server was asked, the last time; `None` where it was not."""
    upstream_first_s: float | None = None
    first_sent_s: float | None = None
    longest_gap_s: float = 0.0
    longest_hold_s: float = 0.0
    prepare_s: float = 0.0
    read_s: float = 0.0
    overhead_s: float = 0.0
    """What preparing and reading took together."""
    has_answer: bool = False
    """There was one to look at, if only its beginning."""
    answer_id: str | None = None
    """The id by which the client knows it."""
    attempted: tuple[Verdict, ...] = ()
    """The candidates that stayed text though they named a tool."""
    dialect: str = "none"
    """Of the first call, else of the first attempt."""
    outcome: str = ""
    """What reading the answer came to; empty if nobody did."""
    is_plain: bool = True
    """The answer was nothing but text, in time, and went out as it came."""
    is_reader_broken: bool = False
    """Reading the answer came upon a fault of the gateway's own."""

    def __repr__(self) -> str:
        return f"<{self.route} {self.id} {self.end}>"  # what its client showed who it is with stands in here

    @classmethod
    def of(cls, state: RequestState, found: Findings) -> "Summary":
        """What the request came to, which ends now, and what was found out by those who answered it."""
        # All times of a request end at the same moment.
        ended, began = state.ended, state.started
        facts = _NO_ANSWER if found.facts is None else found.facts
        # Most requests end so, and then nothing has to be told apart.
        is_fine = state.error is None and facts.failure is None and not state.client_gone
        end = "completed" if is_fine else _end(state, facts)
        enrolled, way, http = found.enrolled, found.way, state.http
        error, upstream_status, model = state.error, state.upstream_status, state.model
        code = None if error is None else error.code
        cause = None if error is None else getattr(error, "cause", None)
        # No status was sent: the client was gone before there was one.
        status = state.status or ABANDONED_STATUS
        seen = _Seen.of(facts, found.verdict)
        told = cls(
            id=state.id,
            route=state.route,
            surface=state.surface.name,
            method=http.method,
            model=model,
            stream=state.stream,
            configuration=state.configuration,
            upstream=state.upstream.name,
            status=status,
            end=end,
            duration_s=ended - began,
            facts=facts,
            kind=(
                *(state.route, http.method, model and model[:_LONGEST_NAME], state.stream, way.strategy),
                *(enrolled.arm, way.selected, status, end, code, state.upstream.name, cause, upstream_status),
                *(state.retries, seen.dialect, seen.outcome),
            ),
        )
        # One by one: a call with more than fifteen names makes a dictionary of them first, which takes four times as
        # long.
        told.trace = state.trace
        told.credential = state.credential
        # Nobody is named where nobody has shown anything: all such clients would look like one.
        told.who = state.who if state.key_name or state.credential else ""
        told.request = enrolled.request
        told.assignment = enrolled.assignment
        told.arm = enrolled.arm
        told.key = enrolled.key
        told.follows = found.follows or "nothing"
        told.strategy = way.strategy
        told.selected = way.selected
        told.notes = found.notes
        told.is_rewritten = way.is_rewritten
        told.prompted_tools = way.prompted_tools
        told.asked_again = found.asked_again
        told.upstream_status = upstream_status
        if upstream_status is not None:
            told.upstream_code = f"{upstream_status // 100}xx"
        told.retries = state.retries
        if not is_fine:
            told.is_healthy = end not in UNHEALTHY_ENDS
            told.error, told.cause = code, cause
            # An answer breaks off for a client that leaves; that is its own doing and no failure of a server.
            told.failure = None if state.client_gone else facts.failure
        told.verdict = found.verdict
        told.noise = found.noise
        told.bytes_in = state.bytes_in
        told.bytes_out = state.bytes_out
        if state.upstream_started:
            told.upstream_s = ended - state.upstream_started
        if state.upstream_first is not None:
            told.upstream_first_s = state.upstream_first - began
        if state.first_sent is not None:
            told.first_sent_s = state.first_sent - began
        told.longest_gap_s = state.longest_gap_s
        told.longest_hold_s = found.longest_hold_s
        told.prepare_s = found.prepare_s
        told.read_s = found.read_s
        told.overhead_s = found.prepare_s + found.read_s
        told.has_answer = found.facts is not None
        told.answer_id = found.answer_id or facts.completion_id
        told.outcome = seen.outcome
        if not seen.is_plain:
            told.is_plain = False
            told.attempted, told.dialect, told.is_reader_broken = seen.attempted, seen.dialect, seen.is_broken
        return told


class _Seen(Struct, frozen=True, kw_only=True):
    """What there is to say of an answer."""

    is_plain: bool = True
    outcome: str = ""
    dialect: str = "none"
    attempted: tuple[Verdict, ...] = ()
    is_broken: bool = False

    @classmethod
    def of(cls, facts: Facts, verdict: DryVerdict | None) -> "_Seen":
        structured = facts.structured
        # One test for all that is rare: an answer of nothing but text is made out by it, and told by two constants.
        if not (
            (facts.calls or facts.refused or facts.intents or facts.broken or facts.undelivered)
            or (facts.native_calls or facts.unusable_calls or structured.classes or structured.copies)
            or (facts.has_second_answer or facts.mended or facts.dropped or facts.translated or facts.untranslated)
            or (verdict is not None or facts.late_events)
        ):
            return _READ if facts.read else _UNREAD
        attempted = tuple(broken_calls(facts)) if facts.refused else ()
        outcome = ""
        if facts.read:
            # A success wins: an answer with one call and one broken one did its work.
            is_bad = facts.broken or attempted
            outcome = "success" if facts.calls or facts.has_second_answer else "error" if is_bad else "noop"
        return cls(
            is_plain=False,
            outcome=outcome,
            dialect=dialect_of(facts) if facts.calls or facts.refused else "none",
            attempted=attempted,
            is_broken=any(each.refusal is Reason.INTERNAL for each in facts.refused),
        )


_UNREAD = _Seen()
_READ = _Seen(outcome="noop")


def _end(state: RequestState, facts: Facts) -> str:
    if state.client_gone:
        return "client_abort"
    match state.error:
        case None if facts.failure is not None:
            return "upstream_error"
        # Before the server's faults: what the client did wrong is answered in full, and so is completed.
        case None | ClientError():
            return "completed"
        # The server's own word on the request, which the client was told as it is.
        case UpstreamRejected() if state.status < 500:
            return "completed"
        case Draining():
            return "drained"
        case UpstreamTimeout():
            return "upstream_timeout"
        case UpstreamError() | BreakerOpen():
            return "upstream_error"
        case _:
            return "gateway_error"
