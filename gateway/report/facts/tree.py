"""What a report says, as one tree of plain values: every rendering is made from it, and `--json` is this very tree."""

from collections.abc import Mapping

from attrs import field, frozen

from gateway.core.rules import IgnoreRule
from gateway.report.facts.intervals import Rate
from gateway.report.facts.sketches import Spread

__all__ = [
    "SCHEMA_VERSION",
    "ArmFigures",
    "AskedDifferently",
    "Bin",
    "Calibration",
    "Confidence",
    "ConfigurationShare",
    "Cost",
    "CutContext",
    "DecisionShown",
    "Example",
    "Failure",
    "Figures",
    "Funnel",
    "Gap",
    "GateFigure",
    "IgnoredRule",
    "Ignores",
    "Miss",
    "Misses",
    "MomentFigure",
    "Noise",
    "PeriodFigure",
    "Projection",
    "Readiness",
    "Recommendation",
    "ReportRules",
    "Review",
    "Side",
    "Sign",
    "Slice",
    "Sliced",
    "Suspects",
    "Threshold",
    "Volume",
]

SCHEMA_VERSION = 1


@frozen(kw_only=True)
class ReportRules:
    """What the figures are held against: the settings in force, and the report's own limits."""

    mode: str = "dry_run"
    percent: float = 10.0
    steps: tuple[float, ...] = (1.0, 5.0, 25.0, 50.0, 95.0)
    min_requests: int = 2000
    min_conversations: int = 20
    min_calls: int = 30
    min_hours: float = 24.0
    budget_ms: float = 50.0
    slices_off: tuple[str, ...] = ()
    standing: str = ""
    """Of a rollout that was rolled back or stopped: since when, by whom, and why."""
    min_confidence: float = 0.9
    risk_ratio: float = 1.25
    evidence: float = 10_000.0
    ignore: tuple[IgnoreRule, ...] = ()
    max_suspected: float = 0.05
    min_precision: float = 0.90
    max_dropped: float = 0.01
    max_worse: float = 0.005


@frozen(kw_only=True)
class Gap:
    """Whole hours without any request."""

    since: float
    until: float
    hours: int


@frozen(kw_only=True)
class ConfigurationShare:
    """A version with settings that was at work."""

    version: str
    config: str
    requests: int
    first: float
    last: float


@frozen(kw_only=True)
class MomentFigure:
    """What happened within one piece of the timeline."""

    at: float
    requests: int
    calls: int
    unhealthy: int


@frozen(kw_only=True)
class PeriodFigure:
    """The time that is reported on, and how much of it has records."""

    since: float
    until: float
    first: float | None
    last: float | None
    hours: int
    hours_covered: int
    gaps: tuple[Gap, ...]
    """The longest ones, in the order of time."""
    gap_count: int
    configurations: tuple[ConfigurationShare, ...]
    timeline: tuple[MomentFigure, ...]
    timeline_step_s: int
    requests_per_day: float


@frozen(kw_only=True)
class Volume:
    """How much went through."""

    requests: int
    streams: int
    conversations: int
    with_tools: int
    forced: int
    native_calls: int
    text_calls: int
    """Calls written as text that were sent, or would have been."""
    candidates: int
    candidates_with_text: int
    """Of how many the text was kept, so that they can be looked at."""
    bytes_in: int
    bytes_out: int
    tokens: Mapping[str, int]
    by_arm: Mapping[str, int]
    by_surface: Mapping[str, int]
    by_strategy: Mapping[str, int]
    by_model: Mapping[str, int]
    by_end: Mapping[str, int]
    structured: tuple["StructuredCalls", ...]
    """How the calls that model servers made themselves stand to what was declared, by model."""


@frozen(kw_only=True)
class StructuredCalls:
    """The calls that a model's server made itself, as they came."""

    model: str
    valid: Rate
    """As they came."""
    delivered_valid: Rate
    """As they went out: mended, or supplied by the text beside."""
    invalid_json: int
    unknown_name: int
    schema_mismatch: int


@frozen(kw_only=True)
class Sliced:
    """The tries of one dialect, tool, strategy or model."""

    name: str
    success: Rate


