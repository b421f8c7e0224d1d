"""Every setting of the gateway, declared once: its name, its reader, its default, its help and its reach.

`Settings` is the table: what reads the environment, checks names, prints the effective values and writes the
reference goes over its attributes. `LATER` names the settings whose feature is not in this version: they are refused
unless they say that the feature is off.
"""

import hashlib
from collections.abc import Mapping
from urllib.parse import urlsplit

import attrs
from attrs import field, frozen

from gateway.config.declared.calls import ToolCalls
from gateway.config.declared.keeping import Keeping
from gateway.config.declared.model_server import ModelServer
from gateway.config.declared.rollout import Rollout
from gateway.config.declared.serving import Serving
from gateway.config.declared.setting import Later, declared
from gateway.config.declared.values import path_keys
from gateway.config.declared.watching import Watching
from gateway.config.routes import Routes
from gateway.core.limits import Limits
from gateway.core.rules import ModelRule, Rule, covers_model
from gateway.rollout.stages import RolloutRules
from strategies.base import Options

__all__ = ["DECLARED", "LATER", "Settings", "describe"]

LATER: tuple[Later, ...] = (Later(name="METRICS_MODE", accepts=("ports",)),)
"""The one place where a setting waits for its feature: it leaves this list, and enters `Settings`, when that lands."""


@frozen(kw_only=True)
class Settings(Watching, Keeping, Rollout, ToolCalls, ModelServer, Serving):  # attrs takes the last base first
    """The settings of one run, checked; `sources` says where each one that was set came from."""

    routes: Routes = field(factory=Routes)
    """The tables of `GATEWAY_CONFIG`."""
    sources: Mapping[str, str] = field(factory=dict, eq=False, repr=False)
    """Name of a setting to where its value came from, for those that were set."""
    warnings: tuple[str, ...] = ()
    shared_digest: str = field(default="", eq=False, repr=False)
    """Of the settings of all, in those of one process: its port and its share of the places are its own."""

    @property
    def is_demo(self) -> bool:
        """No model server is named: the embedded demo answers."""
        return self.upstream_url is None and not self.routes.upstreams

    @property
    def has_own_key(self) -> bool:
        """The gateway has a key of its own for a model server, which others could spend."""
        return self.upstream_api_key is not None or any(each.api_key for each in self.routes.upstreams)

    def all_rules(self) -> tuple[Rule, ...]:
        """Which strategy a model gets: the rules of the environment, then those of the tables."""
        named = tuple(_rule_of(rule) for rule in self.routes.models if rule.strategy is not None)
        return (*self.strategy_rules, *named)

    def rule_for(self, model: str) -> str | None:
        """The operator's rule that a model falls under, as it would be written; None where there is none."""
        rule = next((rule for rule in self.all_rules() if covers_model(rule.pattern, model)), None)
        dialect = f":{rule.dialect}" if rule is not None and rule.dialect else ""
        return None if rule is None else f"{rule.pattern}={rule.strategy}{dialect}"

    def is_set(self, name: str) -> bool:
        """The operator chose this value; it is not the default."""
        return name in self.sources

    def limits(self) -> Limits:
        """The bounds of the reading path."""
        return Limits(
            max_event_bytes=self.max_event_bytes,
            max_call_bytes=self.max_call_bytes,
            max_tools=self.max_tools,
            max_choices=1,
        )

    def strategy_options(self, dialect: str | None = None) -> Options:
        """What a strategy may look at, for a rule that names `dialect`."""
        return Options(
            limits=self.limits(),
            dialect=dialect,
            min_confidence=self.min_confidence,
            confidence_json_block=self.confidence_json_block,
            calls_per_message=self.calls_per_message,
            trailing_text=self.trailing_text,
            duplicate_calls=self.duplicate_calls,
            undeclared_tools=self.undeclared_tools,
            unfit_calls=self.unfit_calls,
            native_leaks=self.native_leaks,
            none_markup=self.none_markup,
            reasoning_calls=self.reasoning_calls,
            stream_arguments=self.stream_arguments,
            result_format=self.result_format,
            confidence_shell=self.confidence_shell,
            recovery_json=self.recovery_json,
            recovery_shell=self.recovery_shell,
            recovery_tools=self.recovery_tools,
            shell_allowlist=self.shell_allowlist,
            shell_allow_operators=self.shell_allow_operators,
            prompt_reminder=self.prompt_reminder,
        )

    @property
    def retention_s(self) -> float:
        """How long records are kept."""
        is_dry = self.transform_mode == "dry_run"
        days = min(self.store_retention_days, self.dry_run_retention_days) if is_dry else self.store_retention_days
        return days * 86_400.0

    def rollout_rules(self) -> RolloutRules:
        """What the rollout goes by."""
        return RolloutRules(**{name: getattr(self, name) for name in _ROLLOUT_RULES})

    def secrets(self) -> tuple[str, ...]:
        """Values that must never be seen in a log, an error or a metric."""
        password = urlsplit(self.store_url).password
        kept = [secret for each in self.routes.upstreams for secret in (each.api_key, each.cookies)]
        urls = (self.upstream_url or "", *(each.url for each in self.routes.upstreams))
        kept += [key for url in urls for key in path_keys(url)]
        known = (self.upstream_api_key, self.upstream_cookies, self.canary_salt, password, *kept)
        return tuple(value for value in known if value)

    def digest(self) -> str:
        """A short mark of the operator's values, secrets left out, to tell two configurations apart."""
        if self.shared_digest:
            return self.shared_digest
        lines = [f"{name}={value}" for name, value, _ in describe(self)]
        lines.append(repr(self.routes))  # without its secrets
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _rule_of(rule: ModelRule) -> Rule:
    strategy, _, dialect = (rule.strategy or "").partition(":")
    return Rule(pattern=rule.match, strategy=strategy, dialect=dialect or None)


_ROLLOUT_RULES = tuple(attribute.name for attribute in attrs.fields(RolloutRules))


DECLARED = tuple(declared(attribute) for attribute in attrs.fields(Settings) if "name" in attribute.metadata)
"""Every setting of this version, in the order of the reference."""


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """Name, effective value with secrets masked, and source of every setting."""
    return [
        (entry.name, entry.show(getattr(settings, entry.attribute)), settings.sources.get(entry.name, "default"))
        for entry in DECLARED
    ]
