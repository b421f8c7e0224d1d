"""A week of records, made up but always the same: every arm, dialect, strategy, verdict, outcome, gap and label."""

import json
import random
from collections.abc import Iterator
from typing import Any, TypeVar, cast, get_args

import attrs
import msgspec
from attrs import frozen

from gateway.core.records import (
    Arm,
    CallRecord,
    DecisionRecord,
    FeedbackRecord,
    LabelRecord,
    Outcome,
    OutcomeRecord,
    Record,
    RequestRecord,
    Stage,
)

BEGIN = 1_790_000_000 // 3600 * 3600.0
"""A whole hour."""
HOURS = 7 * 24
GAPS = ((10, 12), (30, 31), (100, 109))
"""Hours of the week, from and to, without any request."""
HOSTILE = "</td><script>alert(1)</script>\" onload='x' &amp; \x1b[31m ​ `|` ```\n| a | b |"

Each = TypeVar("Each")


def evolve(each: Each, **changes: Any) -> Each:
    """The same with other fields, of whichever library's class it is."""
    if isinstance(each, msgspec.Struct):
        return cast(Each, msgspec.structs.replace(each, **changes))
    return cast(Each, attrs.evolve(cast(Any, each), **changes))


STAGES: tuple[Stage, ...] = get_args(Stage)
DIALECTS = ("tag_xml", "hermes", "json_block", "invoke", "shell")
TOOLS = ("read_file", "write_to_file", "execute_command", "list_files", "rare_tool")
MODELS = ("qwen3-coder-480b", "gpt-oss-120b", "llama-3.3-70b", "tiny-1b")
STRATEGIES = ("xml_prompt", "recovery", "native")
SIGNS = ("in_fence", "undeclared", "schema", "echo", "native_beside")
REFUSALS: tuple[tuple[str, Stage], ...] = (
    ("parse", "recognised"),
    ("schema_invalid", "parsed"),
    ("unknown_tool", "schema_valid"),
    ("low_confidence", "known_tool"),
    ("provenance", "above_threshold"),
)


@frozen(kw_only=True)
class Week:
    """The records of a week, by the order in which they were written."""

    requests: tuple[RequestRecord, ...]
    outcomes: tuple[OutcomeRecord, ...]
    feedback: tuple[FeedbackRecord, ...]
    labels: tuple[LabelRecord, ...]
    decisions: tuple[DecisionRecord, ...]
    since: float = BEGIN
    until: float = BEGIN + HOURS * 3600

    def records(self) -> Iterator[Record]:
        yield from self.requests
        yield from self.outcomes
        yield from self.feedback
        yield from self.labels
        yield from self.decisions


def week(
    count: int = 3000,
    *,
    seed: int = 7,
    arms: tuple[Arm, ...] = ("dry_run", "dry_run", "dry_run", "live", "control", "off"),
    clean: bool = False,
) -> Week:
    """`clean` leaves out what speaks against going on: noise, signs, time overruns, slow readings, bad outcomes."""
    maker = _Maker(random.Random(seed), arms, clean)
    requests = tuple(maker.request(number) for number in range(count))
    requests = tuple(sorted(requests, key=lambda request: request.at))
    return Week(
        requests=requests,
        outcomes=tuple(maker.outcomes(requests)),
        feedback=tuple(maker.feedback(requests)),
        labels=tuple(maker.labels(requests)),
        decisions=tuple(_decisions()),
    )


def hostile(week_: Week) -> Week:
    """The same week with markup, escapes and control characters in every text of it."""
    return evolve(
        week_,
        requests=tuple(_hostile_request(request) for request in week_.requests),
        outcomes=tuple(
            evolve(outcome, strategy=HOSTILE, dialect=HOSTILE, reason=HOSTILE, tool=HOSTILE)
            for outcome in week_.outcomes
        ),
        decisions=tuple(
            evolve(each, reason=HOSTILE, by=HOSTILE, slice=HOSTILE, state_before=HOSTILE, state_after=HOSTILE)
            for each in week_.decisions
        ),
    )


def _hostile_request(request: RequestRecord) -> RequestRecord:
    return evolve(
        request,
        id=request.id + HOSTILE,
        model=request.model + HOSTILE,
        strategy=HOSTILE,
        dialect=HOSTILE,
        end=HOSTILE,
        version=HOSTILE,
        config=HOSTILE,
        usage={HOSTILE: 3},
        calls=tuple(
            evolve(
                call,
                tool=HOSTILE if call.tool else "",
                dialect=HOSTILE,
                reason=HOSTILE if call.reason else "",
                reasons=(HOSTILE,),
                signs=(HOSTILE, *call.signs),
                before=HOSTILE * 200,
                after=HOSTILE,
            )
            for call in request.calls
        ),
    )


