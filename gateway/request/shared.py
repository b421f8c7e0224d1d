"""What every request works with: the configuration in force, and what all requests of this process share."""

import asyncio
import secrets
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any, Literal, Protocol

from attrs import define, field, frozen

from gateway.config.declared.keys import Key
from gateway.config.load import Settings
from gateway.core.client import Client
from gateway.core.errors import ConfigError, GatewayError, Unauthenticated
from gateway.core.limits import Limits
from gateway.core.origins import is_loopback
from gateway.core.ports import Fed, Lines, Meter, Tracing
from gateway.core.records import Arm, Record, RequestRecord
from gateway.core.rules import ModelRule, Quota, Standing
from gateway.request.deadline import Deadline
from gateway.request.servers import Upstream, upstreams_of
from gateway.rollout.assignment import Assignment, Forced
from gateway.rollout.call_ids import CallIds, CallMark
from gateway.traffic.absent_paths import AbsentPaths
from gateway.traffic.admission import Admission
from gateway.traffic.breaker import Breaker
from gateway.traffic.door import Door
from gateway.traffic.lesson_rules import Abilities, KeepsLessons, Lessons, NativeEvidence, NativeRecord, ValidCalls
from gateway.traffic.output_caps import OutputCaps
from gateway.traffic.recent_answers import RecentAnswers
from gateway.traffic.rescues import Rescues
from gateway.traffic.retry import RetryBudget, RetryPolicy
from gateway.traffic.routing import Router
from gateway.traffic.samples import Samples
from gateway.traffic.token_ratios import ContextCuts, TokenRatios
from gateway.wire.chat_request import ChatRequest
from strategies.base import Options, ToolExecutionStrategy
from strategies.clients import recognise
from strategies.factory import Capability, ClientStyle, Passthrough, Selection, ToolExecutionFactory

__all__ = ["Configuration", "Keeps", "Rollout", "Shared", "Telemetry"]


class Telemetry(Meter, Protocol):
    """What the edge asks of the metrics beside counting: gauges, earned label values, the exposition."""

    def feed(self, key: Hashable, rows: Callable[[], Sequence[Fed]], values: Sequence[float | None]) -> None: ...

    def settle(self) -> None: ...

    def observe_traced(self, name: str, labels: Mapping[str, str], value: float, trace: str | None) -> None: ...

    def set(self, name: str, labels: Mapping[str, str], value: float) -> None: ...

    def gauge(self, name: str, labels: Mapping[str, str]) -> list[float]: ...

    def inform(self, name: str, labels: Mapping[str, str]) -> None: ...

    def admit(self, label: str, raw: str, who: str = "") -> str: ...

    def render(self, accept: str = "") -> tuple[bytes, str]: ...


class Rollout(Protocol):
    """Who is live, and what came of it; nothing here waits."""

    def assign(self, key: str, forced: Forced | None = None) -> Assignment: ...

    @property
    def slices_off(self) -> frozenset[str]: ...

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
    ) -> None: ...

    def is_news(self, call: str, *, bad: bool) -> bool: ...

    def outcome(
        self, mark: CallMark, *, key: str, bad: bool, request_id: str = "", age_s: float | None = None, who: str = ""
    ) -> None: ...


class Keeps(Protocol):
    """Where records go: taken at once, written when there is time, lost and counted when there is no room."""

    @property
    def healthy(self) -> bool: ...

    def put(self, record: Record) -> None: ...


class KeepsSessions(Protocol):
    """What conversations with model servers need from one request to the next."""

    async def recall(self, *keys: str) -> dict[str, bytes]: ...

    async def remember(self, values: Mapping[str, bytes], ttl_s: float) -> None: ...


class CountsKeys(Protocol):
    """What keys may use, and have used."""

    async def enter(self, key: str, quota: Quota) -> Mapping[str, Standing]: ...

    async def lease(self, key: str, quota: Quota, id: str) -> None: ...

    def release(self, id: str) -> None: ...

    def spend(self, key: str, tokens: int) -> None: ...


class Remembers(Protocol):
    """Where answers of other processes, or of before a restart, are found."""

    async def find_answer(self, completion_id: str) -> RequestRecord | None: ...


