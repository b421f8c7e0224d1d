"""Calm events: all alike but for a text in which nothing begins, so that they may go on unread.

Nothing of one has to be taken apart but that: how it begins, how it ends, and what may differ between. A server that
gives each a number, or letters at random, says that at the same places of all.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

from attrs import frozen

__all__ = [
    "CALM",
    "LONGEST",
    "MOST",
    "Blanks",
    "Calm",
    "Ends",
    "Gone",
    "Kinds",
    "Lane",
    "Loud",
    "Rest",
    "kinds_of",
    "lane_of",
    "letters_but",
]

MOST = 64
"""Events that go by a lane before they are told; with that, what is told in one go has a bound."""
Blanks = Literal["pass", "wait", "hear"]
"""A text that ends in a blank passes as any other, has to wait for what comes, or is to be heard."""
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


_LETTERS = (
    rb"[\xe4-\xec][\x80-\xbf]{2}|\xe3(?:\x80[\x81-\xbf]|[\x81-\xbf][\x80-\xbf])|[\xc3-\xdf][\x80-\xbf]|\xc2[\xa1-\xbf]"
    rb"|\xe2(?:\x80[\x90-\xa7\xb0-\xbf]|[\x82-\xbf][\x80-\xbf])|\xef[\xbc\xbd][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xe0[\xa0-\xbf][\x80-\xbf]|\xe1[\x80-\x99\x9b-\xbf][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
)
"""Letters and signs beyond ASCII, so that a text of any language goes by as one of English does: none is white space,
which may be dropped before a call, or without a width, for private use or half of a character."""
_HEX = rb"[0-9a-f]"
_ESCAPED = rb"\\u(?:%b)|\\ud[89ab]%b\\ud[c-f]%b" % (
    rb"|".join(
        (
            *(rb"00a[1-9a-f]", rb"00[b-f]" + _HEX, rb"20[13]" + _HEX, rb"202[0-7]"),
            *(rb"300[1-9a-f]", rb"30[1-9a-f]" + _HEX, rb"ff[0-7]" + _HEX),
            *(
                rb"0[1-9a-f]" + _HEX * 2,
                rb"1[0-57-9a-f]" + _HEX * 2,
                rb"[23][1-9a-f]" + _HEX * 2,
                rb"d[0-7]" + _HEX * 2,
            ),
            rb"[4-9a-c]" + _HEX * 3,
        )
    ),
    *(_HEX * 2, _HEX * 2),
)
"""Most of the same as `json.dumps` writes them, and with it many a server."""


@lru_cache(maxsize=32)
def letters_but(others: frozenset[str]) -> re.Pattern[bytes]:
    """What finds letters and signs beyond ASCII in JSON, but for `others`."""
    found = b"(?:%b|(?i:%b))" % (_LETTERS, _ESCAPED)
    forms = [form for each in sorted(others) for form in (each.encode(), json.dumps(each)[1:-1].encode())]
    apart = b"(?!(?i:%b))" % b"|".join(map(re.escape, forms)) if forms else b""
    return re.compile(b"(?:%b%b)+" % (apart, found))


@frozen(eq=False)
class Loud:
    """What finds in a text, as it stands in JSON, that its event is to be read."""

    signs: re.Pattern[bytes]
    """Finds it in ASCII, and whatever is none."""
    letters: re.Pattern[bytes] | None = None
    """What is none and yet begins nothing, wherever it stands: it counts as a full stop does."""

    def is_in(self, text: bytes) -> bool:
        """Whether the text has it."""
        if self.signs.search(text) is None:
            return False
        # Within a text there is no quote: more than one event would be searched for nothing.
        if self.letters is None or b'"' in text:
            return True
        plain = self.letters.sub(b".", text)
        return plain == text or self.signs.search(plain) is not None


@frozen
class Calm:
    """How the calm events of an answer look."""

    head: bytes
    """What each begins with, up to its text or to what else differs."""
    tail: bytes
    """What each ends with."""
    loud: Loud
    rest: Rest | None = None
    """Where they differ in more than that."""
    blanks: Blanks = "pass"
    """What becomes of those whose text ends in a blank."""


_LINES = {
    len(line) + inner + len(CHUNK_END): line for inner in range(1, LONGEST) for line in [b"%x" % inner + CHUNK_END]
}
"""By the size of a chunk with its frame: its first line in the plainest form."""


class _Beginnings(dict[int, bytes]):
    """By the same: how a chunk begins, the head of its event included."""

    def __init__(self, head: bytes) -> None:
        super().__init__()
        self._head = head

    def __missing__(self, size: int) -> bytes:
        line = _LINES.get(size)
        if line is None or size > LONGEST:
            return CHUNK_END  # no chunk begins so
        self[size] = beginning = line + self._head
        return beginning


CALM, _WAITS, _LOUD = range(3)
"""What a text is: one that goes at once; one whose blank at its end has to wait for what comes behind it; any other."""
_BLANK = 32
"""By its number."""


class Kinds(dict[bytes, int]):
    """What texts are: words come again, and to look one up costs a fifth of a search."""

    def __init__(self, loud: Loud, blanks: Blanks) -> None:
        super().__init__()
        self.loud = loud
        self.blanks = blanks

    def __missing__(self, text: bytes) -> int:
        kind = _LOUD if self.loud.is_in(text) else CALM
        if kind == CALM and text[-1] == _BLANK and self.blanks != "pass":
            # Of more than one nobody knows what they stand before.
            kind = _WAITS if self.blanks == "wait" and text[-2:] not in (b"  ", b" ") else _LOUD
        if len(text) <= _LONGEST_WORD and len(self) < _MOST_WORDS:
            self[text] = kind
        return kind


kinds_of = lru_cache(maxsize=32)(Kinds)
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
    waiting: bytes
    """An event that has come behind them and has not gone: the next one decides of the blank at its end."""
    since: float
    """When it came."""
    held_s: float
    """How long one has waited at the most, of those that have gone."""
    held_bytes: int
    """And how large one was, at the most."""


@frozen(eq=False)
class Lane:
    """The lane of calm events: from the model server's connection to the client's in one call, a chunk as it came.

    To go through everything that could be made of one costs more than to send it. What an event is worth is taken down
    here and told later, many at once: whoever opens a lane asks it what has gone before anything else is done.
    """

    calm: Calm
    takes: Callable[[bytes], bool]
    """Sends a chunk; where it is to be read instead, nothing was done with it but to leave it to who reads."""
    gone: Callable[[], Gone | None]
    """What has gone since this was asked last."""


@frozen
class Ends:
    """What a lane lies between."""

    write: Callable[[bytes], None]
    """Sends a chunk to the client."""
    leave: Callable[[bytes], None]
    """Gives one to whoever reads."""
    fail: Callable[[Exception], None]
    """Says that the lane is broken."""
    clock: Callable[[], float]


def lane_of(calm: Calm, ends: Ends, *, may_hold: bool = False) -> Lane:
    """A lane for events that look so.

    It does not ask how much of that waits for the client: that is for whoever gets the one that is read next. Where it
    `may_hold`, one whose text is calm but for a blank at its end waits here for the next: if that goes on with a word,
    both go. It is told as one that has come and not gone, for whoever gets the next where that is loud.
    """
    if calm.rest is not None:
        return _stamped(calm, calm.rest, ends)
    write, leave, clock = ends.write, ends.leave, ends.clock
    beginnings, end, kinds = _Beginnings(calm.head), calm.tail + CHUNK_END, kinds_of(calm.loud, calm.blanks)
    texts: list[bytes] = []
    times: list[float] = []
    keep, note = texts.append, times.append
    behind, frame = -len(end), len(calm.head) + len(calm.tail)
    most_calm = _WAITS if may_hold else CALM
    last, waiting, words, since, held_s, held_bytes = b"", b"", b"", 0.0, 0.0, 0

    def takes(data: bytes) -> bool:
        nonlocal last, waiting, words, since, held_s, held_bytes
        # In the order of what they tell apart: an event of another kind begins otherwise.
        beginning = beginnings[len(data)]
        if not (
            data.startswith(beginning)
            and data.endswith(end)
            and (text := data[len(beginning) : behind])
            and (kind := kinds[text]) <= most_calm
            and len(texts) < MOST
            # Where white space goes on nobody knows yet what it stands before.
            and not (waiting and text[0] == _BLANK)
        ):
            leave(data)
            return False
        try:
            if not (kind or waiting):
                write(data)
                keep(text)
                note(clock())
                last = data
                return True
            now = clock()
            if waiting:
                write(waiting if kind else waiting + data)
                keep(words)
                note(now)
                last, held_s = waiting, max(held_s, now - since)
            if kind:
                waiting, words, since = data, text, now
                held_bytes = max(held_bytes, len(text) + frame)
            else:
                keep(text)
                last, waiting = data, b""
        except Exception as error:  # noqa: BLE001 - a callback that raises would have its loop close the connection
            ends.fail(error)
        return True

    def gone() -> Gone | None:
        nonlocal waiting, held_s
        if not (texts or waiting):
            return None
        size = sum(map(len, texts)) + len(texts) * frame
        told = Gone(texts.copy(), times.copy(), _inner(last), size, _inner(waiting), since, held_s, held_bytes)
        texts.clear()
        times.clear()
        waiting, held_s = b"", 0.0
        return told

    return Lane(calm, takes, gone)


def _inner(chunk: bytes) -> bytes:
    """The event in a chunk."""
    return chunk[chunk.find(CHUNK_END) + len(CHUNK_END) : -len(CHUNK_END)]


def _stamped(calm: Calm, rest: Rest, ends: Ends) -> Lane:
    """The same for events that differ in more than their text; none waits."""
    write, leave, clock = ends.write, ends.leave, ends.clock
    beginnings, kinds = _Beginnings(calm.head), kinds_of(calm.loud, calm.blanks)
    texts: list[bytes] = []
    times: list[float] = []
    keep, note = texts.append, times.append
    frame = len(calm.head) - len(CHUNK_END)
    match, place, (one, other), same = rest.pattern.fullmatch, rest.text, rest.others, rest.same
    last, total = b"", 0

    def takes(data: bytes) -> bool:
        nonlocal last, total
        beginning = beginnings[size := len(data)]
        if (
            data.startswith(beginning)
            and (found := match(data, begin := len(beginning))) is not None
            and found.group(one, other) == same
            and (text := found[place])
            and not kinds[text]
            and len(texts) < MOST
        ):
            try:
                write(data)
                keep(text)
                note(clock())
                last, total = data, total + size - begin
            except Exception as error:  # noqa: BLE001 - as above
                ends.fail(error)
            return True
        leave(data)
        return False

    def gone() -> Gone | None:
        nonlocal total
        if not texts:
            return None
        told = Gone(texts.copy(), times.copy(), _inner(last), total + len(texts) * frame, b"", 0.0, 0.0, 0)
        texts.clear()
        times.clear()
        total = 0
        return told

    return Lane(calm, takes, gone)
