"""The judge of the rollout: two sequential tests that may be looked at after every block of requests.

The arm test asks, of every bad request, how likely it was to fall into the live arm. While live answers are at most
`risk_ratio` times as risky as untouched ones, that is known from the arms' sizes alone, whatever the risk of the moment
is: an outage of the model server says nothing against the live arm. The logarithms of the likelihood ratios for several
larger risks are added up, each floored at 0 so that a long good history hides no late fault, and averaged. The budget
test does the same for failed transformations against a fixed share.

What keeps it from being misled: a block in which one arm is empty is merged into the next one; the difference in
points has to be there in recent requests too; and of one conversation no more bad requests count, beyond the first,
than the `min_keys`-th worst conversation has had since the evidence was last nil, so that no few of them are a fault.
Where several credentials ask, what one of them reports comes to a third of the limit at most (to a half where there are
two): with forged reports alone nobody takes back what others use, and a fault that only one sees is no fault for all.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from typing import Literal

from attrs import evolve, field, frozen

from gateway.rollout.counters import who_of

__all__ = [
    "RATIOS",
    "ArmState",
    "BudgetState",
    "Counts",
    "Finding",
    "JudgeRules",
    "JudgeState",
    "Span",
    "finding",
    "step",
]

# How much worse a fault makes things nobody knows before: one test for each, and their mean, which is as honest as each
# of them (https://arxiv.org/abs/2203.03532 on such sums that begin anew at nought).
RATIOS = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""The larger risks that are tried, each as a multiple of the one that is no fault."""
# Among fewer than these one bad request moves the difference by more than half a point, which is `min_diff`.
MIN_REQUESTS = 200
"""Requests in each arm over which the difference in points is taken."""
SPAN_REQUESTS = 20
MAX_KEYS = 64
MAX_WHO = 64
MAX_PARTS = 3
"""How many credentials have to agree, where there are so many."""

# The largest limit that can be set is far below: e^50 is a chance of one in 10^21.
MAX_SCORE = 50.0
"""Beyond every limit that can be set; more would only hide for how long a fault is over."""

_NIL = (0.0,) * len(RATIOS)
# With a share of 1 a single success would speak against a fault without bound.
_LARGEST_SHARE = 0.95


@frozen(kw_only=True)
class JudgeRules:
    """What the judge takes for a fault."""

    risk_ratio: float = 1.25
    min_diff: float = 0.005
    evidence: float = 10_000.0
    min_keys: int = 3
    transform_budget: float = 0.02
    credentials: int = 1
    """How many ask: those of one alone harm nobody else."""

    @property
    def most_of_one(self) -> float:
        """How much the evidence of one credential may come to."""
        return MAX_SCORE if self.credentials < 2 else self.limit / min(self.credentials, MAX_PARTS)

    @property
    def limit(self) -> float:
        """Where the logarithm of the evidence is enough."""
        return math.log(self.evidence)


@frozen(kw_only=True)
class Counts:
    """One block: requests of each arm, the conversations that had a bad one, and the transformations."""

    live: int = 0
    control: int = 0
    live_bad: frozenset[str] = frozenset()
    control_bad: frozenset[str] = frozenset()
    attempts: int = 0
    failed: frozenset[str] = frozenset()


@frozen(kw_only=True)
class Span:
    """Sums over successive blocks."""

    live: int = 0
    live_bad: int = 0
    control: int = 0
    control_bad: int = 0

    def plus(self, other: "Span") -> "Span":
        """Both together."""
        return Span(
            live=self.live + other.live,
            live_bad=self.live_bad + other.live_bad,
            control=self.control + other.control,
            control_bad=self.control_bad + other.control_bad,
        )

    @property
    def smaller(self) -> int:
        """Requests of the arm that has fewer."""
        return min(self.live, self.control)


@frozen(kw_only=True)
class ArmState:
    """What the arm test remembers."""

    scores: tuple[float, ...] = _NIL
    waiting: Span = Span()
    """Blocks in which one arm was empty."""
    recent: tuple[Span, ...] = ()
    live_keys: Mapping[str, int] = field(factory=dict)
    """How many bad requests of a conversation counted since the evidence was last nil."""
    control_keys: Mapping[str, int] = field(factory=dict)
    waiting_bad: Mapping[str, int] = field(factory=dict)
    """Of the bad live requests that wait, how many are whose."""
    parts: Mapping[str, tuple[float, ...]] = field(factory=dict)
    """How much of the scores is whose evidence."""


