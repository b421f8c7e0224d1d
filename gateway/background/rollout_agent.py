"""One process's part in the rollout: what requests ask and tell without waiting, and the tick that shares it.

Requests never await anything here: they ask what is in force and leave their counts. `tick` carries the counts to the
store, reads what all processes counted, lets the judge go on, and changes the shared state by compare-and-set: of all
who see the same fault one process acts, and the others follow.

While the store is lost the last state stays in force, judged by what this process alone sees: it may roll back, it
never promotes, and when the store is back the more careful of both states wins.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Literal

import structlog
from attrs import define, field

from gateway.core.ports import Block, Store, StoreError
from gateway.core.records import Decision, DecisionRecord
from gateway.rollout.assignment import Assignment, Forced, InForce, assign
from gateway.rollout.call_ids import EPOCHS, CallMark
from gateway.rollout.codec import EVIDENCE_KEY, STATE_KEY, encoded, evidence_of, state_of
from gateway.rollout.counters import Counting, named
from gateway.rollout.evidence import Evidence, after
from gateway.rollout.snapshot import Snapshot, snapshot
from gateway.rollout.stages import (
    Change,
    RolloutRules,
    RolloutState,
    begun,
    configured,
    in_force,
    informed,
    more_careful,
    paused,
    shown_state,
)
from gateway.rollout.transitions import advanced, fallen_back, refreshed

__all__ = ["RolloutAgent"]

LOST_S = 5.0
"""How long the store has to be silent for the rollout to be paused over it."""
SWITCH_FILE_S = 0.1
SETTINGS_S = 10.0
MAX_BLOCKS = 60
"""Blocks judged in one tick: what was missed is made up for in small pieces."""

Switch = Literal["", "kill_setting", "kill_file"]

_log = structlog.get_logger(__name__)


def _ignore(_: DecisionRecord) -> None:
    """Nobody listens."""


@define(kw_only=True, eq=False)
class RolloutAgent:
    """Who is live, and what came of it.

    `clock` gives seconds since the epoch; `on_decision` hears every decision that this process took; `name` is who
    took it. Let the first `tick` end before the first request comes: it learns what the processes before have decided.
    """

    store: Store
    _rules: RolloutRules
    clock: Callable[[], float]
    salt: bytes
    on_decision: Callable[[DecisionRecord], None] = _ignore
    name: str = "toolgate"
    store_up: bool = field(default=True, init=False)
    _state: RolloutState = field(init=False)
    _in_force: InForce = field(init=False)
    _switch: Switch = field(default="", init=False)
    _evidence: Evidence = field(init=False)
    _counting: Counting = field(init=False, factory=Counting)
    _unsent: Counting = field(init=False, factory=Counting)
    _is_new: bool = field(default=True, init=False)
    """The settings have not been put into force, or found in force, yet."""
    _has_diverged: bool = field(default=False, init=False)
    """This process changed the state while the store was lost."""
    _lost_since: float | None = field(default=None, init=False)
    _learned: int | None = field(default=None, init=False)
    """The last block whose marks were looked at; none, until the first look at the store."""
    _looked_at: float = field(default=float("-inf"), init=False)
    _noted_at: float = field(default=float("-inf"), init=False)

    def __attrs_post_init__(self) -> None:
        self._state = begun(self._rules, self.clock(), self.name)
        self._evidence = Evidence(epoch=self._state.epoch)
        self._switch = "kill_setting" if self._rules.kill_switch else ""
        self._obey(self._state)

    # What requests ask and tell.

    def assign(self, key: str, forced: Forced | None = None) -> Assignment:
        """The arm of a request, to be asked once at its start."""
        return assign(self._in_force, self.salt, key, forced)

    @property
    def killed(self) -> bool:
        """A kill switch is on: everything is relayed untouched."""
        return bool(self._switch) or self._state.killed

    @property
    def is_quiet(self) -> bool:
        """Nothing went wrong here, and no file has to be looked at: what there is to share, or to hear, can wait."""
        is_settled = self.store_up and not (self._is_new or self._has_diverged or self._rules.kill_switch_file)
        return is_settled and not self._counting.is_urgent and not self._unsent.is_urgent

    @property
    def is_still(self) -> bool:
        """There is nothing to share."""
        return self.is_quiet and self._counting.is_empty and self._unsent.is_empty

    def hears(self, urgent: Callable[[], None]) -> None:
        """Have this called when something goes wrong here."""
        self._counting.on_urgent = urgent

    @property
    def epoch(self) -> int:
        """Of the state in force."""
        return self._state.epoch

    @property
    def slices_off(self) -> frozenset[str]:
        """Names (`rollout.slice_name`) of what the judge switched off: calls of these stay text."""
        return self._in_force.slices_off

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
        who: str = "",
    ) -> None:
        """A request ended; `transformed` says whether reading its answer worked, `None` if it was not read.

        `who` is whose it is, where credentials are known apart: the evidence of one does not do for all.
        """
        # A request that lasted over a change met settings of which nothing is asked any more.
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
            slow=overhead_s * 1000 > self._rules.transform_budget_ms,
            now=self.clock(),
            who=who,
        )

    def is_news(self, call: str, *, bad: bool) -> bool:
        """Whether nobody told before how this call fared; asked once for each telling."""
        return self._counting.is_news(call, self._state.epoch, bad=bad)

    def outcome(
        self, mark: CallMark, *, key: str, bad: bool, request_id: str = "", age_s: float | None = None, who: str = ""
    ) -> None:
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
            who=who,
        )

    def snapshot(self) -> Snapshot:
        """Where the rollout stands, as this process sees it."""
        return snapshot(
            self._state,
            self._rules,
            self._evidence,
            killed_here=self._switch,
            store_up=self.store_up,
            lost=self._is_lost(self.clock()),
        )

    # What the owner calls.

    @property
    def rules(self) -> RolloutRules:
        """The settings; where others are set, their kill switch counts at once and the rest from the next tick on."""
        return self._rules

    @rules.setter
    def rules(self, rules: RolloutRules) -> None:
        self._rules = rules
        self._is_new = True
        if rules.kill_switch:
            self._turn("kill_setting")
        elif self._switch == "kill_setting":
            self._turn("")
        self._obey(self._state)

    async def tick(self) -> None:
        """Share the counts, judge, obey; to be called several times a second. Never raises."""
        try:
            await self._look_at_switch_file()
            await self._sync()
        except Exception:  # noqa: BLE001 - whatever fails here, requests go on under the last state
            _log.exception("rollout_tick_failed")

    async def _sync(self) -> None:
        # Taken before anything is awaited: what is counted meanwhile belongs to the next tick.
        counts, marks = self._counting.take()
        if counts or marks:
            marks |= self._settings()
        # Sent with the next ones where the store is away: nothing that was seen is lost.
        self._unsent.give_back(counts, marks)
        try:
            await self._send()
            values = await self.store.get(STATE_KEY, EVIDENCE_KEY)
            raw = await self._meet(values.get(STATE_KEY))
            if raw is not None:
                await self._judge(raw, values.get(EVIDENCE_KEY))
            self._found()
        except StoreError:
            self._lose()
            # Numbered behind all that was judged: where this clock lags, the counts would pass for known ones.
            self._judge_alone(
                Block(number=max(self._evidence.block + 1, int(self.clock())), counts=counts, marks=marks)
            )

    async def _send(self) -> None:
        counts, marks = self._unsent.take()
        if not counts and not marks:
            return
        try:
            await self.store.tally(counts, marks)
        except StoreError:
            self._unsent.give_back(counts, marks)
            raise

    async def _meet(self, raw: bytes | None) -> bytes | None:
        """Bring the shared state and one's own together; the bytes that now stand for both, if they agree."""
        shared = state_of(raw)
        state = self._state if shared is None else self._met(shared)
        pause = self._pause_after_loss(state)
        if pause is not None:
            return await self._swap(raw, pause.state, pause.decision)
        if state != shared:
            return await self._swap(raw, state)
        self._has_diverged = False
        self._obey(state)
        return raw

    def _met(self, shared: RolloutState) -> RolloutState:
        # A store that lost its last writes, or was exchanged, must not let more be live than was decided.
        is_stale = shared.revision < self._state.revision
        return more_careful(shared, self._state) if self._has_diverged or is_stale else shared

    def _pause_after_loss(self, state: RolloutState) -> Change | None:
        """The store was away for long: little was seen meanwhile, so nothing is promoted for a while."""
        now = self.clock()
        may_pause = not state.killed and state.state in ("canary", "full") and self._rules.rollout_auto != "none"
        if not may_pause or not self._is_lost(now):
            return None
        return paused(state, now=now, by=self.name, reason="store_lost", cause="store_lost")

    async def _swap(
        self, raw: bytes | None, state: RolloutState, decision: DecisionRecord | None = None
    ) -> bytes | None:
        """Make a state the shared one; who comes too late follows the other's at the next tick."""
        new = encoded(state)
        if not await self.store.swap(STATE_KEY, raw, new):
            return None
        self._has_diverged = False
        self._obey(state)
        if decision is not None:
            self.on_decision(decision)
        return new

    async def _judge(self, raw: bytes, raw_evidence: bytes | None) -> None:
        evidence = evidence_of(raw_evidence) or Evidence(epoch=self._state.epoch)
        blocks = await self.store.blocks(evidence.block)
        await self._learn(evidence.block, blocks)
        if blocks and blocks[0].number <= evidence.block:
            evidence = Evidence(epoch=evidence.epoch)  # the clock was set back: what follows is counted anew
        evidence = evidence.aligned(self._state.epoch, self._state.slices_off)
        self._evidence = after(evidence, blocks[:MAX_BLOCKS], self._rules.judge())
        if blocks:
            # Who comes too late has computed the same.
            await self.store.swap(EVIDENCE_KEY, raw_evidence, encoded(self._evidence))
        now = self.clock()
        # Settings first: where the judge may go next follows from them.
        change = self._configured() or self._advanced(now)
        again = self._informed() or refreshed(self._state, self._evidence, now)
        if change is not None:
            await self._swap(raw, change.state, change.decision)
        elif again is not None:
            await self._swap(raw, again)
        # A swap that lost its race is tried again at the next tick: only what is shared counts as put into force.
        elif self._state.digest == self._rules.digest():
            self._is_new = False

    async def _learn(self, judged: int, blocks: Sequence[Block]) -> None:
        """Which outcomes were told to other processes, in blocks that others have judged already, too."""
        # Blocks that others judged are not read for the judge, but the outcomes in them are no news here either.
        if self._learned is not None and self._learned < judged:
            for block in await self.store.blocks(self._learned):
                self._counting.learn(block.marks)
        for block in blocks:
            self._counting.learn(block.marks)
        self._learned = max(judged, *(block.number for block in blocks)) if blocks else judged

    def _advanced(self, now: float) -> Change | None:
        """Nothing goes on by itself while this process is switched off; a fault that it has seen still counts."""
        move = fallen_back if self._switch else advanced
        return move(self._state, self._rules, self._evidence, now=now, by=self.name)

    def _configured(self) -> Change | None:
        if not self._is_new:
            return None
        return configured(self._state, self._rules, now=self.clock(), by=self.name)

    def _informed(self) -> RolloutState | None:
        """The state with these settings, for the command line, where they change nothing of who is live."""
        is_same_digest = self._state.digest == self._rules.digest()
        if not self._is_new or not is_same_digest or self._state.rules == self._rules.shared():
            return None
        return informed(self._state, self._rules)

    def _judge_alone(self, block: Block) -> None:
        """Fall back where one's own requests show a fault, and obey new settings that are more careful."""
        if block.counts or block.marks:
            evidence = self._evidence.aligned(self._state.epoch, self._state.slices_off)
            self._evidence = after(evidence, (block,), self._rules.judge())
        change = self._more_careful_settings() or fallen_back(
            self._state, self._rules, self._evidence, now=self.clock(), by=self.name
        )
        if change is not None:
            self._has_diverged = True
            self._obey(change.state)
            self.on_decision(change.decision)

    def _more_careful_settings(self) -> Change | None:
        """Settings that let fewer be live do not wait for the store."""
        change = self._configured()
        if change is None or self._state.state == "rolled_back":
            # What was rolled back lets nobody be live: no setting is more careful.
            return None
        return change if in_force(change.state, self._rules).percent <= self._in_force.percent else None

    # What is in force here.

    def _obey(self, state: RolloutState) -> None:
        self._state = state
        self._in_force = in_force(state, self._rules, killed=bool(self._switch))

    async def _look_at_switch_file(self) -> None:
        path, now = self._rules.kill_switch_file, self.clock()
        # `abs`: a clock that was set back must not keep the file from being looked at.
        if self._rules.kill_switch or (path is not None and abs(now - self._looked_at) < SWITCH_FILE_S):
            return
        self._looked_at = now
        # In a thread: the file may lie on a disk of the network, which can hang.
        is_there = path is not None and await asyncio.to_thread(_exists, path, self._switch == "kill_file")
        # The setting wins over the file: whoever set it has to take it back.
        if is_there != bool(self._switch):
            self._turn("kill_file" if is_there else "")

    def _turn(self, switch: Switch) -> None:
        if switch == self._switch:
            return
        before, was = shown_state(self._state) if not self._switch else "off", self._switch
        self._switch = switch
        self._obey(self._state)
        decision: Decision = "kill" if switch else "unkill"
        self.on_decision(
            DecisionRecord(
                at=self.clock(),
                decision=decision,
                reason=switch or was,
                by=self.name,
                epoch=self._state.epoch,
                state_before=before,
                state_after="off" if switch else shown_state(self._state),
            )
        )

    def _settings(self) -> frozenset[str]:
        """Beside what was counted, now and then, the settings that it was counted under."""
        now = self.clock()
        if abs(now - self._noted_at) < SETTINGS_S:
            return frozenset()
        self._noted_at = now
        return frozenset((named("settings", 0, "", subject=self._rules.digest()),))

    # Whether the store is there.

    def _is_lost(self, now: float) -> bool:
        return self._lost_since is not None and now - self._lost_since >= LOST_S

    def _lose(self) -> None:
        self.store_up = False
        if self._lost_since is None:
            self._lost_since = self.clock()

    def _found(self) -> None:
        self.store_up = True
        self._lost_since = None


def _exists(path: str, unknown: bool) -> bool:
    """Whether a file is there; `unknown` where that cannot be told."""
    # Only these two errors say that there is no such file; behind any other the switch stays as it was.
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return unknown
    return True
