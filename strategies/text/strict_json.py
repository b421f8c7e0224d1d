"""JSON as it should be: read by the standard decoder alone, and held to what an answer's arguments may be.

`decode` is where the ladder of `tolerant_json` begins: valid JSON, then the same with raw control characters in its
strings; a long list or object is decoded in parts. A number that nobody can write, half a character and nesting beyond
the bound are faults of a valid text, too.
"""

import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import frozen

from gateway.wire.json_scan import JsonScanner, JsonTooDeep
from strategies.text.dumping import holding_surrogates
from strategies.text.escapes import HalfEscaped, has_surrogates, lost_backslash
from strategies.text.numbers import written
from strategies.text.turns import LONG, Turns, at_once, letting_go, scanning

__all__ = [
    "SPACE",
    "Cut",
    "JsonFault",
    "MembersHook",
    "Parsed",
    "cutting",
    "decode",
    "decoder",
    "decoding",
    "float_of",
    "int_of",
    "is_same_json",
    "loading_strict",
    "loads_strict",
    "may_hold_surrogates",
    "note",
    "refusing_surrogates",
    "repeated",
    "skip",
]

_DIGITS = 150
"""Two such blocks of digits may be a number that is too long to write; one is none yet."""
SPACE = re.compile(r"[ \t\r\n]*+")
MembersHook = Callable[[list[tuple[str, Any]]], dict[str, Any]]

_PART = 1 << 14
"""Characters that are decoded at once, or more where a text is longer."""
_LOOK = 1 << 13
_MANY = 2_000
"""Brackets that are looked at in one turn."""
# Possessive throughout: a text without an end must not be tried again from each of its quotes, see
# https://cwe.mitre.org/data/definitions/1333.html
_QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ANY = re.compile(rf'(?:[^"{{}}\[\]]++|{_QUOTED}|\{{\}}|\[\])*+', re.DOTALL)
"""What can be passed in one go inside a container."""
_ANY_FLAT = re.compile(rf'(?:[^"{{}}\[\]]++|{_QUOTED})*+', re.DOTALL)
"""The same at the deepest level, where an empty container is one too many."""
_TO_COMMA = re.compile(rf'(?:(?:[^",{{}}\[\]]++|{_QUOTED})*+,)++', re.DOTALL)
"""What can be passed up to a comma between values."""
_ONE_STRING = re.compile(_QUOTED, re.DOTALL)
_PAIRS = {"{": "}", "[": "]"}


@frozen
class Cut:
    """A place behind a value, and the brackets that are open there."""

    at: int
    open: str


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
    # The surest reading still finds numbers that a client cannot read, or reads as another number.
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


def repeated(first: Any, second: Any) -> str:
    """What is told of a key that was written twice: that it says the same, or two things."""
    return "key_repeated" if is_same_json(first, second) else "duplicate_keys"


def is_same_json(first: Any, second: Any) -> bool:
    """Whether two values are written alike, whatever the order of their members."""
    # Python has `True == 1`. Written by the library, as walking over them would take a turn of its own for each.
    return first is second or (
        first == second and json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    )


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
    # A zero with a sign is a whole number to the decoder, which loses the sign.
    if len(text) <= LONG or "-0" in text:
        return False
    # A number of 300 digits or more covers one of these blocks wholly. Python refuses some 4,300 of them
    # (https://docs.python.org/3/library/stdtypes.html#int-max-str-len), and JSON of floats ends at 309.
    return not any(text[at : at + _DIGITS].isdigit() for at in range(0, len(text), _DIGITS))


