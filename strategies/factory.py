"""Which strategy a request gets, and why. Built-ins and plug-ins enter by the same entry-point group.

In order: a request that no strategy has work on passes through; an operator's rule; what was learned of the upstream;
the built-in table; `recovery`.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from attrs import frozen
from msgspec import Struct
from msgspec.structs import replace

from gateway.core.rules import Rule, covers_model
from gateway.kinds.rows import KINDS
from gateway.wire.chat_request import TOOL_FIELDS, ChatRequest
from strategies.asking.forbidden import CallsForbidden, forbids_calls
from strategies.asking.intent import IntentWatch, asks_for_tools
from strategies.base import Options, Prepared, ToolExecutionStrategy
from strategies.xml_text import XmlTextStrategy

__all__ = [
    "GROUP",
    "NATIVE_STRATEGIES",
    "PROMPTED",
    "Capability",
    "ClientStyle",
    "Loaded",
    "Passthrough",
    "Selection",
    "ToolExecutionFactory",
    "load_strategies",
]

GROUP = "toolgate.strategies"
ClientStyle = Literal["native", "xml_text"]

FALLBACK = "recovery"
PROMPTED = "xml_prompt"
NATIVE_STRATEGIES = frozenset({"native", "recovery"})
"""Those that send a request's tools as they are."""
# In their order, the first that covers the name: `gpt-oss` is served by engines that leak what OpenAI's own do not.
MODEL_STRATEGIES = (
    ("gpt-oss*", "recovery"),
    ("claude*", "native"),
    ("gpt-*", "native"),
    ("o1*", "native"),
    ("o3*", "native"),
    ("o4*", "native"),
    ("chatgpt-*", "native"),
    ("gemini*", "native"),
    ("grok*", "native"),
    ("mistral-large*", "native"),
    ("mistral-medium*", "native"),
    ("command-a*", "native"),
    ("qwen*", PROMPTED),
    ("qwq*", PROMPTED),
)


class Capability(Struct, frozen=True, kw_only=True):
    """What was learned of one model at one upstream; `None` is not known."""

    native_tools: bool | None = None
    """True: it calls them well as they are, whatever the table says of its name."""
    strategy: str | None = None
    """What a probe has found best for it, whose dialect is `dialect`."""
    dialect: str | None = None


class Selection(Struct, frozen=True, kw_only=True):
    """A strategy, the dialect its rule asked for, and what decided."""

    strategy: ToolExecutionStrategy
    dialect: str | None
    reason: str


class Passthrough:
    """The request as it came, the answer as it comes."""

    name = "passthrough"

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """Nothing is changed and nothing is read."""
        return Prepared(strategy=self.name, body=request.raw, mend_native=False)


class Stripped:
    """Tool calling is switched off: the request without its tools, the answer as it comes."""

    name = "passthrough"

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """The fields that offer tools are taken out; nothing is read."""
        offered = [name for name in TOOL_FIELDS if name in request.body]
        body = request.replace(**dict.fromkeys(offered)) if offered else request.raw
        return Prepared(strategy=self.name, body=body, mend_native=False)


@frozen
class Loaded:
    """The strategies that could be loaded by name, and in words what could not be."""

    strategies: Mapping[str, ToolExecutionStrategy]
    faults: tuple[str, ...] = ()


def load_strategies(found: Iterable[EntryPoint] | None = None) -> Loaded:
    """Every strategy of the group; a broken plug-in or a second one of a name is left out and reported."""
    points = entry_points(group=GROUP) if found is None else found
    strategies: dict[str, ToolExecutionStrategy] = {}
    faults = []
    for point in sorted(points, key=_built_ins_first):
        if point.name in strategies:
            faults.append(f"strategy {point.name!r} of {point.value} is left out: the name is taken")
            continue
        try:
            strategies[point.name] = _strategy(point)
        # `SystemExit` too: a plug-in that is a script may end the process while it is imported.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may fail in any way, and harms only itself
            faults.append(f"strategy {point.name!r} of {point.value} is left out: {type(error).__name__}: {error}")
    return Loaded(strategies, tuple(faults))