@frozen(kw_only=True)
class BudgetState:
    """What the budget test remembers."""

    scores: tuple[float, ...] = _NIL
    keys: Mapping[str, int] = field(factory=dict)
    attempts: int = 0
    """Since the evidence was last nil, as the failed ones."""
    failed: int = 0
    parts: Mapping[str, tuple[float, ...]] = field(factory=dict)


@frozen(kw_only=True)
class JudgeState:
    """Both tests."""

    arms: ArmState = field(factory=ArmState)
    budget: BudgetState = field(factory=BudgetState)

    @property
    def evidence(self) -> dict[str, float]:
        """The logarithm of the evidence by test."""
        return {"arms": _evidence(self.arms.scores), "transform": _evidence(self.budget.scores)}


@frozen(kw_only=True)
class Finding:
    """A fault was found, and the numbers that say so."""

    test: Literal["arms", "transform"]
    statistic: float
    numbers: Mapping[str, float]


def step(state: JudgeState, block: Counts, rules: JudgeRules) -> JudgeState:
    """Take in one block."""
    return JudgeState(arms=_arms(state.arms, block, rules), budget=_budget(state.budget, block, rules))


def finding(state: JudgeState, rules: JudgeRules) -> Finding | None:
    """What the state shows; a finding stands for as long as it does."""
    return _arms_finding(state.arms, rules) or _budget_finding(state.budget, rules)


def _arms(state: ArmState, block: Counts, rules: JudgeRules) -> ArmState:
    live_bad, live_keys = _counted(block.live_bad, state.live_keys, rules.min_keys)
    control, control_keys = _counted(block.control_bad, state.control_keys, rules.min_keys)
    bad = Counter(state.waiting_bad)
    bad.update(map(who_of, live_bad))
    more = Span(live=block.live, live_bad=len(live_bad), control=block.control, control_bad=len(control))
    span = state.waiting.plus(more)
    # With nobody in one arm there is nothing to compare with: the odds would be nought or without bound.
    if not span.smaller:
        return evolve(state, waiting=span, waiting_bad=dict(bad), live_keys=live_keys, control_keys=control_keys)
    gain, loss = _compared(span, rules.risk_ratio)
    losses = tuple(each * span.control_bad for each in loss)
    scores, parts = _added(state.scores, state.parts, bad, gain, losses, rules.most_of_one)
    if not any(scores):
        live_keys, control_keys = {}, {}
    return ArmState(
        scores=scores,
        recent=_recent(state.recent, span),
        live_keys=live_keys,
        control_keys=control_keys,
        parts=parts,
    )


def _counted(
    keys: Collection[str], before: Mapping[str, int], min_keys: int
) -> tuple[Sequence[str], Mapping[str, int]]:
    """The conversations whose bad requests count, and how many of each did so far."""
    if not keys:
        return (), before
    # One conversation that fails with each of its requests would otherwise be a fault for everybody.
    worst = nlargest(min_keys, before.values())
    most = worst[-1] if len(worst) == min_keys else 0
    counting = [key for key in sorted(keys) if before.get(key, 0) <= most]
    after = {**before, **{key: before.get(key, 0) + 1 for key in counting}}
    if len(after) > MAX_KEYS:
        after = dict(nlargest(MAX_KEYS, after.items(), key=lambda item: item[1]))
    return counting, after


