"""What a request came to, put together once when it has ended: the log, the metrics and the record are views of it."""

from attrs import define, field

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
_NO_ANSWER = Facts()
"""Of all requests whose answer is not read; nothing is ever added to it."""


@define(kw_only=True)  # frozen, its fifty fields would take twice the time; nobody changes it all the same
class Summary:
    """What one request came to; seconds count from its beginning, unless they say otherwise."""

    id: str
    trace: str | None
    route: str
    surface: str
    """The wire that the client speaks."""
    method: str
    model: str | None
    stream: bool
    credential: str | None = field(repr=False)
    """What the client has shown who it is with."""
    who: str
    """The same in a short word, where somebody checks it."""
    configuration: Configuration
    """What was in force."""
    request: ChatRequest | None
    """What was asked for; of the main job alone."""
    assignment: Assignment | None
    arm: Arm | None
    key: str
    """The conversation."""
    follows: Follows
    strategy: str | None
    selected: str | None
    """Why the strategy was chosen."""
    notes: list[str]
    is_rewritten: bool
    """The model server was sent another request than came."""
    prompted_tools: int
    """How many tools stood in its prompt."""
    asked_again: str
    """What asking the model again for a broken call came to."""
    upstream: str
    upstream_status: int | None
    upstream_code: str
    """The class of that status, as metrics name it."""
    retries: int
    status: int
    end: str
    """In one word how the answer ended."""
    is_healthy: bool
    error: str | None
    """The code of the error that the client was told, or would have been."""
    cause: str | None
    """Why the model server could not answer, as far as its connection tells."""
    failure: str | None
    """The code of the error that ended the answer for a client that was still there."""
    verdict: DryVerdict | None
    noise: bool | None
    bytes_in: int
    bytes_out: int
    duration_s: float
    upstream_s: float | None
    """Since the model server was asked, the last time; `None` where it was not."""
    upstream_first_s: float | None
    first_sent_s: float | None
    longest_gap_s: float
    longest_hold_s: float
    prepare_s: float
    read_s: float
    overhead_s: float
    """What preparing and reading took together."""
    has_answer: bool
    """There was one to look at, if only its beginning."""
    facts: Facts
    """What was found in the answer."""
    answer_id: str | None
    """The id by which the client knows it."""
    attempted: tuple[Verdict, ...]
    """The candidates that stayed text though they named a tool."""
    dialect: str
    """Of the first call, else of the first attempt."""
    is_reader_broken: bool
    """Reading the answer came upon a fault of the gateway's own."""

    @classmethod
    def of(cls, state: RequestState, found: Findings) -> "Summary":
        """What the request came to, which ends now, and what was found out by those who answered it."""
        ended, began = state.deadline.now(), state.started
        facts = _NO_ANSWER if found.facts is None else found.facts
        end = _end(state, facts)
        enrolled, way = found.enrolled, found.way
        return cls(
            id=state.id,
            trace=state.trace,
            route=state.route,
            surface=state.surface.name,
            method=state.http.method,
            model=state.model,
            stream=state.stream,
            credential=state.credential,
            who=state.who,
            configuration=state.configuration,
            request=enrolled.request,
            assignment=enrolled.assignment,
            arm=enrolled.arm,
            key=enrolled.key,
            follows=found.follows or "nothing",
            strategy=way.strategy,
            selected=way.selected,
            notes=found.notes,
            is_rewritten=way.is_rewritten,
            prompted_tools=way.prompted_tools,
            asked_again=found.asked_again,
            upstream=state.upstream.name,
            upstream_status=state.upstream_status,
            upstream_code=state.upstream_code,
            retries=state.retries,
            status=state.status or ABANDONED_STATUS,
            end=end,
            is_healthy=end not in UNHEALTHY_ENDS,
            error=state.error.code if state.error is not None else None,
            cause=state.error.cause if isinstance(state.error, UpstreamError | BreakerOpen) else None,
            failure=None if state.client_gone else facts.failure,
            verdict=found.verdict,
            noise=found.noise,
            bytes_in=state.bytes_in,
            bytes_out=state.bytes_out,
            duration_s=ended - began,
            upstream_s=ended - state.upstream_started if state.upstream_started else None,
            upstream_first_s=None if state.upstream_first is None else state.upstream_first - began,
            first_sent_s=None if state.first_sent is None else state.first_sent - began,
            longest_gap_s=state.longest_gap_s,
            longest_hold_s=found.longest_hold_s,
            prepare_s=found.prepare_s,
            read_s=found.read_s,
            overhead_s=found.prepare_s + found.read_s,
            has_answer=found.facts is not None,
            facts=facts,
            answer_id=found.answer_id or facts.completion_id,
            attempted=tuple(broken_calls(facts)) if facts.refused else (),
            dialect=dialect_of(facts) if facts.calls or facts.refused else "none",
            is_reader_broken=bool(facts.refused)
            and any(verdict.refusal is Reason.INTERNAL for verdict in facts.refused),
        )


def _end(state: RequestState, facts: Facts) -> str:
    if state.client_gone:
        return "client_abort"
    match state.error:
        case None if facts.failure is not None:
            return "upstream_error"
        case None | ClientError():
            return "completed"
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
