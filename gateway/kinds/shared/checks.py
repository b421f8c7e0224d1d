"""Checks of what settings say of a kind's wire."""

from typing import Any

from attrs import Attribute

__all__ = ["above_zero", "header_text", "path"]


def path(_options: object, attribute: "Attribute[Any]", value: str) -> None:
    """A path below the server's address."""
    if not value.startswith("/") or not value.isascii() or not value.isprintable() or set(value) & {" ", "?", "#"}:
        raise ValueError(f"{attribute.name}: must begin with a slash and hold neither white space nor a query")


def above_zero(_options: object, attribute: "Attribute[Any]", value: float | None) -> None:
    """A number above zero, where there is one."""
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"{attribute.name}: must be above zero")


def header_text(_options: object, attribute: "Attribute[Any]", value: str) -> None:
    """Text that can stand in a header."""
    if not value or not value.isascii() or not value.isprintable():
        raise ValueError(f"{attribute.name}: must be printable ASCII")
