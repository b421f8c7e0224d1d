"""JSON as it should be: read by the standard decoder alone, and held to what an answer's arguments may be.

`decode` is where the ladder of `tolerant_json` begins: valid JSON, then the same with raw control characters in its
strings. A number that nobody can write, half a character and nesting beyond the bound are faults of a valid text, too.
"""

import json
import math
import re
from functools import partial
from typing import Any

from attrs import frozen

from gateway.wire.json_scan import JsonScanner, JsonTooDeep
from strategies.text.dumping import holding_surrogates
from strategies.text.escapes import HalfEscaped, has_surrogates, lost_backslash
from strategies.text.json_parts import Cut, MembersHook, cutting, decoding
from strategies.text.numbers import written
from strategies.text.turns import LONG, Turns, at_once, scanning

__all__ = [
    "SPACE",
    "JsonFault",
    "Parsed",
    "decode",
    "decoder",
    "float_of",
    "int_of",
    "loading_strict",
    "loads_strict",
    "may_hold_surrogates",
    "note",
    "refusing_surrogates",
    "skip",
]

_DIGITS = 150
"""Two such blocks of digits may be a number that is too long to write; one is none yet."""
SPACE = re.compile(r"[ \t\r\n]*+")


@frozen
class Parsed:
    """One value, the index behind it, and the mends it needed, in order of first need."""

    value: Any
    end: int
    steps: tuple[str, ...]


class JsonFault(ValueError):
    """The text holds no value that could be read without guessing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def loading_strict(text: str) -> Turns[Any]:
    """The value of a text that is exactly one valid JSON value, finite and within the depth bound; read in turns."""
    notes: list[str] = []
    start = skip(SPACE, text, 0)
    if _is_long(text, start):
        cuts = yield from _cutting(text, start, 64)
        found = (yield from _in_parts(text, start, cuts, notes, strict=True)) if cuts else None
    else:
        yield from _scanning(text, start, 64)
        if len(text) > LONG:
            yield
        found = _in_one_go(text, start, notes, strict=True)
    if found is None:
        raise JsonFault("not valid JSON")
    value, end = found
    if skip(SPACE, text, end) != len(text):
        raise JsonFault("text after the value")
    if "non_finite" in notes or "huge_number" in notes:
        raise JsonFault("number out of range")
    if may_hold_surrogates(text, start, end):
        yield from refusing_surrogates(value)
    return value


loads_strict = at_once(loading_strict)


def may_hold_surrogates(text: str, start: int, end: int) -> bool:
    return text.find("\\u", start, end) >= 0 or text.find("\\U", start, end) >= 0 or has_surrogates(text)


def refusing_surrogates(value: Any) -> Turns[None]:
    if (yield from holding_surrogates(value)):
        raise JsonFault("surrogate")


def _scanning(text: str, start: int, max_depth: int) -> Turns[JsonScanner]:
    """What finds the end of the value, over the text; raises where it nests too deep."""
    try:
        return (yield from scanning(text, start, max_depth))
    except JsonTooDeep:
        raise JsonFault("too deep") from None


def skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


def note(notes: list[str], step: str) -> None:
    if step not in notes:
        notes.append(step)


# The first two steps: the standard decoder, then the same with raw control characters allowed in strings.


def decode(text: str, start: int, max_depth: int) -> Turns[Parsed | None]:
    cuts: list[Cut] = []
    if _is_long(text, start):
        cuts = (yield from _cutting(text, start, max_depth)) or []
        if not cuts:
            return None
    else:
        if len(text) > LONG:
            yield
        scanner = yield from _scanning(text, start, max_depth)
        if not scanner.is_done and not scanner.is_scalar:
            return None
    # Raw line breaks in strings are common, and the standard decoder can be told to take them.
    for strict in (True, False):
        if len(text) > LONG:
            yield
        notes: list[str] = [] if strict else ["control_chars"]
        if cuts:
            found = yield from _in_parts(text, start, cuts, notes, strict=strict)
        else:
            found = _in_one_go(text, start, notes, strict=strict)
        if found is None:
            continue
        if len(text) > LONG:
            yield
        if lost_backslash(text[start : found[1]]):
            raise JsonFault(str(HalfEscaped()))
        return Parsed(*found, tuple(notes))
    return None


def _is_long(text: str, start: int) -> bool:
    """Whether it is a list or an object that is decoded in parts."""
    return len(text) > LONG and text.startswith(("{", "["), start)


def _cutting(text: str, start: int, max_depth: int) -> Turns[list[Cut] | None]:
    try:
        return (yield from cutting(text, start, max_depth))
    except JsonTooDeep:
        raise JsonFault("too deep") from None


def _in_parts(
    text: str, start: int, cuts: list[Cut], notes: list[str], *, strict: bool
) -> Turns[tuple[Any, int] | None]:
    """The value of a long list or object and its end, or `None` where it is no JSON."""
    how = partial(decoder, notes, strict=strict, plain=_has_plain_integers(text))
    try:
        return (yield from decoding(text, start, cuts, how, _members(notes))), cuts[-1].at
    except ValueError:
        return None


def _in_one_go(text: str, start: int, notes: list[str], *, strict: bool) -> tuple[Any, int] | None:
    try:
        return decoder(notes, strict=strict, plain=_has_plain_integers(text)).raw_decode(text, start)
    except ValueError:
        return None


def _has_plain_integers(text: str) -> bool:
    """Whether each whole number of a long text is surely written as it always is: none of them need be looked at."""
    if len(text) <= LONG or "-0" in text:
        return False
    # A number of 300 digits or more covers one of these blocks wholly. Python refuses some 4,300 of them
    # (https://docs.python.org/3/library/stdtypes.html#int-max-str-len), and JSON of floats ends at 309.
    return not any(text[at : at + _DIGITS].isdigit() for at in range(0, len(text), _DIGITS))


def _members(notes: list[str]) -> MembersHook:
    """What makes an object of its members."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        # The last one wins, as in every reader of JSON that clients use; that there were two is told.
        result = dict(items)
        if len(result) != len(items):
            note(notes, "duplicate_keys")
        return result

    return pairs


def decoder(
    notes: list[str], hook: MembersHook | None = None, *, strict: bool, plain: bool = False
) -> json.JSONDecoder:
    def constant(word: str) -> str:
        note(notes, "non_finite")
        return word

    return json.JSONDecoder(
        strict=strict,
        object_pairs_hook=hook or _members(notes),
        parse_constant=constant,
        parse_float=lambda digits: float_of(digits, notes),
        parse_int=None if plain else lambda digits: int_of(digits, notes),
    )


def float_of(digits: str, notes: list[str]) -> float | str:
    # `1e999` is valid JSON and infinite in Python, which would then write it as no JSON at all.
    value = float(digits)
    if math.isfinite(value):
        return written(value, digits)
    note(notes, "non_finite")
    return digits


def int_of(digits: str, notes: list[str]) -> int | float | str:
    try:
        return written(int(digits), digits)
    except ValueError:
        note(notes, "huge_number")
        return digits
