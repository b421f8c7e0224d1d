"""The value of an attribute: a quote in it can only be an entity, so entities stand for what they name.

So they do in JSON whose own quotes are entities. Between tags a text carries its signs as they are, and whether it was
escaped is decided by all of it.
"""

import re

__all__ = ["TwoReadings", "attribute_value"]

# https://www.w3.org/TR/xml/#sec-predefined-ent and https://www.w3.org/TR/xml/#dt-charref
_ENTITY = re.compile(r"&(?:(lt|gt|quot|apos|amp)|#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6}));")
_NAMED = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "amp": "&"}
_QUOTES = frozenset("\"'")
_BARE = re.compile(r"[<>]|&(?!(?:lt|gt|quot|apos|amp|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});)")
_SURROGATES = range(0xD800, 0xE000)
_LAST = 0x10FFFF


class TwoReadings(ValueError):
    """Entities beside signs that should have been some: they may be meant as they are."""


def attribute_value(text: str) -> str:
    """The value without its entities, each undone once; raises `TwoReadings` where only some signs were escaped."""
    if "&" not in text or _ENTITY.search(text) is None:
        return text
    # A page in an attribute has its own entities; its quotes alone have to be escaped, whoever wrote it.
    if _BARE.search(text) and any(_sign(match) not in _QUOTES for match in _ENTITY.finditer(text)):
        raise TwoReadings("entities can be read in several ways")
    return _ENTITY.sub(_sign, text)


def _sign(match: re.Match[str]) -> str:
    """What the entity stands for; itself where it names no character that text may hold."""
    name, digits, hexadecimal = match.groups()
    if name:
        return _NAMED[name]
    code = int(digits) if digits else int(hexadecimal, 16)
    is_text = code in (9, 10, 13) or (32 <= code <= _LAST and code not in _SURROGATES)
    return chr(code) if is_text else match.group()
