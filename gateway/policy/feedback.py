"""The answers of a while, and how their clients rated them: bounded, in memory."""

from collections import OrderedDict
from typing import Literal

from attrs import define, field

__all__ = ["MAX_ANSWERS", "Rated", "Rating", "RecentAnswers", "is_completion_id"]

MAX_ANSWERS = 4096
MAX_ID_CHARS = 128
_ID = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-")

Rating = Literal["good", "bad"]


@define(kw_only=True)
class Rated:
    """One answer: which request it belonged to, how it was made, what was said of it."""

    request_id: str
    strategy: str | None
    arm: str | None
    rating: Rating | None = None
    comment: str | None = None


def is_completion_id(text: str) -> bool:
    """Whether an answer can have this id."""
    return 0 < len(text) <= MAX_ID_CHARS and _ID.issuperset(text)


@define
class RecentAnswers:
    """The last answers of one process by their ids."""

    _answers: OrderedDict[str, Rated] = field(factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._answers)

    def remember(self, completion_id: str, *, request_id: str, strategy: str | None, arm: str | None) -> None:
        """A client has been given this answer; one with an id that nobody could name is not kept."""
        if not is_completion_id(completion_id):
            return
        self._answers[completion_id] = Rated(request_id=request_id, strategy=strategy, arm=arm)
        self._answers.move_to_end(completion_id)
        if len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)

    def rate(self, completion_id: str, rating: Rating, comment: str | None) -> Rated | None:
        """Keep the rating with its answer; `None` for an answer that is not known, or not any more."""
        answer = self._answers.get(completion_id)
        if answer is not None:
            answer.rating, answer.comment = rating, comment
        return answer
