"""Reads the settings from the environment and the files it names, and reports every fault of them at once."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs
from attrs import field, frozen

from gateway.config.declarations import DECLARED, LATER, Settings, describe
from gateway.config.declared.keys import KeyRing
from gateway.config.declared.setting import Declared, Reach
from gateway.config.declared.values import http_url
from gateway.config.names import OWN_PREFIXES, is_injected, nearest
from gateway.config.routes import Routes, UpstreamSettings, read_routes
from gateway.config.sources import parse_env_file, parse_toml, read_text
from gateway.core.errors import ConfigError
from gateway.core.origins import is_loopback
from gateway.kinds.rows import KINDS
from strategies.asking.renderers import RENDERERS

__all__ = [
    "DECLARED",
    "LATER",
    "Settings",
    "UpstreamSettings",
    "describe",
    "inspect",
    "load",
    "reload",
    "with_options",
    "within_reach",
]

LogFormat = Literal["json", "console"]

_WITHOUT_DIALECT = ("native", "recovery")
_PASTED = ("/chat/completions", "/completions", "/models", "/messages", "/responses")
"""What people copy along from the examples of their model server."""
_PORTS = {"http": 80, "https": 443}
_CONTROL = frozenset(map(chr, [*range(32), 127]))
_BY_NAME = {entry.name: entry for entry in DECLARED}
_FILE_NAMES = {f"{entry.name}_FILE": entry.name for entry in DECLARED if entry.is_secret}
_LATER = {entry.name: entry for entry in LATER}
_TWINS = _FILE_NAMES | {plain: named for named, plain in _FILE_NAMES.items()}
_OPTIONS = "TOOLGATE_SERVE_OPTIONS"
"""The variable by which options of the command line reach the workers, and every reload."""
_KNOWN = (*_BY_NAME, *_FILE_NAMES, *_LATER)
_LONGEST = max(map(len, _KNOWN))
# Shorter names of other programs come within two edits of ours by chance.
_SHORTEST = 6


def load(environ: Mapping[str, str], *, default_log_format: LogFormat = "json") -> Settings:
    """The settings at start: the process environment wins over `GATEWAY_ENV_FILE`, that over `GATEWAY_CONFIG`."""
    return _checked(_read_all(environ, file_wins=False, default_log_format=default_log_format))


def reload(environ: Mapping[str, str], *, default_log_format: LogFormat = "json") -> Settings:
    """The settings at a reload: `GATEWAY_ENV_FILE` wins over the environment the process once started with."""
    return _checked(_read_all(environ, file_wins=True, default_log_format=default_log_format))


def with_options(environ: Mapping[str, str], options: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """The environment with options of the command line, by setting: how each was written, and its value.

    Whoever wrote them just now meant them: they win over environment and files, at a reload too.
    """
    return {**environ, _OPTIONS: json.dumps(options)} if options else dict(environ)


def inspect(environ: Mapping[str, str], *, default_log_format: LogFormat = "json") -> tuple[Settings, list[str]]:
    """What the settings at start would be, with the default in place of each faulty one, and every fault."""
    return _read_all(environ, file_wins=False, default_log_format=default_log_format)


def within_reach(new: Settings, before: Settings, step: Reach) -> tuple[Settings, list[str]]:
    """New settings without what `step` does not change, and the names of what waits for more than that."""
    waiting = [
        entry
        for entry in DECLARED
        if entry.is_beyond(step) and getattr(before, entry.attribute) != getattr(new, entry.attribute)
    ]
    kept = {entry.attribute: getattr(before, entry.attribute) for entry in waiting}
    return attrs.evolve(new, **kept), [entry.name for entry in waiting]


@frozen
class _Given:
    """The text of a setting and where it was found."""

    raw: str
    source: str


@frozen(kw_only=True)
class _Tables:
    """What stands in the TOML file beside settings."""

    routes: Routes = field(factory=Routes)
    keys: KeyRing = field(factory=KeyRing)
    name_server: bool = False
    """They name a model server, with a fault perhaps; or the file cannot be read, and might."""


def _checked(read: tuple[Settings, list[str]]) -> Settings:
    settings, faults = read
    if faults:
        raise ConfigError(faults)
    return settings


def _read_all(
    environ: Mapping[str, str], *, file_wins: bool, default_log_format: LogFormat
) -> tuple[Settings, list[str]]:
    faults: list[str] = []
    given, tables = _gather(environ, faults, file_wins=file_wins)
    _check_names(given, faults)
    values: dict[str, Any] = {"log_format": default_log_format}
    for entry in DECLARED:
        found = _resolve_secret_file(entry, given, faults) if entry.is_secret else given.get(entry.name)
        if found is None:
            continue
        try:
            values[entry.attribute] = _read(entry, found)
        except ValueError as error:
            faults.append(_fault(entry, found, error))
    _check_later(given, faults)
    sources = {name: found.source for name, found in given.items() if name in _BY_NAME}
    sources |= {_FILE_NAMES[name]: found.source for name, found in given.items() if name in _FILE_NAMES}
    if not tables.keys.is_open:
        listed = values.get("api_keys", KeyRing())
        values["api_keys"] = KeyRing((*listed.keys, *tables.keys.keys))
    settings = Settings(**values, routes=tables.routes, sources=sources)
    faults += _contradictions(settings, given, names_server=tables.name_server)
    return attrs.evolve(settings, warnings=_warnings(settings)), faults


def _gather(environ: Mapping[str, str], faults: list[str], *, file_wins: bool) -> tuple[dict[str, _Given], _Tables]:
    """Everything that was set, by name, and the tables beside it; an empty value counts as not set."""
    process = _layer(environ, "environment", strict=False)
    options = _options_layer(process)
    env_file = _env_file_layer(process | options, faults)
    # At start the environment wins, as whoever starts a process expects; a reload can only be brought new words by the
    # file.
    layers = [process, env_file, options] if file_wins else [env_file, process, options]
    toml, tables = _toml_layer(layers, faults)
    merged: dict[str, _Given] = {}
    for layer in (toml, *layers):
        for name, found in layer.items():
            # A value and the file that holds it are one setting: the stronger source replaces both forms.
            if name in _TWINS and _TWINS[name] not in layer:
                merged.pop(_TWINS[name], None)
            merged[name] = found
    return merged, tables


def _layer(values: Mapping[str, str], source: str, *, strict: bool) -> dict[str, _Given]:
    layer = {}
    for name, raw in values.items():
        value = raw.strip()
        # Kubernetes puts a variable there for each Service of the namespace, `GATEWAY_PORT=tcp://...` among them:
        # https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
        if value and (strict or not is_injected(name, value) or name in _BY_NAME):
            layer[name] = _Given(value, source)
    return layer


def _options_layer(process: dict[str, _Given]) -> dict[str, _Given]:
    """What `with_options` put there; nobody else writes this variable, so it is none of the operator's."""
    put = process.pop(_OPTIONS, None)
    if put is None:
        return {}
    return {name: _Given(raw, f"option {option}") for name, (option, raw) in json.loads(put.raw).items()}


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


