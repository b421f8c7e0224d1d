"""What was found out about the beginning of a conversation, for its later turns: an agent sends all of it every time.

A walk over messages leaves a state behind; where the next request begins with the same messages, it goes on from there.
The messages themselves are compared, all of them: with 2,000 this costs a twentieth of the walk. Only those are kept
that hold texts and nothing else, as Python takes `1`, `1.0` and `True` for the same.
"""

from collections.abc import Hashable, Sequence
from operator import is_
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen

__all__ = ["Beginnings", "Known", "Same"]

S = TypeVar("S")

_FEWEST = 24
"""Shorter conversations are walked over as fast."""
_MOST = 64
_ROOM = 8 << 20
"""Conversations that are remembered, and characters of all of them."""
_SAMPLE = 256
_TRIES = 4
"""How many conversations with the same first messages are compared."""
_OVERHEAD = 64
"""What a message takes beside its texts, in characters."""
_DEEPEST = 16

Message = dict[str, Any]


class Same:
    """The same as these very objects alone."""

    __slots__ = ("_which",)

    def __init__(self, *which: object) -> None:
        self._which = which

    def __hash__(self) -> int:
        return hash(tuple(map(id, self._which)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and all(map(is_, self._which, other._which))


@frozen(eq=False)
class Known(Generic[S]):
    """The messages of a turn that was seen before, and the state behind them."""

    key: Hashable
    messages: Sequence[Message]
    state: S
    size: int


@define
class Beginnings(Generic[S]):
    """States by the messages that led to them; nobody may change one that is kept."""

    _known: list[Known[S]] = field(factory=list, init=False)
    """The one that was asked for last is the last."""

    def find(self, about: Hashable, messages: Sequence[Message]) -> Known[S] | None:
        """The longest beginning of these messages that is remembered under the same circumstances."""
        if len(messages) < _FEWEST:
            return None
        key = about, *map(_sample, messages[:3])
        left = _TRIES
        for known in reversed(self._known):
            end = len(known.messages)
            # The last ones first: conversations of one agent differ there and not at their beginning.
            if known.key == key and end <= len(messages) and known.messages[-1] == messages[end - 1]:
                if known.messages == messages[:end]:
                    return known
                left -= 1
                if not left:
                    break
        return None

    def keep(self, about: Hashable, messages: Sequence[Message], state: S, before: Known[S] | None) -> None:
        """Remember a state, in the place of the one from which it went on."""
        if len(messages) < _FEWEST:
            return
        begin, size = (0, 0) if before is None else (len(before.messages), before.size)
        for message in messages[begin:]:
            taken = _size(message, 0)
            if taken < 0:
                return
            size += taken + _OVERHEAD
        if before is not None and before in self._known:
            self._known.remove(before)
        self._known.append(Known((about, *map(_sample, messages[:3])), messages, state, size))
        left = sum(each.size for each in self._known)
        while len(self._known) > _MOST or left > _ROOM:
            left -= self._known.pop(0).size

    def forget_all(self) -> None:
        """Begin anew."""
        self._known.clear()


def _sample(message: Message) -> Hashable:
    content = message.get("content")
    return (len(content), content[:_SAMPLE]) if isinstance(content, str) else None


def _size(value: Any, depth: int) -> int:
    """How many characters these texts have; less than nothing where there is more than texts in it."""
    if isinstance(value, str):
        return len(value)
    if value is None:
        return 0
    if depth > _DEEPEST or not isinstance(value, dict | list):
        return -1
    total = len(value)
    for each in value.values() if isinstance(value, dict) else value:
        taken = _size(each, depth + 1)
        if taken < 0:
            return -1
        total += taken
    return total
