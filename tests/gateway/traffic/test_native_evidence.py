"""When a model counts as one that calls natively, and when no longer."""

from gateway.traffic.lesson_rules import ENOUGH, TRIAL, NativeEvidence


def test_twenty_good_calls_teach_and_a_bad_one_begins_anew() -> None:
    known = NativeEvidence()
    told = [known.observe("a", "m", calls=2, is_bad=False, is_learned=False) for _ in range(ENOUGH // 2)]
    assert told == [*[None] * (ENOUGH // 2 - 1), "learned"]
    for _ in range(ENOUGH - 1):
        assert known.observe("a", "n", calls=1, is_bad=False, is_learned=False) is None
    assert known.observe("a", "n", calls=1, is_bad=True, is_learned=False) is None
    assert known.observe("a", "n", calls=ENOUGH - 1, is_bad=False, is_learned=False) is None
    assert known.observe("a", "n", calls=1, is_bad=False, is_learned=False) == "learned"


def test_one_bad_among_the_next_fifty_ends_it() -> None:
    known = NativeEvidence()
    assert known.observe("a", "m", calls=TRIAL - 1, is_bad=False, is_learned=True) is None
    assert known.observe("a", "m", calls=1, is_bad=True, is_learned=True) == "ended"


def test_later_one_is_forgiven_and_two_are_not() -> None:
    known = NativeEvidence()
    for _ in range(TRIAL + 1):
        assert known.observe("a", "m", calls=1, is_bad=False, is_learned=True) is None
    assert known.observe("a", "m", calls=1, is_bad=True, is_learned=True) is None
    for _ in range(TRIAL):
        assert known.observe("a", "m", calls=1, is_bad=False, is_learned=True) is None
    assert known.observe("a", "m", calls=1, is_bad=True, is_learned=True) is None
    assert known.observe("a", "m", calls=0, is_bad=True, is_learned=True) == "ended"


def test_answers_without_calls_say_nothing() -> None:
    known = NativeEvidence()
    for _ in range(99):
        assert known.observe("a", "m", calls=0, is_bad=False, is_learned=False) is None
