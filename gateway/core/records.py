"""What is kept of the gateway's work, in the store and for its reports: plain values, encoded as JSON.

Times are seconds since the epoch. Bodies and samples are there only as far as `AUDIT_BODIES` allows, credentials
masked before they enter a record.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
from attrs import field, frozen

__all__ = [
    "RECORDS",
    "Arm",
    "Brief",
    "BriefCall",
    "CallRecord",
    "Decision",
    "DecisionRecord",
    "DryVerdict",
    "FeedbackRecord",
    "Follows",
    "LabelRecord",
    "OtherReading",
    "Outcome",
    "OutcomeRecord",
    "Rating",
    "Record",
    "RequestRecord",
    "Stage",
]

Arm = Literal["live", "control", "dry_run", "off"]
Rating = Literal["good", "bad"]
DryVerdict = Literal["identical", "would_change", "would_fail", "dropped", "ignored"]
"""What reading an untouched answer came to; `dropped` for one whose time budget ran out."""
Stage = Literal["seen", "recognised", "parsed", "schema_valid", "known_tool", "above_threshold", "sent"]
"""How far a candidate came, each stage after the one before it; `sent` is also said of what would have been sent."""
Outcome = Literal["accepted", "rejected", "no_tool_used"]
"""How the next request of a conversation shows that an answer fared."""
Follows = Literal["nothing", "tool_result", "text", "complaint"]
"""What a request brings after the conversation's last answer."""
Decision = Literal["hold", "promote", "rollback", "pause", "resume", "slice_off", "slice_on", "kill", "unkill"]


@frozen(kw_only=True)
class OtherReading:
    """What another dialect made of the same characters."""

    dialect: str
    score: int = 0
    reason: str = ""


@frozen(kw_only=True)
class CallRecord:
    """One candidate of an answer: what it was taken for, why, and what became of it."""

    number: int
    """Its place among the candidates of its answer, from 0."""
    dialect: str
    tool: str
    score: int
    """Whole hundredths."""
    decision: Literal["delivered", "would_deliver", "refused", "overheard", "repaired"]
    stage: Stage
    reasons: tuple[str, ...] = ()
    reason: str = ""
    """For a refused one, the one word that metrics use: parse, schema_invalid, unknown_tool, low_confidence, ..."""
    sentence: str = ""
    """For a refused one, why, for a person."""
    setting: str = ""
    """`NAME=value` of the setting under which it had become a call, where there is such a setting."""
    threshold: int = 0
    """The score that it had to have, in hundredths; 0 where it was not judged."""
    meant: bool | None = None
    """It was plainly meant as a call; else it was prose with a marker in it."""
    others: tuple[OtherReading, ...] = ()
    """What else was read of the same characters."""
    declared: bool = True
    """The request offered a tool of this name."""
    signs: tuple[str, ...] = ()
    """What speaks against it having been meant as a call: in_fence, undeclared, schema, echo, native_beside."""
    before: str = ""
    """The candidate with the text around it, as the model wrote it."""
    span: tuple[int, int] | None = None
    """Where in `before` the candidate begins and ends."""
    after: str = ""
    """The call it became or would have become: a JSON object with name and arguments."""


class RequestRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request of the main job and its answer.

    Nobody changes one. What is as it is by default is not written: a store keeps twice as many.
    """

    id: str
    at: float
    """When it began."""
    key: str
    """The conversation, as a keyed hash in hexadecimal digits."""
    model: str
    upstream: str
    route: str = "chat"
    surface: str = "chat"
    """The wire that the client speaks."""
    who: str = ""
    """Whose request it was, in a short word; empty where nobody looks at what clients show."""
    stream: bool = False
    strategy: str = "none"
    dialect: str = "none"
    """Of the first call that was, or would have been, delivered."""
    arm: Arm = "live"
    epoch: int = 0
    selected: str = ""
    """Why the strategy was chosen."""
    notes: tuple[str, ...] = ()
    """What the strategy had to say of the request."""
    rewritten: bool = False
    """The model server was sent another request than came."""
    prompted_tools: int = 0
    """How many tools stood in its prompt."""
    retries: int = 0
    upstream_status: int | None = None
    asked_again: str = ""
    """What asking the model again for a broken call came to."""
    follows: Follows = "nothing"
    tools: int = 0
    """How many tools the request offered."""
    forced: bool = False
    """The request demanded a call."""
    status: int = 200
    end: str = "completed"
    healthy: bool = True
    error: str | None = None
    cause: str | None = None
    """Why the model server could not answer, as far as its connection tells."""
    finish_reason: str | None = None
    completion_id: str | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    usage: Mapping[str, int] = msgspec.field(default_factory=dict)
    duration_s: float = 0.0
    upstream_first_s: float | None = None
    first_sent_s: float | None = None
    overhead_s: float = 0.0
    held_bytes: int = 0
    native_calls: int = 0
    native_tools: tuple[str, ...] = ()
    """The tools of some of the model server's own calls, in their order."""
    structured: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The model server's own calls by their classes, as they came."""
    structured_outcomes: Mapping[str, int] = msgspec.field(default_factory=dict)
    """What became of those that did not fit: mended, supplied, asked, untouched, late."""
    verdict: DryVerdict | None = None
    """In the arms whose answers are read beside."""
    noise: bool | None = None
    """The same answer, cut in another way, read differently; `None` where that was not tried."""
    calls: tuple[CallRecord, ...] = ()
    version: str = ""
    config: str = ""
    """The digest of the settings in force."""
    left_out: str = ""
    """Why texts of its candidates were not kept: the setting, or the word `samples` where enough of a kind were."""
    request_body: str | None = None
    answer_text: str | None = None


class BriefCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of a candidate, what requests are looked for by."""

    dialect: str
    tool: str
    score: int
    decision: str
    reason: str = ""
    meant: bool | None = None


class Brief(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of a request's record, what it is looked for and counted by, and no more: many requests have the same one."""

    model: str
    arm: Arm
    healthy: bool = True
    error: bool = False
    """There was one; which one is not said."""
    native_calls: int = 0
    """1 for any number of them."""
    native_tools: tuple[str, ...] = ()
    calls: tuple[BriefCall, ...] = ()
    tools: int = 0
    """1 for any number of them."""


@frozen(kw_only=True)
class OutcomeRecord:
    """How one call, or one answer, of an earlier request fared."""

    at: float
    key: str
    arm: Arm
    strategy: str
    dialect: str
    epoch: int
    outcome: Outcome
    reason: str = ""
    """For a rejected one: unknown_tool, missing_argument, invalid_argument."""
    tool: str = ""
    call_id: str = ""
    reported_by: str = ""
    """The request that told."""


@frozen(kw_only=True)
class FeedbackRecord:
    """A rating of an answer."""

    at: float
    completion_id: str
    rating: Rating
    comment: str | None = None
    request_id: str = ""
    strategy: str = "none"
    arm: str = "off"


@frozen(kw_only=True)
class LabelRecord:
    """What a person said of one candidate: whether the reading was right. The last one said of it counts."""

    at: float
    request_id: str
    number: int
    is_right: bool
    by: str = ""
    note: str = ""


@frozen(kw_only=True)
class DecisionRecord:
    """One decision over the rollout, with every number that led to it."""

    at: float
    decision: Decision
    reason: str
    by: str
    epoch: int
    state_before: str
    state_after: str
    slice: str = "all"
    numbers: Mapping[str, float] = field(factory=dict)
    examples: tuple[str, ...] = ()
    """Ids of requests that were counted as bad."""


Record = RequestRecord | OutcomeRecord | FeedbackRecord | LabelRecord | DecisionRecord

RECORDS: dict[str, type[Record]] = {
    "requests": RequestRecord,
    "outcomes": OutcomeRecord,
    "feedback": FeedbackRecord,
    "labels": LabelRecord,
    "decisions": DecisionRecord,
}
"""The kinds of records by the names that stores keep them under."""
