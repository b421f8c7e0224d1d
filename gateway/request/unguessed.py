"""Words that nobody guesses: ids of requests and of answers."""

import os
from collections.abc import Callable

__all__ = ["Unguessed"]

_MANY = 64


class Unguessed:
    """Gives another one with each call; the system is asked for the randomness of many at once."""

    __slots__ = ("_drawn", "_prefix", "_size", "_written")

    def __init__(self, size: int, written: Callable[[bytes], str], *, prefix: str = "") -> None:
        self._size = size
        """Random bytes in each."""
        self._written = written
        """How bytes are written, each in as many letters."""
        self._prefix = prefix
        self._drawn: list[str] = []
        # A process that was forked would give the same ones as the other.
        os.register_at_fork(after_in_child=self._drawn.clear)

    def __call__(self) -> str:
        drawn = self._drawn
        if not drawn:
            letters, prefix = self._written(os.urandom(self._size * _MANY)), self._prefix
            size = len(letters) // _MANY
            drawn += [prefix + letters[at : at + size] for at in range(0, len(letters), size)]
        return drawn.pop()
