"""The tables of `GATEWAY_CONFIG`: several upstreams, and rules for models, each checked like any other setting.

[upstreams.local]                 [[models]]
url = "http://127.0.0.1:8000/v1"  match = "qwen*"
models = ["qwen*"]                upstream = "local"
                                  fallback = "cloud"
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from attrs import evolve, field, fields, frozen

from gateway.config.declared.values import (
    Reader,
    boolean,
    choice,
    cookies,
    http_url,
    names,
    seconds,
    secret,
    text,
    whole,
)
from gateway.config.sources import as_text, read_text
from gateway.core.rules import ModelRule
from gateway.kinds.lowering.refusals import LOWERABLE
from gateway.kinds.rows import DEFAULT_KIND, KINDS, KindOptions
from strategies.mapping.mappings import MAPPINGS

__all__ = ["MODEL_KEYS", "UPSTREAM_KEYS", "Routes", "UpstreamSettings", "read_routes"]

MAX_NAME_CHARS = 64
WIRES = ("chat", "responses", "messages")
"""What a server may speak beside each other."""
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


@frozen(kw_only=True)
class UpstreamSettings:
    """One model server; a time that is not named is that of the settings for all."""

    name: str
    url: str
    kind: str = DEFAULT_KIND
    api_key: str | None = field(default=None, repr=False)
    cookies: str | None = field(default=None, repr=False)
    models: tuple[str, ...] = ()
    """Globs of the models that it serves."""
    connect_timeout_s: float | None = None
    first_byte_timeout_s: float | None = None
    idle_timeout_s: float | None = None
    total_timeout_s: float | None = None
    down_level: tuple[str, ...] = ()
    """Keywords of JSON schema that it refuses: they are taken out of tools that go there."""
    wires: tuple[str, ...] = ()
    """Beside its kind's own: which wires it speaks. Empty: it is found out where that can harm nobody."""
    late_system: Literal["user", "inline", "first"] = "user"
    """Where system text goes that comes behind the first message of a Messages or Responses request."""
    max_output_tokens: int | None = None
    """No more is asked for on behalf of clients that ask for the same whatever the model is."""
    tokenize: bool = False
    """It is asked for the tokens of a text (`/tokenize`)."""
    cache_control: Literal["drop", "keep"] = "drop"
    """Whether it is sent a client's marks for the prompt cache."""
    options: KindOptions | None = None
    """What its own table says of its wire, such as `[upstreams.cloud.anthropic]`."""


@frozen(kw_only=True)
class Routes:
    """The tables of a configuration, in their order."""

    upstreams: tuple[UpstreamSettings, ...] = ()
    models: tuple[ModelRule, ...] = ()


_TIMES: dict[str, Reader] = {
    name: seconds() for name in ("connect_timeout_s", "first_byte_timeout_s", "idle_timeout_s", "total_timeout_s")
}


def _keywords(raw: str) -> tuple[str, ...]:
    """Keywords of JSON schema that can be done without."""
    found = names(raw)
    # Others change what a value may be: without them a model would write what no tool takes.
    unknown = sorted(set(found) - LOWERABLE)
    if unknown:
        raise ValueError(f"{unknown[0][:64]!r} is none of {', '.join(sorted(LOWERABLE))}")
    return found


def _wires(raw: str) -> tuple[str, ...]:
    """Wires that a server speaks; auto: it is found out."""
    found = names(raw)
    unknown = [name for name in found if name not in WIRES]
    if unknown:
        raise ValueError(f"{unknown[0][:64]!r} is none of auto, {', '.join(WIRES)}")
    return found


def _wires_or_auto(raw: str) -> tuple[str, ...]:
    # Nothing is the word for it inside, as it is where the setting is not there.
    return () if raw.strip().lower() == "auto" else _wires(raw)


_UPSTREAM: dict[str, Reader] = {
    "url": http_url,
    "kind": choice(*KINDS),
    "api_key": secret,
    "cookies": cookies,
    "models": names,
    "down_level": _keywords,
    "wires": _wires_or_auto,
    "late_system": choice("user", "inline", "first"),
    "max_output_tokens": whole(1, 1 << 24),
    "tokenize": boolean,
    "cache_control": choice("drop", "keep"),
    **_TIMES,
}
_MODEL: dict[str, Reader] = {
    "match": text,
    "upstream": text,
    "fallback": text,
    "send_as": text,
    "strategy": text,
    "tool_map": choice(*sorted(MAPPINGS), "none"),
    "intent": choice("count", "deliver"),
    "history_reasoning": choice("turn", "keep", "drop"),
    "reasoning_effort": boolean,
    "verbosity": boolean,
    "thinking": choice("drop", "chat_template_kwargs"),
    **{name: reader for name, reader in _TIMES.items() if name != "connect_timeout_s"},
}
_SECRETS = frozenset({"api_key", "cookies"})
UPSTREAM_KEYS = (*_UPSTREAM, *(f"{name}_file" for name in sorted(_SECRETS)))
MODEL_KEYS = tuple(_MODEL)
_OPTIONS = {name: row.options for name, row in KINDS.items() if row.options is not None}


