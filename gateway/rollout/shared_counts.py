"""What processes count for the judge within a second, and how it is named in the store.

Every name begins with a letter for its kind and the epoch that the request began in, so that a block holds nothing
twice and nothing of another epoch counts. Bad requests are marks of their conversation: one that fails all the time is
one in every block, however often it comes.
"""

from typing import Literal

from attrs import frozen

from gateway.core.records import Arm

__all__ = ["COUNTED_ARMS", "Kind", "Name", "named", "read"]

Kind = Literal["requests", "seen", "bad", "attempts", "failed", "slow", "key", "example", "settings"]
"""requests: all of an arm; seen: of them one for each conversation and second; bad: a conversation with a bad request;
attempts, failed: transformations, and conversations with a failed one; slow: over the time budget; key: a conversation
of the arm; example: a bad request's id; settings: the digest that a process runs under."""

COUNTED_ARMS: frozenset[Arm] = frozenset({"live", "control", "dry_run"})

_LETTERS: dict[Kind, str] = {
    "requests": "r",
    "seen": "n",
    "bad": "b",
    "attempts": "a",
    "failed": "f",
    "slow": "o",
    "key": "k",
    "example": "x",
    "settings": "w",
}
_KINDS: dict[str, Kind] = {letter: kind for kind, letter in _LETTERS.items()}
_PARTS = 5
_MAX_SUBJECT = 200


@frozen(kw_only=True)
class Name:
    """What one count or mark is about."""

    kind: Kind
    epoch: int
    arm: str
    slice: str
    subject: str = ""
    """The conversation, the request's id or the digest; empty for counts."""


def named(kind: Kind, epoch: int, arm: str, slice: str = "", subject: str = "") -> str:
    """The name of a count, or of a mark of its subject."""
    text = f"{_LETTERS[kind]}|{epoch}|{arm}|{slice.replace('|', '_')}|{subject[:_MAX_SUBJECT]}"
    # Half of a surrogate pair, which a header may smuggle in, has no UTF-8.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def read(name: str) -> Name | None:
    """What a name says; one of another version says nothing."""
    parts = name.split("|", _PARTS - 1)
    if len(parts) != _PARTS or parts[0] not in _KINDS or not (parts[1].isascii() and parts[1].isdigit()):
        return None
    return Name(kind=_KINDS[parts[0]], epoch=int(parts[1][:18]), arm=parts[2], slice=parts[3], subject=parts[4])
