"""Calm events: all alike but for a text in which nothing begins, so that they may go on unread.

Nothing of one has to be taken apart but that: how it begins, how it ends, and what may differ between. A server that
gives each a number, or letters at random, says that at the same places of all.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from attrs import frozen

__all__ = ["LONGEST", "MOST", "Calm", "Gone", "Lane", "Rest", "lane_of"]

MOST = 64
"""Events that go by a lane before they are told; with that, what is told in one go has a bound."""
LONGEST = 512
"""Bytes of a chunk: what is longer is rare, and is read."""
CHUNK_END = b"\r\n"
"""Stands behind an event that comes in a chunk of its own."""
_LONGEST_WORD = 24
_MOST_WORDS = 2048
"""Words of so many bytes that are remembered, of each kind of answer."""
_TEXT = rb'"([^"\\\x00-\x1f]*+)"'
_STAMP = rb"[0-9A-Za-z]++"


@frozen
class Rest:
    """What stands behind the head of events that differ in more than their text."""

    pattern: re.Pattern[bytes]
    """Finds it, and the chunk's end behind it, with its text and what is the same in all."""
    text: int
    """The text's group."""
    others: tuple[int, int]
    """The groups of what is the same."""
    same: tuple[bytes, bytes]
    """And what that is."""

    @classmethod
    def of(cls, stamps: Sequence[tuple[bool, bytes]], *, ends_with_text: bool, tail: bytes) -> "Rest | None":
        """What differs, in its order, but for the last: whether it is the text, and what follows it. None for more than
        this can look for."""
        if not 0 < len(stamps) <= 2:
            return None
        are_texts = (*(is_text for is_text, _ in stamps), ends_with_text)
        pattern = _pattern(are_texts, tuple(len(behind) for _, behind in stamps), tail)
        groups, text, at = [], 0, 0
        for is_text in are_texts:
            if is_text:
                at += 1
                text = at
            at += 1
            groups.append(at)
        same = [behind for _, behind in stamps]
        return cls(pattern, text, (groups[0], groups[len(same) - 1]), (same[0], same[-1]))


@lru_cache(maxsize=64)
def _pattern(are_texts: tuple[bool, ...], sizes: tuple[int, ...], tail: bytes) -> re.Pattern[bytes]:
    # By its length alone: what is the same in all events of one answer names that answer, and to make a pattern for
    # each would cost more than most answers have events to spare.
    behind = [rb"((?s:.{%d}))" % size for size in sizes]
    parts = [(_TEXT if is_text else _STAMP) + after for is_text, after in zip(are_texts, (*behind, b""), strict=True)]
    return re.compile(b"".join(parts) + re.escape(tail + CHUNK_END))


@frozen
class Calm:
    """How the calm events of an answer look."""

    head: bytes
    """What each begins with, up to its text or to what else differs."""
    tail: bytes
    """What each ends with."""
    loud: re.Pattern[bytes]
    """What finds in a text that its event is to be read."""
    rest: Rest | None = None
    """Where they differ in more than that."""


class _Beginnings(dict[int, bytes]):
    """By the size of a chunk with its frame: how it begins in its plainest form, the head of its event included."""

    def __init__(self, head: bytes) -> None:
        super().__init__()
        self._head = head

    def __missing__(self, size: int) -> bytes:
        for digits in range(1, 4):
            inner = size - digits - 2 * len(CHUNK_END)
            if 0 < inner and len(line := b"%x\r\n" % inner) == digits + len(CHUNK_END) and size <= LONGEST:
                self[size] = line + self._head
                return self[size]
        return CHUNK_END  # no chunk begins so


class _Loud(dict[bytes, bool]):
    """Whether a text is loud: words come again, and to look one up costs a fifth of a search."""

    def __init__(self, loud: re.Pattern[bytes]) -> None:
        super().__init__()
        self._search = loud.search

    def __missing__(self, text: bytes) -> bool:
        is_loud = self._search(text) is not None
        if len(text) <= _LONGEST_WORD and len(self) < _MOST_WORDS:
            self[text] = is_loud
        return is_loud


_loud = lru_cache(maxsize=32)(_Loud)
"""Of the same for the same: nearly all answers are looked through for the same."""


@frozen
class Gone:
    """What has gone by a lane."""

    texts: list[bytes]
    times: list[float]
    """When each went."""
    last: bytes
    """The last event."""
    size: int
    """Of all events."""


@frozen(eq=False)
class Lane:
    """The lane of calm events: from the model server's connection to the client's in one call, a chunk as it came.

    To go through everything that could be made of one costs more than to send it. What an event is worth is taken down
    here and told later, many at once: whoever opens a lane asks it what has gone before anything else is done.
    """

    calm: Calm
    takes: Callable[[bytes], bool]
    """Sends a chunk; where it is to be read instead, nothing was done with it."""
    gone: Callable[[], Gone | None]
    """What has gone since this was asked last."""


def lane_of(calm: Calm, write: Callable[[bytes], None], clock: Callable[[], float]) -> Lane:
    """A lane for events that look so, and how a chunk is sent.

    It does not ask how much of that waits for the client: that is for whoever gets the one that is read next.
    """
    beginnings, end, is_loud = _Beginnings(calm.head), calm.tail + CHUNK_END, _loud(calm.loud)
    texts: list[bytes] = []
    times: list[float] = []
    keep, note = texts.append, times.append
    behind, size_of_head = -len(end), len(calm.head)
    last, total = b"", 0

    def takes_alike(data: bytes) -> bool:
        nonlocal last
        # In the order of what they tell apart: an event of another kind begins otherwise.
        beginning = beginnings[len(data)]
        if (
            data.startswith(beginning)
            and data.endswith(end)
            and (text := data[len(beginning) : behind])
            and not is_loud[text]
            and len(texts) < MOST
        ):
            write(data)
            keep(text)
            note(clock())
            last = data
            return True
        return False

    def gone() -> Gone | None:
        nonlocal total
        if not texts:
            return None
        size = total + len(texts) * (size_of_head - len(CHUNK_END))
        if rest is None:
            size = sum(map(len, texts)) + len(texts) * (size_of_head + len(calm.tail))
        event = last[last.find(CHUNK_END) + len(CHUNK_END) : -len(CHUNK_END)]
        told = Gone(texts.copy(), times.copy(), event, size)
        texts.clear()
        times.clear()
        total = 0
        return told

    rest = calm.rest
    if rest is None:
        return Lane(calm, takes_alike, gone)
    match, place, (one, other), same = rest.pattern.fullmatch, rest.text, rest.others, rest.same

    def takes_stamped(data: bytes) -> bool:
        nonlocal last, total
        beginning = beginnings[size := len(data)]
        if (
            data.startswith(beginning)
            and (found := match(data, begin := len(beginning))) is not None
            and found.group(one, other) == same
            and (text := found[place])
            and not is_loud[text]
            and len(texts) < MOST
        ):
            write(data)
            keep(text)
            note(clock())
            last, total = data, total + size - begin
            return True
        return False

    return Lane(calm, takes_stamped, gone)
