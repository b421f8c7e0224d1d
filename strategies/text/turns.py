"""Work that is done in turns: a generator that yields where others may have theirs, and returns what it has found."""

import re
from collections.abc import Callable, Generator
from typing import ParamSpec, TypeVar

from gateway.wire.json_scan import JsonScanner

__all__ = ["LONG", "TURN", "Turns", "at_once", "replaced", "scanning", "whole"]

P = ParamSpec("P")
T = TypeVar("T")
Turns = Generator[None, None, T]

LONG = 1 << 16
"""What one call of the library does with a longer text is a turn of its own."""
TURN = 500
"""How many small things are done in one turn."""


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
    if len(text) <= LONG:
        scanner.feed(text, start)
        return scanner
    for at in range(start, len(text), LONG):
        if scanner.feed(text[at : at + LONG]) >= 0:
            break
        yield
    return scanner
