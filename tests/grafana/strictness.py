"""Grafana's own types for dashboards, applied strictly: a value must have the type that its field is declared with."""

import enum
import types
import typing
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

__all__ = ["mistyped"]

SDK = "grafana_foundation_sdk"


def mistyped(dashboard: dict[str, Any]) -> list[str]:
    """Where a dashboard's values have another type, or are none of the words, that Grafana's types allow."""
    plugins.register_default_plugins()
    return list(_faults(Dashboard.from_json(dashboard), Dashboard, "dashboard"))


def _faults(value: Any, hint: Any, path: str) -> Iterator[str]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object):
        yield from _fields(value, path)
    elif origin in (typing.Union, types.UnionType):
        found = [list(_faults(value, one, path)) for one in inner]
        yield from min(found, key=len)
    elif origin is typing.Literal:
        if value not in inner:
            yield f"{path}: {value!r} is none of {inner}"
    elif origin is list:
        yield from _all(value, list, enumerate(value) if isinstance(value, list) else (), inner[0], path)
    elif origin is dict:
        yield from _all(value, dict, value.items() if isinstance(value, dict) else (), inner[1], path)
    elif isinstance(hint, enum.EnumMeta):
        members: list[Any] = list(hint)
        if value not in [*members, *(member.value for member in members)]:
            yield f"{path}: {value!r} is no {hint.__name__}"
    elif isinstance(value, dict) and getattr(hint, "__module__", "").startswith(SDK):
        yield from _fields(hint.from_json(value), path)
    elif not _is_a(value, hint):
        yield f"{path}: {value!r} is no {hint.__name__}"
    else:
        yield from _fields(value, path)


def _all(value: Any, kind: type, items: Any, hint: Any, path: str) -> Iterator[str]:
    if not isinstance(value, kind):
        yield f"{path}: {value!r} is no {kind.__name__}"
    for key, item in items:
        yield from _faults(item, hint, f"{path}[{key}]")


def _is_a(value: Any, hint: Any) -> bool:
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def _fields(value: Any, path: str) -> Iterator[str]:
    if type(value).__module__.startswith(SDK) and not isinstance(value, enum.Enum):
        for name, hint in typing.get_type_hints(type(value).__init__).items():
            if name != "return":
                yield from _faults(getattr(value, name), hint, f"{path}.{name}")
