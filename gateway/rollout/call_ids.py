"""Ids of tool calls that tell, to whoever holds the key, in which arm and by which means the call was made.

An id is `call_` and 24 letters and digits: seven random bytes, six bytes of facts hidden under a mask, four bytes of
check, written in base 62. Without the key it is a random word; an id that the key has not made is told apart by its
check. Strategies and dialects stand in it as short marks of their names, so that no table of numbers has to last.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from typing import get_args

from attrs import frozen

from gateway.core.records import Arm

__all__ = ["EPOCHS", "ID_LENGTH", "Arm", "CallIds", "CallMark"]


PREFIX = "call_"
ID_LENGTH = 24

_ARMS: tuple[Arm, ...] = get_args(Arm)
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_VALUES = {letter: value for value, letter in enumerate(_LETTERS)}
# 2^56 of them: two calls of one conversation never get the same id.
_NONCE_BYTES = 7
_FACT_BYTES = 6
_CHECK_BYTES = 4
_ALL_BYTES = _NONCE_BYTES + _FACT_BYTES + _CHECK_BYTES
_EPOCH_BITS = 10
_MARK_BITS = 18
EPOCHS = 1 << _EPOCH_BITS
"""Ids carry the remainder of the epoch by this."""
_MARKS = 1 << _MARK_BITS


@frozen(kw_only=True)
class CallMark:
    """What an id tells of its call; `None` for a name that this process does not know."""

    arm: Arm
    strategy: str | None
    dialect: str | None
    epoch: int


class CallIds:
    """Makes ids under one key and reads them back; `draw` gives that many random bytes."""

    __slots__ = ("_draw", "_key", "_names")

    def __init__(self, key: bytes, draw: Callable[[int], bytes], *, names: Iterable[str] = ()) -> None:
        self._key = key[: blake2b.MAX_KEY_SIZE]
        self._draw = draw
        self._names = {_mark(name): name for name in names}

    def rekey(self, key: bytes) -> None:
        """Go by another key from now on; ids that were made before cannot be read any more."""
        self._key = key[: blake2b.MAX_KEY_SIZE]

    def make(self, *, arm: Arm, strategy: str, dialect: str, epoch: int = 0) -> str:
        """The id of the next call."""
        facts = _ARMS.index(arm) << _EPOCH_BITS | epoch % EPOCHS
        facts = (facts << _MARK_BITS | self._known(strategy)) << _MARK_BITS | self._known(dialect)
        nonce = self._draw(_NONCE_BYTES)
        body = nonce + _xor(facts.to_bytes(_FACT_BYTES, "big"), self._digest(nonce, b"mask", _FACT_BYTES))
        return PREFIX + _written(body + self._digest(body, b"check", _CHECK_BYTES))

    def read(self, call_id: str) -> CallMark | None:
        """What an id tells; `None` for one that was not made under this key."""
        raw = _bytes_of(call_id)
        if raw is None:
            return None
        body, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
        # In constant time: whoever can forge an id can tell what the arms did.
        if not compare_digest(self._digest(body, b"check", _CHECK_BYTES), check):
            return None
        nonce, hidden = body[:_NONCE_BYTES], body[_NONCE_BYTES:]
        facts = int.from_bytes(_xor(hidden, self._digest(nonce, b"mask", _FACT_BYTES)), "big")
        facts, dialect = divmod(facts, _MARKS)
        facts, strategy = divmod(facts, _MARKS)
        arm, epoch = divmod(facts, EPOCHS)
        return CallMark(
            arm=_ARMS[arm], epoch=epoch, strategy=self._names.get(strategy), dialect=self._names.get(dialect)
        )

    def _known(self, name: str) -> int:
        """The mark of a name, which can be read back from now on."""
        mark = _mark(name)
        self._names.setdefault(mark, name)
        return mark

    def _digest(self, data: bytes, purpose: bytes, size: int) -> bytes:
        return blake2b(data, digest_size=size, key=self._key, person=purpose).digest()


@lru_cache(maxsize=256)
def _mark(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=3).digest(), "big") % _MARKS


def _xor(data: bytes, mask: bytes) -> bytes:
    return (int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(data), "big")


def _written(data: bytes) -> str:
    number = int.from_bytes(data, "big")
    letters = []
    for _ in range(ID_LENGTH):
        number, value = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[value])
    return "".join(reversed(letters))


def _bytes_of(call_id: str) -> bytes | None:
    # Of one call that became several, the further ones say behind the id which of how many they are.
    call_id = call_id[: len(PREFIX)] + call_id[len(PREFIX) :].partition("_")[0]
    word = call_id.removeprefix(PREFIX)
    if len(word) != ID_LENGTH or len(call_id) != ID_LENGTH + len(PREFIX) or not _VALUES.keys() >= set(word):
        return None
    number = 0
    for letter in word:
        number = number * len(_LETTERS) + _VALUES[letter]
    # So many letters can say numbers above what the bytes can hold: those were never made here.
    return number.to_bytes(_ALL_BYTES, "big") if number.bit_length() <= 8 * _ALL_BYTES else None
