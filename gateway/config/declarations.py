"""Every setting of the gateway, declared once: its name, its reader, its default, its help and its reach.

`Settings` is the table: what reads the environment, checks names, prints the effective values and writes the
reference goes over its attributes. `LATER` names the settings whose feature is not in this version: they are refused
unless they say that the feature is off.
"""

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs
from attrs import field, frozen

from gateway.config.keys import KeyRing
from gateway.config.routes import Routes
from gateway.config.setting import Later, declared, setting
from gateway.config.values import (
    aliases,
    boolean,
    choice,
    cookies,
    header_name,
    host_name,
    host_names,
    http_url,
    hundredths,
    ignore_rules,
    names,
    networks,
    number,
    origins,
    percent,
    percents,
    rules,
    seconds,
    secret,
    size,
    store_url,
    text,
    tool_maps,
    whole,
)
from gateway.core.limits import Limits
from gateway.core.origins import Authority, Origin
from gateway.core.rules import IgnoreRule, ModelRule, Rule
from gateway.kinds.rows import DEFAULT_KIND, KINDS
from gateway.rollout.stages import RolloutRules
from strategies.base import Options

__all__ = ["DECLARED", "LATER", "Settings", "describe", "settings_table_markdown"]

_MIB = 1 << 20


LATER: tuple[Later, ...] = (Later(name="METRICS_MODE", accepts=("ports",)),)
"""The one place where a setting waits for its feature: it leaves this list, and enters `Settings`, when that lands."""


_serve = partial(setting, group="Serving")
_upstream = partial(setting, group="Model server")
_calls = partial(setting, group="Tool calls")
_rollout = partial(setting, group="Rollout")
_keep = partial(setting, group="Store")
_watch = partial(setting, group="Metrics and logs")


