"""What all processes saw in the current epoch: sums for the gates of promotion, and the judge's tests.

`after` takes in the blocks of the store one by one. It is a pure function of what it is given, so all processes that
read the same blocks come to the same evidence, and whoever is first to write it saves the others the work.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from attrs import define, evolve, field, frozen

from gateway.core.ports import Block
from gateway.rollout.counters import COUNTED_ARMS, Kind, read
from gateway.rollout.judge import Counts, JudgeRules, JudgeState, step

__all__ = ["ArmTotals", "Evidence", "Overhead", "SliceState", "after", "conversations"]

# Names of slices come from dialects, of which there are more; the state is kept in one value of the store.
MAX_SLICES = 32
MAX_EXAMPLES = 5
"""Of each slice: another one that fails more often must not push them out."""
MAX_ALL_EXAMPLES = 40
SKETCH = 128
"""Conversations are counted exactly up to this many, then estimated."""
WINDOW_S = 60
WINDOW_REQUESTS = 20
# No percentile is kept: how many were slow can be added up over processes, percentiles cannot.
SLOW_SHARE = 0.05
"""The 95th percentile is over the budget when more than this share is."""
SETTINGS_S = 60
MAX_SETTINGS = 8
MAX_WHO = 64
WHO_S = 86_400
"""For how long a credential that asked is one that could be harmed: those of the day, at night."""

_HASH_BYTES = 6
_HASHES = 1 << (8 * _HASH_BYTES)


@frozen(kw_only=True)
class ArmTotals:
    """Sums of one arm since the epoch began."""

    requests: int = 0
    seen: int = 0
    """Of these, one for each conversation and second; likewise what follows."""
    bad: int = 0
    attempts: int = 0
    failed: int = 0


@frozen(kw_only=True)
class Overhead:
    """Windows of time over which the added time is looked at."""

    began: int = 0
    attempts: int = 0
    slow: int = 0
    over_in_row: int = 0
    """Windows in a row, until now, in which it was above the budget."""


@frozen(kw_only=True)
class SliceState:
    """The tests of one slice."""

    judge: JudgeState = field(factory=JudgeState)
    live: int = 0


@frozen(kw_only=True)
class Evidence:
    """All that is known of one epoch, up to a block."""

    epoch: int
    block: int = 0
    totals: Mapping[str, ArmTotals] = field(factory=dict)
    sketch: tuple[int, ...] = ()
    """The smallest hashes of conversations in the arms live and dry_run."""
    overall: JudgeState = field(factory=JudgeState)
    slices: Mapping[str, SliceState] = field(factory=dict)
    slices_off: tuple[str, ...] = ()
    """What was switched off when the tests over all began."""
    overhead: Overhead = Overhead()
    examples: tuple[tuple[str, str], ...] = ()
    """Slices and ids of the last bad live requests, a few of each."""
    settings: Mapping[str, int] = field(factory=dict)
    """When a process last said that it runs under settings of this digest."""
    differ_since: int | None = None
    """Since when processes run under different settings."""
    who: Mapping[str, int] = field(factory=dict)
    """The credentials that asked, and when they did last."""

    def arm(self, arm: str) -> ArmTotals:
        """The sums of an arm."""
        return self.totals.get(arm, ArmTotals())

    def aligned(self, epoch: int, slices_off: Iterable[str]) -> "Evidence":
        """What is left of it where the state has moved on.

        A new epoch leaves nothing but what is about the processes themselves; a slice that was switched off takes the
        tests over all with it, because its requests stood in them.
        """
        if epoch != self.epoch:
            return Evidence(
                epoch=epoch,
                block=self.block,
                slices_off=tuple(slices_off),
                settings=self.settings,
                differ_since=self.differ_since,
                who=self.who,
            )
        off = frozenset(slices_off)
        if off == frozenset(self.slices_off):
            return self
        slices = {name: state for name, state in self.slices.items() if name not in off}
        return evolve(self, overall=JudgeState(), slices=slices, slices_off=tuple(sorted(off)))


def after(evidence: Evidence, blocks: Iterable[Block], rules: JudgeRules) -> Evidence:
    """The evidence with the blocks taken in; those that it holds already change nothing."""
    for block in blocks:
        # Each block once, whoever reads them again after a restart.
        if block.number > evidence.block:
            evidence = _after(evidence, block, rules)
    return evidence


def conversations(evidence: Evidence) -> int:
    """How many conversations were live or, in a dry run, read; estimated where there are many."""
    sketch = evidence.sketch
    if len(sketch) < SKETCH:
        return len(sketch)
    # The k smallest of evenly spread hashes tell how many there are: https://doi.org/10.1007/3-540-45726-7_1
    return int((SKETCH - 1) * _HASHES / max(1, sketch[-1]))


@define
class _Tally:
    """What a block holds of one epoch, by kind, arm and slice."""

    counts: dict[tuple[Kind, str, str], int] = field(factory=dict)
    marks: dict[tuple[Kind, str, str], set[str]] = field(factory=dict)

    def count(self, kind: Kind, arm: str, slices: Iterable[str]) -> int:
        return sum(self.counts.get((kind, arm, one), 0) for one in slices)

    def marked(self, kind: Kind, arm: str, slices: Iterable[str]) -> frozenset[str]:
        return frozenset().union(*(self.marks.get((kind, arm, one), ()) for one in slices))

    @property
    def slices(self) -> frozenset[str]:
        return frozenset(one for _, _, one in (*self.counts, *self.marks))


def _after(evidence: Evidence, block: Block, rules: JudgeRules) -> Evidence:
    tally, settings, who = _read(evidence.epoch, block)
    on = tally.slices.difference(evidence.slices_off)
    asking = _asking(evidence.who, block.number, who)
    # As many as ask now, and not as are configured: keys that nobody uses cannot agree with anybody.
    rules = evolve(rules, credentials=max(1, len(asking)))
    return evolve(
        _with_settings(evidence, block.number, settings),
        block=block.number,
        who=asking,
        totals=_totals(evidence.totals, tally),
        sketch=_sketch(evidence.sketch, tally),
        overall=step(evidence.overall, _judged(tally, on), rules),
        slices=_slices(evidence.slices, tally, on, rules),
        overhead=_overhead(evidence.overhead, block.number, tally),
        examples=_examples(evidence.examples, tally),
    )


def _read(epoch: int, block: Block) -> tuple[_Tally, frozenset[str], frozenset[str]]:
    tally = _Tally()
    for text, count in block.counts.items():
        name = read(text)
        # Late words of an epoch that is over: its requests met other settings.
        if name is not None and name.epoch == epoch and count > 0:
            tally.counts[name.kind, name.arm, name.slice] = count
    settings, who = set(), set()
    for text in block.marks:
        name = read(text)
        if name is None:
            continue
        if name.kind == "settings":
            settings.add(name.subject)
        elif name.kind == "who":
            who.add(name.subject)
        elif name.epoch == epoch:
            tally.marks.setdefault((name.kind, name.arm, name.slice), set()).add(name.subject)
    return tally, frozenset(settings), frozenset(who)


def _asking(before: Mapping[str, int], number: int, seen: Iterable[str]) -> Mapping[str, int]:
    """The credentials that asked lately; where there are very many, those that did last."""
    asking = {**before, **dict.fromkeys(seen, number)}
    if len(asking) > MAX_WHO:
        asking = dict(sorted(asking.items(), key=lambda item: item[1])[-MAX_WHO:])
    return {who: last for who, last in asking.items() if number - last <= WHO_S}


def _judged(tally: _Tally, slices: Iterable[str]) -> Counts:
    return Counts(
        live=tally.count("seen", "live", slices),
        control=tally.count("seen", "control", slices),
        live_bad=tally.marked("bad", "live", slices),
        control_bad=tally.marked("bad", "control", slices),
        attempts=tally.count("attempts", "live", slices),
        failed=tally.marked("failed", "live", slices),
    )


def _totals(totals: Mapping[str, ArmTotals], tally: _Tally) -> Mapping[str, ArmTotals]:
    slices = tally.slices
    arms = {arm for _, arm, _ in (*tally.counts, *tally.marks) if arm in COUNTED_ARMS}
    return {**totals, **{arm: _more(totals.get(arm, ArmTotals()), arm, tally, slices) for arm in arms}}


def _more(before: ArmTotals, arm: str, tally: _Tally, slices: Iterable[str]) -> ArmTotals:
    return ArmTotals(
        requests=before.requests + tally.count("requests", arm, slices),
        seen=before.seen + tally.count("seen", arm, slices),
        bad=before.bad + len(tally.marked("bad", arm, slices)),
        attempts=before.attempts + tally.count("attempts", arm, slices),
        failed=before.failed + len(tally.marked("failed", arm, slices)),
    )


def _slices(
    before: Mapping[str, SliceState], tally: _Tally, on: Iterable[str], rules: JudgeRules
) -> Mapping[str, SliceState]:
    """The tests of each slice; answers without a dialect are none that could be switched off."""
    states = dict(before)
    # Sorted, as all processes have to come to the same evidence, bounds included.
    for name in sorted(on):
        if "/" not in name or name.endswith("/none") or (name not in states and len(states) >= MAX_SLICES):
            continue
        state = states.get(name) or SliceState()
        counts = _judged(tally, (name,))
        states[name] = SliceState(judge=step(state.judge, counts, rules), live=state.live + counts.live)
    return states


def _sketch(sketch: tuple[int, ...], tally: _Tally) -> tuple[int, ...]:
    hashes = {_hash(key) for (kind, _, _), keys in tally.marks.items() if kind == "key" for key in keys}
    return tuple(sorted(hashes.union(sketch))[:SKETCH]) if hashes else sketch


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest(), "big")


def _overhead(before: Overhead, number: int, tally: _Tally) -> Overhead:
    attempts, slow = (
        sum(count for (kind, arm, _), count in tally.counts.items() if kind == wanted and arm != "control")
        for wanted in ("attempts", "slow")
    )
    began = before.began or number
    window = Overhead(
        began=began, attempts=before.attempts + attempts, slow=before.slow + slow, over_in_row=before.over_in_row
    )
    # Of a few requests nobody can say how slow their slowest twentieth is.
    if number - began < WINDOW_S or window.attempts < WINDOW_REQUESTS:
        return window
    over = window.slow > SLOW_SHARE * window.attempts
    return Overhead(began=number, over_in_row=before.over_in_row + 1 if over else 0)


def _examples(before: tuple[tuple[str, str], ...], tally: _Tally) -> tuple[tuple[str, str], ...]:
    new = [(one, id) for (kind, _, one), ids in sorted(tally.marks.items()) if kind == "example" for id in sorted(ids)]
    kept: list[tuple[str, str]] = []
    of_slice: Counter[str] = Counter()
    for one, id in reversed((*before, *new)):
        if of_slice[one] < MAX_EXAMPLES and (one, id) not in kept:
            of_slice[one] += 1
            kept.append((one, id))
    return tuple(reversed(kept[:MAX_ALL_EXAMPLES]))


def _with_settings(evidence: Evidence, number: int, seen: Iterable[str]) -> Evidence:
    settings = {digest: last for digest, last in evidence.settings.items() if number - last <= SETTINGS_S}
    settings |= dict.fromkeys(sorted(seen)[:MAX_SETTINGS], number)
    # Processes under different settings are common for seconds, while a reload goes round.
    since = (evidence.differ_since or number) if len(settings) > 1 else None
    return evolve(evidence, settings=settings, differ_since=since)
