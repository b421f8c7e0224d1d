"""The tape is the text: whatever is added, forgotten, asked for and packed meanwhile."""

import random

from strategies.text.cursor import Cursor
from strategies.text.tape import Taken, Tape
from tests.support.samples import SAMPLES

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