@frozen(kw_only=True)
class Settings:
    """The settings of one run, checked; `sources` says where each one that was set came from."""

    host: str = _serve("GATEWAY_HOST", host_name, "127.0.0.1", "Address to listen on.", reach="start")
    port: int = _serve("GATEWAY_PORT", whole(0, 65535), 8080, "Port to listen on; 0 takes any free one.", reach="start")
    workers: int = _serve(
        "GATEWAY_WORKERS", whole(1, 64), 1, "How many processes answer, under one supervisor.", reach="start"
    )
    pid_file: str | None = _serve(
        "GATEWAY_PID_FILE", text, None, "File that the process id is written to, for `toolgate reload`.", reach="start"
    )
    api_keys: KeyRing = _serve(  # noqa: RUF009 - the call makes an attrs field, not a shared default
        "GATEWAY_API_KEYS",
        text,
        KeyRing(),
        "Keys that open the gateway, comma-separated, or @path of a key file (one per line, plain or sha256:<hex>, "
        "optionally followed by expires=<ISO date>); empty asks for none.",
        is_secret=True,
    )
    allow_open: bool = _serve(
        "GATEWAY_ALLOW_OPEN",
        boolean,
        False,
        "Allow an address that others can reach without GATEWAY_API_KEYS although UPSTREAM_API_KEY is set.",
    )
    allowed_hosts: tuple[Authority, ...] = _serve(
        "GATEWAY_ALLOWED_HOSTS",
        host_names,
        (),
        "Names, comma-separated and each with a port or without, under which a gateway without keys may be asked, "
        "beside localhost, 127.0.0.0/8 and [::1]: on loopback no other is accepted, elsewhere any while this is empty.",
    )
    allowed_origins: tuple[Origin, ...] = _serve(
        "GATEWAY_ALLOWED_ORIGINS",
        origins,
        (),
        "Origins, comma-separated, whose pages may ask from a browser and read the answers (CORS): "
        "https://chat.example, vscode-webview://*. Without keys pages of all others are refused, but for the gateway's "
        "own; with keys all others are refused once this is set.",
    )
    env_file: str | None = _serve(
        "GATEWAY_ENV_FILE",
        text,
        None,
        "File of KEY=value lines that a reload re-reads; the process environment wins at start, the file at reload.",
    )
    config_file: str | None = _serve(
        "GATEWAY_CONFIG",
        text,
        None,
        "TOML file with the same settings as top-level keys, over which everything else wins, and with tables for "
        "several model servers ([upstreams.NAME]) and rules for models ([[models]]).",
    )
    max_body_bytes: int = _serve(
        "GATEWAY_MAX_BODY_BYTES", size(1024), 32 * _MIB, "Largest request body; a larger one is answered with 413."
    )
    max_concurrency: int = _serve(
        "GATEWAY_MAX_CONCURRENCY",
        whole(1, 1_000_000),
        2000,
        "Most requests at a time; more are answered with 503 and Retry-After.",
    )
    client_write_timeout_s: float = _serve(
        "CLIENT_WRITE_TIMEOUT_S", seconds(), 30.0, "How long a client may leave its answer unread."
    )
    keepalive_s: float = _serve(
        "GATEWAY_KEEPALIVE_S", seconds(), 10.0, "How often a silent stream carries a comment line."
    )
    drain_s: float = _serve(
        "GATEWAY_DRAIN_S", seconds(zero=True), 60.0, "How long open streams may run on when the gateway is stopped."
    )

    upstream_url: str | None = _upstream(
        "UPSTREAM_URL",
        http_url,
        None,
        "Address of the model server, /v1 included; without it, and only on loopback, the embedded demo answers.",
    )
    upstream_api_key: str | None = _upstream(
        "UPSTREAM_API_KEY",
        secret,
        None,
        "Key for the model server; without it and GATEWAY_API_KEYS the client's own is passed on.",
        is_secret=True,
    )
    upstream_kind: str = _upstream(
        "UPSTREAM_KIND",
        choice(*KINDS),
        DEFAULT_KIND,
        "What the model server speaks: " + ", ".join(KINDS) + ".",
    )
    upstream_cookies: str | None = _upstream(
        "UPSTREAM_COOKIES", cookies, None, "Cookies for a qwen_web server, as the header holds them.", is_secret=True
    )
    connect_timeout_s: float = _upstream(
        "UPSTREAM_CONNECT_TIMEOUT_S", seconds(), 5.0, "How long connecting to the model server may take."
    )
    first_byte_timeout_s: float = _upstream(
        "UPSTREAM_FIRST_BYTE_TIMEOUT_S", seconds(), 600.0, "How long the model server may take to begin its answer."
    )
    idle_timeout_s: float = _upstream(
        "UPSTREAM_IDLE_TIMEOUT_S", seconds(), 300.0, "How long the model server may be silent within an answer."
    )
    total_timeout_s: float = _upstream(
        "UPSTREAM_TOTAL_TIMEOUT_S", seconds(), 3600.0, "How long one answer may take in all."
    )
    max_reply_bytes: int = _upstream(
        "UPSTREAM_MAX_REPLY_BYTES", size(1024), 64 * _MIB, "Largest answer of the model server, decoded."
    )
    max_event_bytes: int = _upstream(
        "UPSTREAM_MAX_EVENT_BYTES", size(1024), 4 * _MIB, "Largest single event of a streamed answer."
    )

    tool_calling_enabled: bool = _calls(
        "TOOL_CALLING_ENABLED", boolean, True, "false: tools are taken out of requests and answers are left alone."
    )
    auto_detect: bool = _calls(
        "TOOL_CALLING_AUTO_DETECT",
        boolean,
        True,
        "Recognise clients whose tools are in their system prompt, and requests for tool work that offer no tools; "
        "calls in answers to the latter are counted, not delivered.",
    )
    prompt_reminder: bool = _calls(
        "PROMPT_REMINDER",
        boolean,
        False,
        "Add a short reminder of the form to the prompt of clients whose tools are in their system prompt.",
    )
    strategy_rules: tuple[Rule, ...] = _calls(
        "STRATEGY_RULES",
        rules,
        (),
        "Which strategy a model gets, as glob=strategy or glob=strategy:dialect, comma-separated; the first match "
        "wins, empty means the built-in table.",
    )
    max_tools: int = _calls(
        "TOOL_CALLING_MAX_TOOLS",
        whole(1, 4096),
        128,
        "Most tools that xml_prompt describes; more are answered with 400 too_many_tools.",
    )
    max_call_bytes: int = _calls(
        "TOOL_CALLING_MAX_CALL_BYTES", size(64), _MIB, "Longest tool call; a longer one stays text."
    )
    min_confidence: int = _calls(
        "TRANSFORM_MIN_CONFIDENCE", hundredths, 90, "Score from 0 to 1 below which a candidate stays text."
    )
    confidence_json_block: int = _calls(
        "CONFIDENCE_JSON_BLOCK", hundredths, 95, "Base score of a call in a fenced JSON block."
    )
    confidence_shell: int = _calls(
        "CONFIDENCE_SHELL",
        hundredths,
        80,
        "Base score of a call in a shell block, and with RECOVERY_SHELL the score that such a call needs.",
    )
    recovery_json: bool = _calls("RECOVERY_JSON", boolean, True, "Recover calls that were written as JSON text.")
    recovery_tools: tuple[str, ...] = _calls(
        "RECOVERY_TOOLS",
        names,
        (),
        "The only tools that may be recovered from text, as comma-separated globs; empty means all known.",
    )
    recovery_shell: bool = _calls(
        "RECOVERY_SHELL",
        boolean,
        False,
        "Recover a command from a shell block that ends an answer, if the request declares a tool that runs commands.",
    )
    shell_allowlist: tuple[str, ...] = _calls(
        "SHELL_ALLOWLIST",
        names,
        ("ls", "pwd", "cat", "head", "tail", "wc", "grep", "stat"),
        "First words that a recovered command may start with, comma-separated.",
    )
    shell_allow_operators: bool = _calls(
        "SHELL_ALLOW_OPERATORS", boolean, False, "Let recovered commands hold chaining, pipes and redirects."
    )
    repair_attempts: int = _calls(
        "REPAIR_ATTEMPTS",
        whole(0, 3),
        1,
        "How often the model is asked again for a call that it plainly meant and broke, before any of it was shown.",
    )
    native_fallback: bool = _calls(
        "NATIVE_FALLBACK",
        boolean,
        True,
        "Ask again with xml_prompt where the model server refuses native tools, and give that model xml_prompt for "
        "an hour.",
    )
    native_fallback_rate: int = _calls(
        "NATIVE_FALLBACK_RATE",
        hundredths,
        80,
        "Share of the last answers with calls, from 0 to 1, whose calls came as text that could not be recovered, or "
        "with unusable arguments, from which on a model counts as one without native tools; 0 never does.",
    )
    native_fallback_window: int = _calls(
        "NATIVE_FALLBACK_WINDOW", whole(5, 1000), 50, "How many answers with calls that share is taken of."
    )
    calls_per_message: Literal["auto", "first", "all"] = _calls(
        "TOOL_CALLS_PER_MESSAGE",
        choice("auto", "first", "all"),
        "auto",
        "How many calls of one answer are delivered; auto: the first for xml_prompt unless the request allows "
        "parallel calls, else all.",
    )
    trailing_text: Literal["drop", "keep"] = _calls(
        "TRAILING_TEXT", choice("drop", "keep"), "drop", "What becomes of text after the last call."
    )
    duplicate_calls: Literal["drop", "keep"] = _calls(
        "DUPLICATE_CALLS",
        choice("drop", "keep"),
        "drop",
        "What becomes of an exact copy of a call directly behind it, unless the tool is known to change nothing.",
    )
    stream_arguments: Literal["buffered", "incremental"] = _calls(
        "STREAM_ARGUMENTS",
        choice("buffered", "incremental"),
        "buffered",
        "incremental: argument text flows once it can be no draft; buffered: a call is shown once it is complete.",
    )
    tool_map: tuple[tuple[str, str], ...] = _calls(
        "TOOL_MAP",
        tool_maps,
        (),
        "Tools that a model is shown in the place of the client's own, translated both ways: claude_text_editor or "
        "apply_patch, for all models or as glob=mapping, comma-separated; the first match wins, none shows the "
        "client's.",
    )
    tool_aliases: tuple[tuple[str, str], ...] = _calls(
        "TOOL_ALIASES",
        aliases,
        (),
        "Other names for declared tools, as alias=tool, comma-separated: a structured call of the alias becomes one of "
        "the tool.",
    )
    result_format: Literal["bracket", "plain"] = _calls(
        "XML_RESULT_FORMAT", choice("bracket", "plain"), "bracket", "How tool results are shown to the model."
    )

    transform_mode: Literal["off", "dry_run", "canary", "full"] = _rollout(
        "TRANSFORM_MODE",
        choice("off", "dry_run", "canary", "full"),
        "full",
        "off: requests and answers are relayed untouched; dry_run: likewise, and what would have been done is "
        "recorded; canary: a share of the conversations is transformed; full: every request is.",
    )
    canary_percent: int = _rollout(
        "CANARY_PERCENT", percent, 1000, "Share of conversations, in percent, that canary transforms."
    )
    canary_rest: Literal["dry_run", "control"] = _rollout(
        "CANARY_REST",
        choice("dry_run", "control"),
        "dry_run",
        "dry_run: the untouched answers of canary are read beside, and what would have been done is recorded; "
        "control: they are not read.",
    )
    canary_salt: str | None = _rollout(
        "CANARY_SALT",
        secret,
        None,
        "Secret that decides who is in the canary and marks call ids; made once and kept in the store if unset; "
        "set the same one on every host.",
        is_secret=True,
        reach="restart",
    )
    canary_steps: tuple[int, ...] = _rollout(
        "CANARY_STEPS", percents, (100, 500, 2500, 5000, 9500), "Shares in percent that promotion goes through."
    )
    canary_step_min_s: float = _rollout(
        "CANARY_STEP_MIN_SECONDS", seconds(zero=True), 3600.0, "How long a step lasts at least."
    )
    canary_step_min_requests: int = _rollout(
        "CANARY_STEP_MIN_REQUESTS", whole(0, 10**9), 2000, "How many canary requests a step has at least."
    )
    canary_step_min_keys: int = _rollout(
        "CANARY_STEP_MIN_KEYS", whole(0, 10**6), 20, "How many canary conversations a step has at least."
    )
    canary_sticky_header: str | None = _rollout(
        "CANARY_STICKY_HEADER",
        header_name,
        None,
        "Request header whose value tells conversations apart; without it they are told apart by credential, model, "
        "first user message and system prompt.",
    )
    canary_force_header: str | None = _rollout(
        "CANARY_FORCE_HEADER",
        header_name,
        None,
        "Request header with which a trusted proxy puts a request into an arm: live, control or off.",
    )
    trusted_proxies: tuple[Any, ...] = _rollout(
        "TRUSTED_PROXIES",
        networks,
        (),
        "Addresses and networks, comma-separated, from which CANARY_FORCE_HEADER is believed.",
    )
    canary_holdback_percent: int = _rollout(
        "CANARY_HOLDBACK_PERCENT",
        percent,
        0,
        "Share of conversations, in percent, that full leaves untouched, so that the judge can compare; 5 is advised "
        "for the first days.",
    )
    rollout_auto: Literal["none", "rollback", "promote"] = _rollout(
        "ROLLOUT_AUTO",
        choice("none", "rollback", "promote"),
        "rollback",
        "none: nothing happens by itself; rollback: the judge rolls back; promote: it also goes on to the next step.",
    )
    rollback_risk_ratio: float = _rollout(
        "ROLLBACK_RISK_RATIO", number(1, 100), 1.25, "How many times the control's risk is still no fault."
    )
    rollback_min_diff: float = _rollout(
        "ROLLBACK_MIN_DIFF", number(0, 1), 0.005, "Least difference between the arms' bad shares for a rollback."
    )
    rollback_evidence: float = _rollout(
        "ROLLBACK_EVIDENCE", number(10, 1e12), 10000.0, "Likelihood ratio at which the judge rolls back."
    )
    rollback_min_keys: int = _rollout(
        "ROLLBACK_MIN_KEYS", whole(1, 1000), 3, "Least number of conversations with a bad request for a rollback."
    )
    rollback_transform_budget: float = _rollout(
        "ROLLBACK_TRANSFORM_BUDGET", number(0.0001, 1), 0.02, "Share of transformations that may fail."
    )
    rollback_cooldown_s: float = _rollout(
        "ROLLBACK_COOLDOWN_SECONDS",
        seconds(zero=True),
        1800.0,
        "How long after a rollback nothing can be resumed; doubles with each rollback within a day.",
    )
    rollback_mode: Literal["dry_run", "off"] = _rollout(
        "ROLLBACK_MODE", choice("dry_run", "off"), "dry_run", "What is in force after a rollback."
    )
    rollback_scope: Literal["slice", "all"] = _rollout(
        "ROLLBACK_SCOPE",
        choice("slice", "all"),
        "slice",
        "slice: a strategy and dialect that is worse is switched off alone; all: everything is rolled back.",
    )
    kill_switch: bool = _rollout(
        "KILL_SWITCH", boolean, False, "true: relay everything untouched from the next request on."
    )
    kill_switch_file: str | None = _rollout(
        "KILL_SWITCH_FILE", text, None, "While this file exists everything is relayed untouched."
    )
    transform_budget_ms: int = _rollout(
        "TRANSFORM_BUDGET_MS",
        whole(1, 60_000),
        50,
        "Time that reading beside an untouched answer may take, and above which the rollout is paused for overhead.",
    )
    dry_run_samples_per_slice: int = _rollout(
        "DRY_RUN_SAMPLES_PER_SLICE",
        whole(0, 10_000),
        20,
        "How many samples with text a day keeps of each tool, dialect and verdict, in each process.",
    )
    dry_run_retention_days: int = _rollout(
        "DRY_RUN_RETENTION_DAYS",
        whole(1, 3650),
        14,
        "How long records are kept while TRANSFORM_MODE is dry_run, where that is shorter than STORE_RETENTION_DAYS.",
    )
    dry_run_ignore: tuple[IgnoreRule, ...] = _rollout(
        "DRY_RUN_IGNORE",
        ignore_rules,
        (),
        "Known differences that a dry run does not count, as dialect:tool=YYYY-MM-DD, comma-separated; from that day "
        "on they count again.",
    )

    store_url: str = _keep(
        "STORE_URL",
        store_url,
        "sqlite:///toolgate.db",
        "Where records, sessions and the rollout's state are kept: sqlite:///file, redis://host:port/0, rediss://..., "
        "unix://..., or memory:// for this process alone.",
        is_secret=True,
        reach="restart",
    )
    store_prefix: str = _keep(
        "STORE_PREFIX", text, "toolgate:", "What every key in Redis begins with.", reach="restart"
    )
    store_timeout_ms: int = _keep(
        "STORE_TIMEOUT_MS", whole(10, 60_000), 200, "How long one operation on the store may take.", reach="restart"
    )
    store_retention_days: int = _keep("STORE_RETENTION_DAYS", whole(1, 3650), 14, "How long records are kept.")
    store_max_bytes: int = _keep(
        "STORE_MAX_BYTES", size(1 << 20), 1 << 30, "Most room that records take; the oldest go first."
    )
    audit_bodies: Literal["none", "redacted", "full"] = _keep(
        "AUDIT_BODIES",
        choice("none", "redacted", "full"),
        "redacted",
        "What records keep of texts; none: nothing; redacted: candidates with 200 characters around them, credentials "
        "masked; full: requests and answers too, which `toolgate export` needs.",
    )

    metrics_host: str = _watch("METRICS_HOST", host_name, "127.0.0.1", "Address of the metrics port.", reach="restart")
    metrics_port: int = _watch(
        "METRICS_PORT", whole(0, 65535), 9464, "Port that serves /metrics alone.", reach="restart"
    )
    metrics_models: tuple[str, ...] = _watch(
        "METRICS_MODELS",
        names,
        (),
        "Model names that always have a series of their own, comma-separated.",
        reach="restart",
    )
    metrics_tools: tuple[str, ...] = _watch(
        "METRICS_TOOLS",
        names,
        (),
        "Tool names that always have a series of their own, comma-separated.",
        reach="restart",
    )
    metrics_label_cap: int = _watch(
        "METRICS_LABEL_CAP",
        whole(0, 1000),
        40,
        "How many further values a label may take before the rest is other.",
        reach="restart",
    )
    metrics_sd_file: str | None = _watch(
        "METRICS_SD_FILE",
        text,
        None,
        "File in which the metrics addresses of all workers are kept, as Prometheus reads them (file_sd, http_sd).",
        reach="start",
    )
    log_level: Literal["debug", "info", "warning", "error"] = _watch(
        "LOG_LEVEL", choice("debug", "info", "warning", "error"), "info", "Least severe event that is logged."
    )
    log_format: Literal["json", "console"] = _watch(
        "LOG_FORMAT",
        choice("json", "console"),
        "json",
        "json: one line per event; console: for a terminal, its default.",
        reach="restart",
    )

    routes: Routes = field(factory=Routes)
    """The tables of `GATEWAY_CONFIG`."""
    sources: Mapping[str, str] = field(factory=dict, eq=False, repr=False)
    """Name of a setting to where its value came from, for those that were set."""
    warnings: tuple[str, ...] = ()

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

    def is_set(self, name: str) -> bool:
        """The operator chose this value; it is not the default."""
        return name in self.sources

    def limits(self) -> Limits:
        """The bounds of the reading path."""
        return Limits(
            max_event_bytes=self.max_event_bytes,
            max_call_bytes=self.max_call_bytes,
            max_tools=self.max_tools,
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
        known = (self.upstream_api_key, self.upstream_cookies, self.canary_salt, password, *kept)
        return tuple(value for value in known if value)

    def digest(self) -> str:
        """A short mark of the effective values, secrets left out, to tell two configurations apart."""
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


def settings_table_markdown() -> str:
    """The reference of all settings as Markdown tables, one per group."""
    lines: list[str] = []
    for group in dict.fromkeys(entry.group for entry in DECLARED):
        lines += [f"**{group}**", "", "| name | default | meaning |", "| --- | --- | --- |"]
        for entry in DECLARED:
            if entry.group == group:
                shown_default = f"`{entry.default_text}`" if entry.default_text else "none"
                lines.append(f"| `{entry.name}` | {shown_default} | {entry.help.replace('<', '&lt;')} |")
        lines.append("")
    return "\n".join(lines)
