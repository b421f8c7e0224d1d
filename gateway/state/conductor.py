"""One process's part in the rollout: what requests ask and tell without waiting, and the tick that shares it.

Requests never await anything here: they ask what is in force and leave their counts. `tick` carries the counts to the
store, reads what all processes counted, lets the judge go on, and changes the shared state by compare-and-set, so
that of all who see the same fault one process acts and the others follow.
"""

from collections.abc import Callable, Mapping

from attrs import define, field, frozen

from gateway.core.ports import Store
from gateway.core.records import DecisionRecord
from gateway.policy.callids import CallMark
from gateway.policy.counting import Counting
from gateway.policy.rollout import Assignment, Forced, InForce, assign, slice_name
from gateway.policy.stages import RolloutRules, RolloutState, State, begun, in_force

__all__ = ["Conductor", "Snapshot"]

EPOCHS = 1024
"""Ids of calls carry the remainder of the epoch by this."""


@frozen(kw_only=True)
class Snapshot:
    """Where the rollout stands, for metrics, `status` and reports; shares in hundredths of a percent."""

    state: State
    """`off` while a kill switch is on."""
    percent_target: int
    percent_effective: int
    epoch: int
    step: int | None
    since: float
    reason: str
    by: str
    killed: bool
    slices_off: tuple[str, ...]
    statistics: Mapping[str, float]
    """Evidence by test: `arms`, `transform`, and those of the worst slice as `arms:slice` and `transform:slice`."""
    limit: float
    counts: Mapping[str, int]
    """Of this epoch: requests and bad ones by arm, conversations, transformations."""
    held: tuple[str, ...]
    cooldown_until: float
    store_up: bool


@define(kw_only=True, eq=False)
class Conductor:
    """Who is live, and what came of it. `clock` gives seconds since the epoch; `on_decision` hears every decision."""

    store: Store
    rules: RolloutRules
    clock: Callable[[], float]
    salt: bytes
    on_decision: Callable[[DecisionRecord], None] = lambda _: None
    name: str = "toolgate"
    """Who decides, in the records of decisions."""

    _state: RolloutState = field(init=False)
    _in_force: InForce = field(init=False)
    _counting: Counting = field(init=False, factory=Counting)

    def __attrs_post_init__(self) -> None:
        self._obey(begun(self.rules, self.clock(), self.name))

    def assign(self, key: str, forced: Forced | None = None) -> Assignment:
        """The arm of a request, to be asked once at its start."""
        return assign(self._in_force, self.salt, key, forced)

    @property
    def killed(self) -> bool:
        """A kill switch is on: everything is relayed untouched."""
        return self.rules.kill_switch or self._state.killed

    @property
    def slices_off(self) -> frozenset[str]:
        """Names (`rollout.slice_name`) of what the judge switched off: calls of these stay text."""
        return self._in_force.slices_off

    def is_slice_off(self, strategy: str, dialect: str) -> bool:
        """Whether calls of a strategy in a dialect stay text."""
        return slice_name(strategy, dialect) in self._in_force.slices_off

    def ended(
        self,
        assignment: Assignment,
        *,
        strategy: str,
        dialect: str,
        key: str,
        bad: bool,
        request_id: str = "",
        transformed: bool | None = None,
        overhead_s: float = 0.0,
    ) -> None:
        """A request ended; `transformed` says whether reading its answer worked, `None` if it was not read."""
        if assignment.forced or assignment.epoch != self._state.epoch:
            return
        self._counting.ended(
            assignment.arm,
            assignment.epoch,
            strategy=strategy,
            dialect=dialect,
            key=key,
            bad=bad,
            request_id=request_id,
            transformed=transformed,
            slow=overhead_s * 1000 > self.rules.transform_budget_ms,
            now=self.clock(),
        )

    def outcome(self, mark: CallMark, *, key: str, bad: bool, request_id: str = "", age_s: float | None = None) -> None:
        """How an earlier answer fared; `age_s`, where known, is how long ago it ended."""
        epoch = self._state.epoch
        if not bad or mark.epoch % EPOCHS != epoch % EPOCHS:
            return
        self._counting.outcome(
            mark.arm,
            epoch,
            strategy=mark.strategy or "none",
            dialect=mark.dialect or "none",
            key=key,
            request_id=request_id,
            age_s=age_s,
            now=self.clock(),
        )

    def snapshot(self) -> Snapshot:
        """Where the rollout stands."""
        state, effective = self._state, self._in_force
        return Snapshot(
            state="off" if effective.mode == "off" and self.killed else state.state,
            percent_target=state.percent,
            percent_effective=effective.percent,
            epoch=state.epoch,
            step=state.step,
            since=state.at,
            reason=state.reason,
            by=state.by,
            killed=self.killed,
            slices_off=tuple(sorted(effective.slices_off)),
            statistics={},
            limit=0.0,
            counts={},
            held=state.held,
            cooldown_until=state.cooldown_until,
            store_up=True,
        )

    async def tick(self) -> None:
        """Share the counts, judge, obey; several times a second. Never raises."""

    def _obey(self, state: RolloutState) -> None:
        self._state = state
        self._in_force = in_force(state, self.rules, killed=self.rules.kill_switch)
