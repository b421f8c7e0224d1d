"""What every request works with: the configuration in force, and what all requests of this process share."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from attrs import define, field, frozen
from yarl import URL

from gateway.config import Settings
from gateway.core.client import Client
from gateway.core.errors import ConfigError, GatewayError, Unauthenticated
from gateway.core.limits import Limits
from gateway.core.ports import Meter
from gateway.net.patience import Patience
from gateway.net.upstream import UpstreamClient
from gateway.policy.admission import Admission
from gateway.policy.breaker import Breaker
from gateway.policy.callids import Arm, CallIds
from gateway.policy.capability import KeepsLessons, Lessons, NativeRecord
from gateway.policy.feedback import RecentAnswers
from gateway.policy.retry import RetryBudget, RetryPolicy
from gateway.policy.routing import DEFAULT_UPSTREAM
from gateway.wire.openai_chat import ChatRequest
from strategies.base import Options, ToolExecutionStrategy
from strategies.clients import recognise
from strategies.factory import Capability, ClientStyle, Passthrough, Selection, ToolExecutionFactory

__all__ = ["Configuration", "Shared", "Telemetry"]


class Telemetry(Meter, Protocol):
    """What the edge asks of the metrics beside counting: gauges, earned label values, the exposition."""

    def set(self, name: str, labels: Mapping[str, str], value: float) -> None: ...

    def add(self, name: str, labels: Mapping[str, str], amount: float) -> None: ...

    def inform(self, name: str, labels: Mapping[str, str]) -> None: ...

    def admit(self, label: str, raw: str) -> str: ...

    def render(self, accept: str = "") -> tuple[bytes, str]: ...


@frozen(kw_only=True)
class Configuration:
    """The settings in force and what follows from them; replaced as a whole by a reload, never changed."""

    settings: Settings
    factory: ToolExecutionFactory
    upstream: str = DEFAULT_UPSTREAM
    provider: str = "openai"
    base_url: URL
    chat_url: URL
    models_url: URL
    limits: Limits
    _options: dict[str | None, Options] = field(factory=dict)

    @classmethod
    def build(
        cls, settings: Settings, strategies: Mapping[str, ToolExecutionStrategy], *, upstream_url: str
    ) -> "Configuration":
        """Raises `ConfigError` for rules that name a strategy which is not there."""
        factory = ToolExecutionFactory(
            strategies,
            rules=settings.strategy_rules,
            enabled=settings.tool_calling_enabled,
            auto_detect=settings.auto_detect,
        )
        faults = factory.faults()
        if faults:
            raise ConfigError([f"STRATEGY_RULES: {fault}" for fault in faults])
        base_url = URL(upstream_url)
        return cls(
            settings=settings,
            factory=factory,
            base_url=base_url,
            chat_url=base_url / "chat" / "completions",
            models_url=base_url / "models",
            limits=settings.limits(),
        )

    @property
    def forwards_credentials(self) -> bool:
        """The client's own key goes upstream: there is no key of ours, and none that opens the gateway."""
        return self.settings.api_keys.is_open and self.settings.upstream_api_key is None

    @property
    def arm(self) -> Arm:
        """What every request gets."""
        return "off" if self.settings.transform_mode == "off" else "live"

    def decide(self, request: ChatRequest, capability: Capability, client: Client) -> Selection:
        """The strategy for a request; in mode `off` every request passes through."""
        if self.arm == "off":
            return Selection(strategy=Passthrough(), dialect=None, reason="off")
        reads_tags = self.factory.auto_detect and recognise(request, client) is not None
        style: ClientStyle = "xml_text" if reads_tags else "native"
        return self.factory.decide(self.provider, request.model, style, request, capability)

    def strategy_of(self, model: str, capability: Capability) -> str:
        """The name of the strategy that requests with tools for this model get."""
        if self.arm == "off" or not self.factory.enabled:
            return Passthrough.name
        return self.factory.of_model(self.provider, model, capability).strategy.name

    def options(self, dialect: str | None) -> Options:
        """What a strategy may look at, for the dialect that a rule named."""
        options = self._options.get(dialect)
        if options is None:
            options = self._options[dialect] = self.settings.strategy_options(dialect)
        return options

    def authenticate(self, token: str | None) -> None:
        """Raises `Unauthenticated` unless the token opens the gateway or none is asked for."""
        keys = self.settings.api_keys
        if keys.is_open:
            return
        if not keys.check(token or "", datetime.now(UTC)):
            raise Unauthenticated("a valid key is needed: Authorization: Bearer <key>")


class UnderWay:
    """The requests that are being answered, by their waits."""

    __slots__ = ("_empty", "_waits")

    def __init__(self) -> None:
        self._waits: set[Patience] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, patience: Patience) -> None:
        """A request begins."""
        self._waits.add(patience)
        self._empty.clear()

    def discard(self, patience: Patience) -> None:
        """A request has ended."""
        self._waits.discard(patience)
        if not self._waits:
            self._empty.set()

    def interrupt(self, make_error: Callable[[], GatewayError]) -> None:
        """End the wait of every request with an error of its own."""
        for patience in list(self._waits):
            patience.interrupt(make_error())

    async def ended(self, seconds: float) -> bool:
        """Whether all have ended within the time."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True


@define(kw_only=True)
class Shared:
    """What all requests of this process share; `configuration` is read once per request."""

    configuration: Configuration
    client: UpstreamClient
    telemetry: Telemetry
    admission: Admission
    breaker: Breaker = field(factory=Breaker)
    retry: RetryPolicy = field(factory=RetryPolicy)
    budget: RetryBudget = field(factory=RetryBudget)
    call_ids: CallIds = field(factory=lambda: CallIds(secrets.token_bytes(32), secrets.token_bytes))
    lessons: KeepsLessons = field(factory=Lessons)
    native_record: NativeRecord = field(factory=NativeRecord)
    answers: RecentAnswers = field(factory=RecentAnswers)
    jitter: Callable[[], float] = field(factory=lambda: secrets.SystemRandom().random)
    draining: bool = False
    under_way: UnderWay = field(factory=UnderWay)
