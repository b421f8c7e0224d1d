"""What one process counts for the judge and shares every second: its names in the store, and what is not yet there.

Every name begins with a letter for its kind and the epoch that the request began in, so that a block holds nothing
twice and nothing of another epoch counts. Bad requests are marks of their conversation: one that fails all the time is
one in every block, however often it comes. Bounded; time is an argument.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from attrs import define, field, frozen
from msgspec import Struct

from gateway.core.records import Arm
from gateway.rollout.assignment import slice_name

__all__ = ["COUNTED_ARMS", "OUTCOME_S", "Counting", "Kind", "Name", "named", "read", "subject_of", "who_of"]

Kind = Literal["requests", "seen", "bad", "attempts", "failed", "slow", "key", "example", "settings", "who", "told"]
"""requests: all of an arm; seen: of them one for each conversation and second; bad: a conversation with a bad request;
attempts, failed: transformations, and conversations with a failed one; slow: over the time budget; key: a conversation
of the arm; example: a bad request's id; settings: the digest that a process runs under; who: a credential that asked;
told: a call whose outcome was bad, so that it counts once, however often and wherever it is told."""

COUNTED_ARMS: frozenset[Arm] = frozenset({"live", "control", "dry_run"})

OUTCOME_S = 900.0
"""How long after an answer's end its outcome still counts."""

MAX_ANSWERS = 20_000
MAX_NAMES = 4096
MAX_MARKS = 20_000
MAX_EXAMPLES = 3
"""Bad requests of a slice that are named within `EXAMPLES_S`: those of today must not have to be those of last week."""
EXAMPLES_S = 60
MAX_SLICES = 64
MAX_TOLD = 20_000
MAX_WHO = 64
WHO_S = 600
"""How often it is said of a credential that it asks."""

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
    "who": "c",
    "told": "t",
}
_URGENT = frozenset(_LETTERS[kind] for kind in ("bad", "failed", "told"))
_TOLD = f"{_LETTERS['told']}|"
NOBODY = "-"
"""Those who show no credential that anybody checks."""
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
    """The conversation, the request's id, the digest, the credential or the call; empty for counts."""


def named(kind: Kind, epoch: int, arm: str, slice: str = "", subject: str = "") -> str:
    """The name of a count, or of a mark of its subject."""
    # The sign between the parts must not stand within one; only the last part may hold it.
    text = f"{_LETTERS[kind]}|{epoch}|{arm}|{slice.replace('|', '_')}|{subject[:_MAX_SUBJECT]}"
    # Half of a surrogate pair, which a header may smuggle in, has no UTF-8.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def subject_of(who: str, key: str) -> str:
    """What a mark of a bad request is about: the conversation, and whose it is, where credentials are known apart."""
    return f"{who}.{key}" if who else key


def who_of(subject: str) -> str:
    """The credential whose conversation it is."""
    return subject.rpartition(".")[0]


def read(name: str) -> Name | None:
    """What a name says; one of another version says nothing."""
    parts = name.split("|", _PARTS - 1)
    # `isdigit` is true of digits such as ², which `int` does not take.
    if len(parts) != _PARTS or parts[0] not in _KINDS or not (parts[1].isascii() and parts[1].isdigit()):
        return None
    # No epoch has more digits, and of very many Python reads none:
    # https://docs.python.org/3/library/stdtypes.html#int-max-str-digits
    return Name(kind=_KINDS[parts[0]], epoch=int(parts[1][:18]), arm=parts[2], slice=parts[3], subject=parts[4])


def _nobody_hears() -> None:
    """What goes wrong waits for who asks."""


class _Names(Struct, frozen=True, kw_only=True):
    """Under which names requests of one slice are counted."""

    slice: str
    requests: str
    seen: str
    attempts: str
    slow: str


