"""Each primitive of the cursor: the same answer under all cuts, and no sooner or later than it can be known."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from strategies.text import cursor as cursors
from strategies.text.cursor import Cursor, Reject, Sink, Steps, overlap
from strategies.text.tape import Taken, Tape
from strategies.text.turns import LONG, scanning, whole
from tests.support.golden import SAMPLES

Use = Callable[[Cursor, Sink], Steps]


@frozen
class Case:
    """A use of a primitive on this text."""

    use: Use
    text: str
    value: Any
    handed: str = ""
    """What the sink is given."""
    left: str | None = None
    """What was not consumed; nothing of the text if it is None."""
    needs: int | None = None
    """With how many characters it ends; None where only the end of the answer tells."""

    def __str__(self) -> str:
        return f"{self.text[:20]!r}"


def named(marker: str) -> Use:
    return lambda cursor, sink: cursor.until(marker, sink)


def run(pattern: str, tail: int) -> Use:
    return lambda cursor, sink: cursor.until_match(re.compile(pattern), tail, sink)


def lit(marker: str) -> Use:
    return lambda cursor, _: cursor.lit(marker)


def lits(*markers: str) -> Use:
    return lambda cursor, _: cursor.lits(markers)


def stub(*markers: str) -> Use:
    return lambda cursor, _: cursor.at_stub(markers)


def json(depth: int = 64) -> Use:
    return lambda cursor, sink: cursor.json(sink, depth)


def matched(pattern: str, bound: int = 256) -> Use:
    return lambda cursor, _: cursor.match(re.compile(pattern), bound)


def tag(cursor: Cursor, _: Sink) -> Steps:
    return cursor.tag()


def gone_back(cursor: Cursor, sink: Sink) -> Steps:
    """A look-ahead that returns to where it began."""
    cursor.anchor = cursor.offset
    seen = yield from cursor.until("c", sink)
    cursor.back(cursor.anchor)
    cursor.anchor = None
    return seen


CASES = {
    "peek": [
        Case(lambda cursor, _: cursor.peek(2), "abc", "ab", left="abc", needs=2),
        Case(lambda cursor, _: cursor.peek(5), "abc", "abc", left="abc"),
    ],
    "at_end": [
        Case(lambda cursor, _: cursor.at_end(), "a", False, left="a", needs=1),
        Case(lambda cursor, _: cursor.at_end(), "", True, left=""),
    ],
    "at_stub": [
        Case(stub("</a>", "</b>"), "</", True, left="</"),
        Case(stub("</a>", "</b>"), "</c", False, left="</c", needs=3),
        Case(stub("</a>"), "</a>", False, left="</a>", needs=4),
        Case(stub("</a>"), "", True, left=""),
        Case(stub("x" * 200), "x" * 139, True, left="x" * 139),
    ],
    "ws": [
        Case(lambda cursor, _: cursor.ws(), " \t\r\n a", 5, left="a", needs=6),
        Case(lambda cursor, _: cursor.ws(), "a", 0, left="a", needs=1),
        Case(lambda cursor, _: cursor.ws(), "  ", 2),
        Case(lambda cursor, _: cursor.ws(), "\u00a0", 0, left="\u00a0", needs=1),
    ],
    "starts": [
        Case(lambda cursor, _: cursor.starts("<a>"), "<a>b", True, left="<a>b", needs=3),
        Case(lambda cursor, _: cursor.starts("<a>"), "<b>", False, left="<b>", needs=2),
        Case(lambda cursor, _: cursor.starts("<a>"), "<a", False, left="<a"),
    ],
    "lit": [
        Case(lit("<a>"), "<a>b", True, left="b", needs=3),
        Case(lit("<a>"), "<ab", False, left="<ab", needs=3),
        Case(lit("<a>"), "<a", False, left="<a"),
    ],
    "lits": [
        Case(lits("<ab>", "<a"), "<a>", "<a", left=">", needs=3),
        Case(lits("<a", "<ab>"), "<ab>", "<a", left="b>", needs=2),
        Case(lits("<a", "<b"), "<c", None, left="<c", needs=2),
        Case(lits("<ab", "<a"), "<a", "<a"),
    ],
    "match": [
        Case(matched(r"[a-z]*"), "abc1", "abc", left="1", needs=4),
        Case(matched(r"[a-z]*"), "1", "", left="1", needs=1),
        Case(matched(r"[a-z]*"), "abc", "abc"),
        Case(matched(r"[a-z]*", 2), "abc", "ab", left="c", needs=2),
    ],
    "until": [
        Case(named("</a>"), "x </a</a>y", True, "x </a", "</a>y", 9),
        Case(named("</a>"), "x </a", False, "x </a"),
        Case(named("aab"), "aaab", True, "a", "aab", 4),
        Case(named("abab"), "abaabab", True, "aba", "abab", 7),
        Case(named("a"), "bca", True, "bc", "a", 3),
    ],
    "until_match": [
        Case(run(r"[<>]", 0), "ab<c", True, "ab", "<c", 3),
        Case(run(r"\n\n", 1), "a\nb\n\nc", True, "a\nb", "\n\nc", 5),
        Case(run(r"\n\n", 1), "a\n", False, "a\n"),
    ],
    "tag": [
        Case(tag, "<a b='c'>d", "<a b='c'>", left="<a b='c'>d", needs=9),
        Case(tag, "<a <b>", None, left="<a <b>", needs=4),
        Case(tag, "<a\n>", None, left="<a\n>", needs=3),
        Case(tag, "<a", None, left="<a"),
        Case(tag, f"<{'a' * 198}>b", f"<{'a' * 198}>", left=f"<{'a' * 198}>b", needs=200),
        Case(tag, f"<{'a' * 199}>b", None, left=f"<{'a' * 199}>b", needs=201),
    ],
    "json": [
        Case(json(), '{"a": "}"} x', True, '{"a": "}"}', " x", 10),
        Case(json(), "[[1], 2]]", True, "[[1], 2]", "]", 8),
        Case(json(), '{"a": "b', False, '{"a": "b'),
        Case(json(3), "[[[[", Reject, "[[[", None, 4),
    ],
    "anchor": [
        Case(gone_back, "abcd", True, "ab", "abcd", 3),
        Case(gone_back, "ab", False, "ab", "ab"),
    ],
}

EVERY = [pytest.param(case, id=f"{name}-{case}") for name, cases in CASES.items() for case in cases]


@frozen
class Outcome:
    value: Any
    handed: str
    left: str
    offset: int
    fed: int
    """How many characters had come when it ended."""
    at_end: bool


def used(case: Case, parts: Sequence[str]) -> Outcome:
    """What comes of it when the text arrives in these parts, and then the answer ends."""
    cursor, handed = Cursor(), list[str]()
    steps = case.use(cursor, handed.append)
    fed = 0
    for number, part in enumerate((*parts, "")):
        cursor.push(part)
        fed += len(part)
        cursor.eof = number == len(parts)
        try:
            next(steps)
        except (StopIteration, Reject) as stop:
            value = Reject if isinstance(stop, Reject) else stop.value
            rest = cursor.text[cursor.pos :] + "".join(parts[number + 1 :])
            return Outcome(value, "".join(handed), rest, cursor.offset, fed, cursor.eof)
    raise AssertionError("it waits behind the end")


def cuts(text: str) -> Iterator[list[str]]:
    yield [text]
    yield list(text)
    for first in range(len(text) + 1):
        yield [text[:first], text[first:]]
        if len(text) < 20:
            for second in range(first, len(text) + 1):
                yield [text[:first], text[first:second], text[second:]]


@pytest.mark.parametrize("case", EVERY)
def test_a_primitive_sees_no_cuts(case: Case) -> None:
    left = case.left or ""
    for parts in cuts(case.text):
        found = used(case, parts)
        assert found.value == case.value, parts
        if found.value is not Reject:
            assert (found.handed, found.left) == (case.handed, left), parts
            assert found.offset == len(case.text) - len(left), parts


@pytest.mark.parametrize("case", EVERY)
def test_a_primitive_waits_for_no_more_than_it_needs(case: Case) -> None:
    found = used(case, list(case.text))
    assert found.at_end is (case.needs is None)
    assert case.needs is None or found.fed == case.needs


def test_every_primitive_has_its_cases() -> None:
    suspending = {"at_end", "at_stub", "json", "lit", "lits", "match", "peek", "starts", "tag", "until", "until_match"}
    primitives = {name for name in vars(Cursor) if callable(getattr(Cursor, name)) and name[0] != "_"}
    assert primitives == {*suspending, "ws", "work", "push", "back"}
    assert CASES.keys() == {*suspending, "ws", "anchor"}


letters = st.text(alphabet="ab<", max_size=12)


@given(text=letters, marker=letters.filter(bool), data=st.data())
def test_the_overlap_is_the_longest_beginning_of_the_marker(text: str, marker: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    beginnings = [size for size in range(1, len(marker)) if text[start:].endswith(marker[:size])]
    assert overlap(text, start, marker) == max(beginnings, default=0)


@given(text=letters, marker=letters.filter(bool), data=st.data())
def test_until_hands_on_all_before_the_first_marker_and_keeps_only_what_may_begin_one(
    text: str, marker: str, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(text)))
    before, found, _ = text.partition(marker)
    outcome = used(Case(named(marker), text, None), [text[:first], text[first:]])
    assert (outcome.handed, outcome.value) == (before, bool(found))
    cursor, handed = Cursor(text), list[str]()
    next(cursor.until(marker, handed.append), None)
    if not found:
        assert marker.startswith(text[len("".join(handed)) :]), "what is held may still begin the marker"


def test_the_window_keeps_what_is_anchored_and_forgets_the_rest() -> None:
    cursor = Cursor("abcdef")
    cursor.pos = 2
    cursor.anchor = 1
    cursor.pos = 4
    cursor.push("gh")
    assert (cursor.offset, cursor.final, cursor.pending) == (4, 1, 7)
    cursor.back(1)
    assert cursor.text[cursor.pos :] == "bcdefgh"
    cursor.anchor = None
    cursor.pos = 3
    cursor.push("")
    assert (cursor.text[cursor.pos :], cursor.offset, cursor.final) == ("efgh", 4, 4)
    cursor.floor = 2
    assert (cursor.final, cursor.pending) == (2, 6)


def test_a_look_ahead_is_not_copied_with_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0

    class Counted(Tape):
        def __init__(self, text: str = "") -> None:
            nonlocal copied
            copied += len(text)
            super().__init__(text)

    monkeypatch.setattr(cursors, "Tape", Counted)
    cursor = Cursor()
    cursor.anchor = 0
    for _ in range(1_000):
        cursor.push("ab c")
        cursor.pos = len(cursor.text)
    assert copied < 100
    cursor.back(0)
    assert cursor.text == "ab c" * 1_000


# --- The tape is the text: whatever is added, forgotten, asked for and packed meanwhile


PARTS = ("x = compute(value)\n", "\ud83e", "\udd16", "é🧪", " ", "\x00", "word " * 900, "<read>", "")


def test_what_is_on_it_is_what_came() -> None:
    rng = random.Random(5)
    for _ in range(40):
        tape, text, forgotten = Tape(), "", 0
        for _ in range(rng.randint(1, 120)):
            for part in rng.choices(PARTS, k=rng.randint(1, 9)):
                tape.add(part)
                text += part
            if rng.random() < 0.2:
                size = rng.choice((0, 1, len(text) - forgotten, rng.randint(0, len(text) - forgotten)))
                tape.base += size
                forgotten += size
            start = rng.randint(forgotten, len(text))
            end = rng.randint(start, len(text))
            assert tape.between(start, end) == text[start:end]
            assert tape.rest(len(text) - start) == text[start:]
            assert (tape.end, len(tape)) == (len(text), len(text) - forgotten)


def test_what_has_lain_there_for_a_while_is_packed() -> None:
    tape, code = Tape(), "".join(text for texts in SAMPLES.values() for text in texts)
    for at in range(0, len(code), 3):
        tape.add(code[at : at + 3])
    packed = [block for block in tape._blocks if isinstance(block, bytes)]
    assert len(packed) >= len(tape._blocks) - 3
    assert sum(map(len, packed)) < 0.6 * len(code)
    assert tape.between(0, len(code)) == code
    assert not any(isinstance(block, bytes) for block in tape._blocks), "whoever asks again need not wait again"


def test_what_is_taken_is_a_place_as_long_as_it_stands_there() -> None:
    text = "abcdef'gh"
    cur = Cursor(text, source=lambda start, end: text[start:end])
    cur.pos = 1
    taken = Taken(cur)
    for size in (2, 0, 3):
        taken.add(text[cur.pos : cur.pos + size])
        cur.pos += size
    assert (taken.text(), taken._pieces, taken.first) == ("bcdef", None, "bc")
    taken.add('"')  # in the place of another sign
    cur.pos += 1
    taken.add("gh")
    assert taken.text() == 'bcdef"gh'
    assert Taken(cur).text() == ""
    cur.pos = 6
    behind = Taken(cur)
    behind.add("def")  # has just been passed
    behind.add("'")
    assert (behind.text(), behind._pieces) == ("def'", None)
    behind.add("h")
    assert behind.text() == "def'h"


# --- Work that is done in turns


@pytest.mark.parametrize("text", ['"' + "a" * 5 * LONG + '"', "[" + "1, " * 2 * LONG + "1]"])
def test_a_long_text_is_scanned_in_turns(text: str) -> None:
    assert sum(1 for _ in scanning(text, 0, 64)) >= len(text) // LONG - 1
    assert whole(scanning(text, 0, 64)).is_done
