"""Work that is done in turns: a generator that yields where others may have theirs, and returns what it has found."""

import re
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, TypeVar

from gateway.wire.json_scan import JsonScanner

__all__ = [
    "LONG",
    "SCANNED",
    "TURN",
    "Turns",
    "at_once",
    "half_read",
    "let_go",
    "letting_go",
    "replaced",
    "scanning",
    "whole",
]

P = ParamSpec("P")
T = TypeVar("T")
Turns = Generator[None, None, T]

LONG = 1 << 16
"""What one call of the library does with a longer text is a turn of its own."""
SCANNED = 1 << 14
"""How much of a text is looked through for the end of a value in one turn."""
TURN = 500
"""How many small things are done in one turn."""
_LET_GO = 2_000
"""How many values are let go in one turn."""
_HELD = ("value", "values", "arguments", "positional")
"""Where what was read is in what says more of it."""


def let_go(held: list[Any]) -> bool:
    """Give up some of these values, and of what they hold; whether there are more.

    Python frees all that a value alone holds in one go, with its last owner.
    """
    for _ in range(_LET_GO):
        if not held:
            return False
        value = held.pop()
        if isinstance(value, dict):
            held += value.values()
        elif isinstance(value, list | tuple):
            held += value
        elif not isinstance(value, str | int | float):
            held += [part for name in _HELD if (part := getattr(value, name, None)) is not None]
    return bool(held)


def letting_go(held: list[Any]) -> Turns[None]:
    """Give up all of these values."""
    while let_go(held):
        yield


def half_read(fault: BaseException | None) -> list[Any]:
    """What was made on the way to a fault, and would be freed in one go with the frames that it went through."""
    found: list[Any] = []
    while fault is not None:
        at = fault.__traceback__
        # The first frame is the one that has caught it: looked at, it would hold the fault which holds it.
        while at is not None and (at := at.tb_next) is not None:
            found += at.tb_frame.f_locals.values()
        fault = fault.__context__
    return found


def whole(work: Turns[T]) -> T:
    """What the work finds, done in one go."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found


def at_once(work: Callable[P, Turns[T]]) -> Callable[P, T]:
    """The same work for those who have no turns to give: on few bytes, or where nobody waits."""

    def done(*args: P.args, **kwargs: P.kwargs) -> T:
        return whole(work(*args, **kwargs))

    return done


def replaced(pattern: re.Pattern[str], text: str, by: Callable[[re.Match[str]], str]) -> Turns[str]:
    """The text with every match of the pattern replaced."""
    parts: list[str] = []
    at = 0
    for count, match in enumerate(pattern.finditer(text), 1):
        parts += (text[at : match.start()], by(match))
        at = match.end()
        if not count % TURN:
            yield
    parts.append(text[at:])
    return "".join(parts)


def scanning(text: str, start: int, max_depth: int) -> Turns[JsonScanner]:
    """A scanner that has gone over the text, up to the end of the JSON value that begins at `start`."""
    scanner = JsonScanner(max_depth)
    if len(text) <= SCANNED:
        scanner.feed(text, start)
        return scanner
    for at in range(start, len(text), SCANNED):
        if scanner.feed(text[at : at + SCANNED]) >= 0:
            break
        yield
    return scanner
