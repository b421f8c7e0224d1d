"""Asking again within one answer: which choice waits for it, what was asked, and what may be asked still."""

from gateway.answer.choice import Choice
from gateway.answer.facts import Facts
from gateway.answer.second_answer import SecondAnswer, SecondRequest, read_second_answer
from strategies.base import BrokenCall, Prepared
from strategies.mapping.answers import Translation
from strategies.reading.reader import CUT_REASONS

__all__ = ["SecondRound"]


class SecondRound:
    """The second answers of one answer, in whichever shape that one comes."""

    __slots__ = ("_broken_calls", "_facts", "_left", "_prepared", "choice")

    def __init__(self, prepared: Prepared, facts: Facts, asks: int) -> None:
        self._prepared = prepared
        self._facts = facts
        self._left = asks if prepared.ask_again is not None else 0
        """How often it may still be asked again."""
        self._broken_calls: list[BrokenCall] = []
        self.choice: Choice | None = None
        """The choice that waits."""

    @property
    def may_ask(self) -> bool:
        """Something may still be asked again."""
        return self._left > 0

    @property
    def wanted(self) -> SecondRequest | None:
        """What is to be asked now."""
        if self.choice is None or self._prepared.ask_again is None:
            return None
        return SecondRequest.of(self._prepared.ask_again, self._broken_calls)

    def refused(self, translation: Translation | None, reason: str, content: str = "") -> BrokenCall | None:
        """The broken call that structured calls are which cannot be translated, where it may be asked for again."""
        if translation is None or not self._left or reason in CUT_REASONS:
            return None
        return translation.broken_call(content)

    def wait(self, choice: Choice, broken_call: BrokenCall) -> None:
        """The choice has ended with this, and waits for a second answer."""
        self._facts.broken_calls += not broken_call.calls
        self.choice, self._broken_calls = choice, [broken_call]

    def read(self, body: bytes) -> SecondAnswer | None:
        """What a second answer holds; `None` where it is one broken call more, and is asked again itself."""
        second = read_second_answer(body, self._prepared, self._broken_calls)
        self._left -= 1
        self._facts.add_usage(second.usage)
        if not second.calls and self._left and second.broken_call is not None:
            self._broken_calls.append(second.broken_call)
            return None
        self._facts.has_second_answer = bool(second.calls)
        return second

    @property
    def unusable(self) -> tuple[object, ...]:
        """The structured calls of the first answer, where those were what was broken."""
        return self._broken_calls[0].calls

    def end(self) -> Choice | None:
        """No more is asked: the choice that waited."""
        choice, self.choice = self.choice, None
        return choice
