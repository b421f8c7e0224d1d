"""What goes on beside the requests: records are written, the rollout is shared, lessons and secrets come from others.

Nothing here is waited for by a request. A store that is away costs records, which are counted, and news of other
processes; the gateway goes on with what it last knew.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, get_args

import structlog
from attrs import define, field

from gateway.background.lesson_sync import SharedLessons
from gateway.background.quotas import KeyQuotas
from gateway.background.recorder import Recorder
from gateway.background.rollout_agent import RolloutAgent
from gateway.background.secrets import Secret, kept_secret
from gateway.background.sessions import Sessions
from gateway.config.load import Settings
from gateway.core.addresses import store_address
from gateway.core.ports import StoreError
from gateway.core.records import DecisionRecord
from gateway.request.shared import Telemetry
from gateway.rollout.call_ids import CallIds
from gateway.rollout.stages import State, reason_word
from gateway.state.metered import WatchedStore
from gateway.state.opening import open_quotas, open_store
from gateway.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from gateway.state.redis_quotas import RedisQuotas

__all__ = ["Upkeep"]

TICK_S = 0.25
QUIET_TICKS = 3
"""While nothing goes wrong here, one tick of these shares what was counted and hears of what others decide:
`toolgate rollout kill` promises a second."""
LESSONS_TICKS = 4
SALT_TICKS = 8
"""Whoever starts while a store has lost the secret makes another one for all."""
AWAKE_TICKS = 12
"""So long there may be more to share or to hear behind the last news: a second is judged once it is over."""
REST_S = 60.0
"""Even then a promotion may fall due, or a store be away."""
CLOSE_S = 5.0
SALT_NAME = "salt"
SALT_BYTES = 32
SALT_TRIES = 4
SALT_PAUSE_S = 0.5

log = structlog.get_logger("toolgate")


@define(kw_only=True)
class Upkeep:
    """The store of one process and those who work with it."""

    telemetry: Telemetry
    store: WatchedStore
    recorder: Recorder
    agent: RolloutAgent
    lessons: SharedLessons
    sessions: Sessions
    quotas: KeyQuotas
    call_ids: CallIds
    secret: bytes = field(repr=False)
    """What conversation keys are made with."""
    _salt: Secret = field(repr=False)
    _is_given: bool
    _redactor: Redactor
    _slices_shown: set[str] = field(init=False, factory=set)
    """Slices that were off at some time: what is on again is told to be so."""
    _ticks: int = field(init=False, default=0)
    _awake: int = field(init=False, default=AWAKE_TICKS)
    """Ticks until it may rest, where nothing happens meanwhile."""
    _woken: asyncio.Event = field(init=False, factory=asyncio.Event)
    on_secret: Callable[[bytes], None] = lambda _: None
    """Hears of another secret than the one that it began with."""

    @classmethod
    async def begin(cls, settings: Settings, telemetry: Telemetry, *, names: frozenset[str]) -> "Upkeep":
        """Open the store, or go on without it until it can be opened; `names` may stand in ids of calls."""
        store = WatchedStore(
            open_store(settings.store_url, prefix=settings.store_prefix, timeout_ms=settings.store_timeout_ms),
            telemetry,
        )
        try:
            # A gateway without its store still answers: what it would keep is counted as lost until the store is there.
            await store.open()
        except StoreError as error:
            log.error("store_unavailable", fault=str(error))
        salt = await _salt(settings, store)
        if not salt.is_shared:
            log.warning("salt_not_shared", meaning="until the store answers, arms and call ids are this process's own")
        recorder = Recorder(
            store=store,
            telemetry=telemetry,
            retention_s=settings.retention_s,
            max_bytes=settings.store_max_bytes,
            is_store_up=lambda: store.is_up,
        )
        agent = RolloutAgent(
            store=store,
            rules=settings.rollout_rules(),
            clock=time.time,
            salt=salt.value,
            # Told by the agent and not read back from the store: it is in force before it is recorded.
            on_decision=_Decisions(recorder, telemetry),
        )
        await agent.tick()  # a rollback that others know of holds for the first request, too
        return cls(
            telemetry=telemetry,
            store=store,
            recorder=recorder,
            agent=agent,
            lessons=SharedLessons(store),
            sessions=Sessions(store=store),
            quotas=KeyQuotas(shared=_shared_quotas(settings), telemetry=telemetry),
            call_ids=CallIds(_derived(salt.value, b"call ids"), secrets.token_bytes, names=names),
            secret=_derived(salt.value, b"conversations"),
            salt=salt,
            is_given=settings.canary_salt is not None,
            redactor=Redactor(settings.secrets()),
        )

    def mask(self, text: str) -> str:
        """The text without credentials."""
        return self._redactor.mask(text)

    def follow(self, settings: Settings) -> None:
        """New settings are in force."""
        self.agent.rules = settings.rollout_rules()
        # New rules may make something due that nothing else would wake for.
        self._wake()
        self._redactor = Redactor(settings.secrets())
        self.recorder.retention_s = settings.retention_s
        self.recorder.max_bytes = settings.store_max_bytes

    async def run(self) -> None:
        """Go on until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.recorder.run(), name="recorder")
            tasks.create_task(self.quotas.run(), name="quotas")
            tasks.create_task(self._follow(), name="sharing")

    async def finish(self) -> None:
        """Share the last counts and write the last records, while `run` still goes on."""
        # The counts first: records may take all of the time that is left.
        await self.agent.tick()
        await self.recorder.close(CLOSE_S)

    async def close(self) -> None:
        """Close the store."""
        try:
            await self.quotas.close()
            await self.store.close()
        except StoreError as error:
            log.warning("store_unavailable", fault=str(error))

    def look_up(self) -> None:
        """Go on where there is something to share; to be called about every second."""
        if not self._is_still:
            self._wake()

    @property
    def _is_still(self) -> bool:
        is_shared = self.agent.is_still and self.lessons.is_still and self.sessions.is_still and self._salt.is_shared
        return is_shared and self.store.is_up

    def _wake(self) -> None:
        # Only a rest is broken off: while awake the next tick is near in any case.
        if not self._awake:
            self._woken.set()
        self._awake = AWAKE_TICKS

    async def _follow(self) -> None:
        """Look at the store several times a second, and rest where the store says by itself when others wrote."""
        # Before the first tick: what others write while it runs is not missed.
        end_watch = self.store.watch(self._wake)
        self.agent.hears(self._wake)
        has_rested = True
        try:
            while True:
                await self._tick(is_whole=has_rested)
                # A store that does not say when others wrote has to be asked for ever.
                self._awake = max(0, self._awake - 1) if self._is_still and end_watch is not None else AWAKE_TICKS
                has_rested = not self._awake
                # A wake during the tick has set `_awake`, so the wait is a short one.
                self._woken.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(REST_S if has_rested else TICK_S):
                        await self._woken.wait()
        finally:
            if end_watch is not None:
                end_watch()

    async def _tick(self, *, is_whole: bool) -> None:
        self._ticks += 1
        if is_whole or not self.agent.is_quiet or not self._ticks % QUIET_TICKS:
            await self._tried(self._share)
        if is_whole or not self._ticks % LESSONS_TICKS:
            await self._tried(self.lessons.sync)
            await self._tried(self.sessions.sync)
        if is_whole or not self._ticks % SALT_TICKS:
            await self._tried(self._share_salt)

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        # Whatever a store does: the other work of this tick, and the next tick, go on.
        except Exception:
            log.exception("upkeep_failed")

    async def _share(self) -> None:
        await self.agent.tick()
        self._show()

    def _show(self) -> None:
        """Put the rollout's state into the metrics."""
        telemetry, now = self.telemetry, self.agent.snapshot()
        # All of them, with nought for the others: a series that is left out would keep its last value on a dashboard.
        for state in get_args(State):
            telemetry.set("toolgate_rollout_state", {"state": state}, float(state == now.state))
        telemetry.set("toolgate_rollout_percent", {"kind": "target"}, now.percent_target / 100)
        telemetry.set("toolgate_rollout_percent", {"kind": "effective"}, now.percent_effective / 100)
        telemetry.set("toolgate_rollout_epoch", {}, now.epoch)
        telemetry.set("toolgate_rollout_slices_off", {}, len(now.slices_off))
        self._slices_shown |= set(now.slices_off)
        for name in self._slices_shown:
            strategy, _, dialect = name.partition("/")
            labels = {"strategy": strategy, "dialect": dialect}
            telemetry.set("toolgate_rollout_slice_off", labels, float(name in now.slices_off))
        telemetry.inform("toolgate_rollout_epoch_info", {"epoch": str(now.epoch)})
        for test, value in {**now.statistics, "limit": now.limit}.items():
            telemetry.set("toolgate_rollout_statistic", {"test": test}, value)

    async def _share_salt(self) -> None:
        """Bring one's own salt to a store that has none, or take over the one that is there."""
        if self._is_given:
            return
        held = self._salt
        self._salt = await kept_secret(self.store, SALT_NAME, lambda: held.value)
        if self._salt.value == held.value:
            return
        # The store is away again: the one that all share stays in force.
        if held.is_shared and not self._salt.is_shared:
            self._salt = held
            return
        log.warning("salt_replaced", meaning="conversations may change their arm, as the store holds another salt")
        self.agent.salt = self._salt.value
        self.call_ids.rekey(_derived(self._salt.value, b"call ids"))
        self.secret = _derived(self._salt.value, b"conversations")
        self.on_secret(self.secret)


