"""Is the next step of the rollout safe? The gates, the verdict that they give, and what to do next.

What a canary of some share would mean stands here too: how long the judge would need to see a doubling of faults.
"""

import math
from collections.abc import Sequence

from gateway.report.facts.intervals import TOO_FEW, Rate
from gateway.report.facts.tree import (
    ArmFigures,
    Cost,
    GateFigure,
    Noise,
    PeriodFigure,
    Readiness,
    Recommendation,
    ReportRules,
    Review,
    Side,
    Suspects,
    Volume,
)
from gateway.rollout.judge import MIN_REQUESTS, RATIOS

__all__ = ["GATES", "NOT_ENOUGH", "NOT_READY", "READY", "hours_until_seen", "judge", "recommend"]

READY = "ready"
NOT_READY = "not ready"
NOT_ENOUGH = "not enough data"
GATES = (
    "mode",
    "rollback",
    "noise",
    "wrong_calls",
    "time",
    "overhead",
    "arms",
    "hours",
    "requests",
    "conversations",
    "calls",
)
"""Names of all gates, in the order in which they decide."""

_OFF = "Nothing is read: TRANSFORM_MODE is off, or the kill switch is on."
_ALL_UNTOUCHED = frozenset({"off", "dry_run", "rolled_back"})
_REASONS = {
    "mode": "nothing is read",
    "rollback": "a part of the rollout was taken back",
    "noise": "some answers read differently when they are cut differently",
    "wrong_calls": "too many of the calls may be wrong ones",
    "time": "reading ran out of time too often",
    "overhead": "reading takes too long",
    "arms": "the live arm may be worse than the untouched one",
    "hours": "the records cover too few hours",
    "requests": "too few answers were read",
    "conversations": "too few different conversations were seen",
    "calls": "too few calls were found to judge by",
}


def judge(
    *,
    rules: ReportRules,
    period: PeriodFigure,
    volume: Volume,
    would: Side,
    live: Side,
    suspects: Suspects,
    review: Review,
    cost: Cost,
    noise: Noise,
    arms: Sequence[ArmFigures],
) -> Readiness:
    """Hold the figures against the rules; faults decide before missing data does."""
    if rules.mode == "off":
        gate = _gate("mode", NOT_ENOUGH, False, "off", "a mode in which answers are read")
        return Readiness(verdict=NOT_ENOUGH, gate=gate.name, words=_OFF, gates=(gate,))
    read = would.requests if rules.mode in _ALL_UNTOUCHED else live.requests + would.requests
    calls = would.calls + live.calls
    gates = [
        _gate("mode", NOT_ENOUGH, True, rules.mode.replace("_", " "), "a mode in which answers are read"),
        _rollback(rules),
        _gate("noise", NOT_READY, noise.differences == 0, f"{noise.differences} of {noise.checked}", "none"),
        _wrong_calls(rules, suspects, review),
        _share_gate("time", cost.dropped, rules.max_dropped, ""),
        _overhead(rules, cost),
        *_arms(rules, arms),
        _enough("hours", period.hours_covered, rules.min_hours),
        _enough("requests", read, rules.min_requests),
        _enough("conversations", volume.conversations, rules.min_conversations),
        _enough("calls", calls, rules.min_calls),
    ]
    # The sorting is stable: among faults, and among what is missing, the order of `GATES` decides.
    failed = next((gate for gate in sorted(gates, key=_weight) if not gate.met), None)
    if failed is None:
        return Readiness(verdict=READY, gate="", words="Every gate is met.", gates=tuple(gates))
    words = f"{_REASONS[failed.name].capitalize()}: {failed.measured}, wanted {failed.wanted}."
    if failed.name == "rollback":
        words = f"{failed.measured}."
    return Readiness(verdict=failed.decides, gate=failed.name, words=words, gates=tuple(gates))