@frozen
class _Maker:
    random: random.Random
    arms: tuple[Arm, ...]
    clean: bool

    def request(self, number: int) -> RequestRecord:
        draw = self.random
        arm = draw.choice(self.arms)
        is_read = arm in ("dry_run", "control") and draw.random() < 0.9
        calls = tuple(self._calls(arm)) if is_read or arm == "live" else ()
        stream = draw.random() < 0.7
        first = draw.uniform(0.05, 3) if stream else None
        model = draw.choice(MODELS)
        return RequestRecord(
            id=f"req-{number:06d}",
            at=self._moment(),
            key=f"{draw.randrange(max(2, number // 6 + 2)):016x}",
            model=model,
            upstream="default",
            stream=stream,
            strategy=draw.choice(STRATEGIES),
            dialect=next((call.dialect for call in calls if call.decision != "refused"), "none"),
            arm=arm,
            follows=draw.choices(("nothing", "tool_result", "text", "complaint"), (3, 10, 4, 1))[0],
            tools=draw.choice((0, 1, 8, 20)),
            forced=draw.random() < 0.05,
            end=draw.choices(("completed", "client_abort", "upstream_error"), (95, 3, 2))[0],
            healthy=draw.random() > 0.02,
            completion_id=f"chatcmpl-{number}",
            bytes_in=draw.randrange(100, 90_000),
            bytes_out=draw.randrange(0, 9_000),
            usage={"prompt_tokens": draw.randrange(5000), "completion_tokens": draw.randrange(500)},
            duration_s=draw.uniform(0.1, 40),
            upstream_first_s=first,
            first_sent_s=first + draw.expovariate(400) if first is not None else None,
            overhead_s=draw.expovariate(2000 if self.clean else 60),
            held_bytes=draw.choice((0, 0, 12, 900, 40_000)),
            native_calls=draw.choice((0, 0, 0, 1, 2)),
            structured={"valid": number % 3, "schema_mismatch": 1} if number % 7 == 0 else {},
            verdict=self._verdict(calls) if is_read else None,
            noise=self._noise() if is_read else None,
            calls=calls,
            version="0.1.0" if number % 5 else "0.2.0",
            config="abc123abc123",
            finish_reason="stop",
        )

    def _moment(self) -> float:
        while True:
            at = self.random.uniform(0, HOURS)
            if not any(start <= at < end for start, end in GAPS):
                return BEGIN + at * 3600

    def _noise(self) -> bool | None:
        return self.random.choice((None, False, False, False, self.random.random() < 0.02 and not self.clean))

    def _verdict(self, calls: tuple[CallRecord, ...]) -> Any:
        draw = self.random.random()
        if draw < 0.02:
            return "identical" if self.clean else "dropped"
        if any(call.decision == "would_deliver" for call in calls):
            return "ignored" if draw < 0.06 else "would_change"
        return "would_fail" if any(call.tool for call in calls) else "identical"

    def _calls(self, arm: Arm) -> Iterator[CallRecord]:
        for number in range(self.random.choice((0, 0, 1, 1, 1, 2))):
            yield self._call(number, arm)

    def _call(self, number: int, arm: Arm) -> CallRecord:
        draw = self.random
        dialect, tool = draw.choice(DIALECTS), draw.choices(TOOLS, (40, 30, 20, 10, 0.2))[0]
        base = CallRecord(
            number=number,
            dialect=dialect,
            tool=tool,
            score=draw.choice((99, 97, 95, 92, 90)),
            decision="delivered" if arm == "live" else "would_deliver",
            stage="sent",
            reasons=("base 0.97",),
            before=f"I will look.\n\n<{tool}>\n<path>src/a.py</path>\n</{tool}>" if draw.random() < 0.5 else "",
            after=json.dumps({"name": tool, "arguments": {"path": "src/a.py"}}),
        )
        kind = draw.random()
        if kind < 0.20:
            reason, stage = draw.choice(REFUSALS)
            return evolve(
                base,
                decision="refused",
                stage=stage,
                reason=reason,
                score=draw.randrange(0, 90),
                tool="" if kind < 0.03 else tool,
                after="",
            )
        if kind < 0.24:
            return evolve(base, decision="overheard")
        if kind < 0.27 and arm == "live":
            return evolve(base, decision="repaired")
        if kind < 0.32 and not self.clean:
            return evolve(base, signs=tuple(draw.sample(SIGNS, draw.choice((1, 1, 2)))))
        return base

    def outcomes(self, requests: tuple[RequestRecord, ...]) -> Iterator[OutcomeRecord]:
        for request in requests:
            if request.arm == "off" or self.random.random() < 0.4:
                continue
            weights = (100, 0, 0) if self.clean else (94, 4, 2)
            outcome = self.random.choices(("accepted", "rejected", "no_tool_used"), weights)[0]
            yield OutcomeRecord(
                at=min(request.at + 30, BEGIN + HOURS * 3600 - 1),
                key=request.key,
                arm=request.arm,
                strategy=request.strategy,
                dialect=request.dialect,
                epoch=1,
                outcome=cast("Outcome", outcome),
                reason=self.random.choice(("missing_argument", "unknown_tool")) if outcome == "rejected" else "",
                tool="read_file",
            )

    def feedback(self, requests: tuple[RequestRecord, ...]) -> Iterator[FeedbackRecord]:
        for request in requests[::97]:
            yield FeedbackRecord(
                at=request.at,
                completion_id=request.completion_id or "",
                rating="good" if self.random.random() < 0.8 else "bad",
                arm=request.arm,
            )

    def labels(self, requests: tuple[RequestRecord, ...]) -> Iterator[LabelRecord]:
        for request in requests[:: 11 if self.clean else 17]:
            for call in request.calls:
                is_right = self.clean or self.random.random() < 0.9
                if self.random.random() < 0.1:
                    yield LabelRecord(
                        at=request.at + 5, request_id=request.id, number=call.number, is_right=not is_right
                    )
                # Given after the week and for good: labels count whenever they were given.
                yield LabelRecord(
                    at=BEGIN + HOURS * 3600 + 99, request_id=request.id, number=call.number, is_right=is_right
                )


def _decisions() -> Iterator[DecisionRecord]:
    for number in range(25):
        yield DecisionRecord(
            at=BEGIN + number * 3600,
            decision="promote" if number % 2 else "rollback",
            reason=f"reason {number}",
            by="judge",
            epoch=number,
            state_before="canary",
            state_after="rolled_back",
            numbers={"statistic": 9.5},
        )