@define
class _Decisions:
    """Writes down what was decided."""

    _recorder: Recorder
    _telemetry: Telemetry

    def __call__(self, record: DecisionRecord) -> None:
        self._recorder.put(record)
        labels = {"decision": record.decision, "reason": reason_word(record)}
        self._telemetry.count("toolgate_rollout_decisions_total", labels)
        log.warning(
            "rollout_decided",
            decision=record.decision,
            reason=record.reason,
            by=record.by,
            epoch=record.epoch,
            slice=record.slice,
            before=record.state_before,
            after=record.state_after,
            numbers=dict(record.numbers),
            examples=list(record.examples),
        )


def _shared_quotas(settings: Settings) -> "RedisQuotas | None":
    return open_quotas(settings.store_url, prefix=settings.store_prefix, timeout_ms=settings.store_timeout_ms)


async def _salt(settings: Settings, store: WatchedStore) -> Secret:
    if settings.canary_salt is not None:
        return Secret(value=settings.canary_salt.encode(), is_shared=True)
    made = secrets.token_bytes(SALT_BYTES)
    salt = await kept_secret(store, SALT_NAME, lambda: made)
    # A server that is merely slow must not have this process begin with arms of its own.
    is_remote = store_address(settings.store_url).kind == "redis"
    for _ in range(SALT_TRIES if is_remote else 0):
        if salt.is_shared:
            break
        await asyncio.sleep(SALT_PAUSE_S)
        salt = await kept_secret(store, SALT_NAME, lambda: made)
    return salt


def _derived(salt: bytes, purpose: bytes) -> bytes:
    """A key of its own for each purpose."""
    # Hashed first: a key of `blake2b` has 64 bytes at most, and a salt of the settings may be longer.
    return blake2b(purpose, key=blake2b(salt).digest(), digest_size=SALT_BYTES).digest()