def recommend(readiness: Readiness, rules: ReportRules, since: str) -> Recommendation:
    """The next step, as a sentence and as a command."""
    if readiness.verdict == NOT_ENOUGH:
        return _wait(rules)
    if readiness.verdict == NOT_READY:
        return _mend(readiness.gate, rules, since)
    if rules.mode == "full":
        return Recommendation(
            words="Everything is live and nothing speaks against it.", command="toolgate rollout status"
        )
    if rules.mode == "paused":
        since = f" {rules.standing}" if rules.standing else ""
        return Recommendation(
            words=f"The rollout is paused{since}: let it go on once the cause is understood.",
            command='toolgate rollout resume --reason "the cause is understood, and every gate of the report is met"',
        )
    reason = "every gate of the report is met"
    if rules.mode == "dry_run":
        words = (
            f"Begin the canary with {_percent(rules.steps[0] if rules.steps else rules.percent)} of the conversations."
        )
    else:
        words = f"Go on from {_percent(rules.percent)} to {_percent(_next_step(rules))} of the conversations."
    return Recommendation(words=words, command=f'toolgate rollout promote --reason "{reason}"')


def _rollback(rules: ReportRules) -> GateFigure:
    """What was taken back comes before every figure: they are about what was live then."""
    said = []
    if rules.mode == "rolled_back":
        said.append(f"The rollout was rolled back{f' {rules.standing}' if rules.standing else ''}")
    if rules.slices_off:
        said.append(f"{', '.join(rules.slices_off)} {'is' if len(rules.slices_off) == 1 else 'are'} switched off")
    return _gate("rollback", NOT_READY, not said, "; ".join(said) or "nothing is taken back", "nothing taken back")


def _wait(rules: ReportRules) -> Recommendation:
    if rules.mode == "off":
        return Recommendation(
            words="Read beside the answers first; a kill switch is turned off by `toolgate rollout unkill`.",
            command="TRANSFORM_MODE=dry_run toolgate serve",
        )
    return Recommendation(
        words="Leave it as it is, and look again when there is more.", command="toolgate report --days 7"
    )


def _mend(gate: str, rules: ReportRules, since: str) -> Recommendation:
    if gate == "rollback":
        return _take_up(rules)
    if gate == "arms" and rules.mode not in _ALL_UNTOUCHED:
        return Recommendation(
            words="Take the live arm back until its bad requests are understood.",
            command='toolgate rollout rollback --reason "the live arm is worse than the untouched one"',
        )
    if gate in ("noise", "arms"):
        return Recommendation(
            words="Read the stored answers again, and look at what is read wrongly.",
            command=f"toolgate replay --store --since {since} --fail-on differences",
        )
    if gate == "wrong_calls":
        return Recommendation(
            words="Look at the sample and say which calls are right: with 30 labels they decide instead of the signs.",
            command="toolgate report label --sample 50",
        )
    return Recommendation(
        words=f"Find out which answers take longer than {rules.budget_ms:g} ms before going on.",
        command=f"toolgate report --since {since} --json",
    )


def _take_up(rules: ReportRules) -> Recommendation:
    words = "Look at the requests that spoke against it, below, and mend the cause; then"
    if rules.mode == "rolled_back":
        return Recommendation(
            words=f"{words} let the rollout begin again.",
            command='toolgate rollout resume --reason "the cause is mended"',
        )
    return Recommendation(
        words=f"{words} switch it on again.",
        command=f'toolgate rollout slice {rules.slices_off[0]} on --reason "the cause is mended"',
    )


def _next_step(rules: ReportRules) -> float:
    return next((step for step in rules.steps if step > rules.percent), 100.0)


def _wrong_calls(rules: ReportRules, suspects: Suspects, review: Review) -> GateFigure:
    """What people said decides once there is enough of it; until then the signs do."""
    precision = review.precision
    if not precision.too_few:
        measured = f"{_shown(precision)} of labelled calls right, at least {_share_words(precision.low)} in truth"
        wanted = f"at least {_share_words(rules.min_precision)}"
        return _gate("wrong_calls", NOT_READY, precision.low >= rules.min_precision, measured, wanted)
    return _share_gate("wrong_calls", suspects.suspected, rules.max_suspected, " with a sign against them")


