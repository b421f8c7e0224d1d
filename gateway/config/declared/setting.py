"""What one row of the table of settings says, beside the value: its name, its reader, its help, and its reach."""

from typing import Any, Literal

import attrs
from attrs import field, frozen

from gateway.config.declared.keys import KeyRing
from gateway.config.declared.values import (
    Reader,
    aliases,
    call_modes,
    http_url,
    hundredths,
    percent,
    percents,
    shown,
    shown_maps,
    shown_modes,
    shown_percent,
    shown_size,
    shown_store,
    shown_url,
    store_url,
    tool_maps,
)

__all__ = ["Declared", "Later", "Reach", "declared", "setting"]

Reach = Literal["reload", "restart", "start"]
"""By what a changed value comes into force: the next reload, new processes for those that answer, or a new start."""

_REACHES: tuple[Reach, ...] = ("reload", "restart", "start")
"""From the one that reaches least; what one of them changes, those behind it change as well."""
_MASK = "********"


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
    reach: Reach

    def is_beyond(self, step: Reach) -> bool:
        """That step does not bring a changed value into force."""
        return _REACHES.index(self.reach) > _REACHES.index(step)

    def show(self, value: Any) -> str:
        """The value in the words that would set it; of a secret no more than that it is set."""
        if self.read is store_url:
            return shown_store(value)
        if self.read is http_url:
            return shown_url(value) if value else ""
        if self.is_secret:
            return _MASK if value else ""
        if self.read is tool_maps or self.read is aliases:
            return shown_maps(value)
        if self.read is call_modes:
            return shown_modes(value)
        if self.read is percent or self.read is percents:
            return shown_percent(value)
        if self.read is hundredths:
            return f"{value / 100:.2f}"
        return shown_size(value) if self.is_size else shown(value)

    @property
    def default_text(self) -> str:
        return self.show(self.default)


@frozen(kw_only=True)
class Later:
    """A setting whose feature is not in this version; `accepts` are the values that mean off."""

    name: str
    accepts: tuple[str, ...]


def setting(
    name: str,
    read: Reader,
    default: Any,
    help: str,
    *,
    group: str,
    is_secret: bool = False,
    reach: Reach = "reload",
) -> Any:
    """An attribute of `Settings` that is read from the setting `name`."""
    metadata = {"name": name, "read": read, "help": help, "group": group, "is_secret": is_secret, "reach": reach}
    if isinstance(default, KeyRing):
        return field(factory=KeyRing, metadata=metadata, repr=False)
    return field(default=default, metadata=metadata, repr=not is_secret)


def declared(attribute: "attrs.Attribute[Any]") -> Declared:
    """The row that an attribute made by `setting` stands for."""
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
        reach=meta["reach"],
    )