def _toml_layer(layers: list[dict[str, _Given]], faults: list[str]) -> tuple[dict[str, _Given], _Tables]:
    named = next((layer["GATEWAY_CONFIG"] for layer in reversed(layers) if "GATEWAY_CONFIG" in layer), None)
    if named is None:
        return {}, _Tables()
    try:
        content = read_text(named.raw)
    except ValueError as error:
        faults.append(f"GATEWAY_CONFIG: {error}")
        return {}, _Tables(name_server=True)
    found = len(faults)
    values, tables = parse_toml(content, faults, path=named.raw, tables=("upstreams", "models", "keys"))
    is_unread = len(faults) > found and not values and not tables
    for name in ("GATEWAY_ENV_FILE", "GATEWAY_CONFIG"):
        if values.pop(name, None) is not None:
            faults.append(f"{named.raw}: {name} cannot be set in the TOML file")
    for name in [name for name in values if name not in _KNOWN and not _is_suspect(name)]:
        faults.append(f"{named.raw}: {name[:64]!r} is not a setting")
        del values[name]
    routes = read_routes(tables, faults, path=named.raw)
    keys = KeyRing.from_tables(tables.get("keys", {}), faults, path=named.raw, read_file=read_text)
    name_server = is_unread or bool(tables.get("upstreams"))
    return _layer(values, f"file {named.raw}", strict=True), _Tables(routes=routes, keys=keys, name_server=name_server)


def _is_suspect(name: str) -> bool:
    return name.startswith(OWN_PREFIXES) or (len(name) >= _SHORTEST and nearest(name, _KNOWN, within=2) is not None)


def _check_names(given: Mapping[str, _Given], faults: list[str]) -> None:
    for name, found in given.items():
        if name in _KNOWN:
            continue
        upper = name.upper()
        # A misspelt setting is silently the default: that is worse than not to start.
        close = nearest(upper, _KNOWN, within=2)
        if close is not None and len(name) >= _SHORTEST:
            faults.append(f"{name}: is not a setting ({found.source}); is {close} meant?")
        elif upper.startswith(OWN_PREFIXES):
            far = nearest(upper, _KNOWN, within=len(upper) + _LONGEST)
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


def _check_later(given: Mapping[str, _Given], faults: list[str]) -> None:
    for name, later in _LATER.items():
        found = given.get(name)
        if found is not None and found.raw.lower() not in later.accepts:
            # An address may hold a password.
            value = f" {found.raw[:64]!r}" if "://" not in found.raw else ""
            accepted = " or ".join(later.accepts)
            faults.append(f"{name}:{value} is not available in this version; leave it unset or set it to {accepted}")


def _read(entry: Declared, found: _Given) -> Any:
    # Values go into headers and logs, where a line break would begin another line.
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
    # An address may hold a password before its `@`.
    value = "" if entry.is_secret or "@" in found.raw else f" (got {_without_query(entry, found.raw)[:80]!r})"
    option = found.source.removeprefix("option ")
    named = entry.name if option == found.source else f"{option} ({entry.name})"
    return f"{named}: {error}{value}"