class ToolExecutionFactory:
    """Selects among loaded strategies; one of these per configuration."""

    __slots__ = ("_by_model", "_rules", "_strategies", "auto_detect", "enabled")

    def __init__(
        self,
        strategies: Mapping[str, ToolExecutionStrategy],
        *,
        rules: Iterable[Rule] = (),
        enabled: bool = True,
        auto_detect: bool = False,
    ) -> None:
        self._strategies = strategies
        self._rules = tuple(rules)
        # Bounded, as names of models come from clients.
        self._by_model = lru_cache(maxsize=1024)(self._choose)
        self.enabled = enabled
        self.auto_detect = auto_detect
        """Tool work is also looked for where a request offers no tools."""

    @property
    def names(self) -> frozenset[str]:
        """The strategies that can be selected."""
        return frozenset(self._strategies)

    def faults(self) -> list[str]:
        """In words: the rules, and the parts of the built-in table, whose strategy does not exist."""
        asked = [rule.strategy for rule in self._rules] + [FALLBACK, PROMPTED, "native"]
        asked += [kind.strategy for kind in KINDS.values() if kind.strategy is not None]
        missing = sorted({name for name in asked if name not in self._strategies})
        return [f"there is no strategy named {name!r}" for name in missing]

    def select(
        self, provider: str, model: str, client: ClientStyle, request: ChatRequest, capability: Capability
    ) -> ToolExecutionStrategy:
        """The strategy that `decide` chooses."""
        return self.decide(provider, model, client, request, capability).strategy

    def decide(
        self,
        provider: str,
        model: str,
        client: ClientStyle,
        request: ChatRequest,
        capability: Capability,
        *,
        asked: str | None = None,
    ) -> Selection:
        """The strategy for this request, with the dialect and the reason; `asked` is another name for the model."""
        if not self.enabled:
            return Selection(strategy=Stripped(), dialect=None, reason="disabled")
        # A client that offers tools is answered in calls, whatever its prompt says of tags.
        if client == "xml_text" and not request.tools:
            return Selection(strategy=self._text(), dialect=None, reason="client")
        chosen = self.of_model(provider, model, capability, asked)
        if request.wants_tools:
            return chosen
        # Also where no call is wanted now: the model has its past calls in text, and would be shown another form.
        if chosen.strategy.name == PROMPTED and (len(request.tools) > 0 or _has_tool_history(request)):
            return chosen
        # Asked after the prompted ones, which read such answers themselves.
        if forbids_calls(request):
            return Selection(strategy=CallsForbidden(), dialect=None, reason="calls_forbidden")
        if self.auto_detect and not request.tools and asks_for_tools(request):
            return Selection(strategy=IntentWatch(), dialect=None, reason="intent")
        return Selection(strategy=Passthrough(), dialect=None, reason="no_tools")

    def _text(self) -> ToolExecutionStrategy:
        # It needs no entry point: a package that was installed badly must not lose these clients.
        return self._strategies.get(XmlTextStrategy.name) or XmlTextStrategy()

    def prompted(self, reason: str) -> Selection:
        """The strategy for a model that is told of its tools in the prompt."""
        return self._named(PROMPTED, reason)

    def reading(self, reason: str) -> Selection:
        """How a text is read that came in no answer at all."""
        return self._named(FALLBACK, reason)

    def unprompted(self, selection: Selection) -> Selection:
        """How an answer is read that was not asked for in the prompt: as one into which calls may have leaked."""
        if selection.strategy.name != PROMPTED:
            return selection
        return self._named(FALLBACK, selection.reason)

    def of_model(self, provider: str, model: str, capability: Capability, asked: str | None = None) -> Selection:
        """What a request with tools for this model gets, whom clients may know by another name."""
        return self._by_model(provider, model, capability, asked)

    def _choose(self, provider: str, model: str, capability: Capability, asked: str | None) -> Selection:
        for rule in self._rules:
            # By either name: operators write rules for what clients ask for, and for what servers call it.
            if covers_model(rule.pattern, model) or (asked is not None and covers_model(rule.pattern, asked)):
                return Selection(strategy=self._strategies[rule.strategy], dialect=rule.dialect, reason="rule")
        # A probe has tried them side by side, which says more than any table, but less than an operator.
        if capability.strategy is not None and capability.strategy in self._strategies:
            return replace(self._named(capability.strategy, _learned(capability)), dialect=capability.dialect)
        if capability.native_tools is False:
            return self._named(PROMPTED, "learned")
        kind = KINDS.get(provider)
        if kind is not None and kind.strategy is not None:
            return self._named(kind.strategy, "provider")
        for pattern, strategy in MODEL_STRATEGIES:
            if covers_model(pattern, model):
                # The table knows how most servers treat the family; what this one was seen to do counts more.
                if strategy == PROMPTED and capability.native_tools:
                    return self._named(FALLBACK, "learned_native")
                return self._named(strategy, "table")
        return self._named(FALLBACK, "default")

    def _named(self, name: str, reason: str) -> Selection:
        return Selection(strategy=self._strategies[name], dialect=None, reason=reason)


def _built_ins_first(point: EntryPoint) -> tuple[bool, str, str]:
    return not point.value.startswith("strategies."), point.name, point.value


def _strategy(point: EntryPoint) -> ToolExecutionStrategy:
    loaded: Any = point.load()
    # A class, a function that makes one, or one that is made: packages name any of them.
    strategy = loaded() if isinstance(loaded, type) or not isinstance(loaded, ToolExecutionStrategy) else loaded
    if not isinstance(strategy, ToolExecutionStrategy):
        raise TypeError("it is not a ToolExecutionStrategy")
    if strategy.name != point.name:
        raise ValueError(f"it calls itself {strategy.name!r}")
    return strategy


def _learned(capability: Capability) -> str:
    return "learned" if capability.strategy == PROMPTED else "learned_native"


def _has_tool_history(request: ChatRequest) -> bool:
    return any(
        message["role"] in ("tool", "function") or message.get("tool_calls") or message.get("function_call")
        for message in request.messages
    )