@frozen(kw_only=True)
class Configuration:
    """The settings in force and what follows from them; replaced as a whole by a reload, never changed."""

    settings: Settings
    factory: ToolExecutionFactory
    router: Router
    upstreams: Mapping[str, Upstream]
    default: Upstream
    """Serves what no rule gives to another, and everything that is only relayed."""
    limits: Limits
    door: Door
    digest: str
    """Tells the settings in force from others."""
    has_keys: bool
    """Nobody is let in without one."""
    keeps: Literal["none", "redacted", "full"]
    """How much of bodies goes into records; of the demo's scripts all, as the first minute is when it counts."""
    shown_models: dict[str, str] = field(factory=dict)
    """Names of models as records say them: without what looks like a credential."""
    # Dialects come from rules, not from clients, so these grow no further than the settings do.
    known_options: dict[str | None, Options] = field(factory=dict)
    """By the dialect that a rule named, as far as they were asked for."""
    known_deaf_options: dict[str | None, Options] = field(factory=dict)
    """The same, for answers in whose text no native call can have leaked."""

    @classmethod
    def build(
        cls, settings: Settings, strategies: Mapping[str, ToolExecutionStrategy], *, upstream_url: str | None
    ) -> "Configuration":
        """Raises `ConfigError` for rules that name a strategy which is not there; `upstream_url` is the demo's."""
        factory = ToolExecutionFactory(
            strategies,
            rules=settings.all_rules(),
            enabled=settings.tool_calling_enabled,
            auto_detect=settings.auto_detect,
        )
        # Found here and not with the first request: a reload with a wrong rule must leave the old settings in force.
        faults = factory.faults()
        if faults:
            raise ConfigError([f"STRATEGY_RULES: {fault}" for fault in faults])
        upstreams = upstreams_of(settings, upstream_url)
        # The first in the file: what no rule names has to go somewhere, and to the same place after a restart.
        default = next(iter(upstreams.values()))
        return cls(
            settings=settings,
            factory=factory,
            router=Router(
                default=default.name,
                rules=settings.routes.models,
                served=((glob, each.name) for each in settings.routes.upstreams for glob in each.models),
            ),
            upstreams=upstreams,
            default=default,
            limits=settings.limits(),
            door=Door(
                has_keys=not settings.api_keys.is_open,
                hosts=settings.allowed_hosts,
                origins=settings.allowed_origins,
            ),
            digest=settings.digest(),
            has_keys=not settings.api_keys.is_open,
            keeps="full" if settings.is_demo and not settings.is_set("AUDIT_BODIES") else settings.audit_bodies,
        )

    def decide(
        self,
        request: ChatRequest,
        capability: Capability,
        client: Client,
        arm: Arm,
        provider: str,
        *,
        asked: str,
        is_chat: bool = True,
    ) -> Selection:
        """The strategy for a request, whose model was `asked` for by this name; in the arm `off` all pass through.

        Clients whose tools stand in a prompt, and requests that mean tools and offer none, are there in chat alone.
        """
        if arm == "off":
            return Selection(strategy=Passthrough(), dialect=None, reason="off")
        if not is_chat:
            # The other wires carry tools in fields of their own, so their clients are never such that read tags.
            chosen = self.factory.decide(provider, request.model, "native", request, capability, asked=asked)
            no_tools = Selection(strategy=Passthrough(), dialect=None, reason="no_tools")
            return no_tools if chosen.reason == "intent" else chosen
        reads_tags = self.factory.auto_detect and recognise(request, client) is not None
        style: ClientStyle = "xml_text" if reads_tags else "native"
        return self.factory.decide(provider, request.model, style, request, capability, asked=asked)

    def strategy_of(self, model: str, capability: Capability, provider: str, *, asked: str) -> str:
        """The name of the strategy that requests with tools for this model get, when it is asked for by this name."""
        # Asked for the list of models too, which must not promise what no request would get.
        if self.settings.transform_mode == "off" or not self.factory.enabled:
            return Passthrough.name
        return self.factory.of_model(provider, model, capability, asked).strategy.name

    def options(self, dialect: str | None) -> Options:
        """What a strategy may look at, for the dialect that a rule named."""
        options = self.known_options.get(dialect)
        if options is None:
            options = self.known_options[dialect] = self.settings.strategy_options(dialect)
        return options

    def tool_map(self, model: str, rule: ModelRule | None) -> str | None:
        """The mapping of tools for a model; what its rule says wins."""
        if rule is not None and rule.tool_map is not None:
            return rule.tool_map
        name = model.lower()
        for pattern, mapping in self.settings.tool_map:
            # With and without the vendor in front, as servers name the same model either way.
            if fnmatchcase(name, pattern.lower()) or fnmatchcase(name.rpartition("/")[2], pattern.lower()):
                return mapping
        return None

    def is_trusted(self, address: str | None) -> bool:
        """Whether a header that only a proxy may set is believed from this address."""
        # The peer's own address: headers that name another one can be sent by anybody.
        networks = self.settings.trusted_proxies
        if not networks or address is None:
            return False
        try:
            peer = ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in networks)

    @property
    def is_own(self) -> bool:
        """Nobody but whoever runs it is let in: it listens on loopback, and the door keeps all others out."""
        settings = self.settings
        # Names of other hosts or pages show that somebody else is meant to come in.
        is_widened = settings.allowed_hosts or settings.allowed_origins
        return settings.api_keys.is_open and is_loopback(settings.host) and not is_widened

    def authenticate(self, token: str | None) -> Key | None:
        """The key that the token is, None where none is asked for; raises `Unauthenticated`."""
        keys = self.settings.api_keys
        if keys.is_open:
            return None
        key = keys.check(token or "", datetime.now(UTC))
        if key is None:
            raise Unauthenticated("a valid key is needed: Authorization: Bearer <key>")
        return key