def _overhead(rules: ReportRules, cost: Cost) -> GateFigure:
    slow = cost.overhead_ms.p95
    measured = "nothing measured" if slow is None else f"{slow:.3g} ms at p95"
    # A few slow readings may be chance: below this count they ask for more data and forbid nothing.
    decides = NOT_READY if cost.overhead_ms.count >= TOO_FEW else NOT_ENOUGH
    return _gate(
        "overhead", decides, slow is None or slow <= rules.budget_ms, measured, f"at most {rules.budget_ms:g} ms"
    )


def _arms(rules: ReportRules, arms: Sequence[ArmFigures]) -> list[GateFigure]:
    """Only with both arms can they be compared."""
    by_name = {arm.arm: arm for arm in arms}
    live = by_name.get("live")
    control = by_name.get("control")
    # Where one arm alone had requests, a gate that compares both could never be met.
    if live is None or control is None:
        return []
    limit = _share(control.bad) + rules.max_worse
    enough = not live.bad.too_few and not control.bad.too_few
    measured = (
        f"{_shown(live.bad)} bad when live (up to {_share_words(live.bad.high)}), {_shown(control.bad)} untouched"
    )
    # Only where its lower bound lies above the untouched share is live surely worse; else it is not known yet.
    worse = live.bad.low > _share(control.bad)
    decides = NOT_READY if enough and worse else NOT_ENOUGH
    return [
        _gate("arms", decides, enough and live.bad.high <= limit, measured, f"surely at most {_share_words(limit)}")
    ]


def _enough(name: str, measured: float, wanted: float) -> GateFigure:
    return _gate(name, NOT_ENOUGH, measured >= wanted, f"{measured:,g}", f"at least {wanted:,g}")


def _share_gate(name: str, measured: Rate, limit: float, words: str) -> GateFigure:
    """A share above its limit is a fault, unless it is one of very few."""
    decides = NOT_ENOUGH if measured.too_few else NOT_READY
    return _gate(name, decides, _share(measured) <= limit, _shown(measured) + words, _at_most(limit))


def _weight(gate: GateFigure) -> bool:
    return gate.decides != NOT_READY


def _gate(name: str, decides: str, met: bool, measured: str, wanted: str) -> GateFigure:
    return GateFigure(name=name, met=met, decides=decides, measured=measured, wanted=wanted)


def _share(rate: Rate) -> float:
    return rate.share or 0.0


def _shown(rate: Rate) -> str:
    return "none" if rate.share is None else f"{rate.hits:,} of {rate.of:,} ({_share_words(rate.share)})"


def _share_words(share: float) -> str:
    return f"{100 * share:.2f} %"


def _at_most(share: float) -> str:
    return f"at most {_share_words(share)}"


def _percent(percent: float) -> str:
    return f"{percent:g} %"


def hours_until_seen(
    share: float, *, base: float, requests_per_hour: float, risk_ratio: float, evidence: float
) -> float | None:
    """Expected hours until the arm test fires when the live arm's bad share is twice the base; `None` for never.

    Each bad request falls into the live arm with a probability that its risk decides, and brings on average as much
    evidence as the best of the alternatives gets from it.
    """
    if not 0 < share < 1 or base <= 0 or requests_per_hour <= 0:
        return None
    gain = max(_gain(share, risk_ratio, ratio) for ratio in RATIOS)
    if gain <= 0:
        return None
    # The test averages its alternatives: it lags behind the best one by the logarithm of their number at most.
    bad = (math.log(evidence) + math.log(len(RATIOS))) / gain
    bad_per_request = min(1.0, base * (2 * share + (1 - share)))
    requests = max(bad / bad_per_request, MIN_REQUESTS / share, MIN_REQUESTS / (1 - share))
    return round(requests / requests_per_hour, 2)


def _gain(share: float, risk_ratio: float, ratio: float) -> float:
    """The mean log likelihood ratio of one bad request if the true risk ratio is 2."""
    true, null, other = (_live_share(share, risk) for risk in (2.0, risk_ratio, risk_ratio * ratio))
    return true * math.log(other / null) + (1 - true) * math.log((1 - other) / (1 - null))


def _live_share(share: float, risk: float) -> float:
    return risk * share / (risk * share + 1 - share)