@frozen(kw_only=True)
class Example:
    """One candidate, as far as records may keep it."""

    id: str
    """The request and the candidate's number: what `toolgate report label` takes."""
    at: float
    model: str
    strategy: str
    arm: str
    dialect: str
    tool: str
    score: float
    decision: str
    reason: str
    reasons: tuple[str, ...]
    signs: tuple[str, ...]
    before: str
    after: str
    label: str | None = None


@frozen(kw_only=True)
class Failure:
    """Why candidates that named a tool stayed text."""

    reason: str
    count: int
    on_purpose: bool
    examples: tuple[Example, ...]


@frozen(kw_only=True)
class Funnel:
    """How many candidates came at least this far."""

    stage: str
    candidates: int


@frozen(kw_only=True)
class Side:
    """What reading answers came to, in the arms that are untouched or in the one that is live."""

    requests: int
    """Whose answers were read."""
    requests_with_calls: int
    calls: int
    refused: int
    """Candidates that named a tool and could not be used."""
    left_alone: int
    """Those that could have been read and stayed text on purpose."""
    in_reasoning: int
    """Calls that stood in a field of reasoning."""
    overheard: int
    repaired: int
    success: Rate
    by_dialect: tuple[Sliced, ...]
    by_tool: tuple[Sliced, ...]
    by_strategy: tuple[Sliced, ...]
    by_model: tuple[Sliced, ...]
    funnel: tuple[Funnel, ...]
    failures: tuple[Failure, ...]
    verdicts: Mapping[str, int]


@frozen(kw_only=True)
class Sign:
    """One reason to think that a text was not meant as a call."""

    sign: str
    calls: int
    counts: bool
    """It is held against the gate; the others are too weak for that."""
    examples: tuple[Example, ...]


@frozen(kw_only=True)
class Suspects:
    """Calls that may be wrong ones, judged by signs since nobody looked at them."""

    calls: int
    suspected: Rate
    signs: tuple[Sign, ...]


@frozen(kw_only=True)
class Review:
    """A random choice of calls to be looked at, and what people said of those they did look at."""

    sample: tuple[Example, ...]
    labelled: int
    precision: Rate
    """Of the labelled calls, how many were right."""
    refusals: Rate
    """Of the labelled candidates that stayed text, how many did so rightly."""
    wrong: tuple[Example, ...]


@frozen(kw_only=True)
class Miss:
    """One way in which a call that was wanted shows to be missing."""

    kind: str
    requests: int
    examples: tuple[str, ...]
    """Ids of requests."""


@frozen(kw_only=True)
class Misses:
    """Calls that may have been overlooked."""

    requests: int
    kinds: tuple[Miss, ...]
    complaints_met: int
    """Complaints about answers in which a call was found: delivering it would have prevented them."""


@frozen(kw_only=True)
class Bin:
    """Candidates by score."""

    low: float
    high: float
    sent: int
    refused: int


@frozen(kw_only=True)
class Calibration:
    """What people said of calls with scores in a range."""

    low: float
    high: float
    right: Rate


@frozen(kw_only=True)
class Threshold:
    """What another `TRANSFORM_MIN_CONFIDENCE` would have applied, and how much of that is estimated to be wrong."""

    threshold: float
    applied: int
    suspected: int
    labelled: int
    labelled_wrong: int
    estimated_wrong: float
    basis: str


@frozen(kw_only=True)
class Confidence:
    """How sure the readings were."""

    histogram: tuple[Bin, ...]
    calibration: tuple[Calibration, ...]
    thresholds: tuple[Threshold, ...]


@frozen(kw_only=True)
class Cost:
    """What reading costs: milliseconds and bytes."""

    overhead_ms: Spread
    held_bytes: Spread
    first_token_ms: Mapping[str, Spread]
    """By arm: from the upstream's first token to the first one sent."""
    first_token_change_ms: float | None
    """What the live arm adds to the median first token, or is projected to add."""
    change_is_measured: bool
    dropped: Rate


@frozen(kw_only=True)
class Noise:
    """Answers that read differently when they were cut differently: there must be none."""

    checked: int
    differences: int
    examples: tuple[str, ...]


