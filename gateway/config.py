"""Every setting of the gateway, declared once: its name, its reader, its default and its help.

`Settings` is the table. What reads the environment, checks names, prints the effective values and writes the
reference goes over `attrs.fields(Settings)`. `LATER` names the settings whose feature is not in this version: they
are refused unless they say that the feature is off.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import attrs
from attrs import field, frozen

from gateway.config_names import OWN_PREFIXES, is_injected, nearest
from gateway.config_sources import parse_env_file, parse_toml, read_text
from gateway.config_values import (
    Reader,
    boolean,
    choice,
    host_name,
    http_url,
    hundredths,
    is_loopback,
    names,
    rules,
    seconds,
    secret,
    shown,
    shown_size,
    size,
    text,
    whole,
)
from gateway.core.errors import ConfigError
from gateway.core.limits import Limits
from gateway.core.rules import Rule
from gateway.keys import KeyRing
from strategies.base import Options

__all__ = [
    "LATER",
    "Declared",
    "Later",
    "Settings",
    "declared",
    "describe",
    "load",
    "reload",
    "settings_table_markdown",
]

LogFormat = Literal["json", "console"]

_MIB = 1 << 20
_MASK = "********"
_CONTROL = frozenset(map(chr, [*range(32), 127]))


@frozen(kw_only=True)
class Declared:
    """What is known of one setting besides its value."""

    name: str
    attribute: str
    read: Reader
    default: Any
    help: str
    group: str
    is_secret: bool
    is_size: bool

    def show(self, value: Any) -> str:
        """The value in the words that would set it; of a secret no more than that it is set."""
        if self.is_secret:
            return _MASK if value else ""
        if self.attribute in ("min_confidence", "confidence_json_block"):
            return f"{value / 100:.2f}"
        return shown_size(value) if self.is_size else shown(value)

    @property
    def default_text(self) -> str:
        return "" if self.attribute == "api_keys" else self.show(self.default)


@frozen(kw_only=True)
class Later:
    """A setting, or values of one, whose feature is not in this version; `accepts` are the values that mean off."""

    name: str
    accepts: tuple[str, ...] = ()


_OFF = ("false", "0", "no", "off")

LATER: tuple[Later, ...] = (
    Later(name="GATEWAY_WORKERS", accepts=("1",)),
    Later(name="UPSTREAM_KIND", accepts=("openai",)),
    Later(name="TOOL_CALLING_AUTO_DETECT", accepts=_OFF),
    Later(name="TRANSFORM_MODE", accepts=("off", "full")),
    Later(name="TRANSFORM_BUDGET_MS"),
    Later(name="TOOL_MAP"),
    Later(name="REPAIR_ATTEMPTS", accepts=("0",)),
    Later(name="NATIVE_FALLBACK", accepts=_OFF),
    Later(name="PROMPT_REMINDER", accepts=_OFF),
    Later(name="RECOVERY_SHELL", accepts=_OFF),
    Later(name="CONFIDENCE_SHELL"),
    Later(name="SHELL_ALLOWLIST"),
    Later(name="SHELL_ALLOW_OPERATORS", accepts=_OFF),
    Later(name="STORE_URL", accepts=("memory://",)),
    Later(name="STORE_PREFIX"),
    Later(name="STORE_TIMEOUT_MS"),
    Later(name="STORE_RETENTION_DAYS"),
    Later(name="STORE_MAX_BYTES"),
    Later(name="AUDIT_BODIES", accepts=("none",)),
    Later(name="CANARY_PERCENT"),
    Later(name="CANARY_REST"),
    Later(name="CANARY_SALT"),
    Later(name="CANARY_STEPS"),
    Later(name="CANARY_STEP_MIN_SECONDS"),
    Later(name="CANARY_STEP_MIN_REQUESTS"),
    Later(name="CANARY_STEP_MIN_KEYS"),
    Later(name="CANARY_STICKY_HEADER"),
    Later(name="CANARY_FORCE_HEADER"),
    Later(name="CANARY_HOLDBACK_PERCENT", accepts=("0",)),
    Later(name="TRUSTED_PROXIES"),
    Later(name="ROLLOUT_AUTO", accepts=("none",)),
    Later(name="ROLLBACK_RISK_RATIO"),
    Later(name="ROLLBACK_MIN_DIFF"),
    Later(name="ROLLBACK_EVIDENCE"),
    Later(name="ROLLBACK_MIN_KEYS"),
    Later(name="ROLLBACK_TRANSFORM_BUDGET"),
    Later(name="ROLLBACK_COOLDOWN_SECONDS"),
    Later(name="ROLLBACK_MODE"),
    Later(name="ROLLBACK_SCOPE"),
    Later(name="KILL_SWITCH", accepts=_OFF),
    Later(name="KILL_SWITCH_FILE"),
    Later(name="DRY_RUN_SAMPLES_PER_SLICE"),
    Later(name="DRY_RUN_RETENTION_DAYS"),
    Later(name="METRICS_MODE"),
)
"""The one place where a setting waits for its feature: it leaves this list, and enters `Settings`, when that lands."""

_LATER = {entry.name: entry for entry in LATER}


def _setting(name: str, read: Reader, default: Any, help: str, *, group: str, is_secret: bool = False) -> Any:
    """An attribute of `Settings` that is read from the setting `name`."""
    metadata = {"name": name, "read": read, "help": help, "group": group, "is_secret": is_secret}
    if isinstance(default, KeyRing):
        return field(factory=KeyRing, metadata=metadata, repr=False)
    return field(default=default, metadata=metadata, repr=not is_secret)


def _serve(name: str, read: Reader, default: Any, help: str, *, is_secret: bool = False) -> Any:
    return _setting(name, read, default, help, group="Serving", is_secret=is_secret)


def _upstream(name: str, read: Reader, default: Any, help: str, *, is_secret: bool = False) -> Any:
    return _setting(name, read, default, help, group="Model server", is_secret=is_secret)


def _calls(name: str, read: Reader, default: Any, help: str) -> Any:
    return _setting(name, read, default, help, group="Tool calls")


def _watch(name: str, read: Reader, default: Any, help: str) -> Any:
    return _setting(name, read, default, help, group="Metrics and logs")


@frozen(kw_only=True)
class Settings:
    """The settings of one run, checked; `sources` says where each one that was set came from."""

    host: str = _serve("GATEWAY_HOST", host_name, "127.0.0.1", "Address to listen on.")
    port: int = _serve("GATEWAY_PORT", whole(0, 65535), 8080, "Port to listen on; 0 takes any free one.")
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
        "TOML file with the same settings as top-level keys; everything else wins over it.",
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

    transform_mode: Literal["off", "full"] = _calls(
        "TRANSFORM_MODE",
        choice("off", "full"),
        "full",
        "full: every request is transformed; off: requests and answers are relayed untouched.",
    )
    tool_calling_enabled: bool = _calls(
        "TOOL_CALLING_ENABLED", boolean, True, "false: tools are taken out of requests and answers are left alone."
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
    recovery_json: bool = _calls("RECOVERY_JSON", boolean, True, "Recover calls that were written as JSON text.")
    recovery_tools: tuple[str, ...] = _calls(
        "RECOVERY_TOOLS",
        names,
        (),
        "The only tools that may be recovered from text, as comma-separated globs; empty means all known.",
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
    stream_arguments: Literal["buffered", "incremental"] = _calls(
        "STREAM_ARGUMENTS",
        choice("buffered", "incremental"),
        "buffered",
        "incremental: argument text flows while it is written; buffered: a call is shown once it is complete.",
    )
    result_format: Literal["bracket", "plain"] = _calls(
        "XML_RESULT_FORMAT", choice("bracket", "plain"), "bracket", "How tool results are shown to the model."
    )

    metrics_host: str = _watch("METRICS_HOST", host_name, "127.0.0.1", "Address of the metrics port.")
    metrics_port: int = _watch("METRICS_PORT", whole(0, 65535), 9464, "Port that serves /metrics alone.")
    metrics_models: tuple[str, ...] = _watch(
        "METRICS_MODELS", names, (), "Model names that always have a series of their own, comma-separated."
    )
    metrics_tools: tuple[str, ...] = _watch(
        "METRICS_TOOLS", names, (), "Tool names that always have a series of their own, comma-separated."
    )
    metrics_label_cap: int = _watch(
        "METRICS_LABEL_CAP", whole(0, 1000), 40, "How many further values a label may take before the rest is other."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _watch(
        "LOG_LEVEL", choice("debug", "info", "warning", "error"), "info", "Least severe event that is logged."
    )
    log_format: Literal["json", "console"] = _watch(
        "LOG_FORMAT",
        choice("json", "console"),
        "json",
        "json: one line per event; console: for a terminal, its default.",
    )

    sources: Mapping[str, str] = field(factory=dict, eq=False, repr=False)
    """Name of a setting to where its value came from, for those that were set."""
    warnings: tuple[str, ...] = ()

    @property
    def is_demo(self) -> bool:
        """No model server is named: the embedded demo answers."""
        return self.upstream_url is None

    def is_set(self, name: str) -> bool:
        """The operator chose this value; it is not the default."""
        return name in self.sources

    def limits(self) -> Limits:
        """The bounds of the reading path."""
        return Limits(
            max_body_bytes=self.max_body_bytes,
            max_reply_bytes=self.max_reply_bytes,
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
            stream_arguments=self.stream_arguments,
            result_format=self.result_format,
            recovery_json=self.recovery_json,
            recovery_tools=self.recovery_tools,
        )

    def secrets(self) -> tuple[str, ...]:
        """Values that must never be seen in a log, an error or a metric."""
        return (self.upstream_api_key,) if self.upstream_api_key else ()

    def digest(self) -> str:
        """A short mark of the effective values, secrets left out, to tell two configurations apart."""
        lines = [f"{name}={value}" for name, value, _ in describe(self)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def declared() -> Iterator[Declared]:
    """Every setting of this version, in the order of the reference."""
    yield from _DECLARED


def _declared(attribute: "attrs.Attribute[Any]") -> Declared:
    meta = attribute.metadata
    default = attribute.default
    return Declared(
        name=meta["name"],
        attribute=attribute.name,
        read=meta["read"],
        default=KeyRing() if isinstance(default, attrs.Factory) else default,  # type: ignore[arg-type]
        help=meta["help"],
        group=meta["group"],
        is_secret=meta["is_secret"],
        is_size=meta["name"].endswith("_BYTES"),
    )


_DECLARED = tuple(_declared(attribute) for attribute in attrs.fields(Settings) if "name" in attribute.metadata)
_BY_NAME = {entry.name: entry for entry in _DECLARED}
_FILE_NAMES = {f"{entry.name}_FILE": entry.name for entry in _DECLARED if entry.is_secret}
_KNOWN = (*_BY_NAME, *_FILE_NAMES, *_LATER)


def load(environ: Mapping[str, str], *, default_log_format: LogFormat = "json") -> Settings:
    """The settings at start: the process environment wins over `GATEWAY_ENV_FILE`, that over `GATEWAY_CONFIG`."""
    return _load(environ, file_wins=False, default_log_format=default_log_format)


def reload(environ: Mapping[str, str], *, default_log_format: LogFormat = "json") -> Settings:
    """The settings at a reload: `GATEWAY_ENV_FILE` wins over the environment the process once started with."""
    return _load(environ, file_wins=True, default_log_format=default_log_format)


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """Name, effective value with secrets masked, and source of every setting."""
    return [
        (entry.name, entry.show(getattr(settings, entry.attribute)), settings.sources.get(entry.name, "default"))
        for entry in _DECLARED
    ]


def settings_table_markdown() -> str:
    """The reference of all settings as Markdown tables, one per group."""
    lines: list[str] = []
    for group in dict.fromkeys(entry.group for entry in _DECLARED):
        lines += [f"**{group}**", "", "| name | default | meaning |", "| --- | --- | --- |"]
        for entry in _DECLARED:
            if entry.group == group:
                shown_default = f"`{entry.default_text}`" if entry.default_text else "none"
                lines.append(f"| `{entry.name}` | {shown_default} | {entry.help.replace('<', '&lt;')} |")
        lines.append("")
    return "\n".join(lines)


@frozen
class _Given:
    """The text of a setting and where it was found."""

    raw: str
    source: str


def _load(environ: Mapping[str, str], *, file_wins: bool, default_log_format: LogFormat) -> Settings:
    faults: list[str] = []
    given = _gather(environ, faults, file_wins=file_wins)
    _check_names(given, faults)
    values: dict[str, Any] = {"log_format": default_log_format}
    for entry in _DECLARED:
        found = _resolve_secret_file(entry, given, faults) if entry.is_secret else given.get(entry.name)
        if found is None or not _is_available(entry.name, found, faults):
            continue
        try:
            values[entry.attribute] = _read(entry, found)
        except ValueError as error:
            faults.append(_fault(entry, found, error))
    _check_later(given, faults)
    sources = {name: found.source for name, found in given.items() if name in _BY_NAME}
    sources |= {_FILE_NAMES[name]: found.source for name, found in given.items() if name in _FILE_NAMES}
    settings = Settings(**values, sources=sources)
    faults += _contradictions(settings, given)
    if faults:
        raise ConfigError(faults)
    return attrs.evolve(settings, warnings=_warnings(settings))


def _gather(environ: Mapping[str, str], faults: list[str], *, file_wins: bool) -> dict[str, _Given]:
    """Everything that was set, by name; an empty value counts as not set."""
    process = _layer(environ, "environment", strict=False)
    env_file = _env_file_layer(process, faults)
    layers = [process, env_file] if file_wins else [env_file, process]
    toml = _toml_layer(layers, faults)
    merged: dict[str, _Given] = {}
    for layer in (toml, *layers):
        for name, found in layer.items():
            # A value and the file that holds it are one setting: the stronger source replaces both forms.
            if name in _FILE_NAMES:
                merged.pop(_FILE_NAMES[name], None) if _FILE_NAMES[name] not in layer else None
            elif f"{name}_FILE" in _FILE_NAMES:
                merged.pop(f"{name}_FILE", None)
            merged[name] = found
    return merged


def _layer(values: Mapping[str, str], source: str, *, strict: bool) -> dict[str, _Given]:
    layer = {}
    for name, raw in values.items():
        value = raw.strip()
        if value and (strict or not is_injected(name, value) or name in _BY_NAME):
            layer[name] = _Given(value, source)
    return layer


def _env_file_layer(process: Mapping[str, _Given], faults: list[str]) -> dict[str, _Given]:
    named = process.get("GATEWAY_ENV_FILE")
    if named is None:
        return {}
    try:
        content = read_text(named.raw)
    except ValueError as error:
        faults.append(f"GATEWAY_ENV_FILE: {error}")
        return {}
    values = parse_env_file(content, faults, path=named.raw)
    if values.pop("GATEWAY_ENV_FILE", None) is not None:
        faults.append(f"{named.raw}: GATEWAY_ENV_FILE cannot be set in the file that it names")
    return _layer(values, f"file {named.raw}", strict=True)


def _toml_layer(layers: list[dict[str, _Given]], faults: list[str]) -> dict[str, _Given]:
    named = next((layer["GATEWAY_CONFIG"] for layer in reversed(layers) if "GATEWAY_CONFIG" in layer), None)
    if named is None:
        return {}
    try:
        content = read_text(named.raw)
    except ValueError as error:
        faults.append(f"GATEWAY_CONFIG: {error}")
        return {}
    values = parse_toml(content, faults, path=named.raw)
    for name in ("GATEWAY_ENV_FILE", "GATEWAY_CONFIG"):
        if values.pop(name, None) is not None:
            faults.append(f"{named.raw}: {name} cannot be set in the TOML file")
    for name in [name for name in values if name not in _KNOWN and not _is_suspect(name)]:
        faults.append(f"{named.raw}: {name[:64]!r} is not a setting")
        del values[name]
    return _layer(values, f"file {named.raw}", strict=True)


def _is_suspect(name: str) -> bool:
    return name.startswith(OWN_PREFIXES) or nearest(name, _KNOWN, within=2) is not None


def _check_names(given: Mapping[str, _Given], faults: list[str]) -> None:
    for name, found in given.items():
        if name in _KNOWN:
            continue
        upper = name.upper()
        close = nearest(upper, _KNOWN, within=2)
        if close is not None:
            faults.append(f"{name}: is not a setting ({found.source}); is {close} meant?")
        elif upper.startswith(OWN_PREFIXES):
            far = nearest(upper, _KNOWN, within=len(upper))
            faults.append(f"{name}: is not a setting ({found.source}); the nearest is {far}")


def _resolve_secret_file(entry: Declared, given: Mapping[str, _Given], faults: list[str]) -> _Given | None:
    plain, named = given.get(entry.name), given.get(f"{entry.name}_FILE")
    if named is None:
        return plain
    if plain is not None:
        faults.append(f"{entry.name}: is set beside {named.source} {entry.name}_FILE; use one of them")
        return None
    if entry.attribute == "api_keys":
        return _Given(f"@{named.raw}", named.source)
    try:
        value = read_text(named.raw).strip()
    except ValueError as error:
        faults.append(f"{entry.name}_FILE: {error}")
        return None
    if not value:
        faults.append(f"{entry.name}_FILE: {named.raw} is empty")
        return None
    return _Given(value, named.source)


def _is_available(name: str, found: _Given, faults: list[str]) -> bool:
    """The value of a setting, part of which is for a later version, is in this one."""
    later = _LATER.get(name)
    if later is None or found.raw.lower() in later.accepts:
        return True
    faults.append(_unavailable(later, found))
    return False


def _check_later(given: Mapping[str, _Given], faults: list[str]) -> None:
    for name, later in _LATER.items():
        found = given.get(name)
        if found is not None and name not in _BY_NAME and found.raw.lower() not in later.accepts:
            faults.append(_unavailable(later, found))


def _unavailable(later: Later, found: _Given) -> str:
    if not later.accepts:
        return f"{later.name}: is not available in this version; leave it unset"
    accepted = "off" if later.accepts is _OFF else ", ".join(later.accepts)
    value = f" {found.raw[:64]!r}" if "://" not in found.raw else ""
    return f"{later.name}:{value} is not available in this version; leave it unset or set it to {accepted}"


def _read(entry: Declared, found: _Given) -> Any:
    if not _CONTROL.isdisjoint(found.raw):
        raise ValueError("must not hold control characters")
    if entry.attribute == "api_keys":
        return _key_ring(found.raw)
    if is_injected(entry.name, found.raw):
        raise ValueError(
            "was put here by Kubernetes for a Service of that name: give the Service another name, such as toolgate, "
            "or set enableServiceLinks: false"
        )
    return entry.read(found.raw)


def _key_ring(raw: str) -> KeyRing:
    ring = KeyRing.from_setting(raw, read_file=read_text)
    if ring.is_open:
        raise ValueError("holds no key; unset it to ask for none")
    return ring


def _fault(entry: Declared, found: _Given, error: ValueError) -> str:
    value = "" if entry.is_secret or "@" in found.raw else f" (got {found.raw[:80]!r})"
    return f"{entry.name}: {error}{value}"


def _contradictions(settings: Settings, given: Mapping[str, _Given]) -> Iterator[str]:
    loopback = is_loopback(settings.host)
    if "UPSTREAM_URL" not in given:
        if settings.config_file is not None:
            yield "UPSTREAM_URL: is missing; with GATEWAY_CONFIG there is no embedded demo"
        elif not loopback:
            yield f"UPSTREAM_URL: is missing; the embedded demo answers on loopback only, not on {settings.host}"
    asks_for_none = "GATEWAY_API_KEYS" not in given and "GATEWAY_API_KEYS_FILE" not in given
    if asks_for_none and settings.upstream_api_key and not loopback and not settings.allow_open:
        yield (
            f"GATEWAY_API_KEYS: is empty while UPSTREAM_API_KEY is set: whoever reaches {settings.host} could "
            "spend it; set keys, or GATEWAY_ALLOW_OPEN=true if something in front of the gateway asks for them"
        )
    if settings.metrics_port and settings.metrics_port == settings.port:
        yield "METRICS_PORT: must differ from GATEWAY_PORT"


def _warnings(settings: Settings) -> tuple[str, ...]:
    if settings.upstream_url is not None and not settings.upstream_url.endswith("/v1"):
        return ("UPSTREAM_URL does not end in /v1: most servers answer only there",)
    return ()
