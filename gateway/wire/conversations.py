"""Conversations that come again with each of their turns, longer each time: what is known of a beginning is not read
again, nor is what was made of it made again.

The items are shared by all requests that begin alike, so nobody may change them.
"""

import re
from collections import deque
from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec

__all__ = ["LONG", "Beginning", "begun", "converse", "forget_conversations", "keep_beginning", "made_of_beginning"]

T = TypeVar("T")

LONG = 1 << 14
_LONGEST = 2 << 20
_MOST = 32
_ROOM = 8 << 20
"""Bytes of a request whose conversation is worth remembering, and of one that may be; how many are, and their bytes."""
_MOST_ITEMS = 4096
"""Each is looked at once: of a list of numbers a megabyte has half a million."""
_MOST_MADE = 4
"""Things made of one beginning: a client asks a few models at most."""
_PIECE = 1 << 16
"""Bytes compared at once."""
_SAMPLE = 64
"""Bytes from the middle: a conversation without them is another one, whatever it begins with."""
_GAP = re.compile(rb"[ \t\n\r]*+,?+[ \t\n\r]*+")
_GOES_ON = re.compile(rb"[ \t\n\r]*+[,\]]")
_OPENS = re.compile(rb"[ \t\n\r]*+(?=\[)")
_RAW_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class Beginning(msgspec.Struct, frozen=True, eq=False):
    """Where the known beginning of a list stands in a request: from its bracket to behind the last known item."""

    name: str
    """The member of the request whose list it is."""
    start: int
    end: int
    known: "_Known"
    count: int
    """Of its items."""


class _Known:
    """A conversation as it came last."""

    __slots__ = ("ends", "given", "items", "made", "name", "raw", "start")

    def __init__(self, name: str, raw: bytes, start: int, ends: list[int], given: list[Any]) -> None:
        self.name = name
        self.raw = raw
        self.start = start
        self.ends = ends
        """Behind each item, from the list's bracket on."""
        self.items = [*given]
        self.given = given
        """The list that the request has."""
        self.made: dict[Hashable, tuple[int, Any]] = {}
        """What was made of how many of the first items."""


_conversations: deque[_Known] = deque()
"""The one that was asked for last is the first."""


def begun(raw: bytes) -> Beginning | None:
    """The conversation that a request goes on with, as far as it is known, where it is known to its middle at least.

    Whether a member's value stands there, and which member's, is for the caller to find out.
    """
    places: dict[str, int] = {}
    for known in _conversations:
        text = memoryview(known.raw)[known.start : known.start + known.ends[-1]]
        middle = len(text) // 2
        sample = text[middle : middle + _SAMPLE]
        start = known.start
        if not raw.startswith(sample, start + middle):
            # What stands before it is longer than it was, or shorter.
            start = places.get(known.name, 0) or places.setdefault(known.name, _list_of(known.name, raw))
            if start < 0 or not raw.startswith(sample, start + middle):
                continue
        count = _common(known.ends, text, raw, start)
        if known.ends[count - 1] >= middle and count:
            return Beginning(known.name, start, start + known.ends[count - 1], known, count)
    return None


def _list_of(name: str, raw: bytes) -> int:
    """Where the list of the first member of this name begins, wherever that stands; -1 where none does."""
    member = b'"%b":' % name.encode()
    at = raw.find(member)
    opens = _OPENS.match(raw, at + len(member)) if at >= 0 else None
    return -1 if opens is None else opens.end()


def _common(ends: list[int], text: memoryview, raw: bytes, start: int) -> int:
    """How many items stand in the request as they do in the text."""
    same = 0
    while same < len(text) and raw.startswith(text[same : same + _PIECE], start + same):
        same += _PIECE
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high + 1) // 2
        end = ends[middle - 1]
        if end <= same or raw.startswith(text[same:end], start + same):
            low = middle
        else:
            high = middle - 1
    # A number goes on with its next digit, and is another one.
    while low and _GOES_ON.match(raw, start + ends[low - 1]) is None:
        low -= 1
    return low


def converse(name: str, raw: bytes, start: int, text: bytes, beginning: Beginning | None) -> Any:
    """The list that stands in a request behind `start`, its beginning not read again; it is remembered.

    `text` is the list, with one item of any kind in the place of those that are known.
    """
    value = msgspec.json.decode(text)
    if beginning is not None:
        value = [*beginning.known.items[: beginning.count], *value[1:]]
    if isinstance(value, list) and len(value) <= _MOST_ITEMS and LONG <= len(raw) <= _LONGEST:
        _remember(name, raw, start, text, value, beginning)
    return value


def _remember(name: str, raw: bytes, start: int, text: bytes, value: list[Any], beginning: Beginning | None) -> None:
    items: list[msgspec.Raw] = _RAW_ITEMS.decode(text)
    ends: list[int] = []
    if beginning is not None:
        items, ends = items[1:], beginning.known.ends[: beginning.count]
    place = start + (ends[-1] if ends else len(b"["))
    for item in items:
        gap = _GAP.match(raw, place)
        place = (place if gap is None else gap.end()) + memoryview(item).nbytes
        ends.append(place - start)
    if not ends:
        return
    found = _Known(name, raw, start, ends, value)
    if beginning is not None:
        known = beginning.known
        found.made = {what: made for what, made in known.made.items() if made[0] <= beginning.count}
        _conversations.remove(known)
    while len(_conversations) >= _MOST or sum(len(each.raw) for each in _conversations) > _ROOM - len(raw):
        _conversations.pop()
    _conversations.appendleft(found)


def made_of_beginning(items: list[Any], what: Hashable) -> tuple[int, Any]:
    """What was made of the first items of a request's list, and of how many; of none where nothing was."""
    return _conversations[0].made.get(what, (0, None)) if is_remembered(items) else (0, None)


def keep_beginning(items: list[Any], what: Hashable, count: int, made: object) -> None:
    """Remember what was made of so many of the first items, for the conversation's next turn."""
    if not is_remembered(items):
        return
    known = _conversations[0].made
    known.pop(what, None)
    while len(known) >= _MOST_MADE:
        known.pop(next(iter(known)))
    known[what] = count, made


def is_remembered(items: list[Any]) -> bool:
    """Whether what is made of the first of these can be kept: they are those of the request that came last."""
    return bool(_conversations) and _conversations[0].given is items


def forget_conversations() -> None:
    """Begin anew."""
    _conversations.clear()