@frozen(kw_only=True)
class IgnoredRule:
    """A known difference that is not counted, and for how long."""

    dialect: str
    tool: str
    until: str
    days_left: int


@frozen(kw_only=True)
class Ignores:
    """What was left out of the count by rule."""

    requests: int
    rules: tuple[IgnoredRule, ...]


@frozen(kw_only=True)
class ArmFigures:
    """How one arm fared."""

    arm: str
    requests: int
    unhealthy: Rate
    accepted: int
    rejected: int
    no_tool_used: int
    bad: Rate
    """Ends and outcomes together."""
    rejected_reasons: Mapping[str, int]
    ratings: Mapping[str, int]


@frozen(kw_only=True)
class Slice:
    """Outcomes of one strategy and dialect in one arm."""

    arm: str
    strategy: str
    dialect: str
    accepted: int
    rejected: int
    no_tool_used: int


@frozen(kw_only=True)
class DecisionShown:
    """One decision over the rollout."""

    at: float
    decision: str
    slice: str
    state_before: str
    state_after: str
    by: str
    reason: str
    numbers: Mapping[str, float]
    examples: tuple[str, ...]
    """Ids of requests that were counted as bad."""


@frozen(kw_only=True)
class Projection:
    """What a canary of this share would mean."""

    percent: float
    requests_per_day: float
    bad_per_day: float
    """What the canary itself would add: calls that may be wrong, readings that ran out of time, and how much worse the
    live arm was where there is one."""
    anyway_per_day: float
    """What is bad today, and stays so with it or without."""
    wrong_calls_per_day: float
    hours_until_seen: float | None
    """How long the judge would need to see that the bad share has doubled."""


@frozen(kw_only=True)
class GateFigure:
    """One condition of readiness."""

    name: str
    met: bool
    decides: str
    """What a gate that is not met makes of the verdict."""
    measured: str
    wanted: str


@frozen(kw_only=True)
class Readiness:
    """The verdict, and the gate that decided it."""

    verdict: str
    gate: str
    words: str
    gates: tuple[GateFigure, ...]


@frozen(kw_only=True)
class Recommendation:
    """The next step."""

    words: str
    command: str


@frozen(kw_only=True)
class ModelLeaks:
    """The answers of one model to requests with tools."""

    model: str
    answers: int
    native: int
    """With a structured call."""
    leaked: Rate
    """Of the answers: those with a call written as text, tools that were not offered included."""
    became: Rate
    """Of those: with a call that was delivered, or would have been."""
    rejected: int
    """Calls that the client did not take."""
    dialects: Mapping[str, int]


@frozen(kw_only=True)
class Leaks:
    """The answers of all models to requests with tools."""

    answers: int
    conversations: int
    native: int
    leaked: Rate
    became: Rate
    stayed_text: int
    models: tuple[ModelLeaks, ...]


@frozen(kw_only=True)
class AskedDifferently:
    """A model that a live arm tells of its tools in the prompt, and how its untouched answers call them natively."""

    model: str
    native: Rate
    """Of its untouched answers to requests with tools, those with native calls."""
    as_text: Rate
    """Those with calls that were written as text."""


@frozen(kw_only=True)
class CutContext:
    """A model whose server read less of prompts than it was sent."""

    model: str
    answers: int
    last: str
    """What was seen of the last of them."""


@frozen(kw_only=True)
class Figures:
    """Everything a report says."""

    schema_version: int = SCHEMA_VERSION
    made_at: float
    version: str
    mode: str
    slices_off: tuple[str, ...] = ()
    readiness: Readiness
    recommendation: Recommendation
    period: PeriodFigure
    volume: Volume
    would: Side
    live: Side
    leaks: Leaks
    asked_differently: tuple[AskedDifferently, ...] = ()
    context_cuts: tuple[CutContext, ...] = ()
    suspects: Suspects
    review: Review
    misses: Misses
    diffs: tuple[Example, ...]
    confidence: Confidence
    cost: Cost
    noise: Noise
    ignored: Ignores
    arms: tuple[ArmFigures, ...]
    slices: tuple[Slice, ...]
    decisions: tuple[DecisionShown, ...]
    projection: tuple[Projection, ...]
    notes: tuple[str, ...] = field(default=())
    """What limits what is said here."""