def _members(notes: list[str]) -> MembersHook:
    """What makes an object of its members."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        # The last one wins, as in every reader of JSON that clients use; that there were two is told, and whether they
        # say the same: https://www.rfc-editor.org/rfc/rfc8259#section-4
        result = dict(items)
        if len(result) != len(items):
            first: dict[str, Any] = {}
            for key, value in items:
                if key in first:
                    note(notes, repeated(first[key], value))
                first.setdefault(key, value)
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


# A long list or object is decoded in parts, so that no step takes longer than a part does. The text is cut behind
# values, wherever brackets are open; a part is decoded between brackets that stand for those that are open where it
# begins and where it ends, and what it holds is put into what the parts before it have left open. Every part is valid
# exactly where the whole document is.


def cutting(text: str, start: int, max_depth: int) -> Turns[list[Cut] | None]:
    """Where the value that begins here is cut; the last of them is its end, or `None` where it is no whole container.

    Raises `JsonTooDeep` where it nests deeper than it may.
    """
    if text[start : start + 1] not in ("{", "["):
        return None
    cuts: list[Cut] = []
    opened = [text[start]]
    at = inside = start + 1
    last, left = start, _MANY
    size = len(text)
    while at < size:
        left -= 1
        if left < 0:
            left = _MANY
            yield
        if at - last >= _PART:
            match = _TO_COMMA.match(text, at, at + _LOOK)
            # Behind an opener a comma makes the document none, and a part that ended there would be one.
            if match is not None and SPACE.match(text, inside).end() < match.end() - 1:  # type: ignore[union-attr]
                last = match.end() - 1
                cuts.append(Cut(last, "".join(opened)))
        begun = at
        at = (_ANY if len(opened) < max_depth else _ANY_FLAT).match(text, at, at + _LOOK).end()  # type: ignore[union-attr]
        if at >= size:
            break
        sign = text[at]
        if sign == '"':
            match = _ONE_STRING.match(text, at)
            if match is None:
                return None
            at = match.end()
        elif sign in _PAIRS:
            opened.append(sign)
            if len(opened) > max_depth:
                raise JsonTooDeep(f"nested deeper than {max_depth}")
            at = inside = at + 1
        elif sign in "}]":
            if _PAIRS[opened.pop()] != sign:
                return None
            at += 1
            if not opened:
                cuts.append(Cut(at, ""))
                return cuts
            if at - last >= _PART:
                last = at
                cuts.append(Cut(last, "".join(opened)))
        if at - begun >= _LOOK:
            yield
    return None


def decoding(
    text: str, start: int, cuts: list[Cut], decoder: Callable[[MembersHook], json.JSONDecoder], hook: MembersHook
) -> Turns[Any]:
    """The value, its last cut at its end; raises `ValueError` where a part is no JSON."""
    joined = _Joined(_stranger(text), hook)
    decode = decoder(joined.pairs).decode
    begun, opened = start, ""
    for cut in cuts:
        try:
            part = decode(joined.framed(text[begun : cut.at], opened, cut.open))
        except ValueError:
            yield from letting_go(joined.given_up())
            raise
        joined.take(part, opened, cut.open)
        del part
        begun, opened = cut.at, cut.open
        yield
    return joined.root


def _stranger(text: str) -> str:
    """A name that no member of the document has."""
    name = "-"
    while name in text:
        name += "-"
    return name


class _Joined:
    """The parts of a document, joined so far."""

    __slots__ = ("_chain", "_hook", "_recent", "_stranger", "root")

    def __init__(self, stranger: str, hook: MembersHook) -> None:
        self._stranger = stranger
        self._hook = hook
        self._chain: list[Any] = []
        """The containers that are open, from the outermost one."""
        self._recent: deque[tuple[list[tuple[str, Any]], dict[str, Any]]] = deque()
        self.root: Any = None

    def given_up(self) -> list[Any]:
        """All that was joined so far, which is held by nobody else."""
        held = [self.root]
        self.root = None
        self._chain.clear()
        self._recent.clear()
        return held

    def framed(self, part: str, before: str, behind: str) -> str:
        """The part between the brackets that are open before and behind it."""
        self._recent = deque(maxlen=behind.count("{") or 1)
        key = f'{{"{self._stranger}":'
        opener = "".join(key if sign == "{" else "[" for sign in before)
        return f"{opener}{'null' if before else ''}{part}{''.join(_PAIRS[sign] for sign in reversed(behind))}"

    def pairs(self, items: list[tuple[str, Any]]) -> Any:
        """What the decoder makes of the members of an object."""
        if items and items[0][0] == self._stranger:
            return _More(items)
        result = self._hook(items)
        self._recent.append((items, result))
        return result

    def take(self, part: Any, before: str, behind: str) -> None:
        """Put what a part holds into what is open before it, and note what is open behind it."""
        if not before:
            self.root = part
        more = list(_continued(part, len(before)))
        for container, each in zip(self._chain, more, strict=True):
            self._add(container, each)
        chain = [self.root] if behind else []
        while len(chain) < len(behind):
            level = len(chain) - 1
            if level < len(more) and chain[level] is self._chain[level]:
                added = _items_of(more[level])[1:]
                chain.append(added[-1] if added else self._chain[level + 1])
            else:
                chain.append(self._last(chain[level]))
        self._chain = chain

    def _add(self, container: Any, more: Any) -> None:
        if isinstance(more, list):
            container += more[1:]
            return
        added = self._hook(more.items[1:])
        for key, value in added.items():
            if key not in container:
                continue
            # What may be open still cannot be compared: the hook is told of two values, as within one part.
            is_whole = not isinstance(value, dict | list) and not isinstance(container[key], dict | list)
            self._hook([(key, container[key]), (key, value)] if is_whole else [(key, 0), (key, 1)])
        container.update(added)

    def _last(self, container: Any) -> Any:
        """What was put last into a container that this part has opened."""
        if isinstance(container, list):
            return container[-1]
        return next(items[-1][1] for items, result in self._recent if result is container)


class _More:
    """Further members of an object that a part before has opened."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[str, Any]]) -> None:
        self.items = items


def _items_of(more: Any) -> list[Any]:
    return more if isinstance(more, list) else [item for _, item in more.items]


def _continued(part: Any, depth: int) -> Iterator[Any]:
    """What a part adds to each of the containers that are open before it."""
    for _ in range(depth):
        yield part
        part = _items_of(part)[0]