class Lasting(Protocol):
    """A request that is still going on, as far as it is told of."""

    started: float
    told_at_s: float
    """How old it was when it was last told of."""

    def lasts(self, age_s: float) -> None: ...


class UnderWay:
    """The requests that are being answered, by their waits; whoever begins or ends one writes it down here."""

    __slots__ = ("is_empty", "waits")

    def __init__(self) -> None:
        self.waits: dict[Deadline, Lasting | None] = {}
        self.is_empty: asyncio.Event | None = None
        """Is set when the last one has ended, where somebody waits for that."""

    def __len__(self) -> int:
        return len(self.waits)

    def lasting(self, since: float) -> "Iterator[Lasting]":
        """Those that began before then, the oldest first."""
        for request in self.waits.values():
            if request is None:
                continue
            if request.started >= since:
                return  # they came one after the other
            yield request

    def interrupt(self, make_error: Callable[[], GatewayError]) -> None:
        """End the wait of every request with an error of its own."""
        # A copy: who is interrupted takes himself out.
        for deadline in list(self.waits):
            deadline.interrupt(make_error())

    async def ended(self, seconds: float) -> bool:
        """Whether all have ended within the time."""
        self.is_empty = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # Asked again after each waking, as others may have begun since the event was set.
                while self.waits:
                    await self.is_empty.wait()
                    self.is_empty.clear()
        return not self.waits


@define(kw_only=True)
class Shared:
    """What all requests of this process share; `configuration` is read once per request."""

    configuration: Configuration
    client: Any
    """What sends requests to model servers: the `UpstreamClient` of the room above."""
    telemetry: Telemetry
    admission: Admission
    breakers: dict[str, Breaker] = field(factory=dict)
    """By the name of the upstream."""
    retry: RetryPolicy = field(factory=RetryPolicy)
    budget: RetryBudget = field(factory=RetryBudget)
    second_questions: RetryBudget = field(factory=lambda: RetryBudget(share=0.5, floor=10))
    """Of those that are asked for a better answer: a parser that fails for one request fails for many at once."""
    rescues: Rescues = field(factory=Rescues)
    rollout: Rollout
    keeps: Keeps
    tracing: Tracing | None = None
    """Where spans are begun; None where nobody wants any."""
    answered: Remembers
    sessions: KeepsSessions
    quotas: CountsKeys
    mask: Callable[[str], str]
    """Takes credentials out of a text that is to be kept."""
    lines: Callable[[], Lines | None] = lambda: None
    """Where the line of a request goes, when not through the log as any other."""
    secret: bytes = field(factory=lambda: secrets.token_bytes(32), repr=False)
    """What conversation keys and call ids are made with; the same in all processes."""
    call_ids: CallIds = field(factory=lambda: CallIds(secrets.token_bytes(32), secrets.token_bytes))
    lessons: KeepsLessons = field(factory=Lessons)
    output_caps: OutputCaps = field(factory=OutputCaps)
    absent_paths: AbsentPaths = field(factory=AbsentPaths)
    token_ratios: TokenRatios = field(factory=TokenRatios)
    native_record: NativeRecord = field(factory=NativeRecord)
    valid_calls: ValidCalls = field(factory=ValidCalls)
    native_evidence: NativeEvidence = field(factory=NativeEvidence)
    abilities: Abilities = field(factory=Abilities)
    context_cuts: ContextCuts = field(factory=ContextCuts)
    answers: RecentAnswers = field(factory=RecentAnswers)
    samples: Samples = field(factory=Samples)
    wall: Callable[[], float] = time.time
    jitter: Callable[[], float] = field(factory=lambda: secrets.SystemRandom().random)
    draining: bool = False
    under_way: UnderWay = field(factory=UnderWay)
    ended: list[Any] = field(factory=list)
    """Requests that have ended, and are not written down yet."""
    active_streams: list[float] = field(init=False)
    """The gauge of the streams that go on: its only number is to be moved."""
    in_flights: dict[str, list[float]] = field(factory=dict)
    """The gauges of `in_flight`, by route."""

    @active_streams.default
    def _gauge_of_streams(self) -> list[float]:
        return self.telemetry.gauge("toolgate_active_streams", {})

    def breaker(self, upstream: str) -> Breaker:
        """How this upstream fares."""
        breaker = self.breakers.get(upstream)
        if breaker is None:
            # Made when first asked for, and kept over reloads: a server that fails goes on failing with other settings.
            breaker = self.breakers[upstream] = Breaker()
        return breaker

    def in_flight(self, route: str) -> list[float]:
        """The gauge of the requests of a route that are being answered: its only number is to be moved."""
        gauge = self.telemetry.gauge("toolgate_requests_in_flight", {"route": route})
        self.in_flights[route] = gauge
        return gauge

    def take_secret(self, secret: bytes) -> None:
        """Another secret is in force."""
        self.secret = secret
