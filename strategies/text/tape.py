"""The text of an answer as far as nothing accounts for it yet, kept once for all who may still need it.

The reader that failed, the candidate that is refused, the value that ends: each asks for its part of it by offsets.
What has lain there for a while is packed: whoever reads a long call looks at its end, and at the rest only once.
"""

import zlib
from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

__all__ = ["Source", "Taken", "Tape"]

Source = Callable[[int, int], str]
"""The text between two offsets."""

_BLOCK = 1 << 12
_FRESH = 2
"""How many of the last blocks are not packed: whoever reads looks at them again."""
_MANY = 256
_MOST = 1 << 16
"""A longer block came in one piece, and takes too long to pack for a single step."""
_PAYS = 0.75


class Tape:
    """Grows at its end, is forgotten from its front; offsets count from the answer's first character."""

    __slots__ = ("_blocks", "_ends", "_fresh", "_loose", "_loose_size", "base", "end", "held")

    def __init__(self, text: str = "", *, fresh: int = _FRESH) -> None:
        self._fresh = fresh
        self.end = 0
        """Where the next text goes."""
        self.base = 0
        """Up to where it is accounted for: with the next text what stands in front of it is let go."""
        self.held: int | None = None
        """From here on nothing is, accounted for or not: a call that flows is judged by all of its text."""
        self._blocks: list[str | bytes] = []
        self._ends: list[int] = []
        """Where each block ends."""
        self._loose: list[str] = []
        """What stands behind the blocks."""
        self._loose_size = 0
        if text:
            self.add(text)

    def __len__(self) -> int:
        return self.end - self.base

    def add(self, text: str) -> None:
        """More text has come."""
        floor = self._floor
        if floor == self.end:
            self._loose.clear()
            self._loose_size = 0
            if self._ends:
                self._blocks.clear()
                self._ends.clear()
        elif self._ends and self._ends[0] <= floor:
            count = bisect_right(self._ends, floor)
            del self._blocks[:count], self._ends[:count]
        self.end += len(text)
        self._loose.append(text)
        self._loose_size += len(text)
        if self._loose_size >= _BLOCK or len(self._loose) >= _MANY:
            self._close()

    @property
    def _floor(self) -> int:
        return self.base if self.held is None else min(self.base, self.held)

    def between(self, start: int, end: int) -> str:
        """The text from one offset to another, of what is not forgotten."""
        if self._loose and end > self.end - self._loose_size:
            self._close()
        at = bisect_right(self._ends, start)
        parts: list[str] = []
        while at < len(self._ends) and start < end:
            text = self._blocks[at]
            if isinstance(text, bytes):  # whoever asks for it asks again, within the same step
                text = self._blocks[at] = _unpacked(text)
            begun = self._ends[at] - len(text)
            parts.append(text[start - begun : end - begun])
            start = self._ends[at]
            at += 1
        return "".join(parts)

    def text(self) -> str:
        """All that nothing has accounted for."""
        return self.between(self.base, self.end)

    def rest(self, size: int) -> str:
        """The last characters."""
        return self.between(self.end - size, self.end)

    def _close(self) -> None:
        """Make a block of what is loose, joined with the last one while that is small."""
        last = self._blocks[-1] if self._blocks else ""
        if isinstance(last, str) and len(last) < _BLOCK // 2 and self._blocks:
            begun = self._ends[-1] - len(last)
            self._loose.insert(0, last[max(0, self._floor - begun) :])
            self._blocks.pop()
            self._ends.pop()
        self._blocks.append("".join(self._loose))
        self._ends.append(self.end)
        self._loose.clear()
        self._loose_size = 0
        if len(self._blocks) > self._fresh:
            cold = self._blocks[-1 - self._fresh]
            if isinstance(cold, str) and _BLOCK // 2 <= len(cold) <= _MOST:
                self._blocks[-1 - self._fresh] = _packed(cold)


def _packed(text: str) -> str | bytes:
    """The text in fewer bytes, where that is worth its while."""
    # A lone surrogate in the answer is no UTF-8, and has to come back as it was.
    data = text.encode("utf-8", "surrogatepass")
    packed = zlib.compress(data, 1)
    return packed if len(packed) < _PAYS * len(data) else text


def _unpacked(data: bytes) -> str:
    return zlib.decompress(data).decode("utf-8", "surrogatepass")


class _Window(Protocol):
    """Of a cursor, what it takes to know where a text stands."""

    text: str
    pos: int
    source: Source | None

    @property
    def offset(self) -> int: ...


class Taken:
    """Text that a cursor hands over, kept as the place where it stands; as text where it stands nowhere."""

    __slots__ = ("_cur", "_end", "_pieces", "_start", "first")

    def __init__(self, cur: _Window) -> None:
        self._cur = cur
        self._start = self._end = -1
        self._pieces = Tape() if cur.source is None else None
        self.first: str | None = None
        """What was handed over first."""

    def add(self, text: str) -> None:
        """The cursor hands this over, and stands in front of it or behind; or it comes from elsewhere."""
        cur = self._cur
        if self._pieces is None:
            size = len(text)
            at = cur.offset
            if not cur.text.startswith(text, cur.pos) or (self._end not in (at, -1)):
                at -= size  # or it has just passed it
            stands = at == cur.offset or (cur.pos >= size and cur.text.startswith(text, cur.pos - size))
            if self.first is None:
                self._start = self._end = at
            if stands and at == self._end:
                self._end += size
            else:
                self._pieces = Tape(self.text())
        if self.first is None:
            self.first = text
        if self._pieces is not None:
            self._pieces.add(text)

    def text(self) -> str:
        """All of it."""
        if self._pieces is not None:
            return self._pieces.text()
        source = self._cur.source
        return source(self._start, self._end) if source is not None and self._end > self._start else ""
