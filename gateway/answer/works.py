"""What is left to do of one streamed answer: its choices' own work, and what waits until that has been done."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from gateway.answer.choice import Choice

__all__ = ["Works"]

Work = Callable[[], None]


class Works:
    """The work that is left, in its order: what was begun earlier is done first."""

    __slots__ = ("_choices", "labors", "later")

    def __init__(self, choices: Mapping[int, Choice]) -> None:
        self._choices = choices
        self.labors = False
        """A choice has more to do with the text that it was given, or more may go out than one step lets go."""
        self.later: deque[Work] = deque()
        """What is to be done once no choice has, in order."""

    @property
    def busy(self) -> bool:
        """Something is left; who asks with every event looks at the two itself."""
        return self.labors or bool(self.later)

    def look(self) -> None:
        """Look whether a choice has more to do."""
        self.labors = any(choice.busy for choice in self._choices.values())

    def put_off(self, work: Work) -> None:
        """Do it once all has been done that was begun."""
        self.later.append(work)

    def then(self, work: Work) -> None:
        """Do it, or once all has been done that was begun."""
        if self.busy:
            self.later.append(work)
        else:
            work()

    def once_read(self, endings: Sequence[tuple[Choice, str]], work: Work) -> None:
        """Do it once the text of these choices has been read to its end, before anything that was put off."""
        is_busy = False
        for choice, reason in endings:
            choice.read_end(reason)
            is_busy = is_busy or choice.busy
        if is_busy:
            self.labors = True
            self.later.appendleft(work)
        else:
            work()

    def take_up(self) -> None:
        """Do the first of what was put off; what that puts off itself comes before the others."""
        if not self.later:
            return
        work = self.later.popleft()
        later, self.later = self.later, deque()
        work()
        self.later += later
