"""The answers of a while by their ids, so that a rating finds the one it is about: bounded, in memory."""

from collections import OrderedDict

from attrs import define, field
from msgspec import Struct

__all__ = ["MAX_ANSWERS", "Answered", "RecentAnswers", "is_completion_id"]

MAX_ANSWERS = 4096
MAX_ID_CHARS = 128
_ID = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-")


class Answered(Struct, frozen=True, kw_only=True):
    """One answer: which request it belonged to and how it was made."""

    request_id: str
    strategy: str | None
    arm: str | None
    who: str = ""
    """Whose request it was; nobody else rates it."""


def is_completion_id(text: str) -> bool:
    """Whether an answer can have this id."""
    return 0 < len(text) <= MAX_ID_CHARS and _ID.issuperset(text)


@define
class RecentAnswers:
    """The last answers of one process by their ids."""

    _answers: OrderedDict[str, Answered] = field(factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._answers)

    def remember(
        self, completion_id: str, *, request_id: str, strategy: str | None, arm: str | None, who: str = ""
    ) -> None:
        """A client has been given this answer; one with an id that nobody could name is not kept."""
        # The model server makes them up: one of a megabyte, or with a line break, is nothing to keep or to log.
        if not 0 < len(completion_id) <= MAX_ID_CHARS or not _ID.issuperset(completion_id):
            return
        self._answers[completion_id] = Answered(request_id=request_id, strategy=strategy, arm=arm, who=who)
        self._answers.move_to_end(completion_id)
        if len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)

    def find(self, completion_id: str) -> Answered | None:
        """The answer; `None` for one that is not known, or not any more."""
        return self._answers.get(completion_id)