@define
class Counting:
    """Counts and marks since they were last taken."""

    on_urgent: Callable[[], None] = field(default=_nobody_hears, init=False)
    _counts: dict[str, int] = field(factory=dict, init=False)
    _marks: set[str] = field(factory=set, init=False)
    _is_urgent: bool = field(default=False, init=False)
    _second: int = field(default=0, init=False)
    _seen: set[tuple[str, str]] = field(factory=set, init=False)
    """What was counted in this second, and of which conversation."""
    _names: dict[tuple[str, int, str, str], _Names] = field(factory=dict, init=False)
    """Of the counts of an arm's slices, in an epoch."""
    _answers: OrderedDict[str, tuple[float, int]] = field(factory=OrderedDict, init=False)
    """When the last answer of a conversation ended, and the epoch that it began in."""
    _examples: dict[str, tuple[int, int, int]] = field(factory=dict, init=False)
    """By slice the epoch and the minute that were counted last, and how many were named in them."""
    _told: OrderedDict[str, None] = field(factory=OrderedDict, init=False)
    """Calls whose outcome was told, here or in another process; of the latter only the bad ones."""
    _who: OrderedDict[str, float] = field(factory=OrderedDict, init=False)
    """Credentials, and when it was said last that they ask."""

    def ended(
        self,
        arm: Arm,
        epoch: int,
        *,
        strategy: str,
        dialect: str,
        key: str,
        bad: bool,
        request_id: str,
        transformed: bool | None,
        slow: bool,
        now: float,
        who: str = "",
    ) -> None:
        """A request that began in this epoch ended."""
        if arm not in COUNTED_ARMS:
            return
        names = self._names.get((arm, epoch, strategy, dialect)) or self._named(arm, epoch, strategy, dialect)
        last, answers = self._answers.get(key), self._answers
        # Conversations are counted for the gates, which ask how many were read.
        if (last is None or last[1] != epoch) and arm != "control":
            self._mark(named("key", epoch, arm, "", key))
        answers[key] = now, epoch
        if last is not None:
            answers.move_to_end(key)
        elif len(answers) > MAX_ANSWERS:
            answers.popitem(last=False)
        asked = self._who.get(who)
        if asked is None or abs(now - asked) >= WHO_S:
            self._asked(who, now)
        counts, second = self._counts, int(now)
        if second != self._second:
            self._second = second
            self._seen.clear()
        if names.requests in counts or len(counts) < MAX_NAMES:
            counts[names.requests] = counts.get(names.requests, 0) + 1
        # At most one for each conversation and second, as bad ones are counted.
        if (names.seen, key) not in self._seen:
            self._add_once(names.seen, key)
        if transformed is not None:
            self._add_once(names.attempts, key)
            if slow:
                self._add_once(names.slow, key)
        if transformed is False:
            self._mark(named("failed", epoch, arm, names.slice, subject_of(who, key)))
        if bad:
            self._bad(arm, epoch, names.slice, key, request_id, now, who)

    def outcome(
        self,
        arm: Arm,
        epoch: int,
        *,
        strategy: str,
        dialect: str,
        key: str,
        request_id: str,
        age_s: float | None,
        now: float,
        who: str = "",
    ) -> None:
        """An earlier answer turned out bad; one that is known to be too old does not count."""
        ended_at = self._answers.get(key, (now, epoch))[0]
        if arm in COUNTED_ARMS and (now - ended_at if age_s is None else age_s) <= OUTCOME_S:
            self._bad(arm, epoch, slice_name(strategy, dialect), key, request_id, now, who)

    def is_news(self, call: str, epoch: int, *, bad: bool) -> bool:
        """Whether the outcome of this call was not told before; if so, it has been now."""
        if call in self._told:
            return False
        self._note_told(call)
        if bad:
            self._mark(named("told", epoch, "", subject=call))
        return True

    def learn(self, marks: Collection[str]) -> None:
        """What other processes have marked, too."""
        for mark in marks:
            if mark.startswith(_TOLD) and (name := read(mark)) is not None:
                self._note_told(name.subject)

    @property
    def is_empty(self) -> bool:
        """Nothing was counted since."""
        return not self._counts and not self._marks

    @property
    def is_urgent(self) -> bool:
        """Something went wrong since: that is not to wait."""
        return self._is_urgent

    def take(self) -> tuple[dict[str, int], frozenset[str]]:
        """All that was counted; it is no longer here afterwards."""
        taken = self._counts, frozenset(self._marks)
        self._counts, self._marks, self._is_urgent = {}, set(), False
        return taken

    def give_back(self, counts: Mapping[str, int], marks: Collection[str]) -> None:
        """What was taken could not be shared."""
        for name, count in counts.items():
            self._add(name, count)
        for mark in marks:
            self._mark(mark)

    def _note_told(self, call: str) -> None:
        self._told[call] = None
        if len(self._told) > MAX_TOLD:
            self._told.popitem(last=False)

    def _asked(self, who: str, now: float) -> None:
        """Say of a credential that it asks, now and then; where there are very many, of the first ones."""
        last = self._who.get(who)
        if last is not None and abs(now - last) < WHO_S:
            return
        if last is None and len(self._who) >= MAX_WHO:
            # The one in front asked longest ago, as whoever asks is put behind all others.
            first, at = next(iter(self._who.items()))
            if abs(now - at) < WHO_S:
                return
            del self._who[first]
        self._who[who] = now
        self._who.move_to_end(who)
        self._mark(named("who", 0, "", subject=who or NOBODY))

    def _bad(self, arm: Arm, epoch: int, where: str, key: str, request_id: str, now: float, who: str) -> None:
        self._mark(named("bad", epoch, arm, where, subject_of(who, key)))
        if arm != "live" or not request_id or (where not in self._examples and len(self._examples) >= MAX_SLICES):
            return
        minute = int(now // EXAMPLES_S)
        of_epoch, of_minute, shown = self._examples.get(where, (epoch, minute, 0))
        if (of_epoch, of_minute) != (epoch, minute):
            shown = 0
        if shown < MAX_EXAMPLES:
            self._mark(named("example", epoch, arm, where, request_id))
            self._examples[where] = epoch, minute, shown + 1

    def _add_once(self, name: str, key: str) -> None:
        if (name, key) not in self._seen:
            self._seen.add((name, key))
            self._add(name)

    def _named(self, arm: Arm, epoch: int, strategy: str, dialect: str) -> "_Names":
        where = slice_name(strategy, dialect)
        made = _Names(
            slice=where,
            requests=named("requests", epoch, arm, where),
            seen=named("seen", epoch, arm, where),
            attempts=named("attempts", epoch, arm, where),
            slow=named("slow", epoch, arm, where),
        )
        # All at once: it is full where epochs have changed, and then nearly all of them are out of use.
        if len(self._names) >= MAX_SLICES:
            self._names.clear()
        self._names[arm, epoch, strategy, dialect] = made
        return made

    def _add(self, name: str, count: int = 1) -> None:
        if name in self._counts or len(self._counts) < MAX_NAMES:
            self._counts[name] = self._counts.get(name, 0) + count

    def _mark(self, mark: str) -> None:
        if len(self._marks) < MAX_MARKS:
            self._marks.add(mark)
            if not self._is_urgent and mark[0] in _URGENT:
                self._is_urgent = True
                self.on_urgent()