def _without_query(entry: Declared, raw: str) -> str:
    """The value as it may be shown: behind the path of an address people paste their keys."""
    path = re.split(r"[?#;]", raw, maxsplit=1)[0]
    return raw if path == raw or not (entry.read is http_url or "://" in raw) else f"{path}?********"


def _contradictions(settings: Settings, given: Mapping[str, _Given], *, names_server: bool) -> Iterator[str]:
    loopback = is_loopback(settings.host)
    if "UPSTREAM_URL" not in given and not names_server:
        if settings.config_file is not None:
            yield "UPSTREAM_URL: is missing; with GATEWAY_CONFIG there is no embedded demo"
        elif not loopback:
            yield f"UPSTREAM_URL: is missing; the embedded demo answers on loopback only, not on {settings.host}"
    is_asked = "GATEWAY_API_KEYS" in given or "GATEWAY_API_KEYS_FILE" in given or not settings.api_keys.is_open
    if not is_asked and settings.has_own_key and not loopback and not settings.allow_open:
        yield (
            f"GATEWAY_API_KEYS: is empty while UPSTREAM_API_KEY is set: whoever reaches {settings.host} could "
            "spend it; set keys, or GATEWAY_ALLOW_OPEN=true if something in front of the gateway asks for them"
        )
    yield from _circles(settings)
    yield from _unwritable_dialects(settings)
    yield from _ports(settings)
    if settings.workers > 1 and settings.store_url == "memory://":
        yield "STORE_URL: memory:// is one process's own; with GATEWAY_WORKERS above 1 name a file or a Redis server"
    if settings.canary_force_header is not None and not settings.trusted_proxies:
        yield "CANARY_FORCE_HEADER: nobody is trusted to send it; set TRUSTED_PROXIES"


def _circles(settings: Settings) -> Iterator[str]:
    named = [("UPSTREAM_URL", settings.upstream_url)]
    named += [(f"upstreams.{each.name}: url", each.url) for each in settings.routes.upstreams]
    for name, url in named:
        if url is not None and _is_here(url, settings):
            yield f"{name}: is the gateway's own address: requests would go round in circles"


def _is_here(url: str, settings: Settings) -> bool:
    """As far as the addresses tell without being looked up."""
    parts = urlsplit(url)
    if (parts.port or _PORTS[parts.scheme]) != settings.port:
        return False
    host, own = ("127.0.0.1" if name == "localhost" else name for name in (parts.hostname or "", settings.host))
    return host == own or (own in ("0.0.0.0", "::") and is_loopback(host))  # noqa: S104 - compared


def _ports(settings: Settings) -> Iterator[str]:
    first, last = settings.metrics_port, settings.metrics_port + settings.workers - 1
    if not first:
        return
    if first <= settings.port <= last:
        shown = str(first) if last == first else f"{first} to {last}"
        yield f"METRICS_PORT: {shown} must differ from GATEWAY_PORT"
    if last > 65535:
        yield "METRICS_PORT: with one port for each worker it passes 65535"


def _unwritable_dialects(settings: Settings) -> Iterator[str]:
    for rule in settings.all_rules():
        source = "STRATEGY_RULES" if rule in settings.strategy_rules else "models"
        if rule.dialect is None:
            continue
        if rule.strategy in _WITHOUT_DIALECT:
            yield f"{source}: {rule}: {rule.strategy} takes no dialect"
        elif rule.strategy == "xml_prompt" and rule.dialect not in RENDERERS:
            known = ", ".join(sorted(RENDERERS))
            close = nearest(rule.dialect, RENDERERS, within=max(2, len(rule.dialect) // 2))
            meant = f"; is {close} meant?" if close is not None else ""
            yield f"{source}: {rule}: this version writes the dialects {known}{meant}"


def _warnings(settings: Settings) -> tuple[str, ...]:
    return (*_address_warnings(settings), *_kill_warnings(settings), *_store_warnings(settings))


def _store_warnings(settings: Settings) -> tuple[str, ...]:
    if settings.store_url != "memory://":
        return ()
    return ("STORE_URL is memory://: records, stored responses and what was learned end with this process",)


def _kill_warnings(settings: Settings) -> tuple[str, ...]:
    if settings.kill_switch:
        return ("KILL_SWITCH is on: everything is relayed untouched",)
    if settings.kill_switch_file is not None and Path(settings.kill_switch_file).exists():
        return (f"KILL_SWITCH_FILE: {settings.kill_switch_file} exists: everything is relayed untouched",)
    return ()


def _address_warnings(settings: Settings) -> tuple[str, ...]:
    end = KINDS[settings.upstream_kind].url_end
    pasted = next((path for path in _PASTED if (settings.upstream_url or "").endswith(path)), None)
    if pasted is not None:
        return (f"UPSTREAM_URL ends in {pasted}: leave that off, it is added to each request",)
    if settings.upstream_url is not None and not settings.upstream_url.endswith(end):
        return (f"UPSTREAM_URL does not end in {end}: most servers answer only there",)
    return ()
