"""Which configured upstream serves a model. A model's name is looked up, never resolved: it cannot name a host."""

from collections.abc import Iterable
from functools import lru_cache

from attrs import frozen

from gateway.core.errors import UnknownModel
from gateway.core.rules import ModelRule, covers_model

__all__ = ["DEFAULT_UPSTREAM", "Route", "Router"]

DEFAULT_UPSTREAM = "default"
MAX_MODEL_CHARS = 256


@frozen(kw_only=True)
class Route:
    """Where a model's requests go: the first upstream that can be had, under which name, by which rule."""

    upstreams: tuple[str, ...]
    rule: ModelRule | None = None

    @property
    def send_as(self) -> str | None:
        """The model's name at the upstream, where it is another one."""
        return self.rule.send_as if self.rule is not None else None


class Router:
    """Rules for models, and what upstreams say they serve; without either, everything goes to the default."""

    __slots__ = ("_by_model", "_default", "_rules", "_served")

    def __init__(
        self,
        *,
        default: str = DEFAULT_UPSTREAM,
        rules: Iterable[ModelRule] = (),
        served: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._default = default
        self._rules = tuple(rules)
        self._served = tuple(served)
        self._by_model = lru_cache(maxsize=1024)(self._found)

    def route(self, model: str) -> Route:
        """Where requests for `model` go; raises `UnknownModel` for a name that no upstream could have."""
        # Libraries that resolve such a name would ask a host of the client's choice:
        # https://cwe.mitre.org/data/definitions/918.html
        if len(model) > MAX_MODEL_CHARS or "://" in model or "\\" in model or ".." in model.split("/"):
            raise UnknownModel(f"the model {_shown(model)!r} does not exist", param="model")
        return self._by_model(model)

    def _found(self, model: str) -> Route:
        rule = next((rule for rule in self._rules if covers_model(rule.match, model)), None)
        serving = next((name for pattern, name in self._served if covers_model(pattern, model)), self._default)
        if rule is None:
            return Route(upstreams=(serving,))
        first = rule.upstream or serving
        if rule.fallback is None or rule.fallback == first:
            return Route(upstreams=(first,), rule=rule)
        return Route(upstreams=(first, rule.fallback), rule=rule)


def _shown(model: str) -> str:
    return model if len(model) <= 64 else model[:61] + "..."