def _compared(span: Span, risk_ratio: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What each bad request of a span adds to the scores if it is a live one, and what it takes if it is not."""
    # That a bad request is a live one has these odds, and under a larger risk `ratio` times as many.
    odds = risk_ratio * span.live / span.control
    loss = tuple(math.log((1 + ratio * odds) / (1 + odds)) for ratio in RATIOS)
    return tuple(math.log(ratio) - each for ratio, each in zip(RATIOS, loss, strict=True)), loss


def _added(
    scores: tuple[float, ...],
    parts: Mapping[str, tuple[float, ...]],
    bad: Mapping[str, int],
    gain: tuple[float, ...],
    losses: tuple[float, ...],
    most: float,
) -> tuple[tuple[float, ...], Mapping[str, tuple[float, ...]]]:
    """The scores with what speaks for a fault, of no credential more than `most`, and what speaks against one."""
    wanted = {
        who: tuple(
            had + bad.get(who, 0) * each for had, each in zip(parts.get(who, (0.0,) * len(gain)), gain, strict=True)
        )
        # In an order that all processes share: sums of floats depend on it.
        for who in (*parts, *(who for who in bad if who not in parts))
    }
    held = {who: _at_most(part, most) for who, part in wanted.items()}
    before = [sum(column) for column in zip(*parts.values(), strict=True)] if parts else [0.0] * len(gain)
    after = [sum(column) for column in zip(*held.values(), strict=True)] if held else [0.0] * len(gain)
    gained = [score + now - then for score, now, then in zip(scores, after, before, strict=True)]
    summed = tuple(_bounded(each - loss) for each, loss in zip(gained, losses, strict=True))
    # What speaks against a fault takes from everybody's part alike.
    left = [each / had if had > 0 else 0.0 for each, had in zip(summed, gained, strict=True)]
    held = {who: tuple(each * share for each, share in zip(part, left, strict=True)) for who, part in held.items()}
    if len(held) > MAX_WHO:
        held = dict(nlargest(MAX_WHO, held.items(), key=lambda item: max(item[1])))
    return summed, {who: part for who, part in held.items() if any(part)}


def _at_most(part: tuple[float, ...], most: float) -> tuple[float, ...]:
    """One credential's part of the scores, by as much less as its evidence, taken alone, is above `most`."""
    excess = _evidence(part) - most
    return part if excess <= 0 else tuple(max(0.0, each - excess) for each in part)


def _recent(spans: tuple[Span, ...], span: Span) -> tuple[Span, ...]:
    """As few of the last spans as hold enough requests of each arm, or all there are."""
    if spans and spans[-1].smaller < SPAN_REQUESTS:
        spans = (*spans[:-1], spans[-1].plus(span))
    else:
        spans = (*spans, span)
    # A good past must not make a new fault look small, as the difference is asked for over these alone.
    while _has_enough(_sum(spans[1:])):
        spans = spans[1:]
    return spans


def _has_enough(span: Span) -> bool:
    return span.smaller >= MIN_REQUESTS


def _sum(spans: tuple[Span, ...]) -> Span:
    total = Span()
    for span in spans:
        total = total.plus(span)
    return total


def _budget(state: BudgetState, block: Counts, rules: JudgeRules) -> BudgetState:
    failed, keys = _counted(block.failed, state.keys, rules.min_keys)
    worked = max(0, block.attempts - len(block.failed))
    if not failed and not worked:
        return state
    share = rules.transform_budget
    larger = [more if more > share else share for more in (min(share * ratio, _LARGEST_SHARE) for ratio in RATIOS)]
    gain = tuple(math.log(more / share) for more in larger)
    losses = tuple(worked * math.log((1 - share) / (1 - more)) if more > share else 0.0 for more in larger)
    scores, parts = _added(state.scores, state.parts, Counter(map(who_of, failed)), gain, losses, rules.most_of_one)
    if not any(scores):
        return BudgetState()
    return BudgetState(
        scores=scores,
        keys=keys,
        attempts=state.attempts + block.attempts,
        failed=state.failed + len(block.failed),
        parts=parts,
    )


def _bounded(score: float) -> float:
    return min(max(score, 0.0), MAX_SCORE)


def _evidence(scores: tuple[float, ...]) -> float:
    """The logarithm of the mean of the likelihood ratios."""
    # Taken out before `exp`, which has no room for what a score may come to.
    top = max(scores)
    return top + math.log(sum(math.exp(score - top) for score in scores) / len(scores))


def _arms_finding(state: ArmState, rules: JudgeRules) -> Finding | None:
    statistic = _evidence(state.scores)
    recent = _sum(state.recent)
    if statistic < rules.limit or len(state.live_keys) < rules.min_keys or not recent.smaller:
        return None
    difference = recent.live_bad / recent.live - recent.control_bad / recent.control
    if difference < rules.min_diff:
        return None
    numbers = {
        "statistic": statistic,
        "limit": rules.limit,
        "difference": difference,
        "live": recent.live,
        "live_bad": recent.live_bad,
        "control": recent.control,
        "control_bad": recent.control_bad,
        "keys": len(state.live_keys),
    }
    return Finding(test="arms", statistic=statistic, numbers=numbers)


def _budget_finding(state: BudgetState, rules: JudgeRules) -> Finding | None:
    statistic = _evidence(state.scores)
    if statistic < rules.limit or len(state.keys) < rules.min_keys:
        return None
    numbers = {
        "statistic": statistic,
        "limit": rules.limit,
        "budget": rules.transform_budget,
        "attempts": state.attempts,
        "failed": state.failed,
        "keys": len(state.keys),
    }
    return Finding(test="transform", statistic=statistic, numbers=numbers)