def read_routes(tables: Mapping[str, Any], faults: list[str], *, path: str) -> Routes:
    """The tables `upstreams` and `models`; every fault in them is added to `faults`."""
    upstreams = tables.get("upstreams", {})
    models = tables.get("models", [])
    if not isinstance(upstreams, dict):
        faults.append(f"{path}: upstreams must be tables, such as [upstreams.local]")
        upstreams = {}
    if not isinstance(models, list):
        faults.append(f"{path}: models must be a list of tables: [[models]]")
        models = []
    read = [_upstream(name, table, faults, path) for name, table in upstreams.items()]
    rules = [_model(number, table, faults, path) for number, table in enumerate(models, 1)]
    routes = Routes(
        upstreams=tuple(one for one in read if one is not None), models=tuple(one for one in rules if one is not None)
    )
    # Those with a fault, too: one fault need not be told as two.
    known = {*upstreams, "default"}
    for rule in routes.models:
        for named in (rule.upstream, rule.fallback):
            if named is not None and named not in known:
                faults.append(f"{path}: models {rule.match!r}: there is no upstream named {named[:64]!r}")
    return routes


def _upstream(name: str, table: Any, faults: list[str], path: str) -> UpstreamSettings | None:
    where = f"{path}: upstreams.{name[:MAX_NAME_CHARS]}"
    # Names become labels of metrics and parts of keys in the store.
    if not (0 < len(name) <= MAX_NAME_CHARS and _NAME.issuperset(name)) or name == "default":
        faults.append(f"{where}: a name is at most 64 letters, digits, dots, dashes; default is UPSTREAM_URL's own")
        return None
    if not isinstance(table, dict):
        faults.append(f"{where}: must be a table: [upstreams.{name}]")
        return None
    # The tables of kinds have values that are no text, and are read by their own types.
    plain = {key: value for key, value in table.items() if key not in _OPTIONS}
    values = _values(plain, _UPSTREAM, where, faults)
    options = {kind: _options(table[kind], kind, where, faults) for kind in _OPTIONS if kind in table}
    if "url" not in values:
        # A `url` with a fault has been told of already.
        if "url" not in table:
            faults.append(f"{where}: url is missing")
        return None
    upstream = UpstreamSettings(name=name, **values)
    for kind in options:
        # Told and not passed over: most likely the `kind` is what is wrong.
        if kind != upstream.kind:
            faults.append(f"{where}.{kind}: this server is of the kind {upstream.kind}")
    return evolve(upstream, options=options.get(upstream.kind))


def _options(table: Any, kind: str, where: str, faults: list[str]) -> KindOptions | None:
    """What the table of a kind says, each value checked."""
    made = _OPTIONS[kind]
    known = sorted(each.name for each in fields(made))
    if not isinstance(table, dict):
        faults.append(f"{where}.{kind}: must be a table")
        return None
    unknown = [key for key in table if key not in known]
    faults += [f"{where}.{kind}: {key[:64]!r} is none of {', '.join(known)}" for key in unknown]
    try:
        # Without the unknown ones, which are told: what else is wrong with the table is found in the same run.
        return msgspec.convert({key: value for key, value in table.items() if key in known}, made)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        faults.append(f"{where}.{kind}: {error}")
        return None


def _model(number: int, table: Any, faults: list[str], path: str) -> ModelRule | None:
    where = f"{path}: models, table {number}"
    if not isinstance(table, dict):
        faults.append(f"{where}: must be a table: [[models]]")
        return None
    values = _values(table, _MODEL, where, faults)
    if "match" not in values:
        faults.append(f"{where}: match is missing")
        return None
    return ModelRule(**values)


def _values(table: Mapping[str, Any], readers: Mapping[str, Reader], where: str, faults: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, raw in table.items():
        name = key.removesuffix("_file")
        from_file = name in _SECRETS and name != key
        reader = readers.get(name if from_file else key)
        if reader is None:
            # Never the value, which may be a key under a name that was misspelt.
            faults.append(f"{where}: {key[:64]!r} is none of {', '.join(sorted(readers))}")
            continue
        try:
            given = as_text(raw)
            values[name if from_file else key] = reader(read_text(given).strip() if from_file else given)
        except ValueError as error:
            faults.append(f"{where}: {key}: {error}")
    return values
