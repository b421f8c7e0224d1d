"""How often a swallowed turn is asked again, and when a model is better prompted at once."""

from gateway.traffic.lesson_rules import MAX_PAIRS
from gateway.traffic.rescues import CURED, ONE_IN, PAUSE_S, UNCURED, WINDOW, Rescues


def test_after_so_many_in_vain_one_in_twenty_is_asked_for_ten_minutes() -> None:
    rescues = Rescues()
    for _ in range(UNCURED):
        assert rescues.may_ask("a", "m", "silent", 0.0)
        rescues.asked("a", "m", "silent", 0.0, is_cured=False)
    asked = [rescues.may_ask("a", "m", "silent", 1.0) for _ in range(2 * ONE_IN)]
    assert asked == [*[False] * (ONE_IN - 1), True] * 2
    assert rescues.may_ask("a", "m", "peg_format", 1.0), "another face"
    assert rescues.may_ask("a", "other", "silent", 1.0)
    assert rescues.may_ask("a", "m", "silent", PAUSE_S)
    assert PAUSE_S == 600


def test_a_cure_ends_the_row() -> None:
    rescues = Rescues()
    for cured in (False,) * (UNCURED - 1) + (True,) + (False,) * (UNCURED - 1):
        rescues.asked("a", "m", "silent", 0.0, is_cured=cured)
    assert rescues.may_ask("a", "m", "silent", 0.0)
    rescues.asked("a", "m", "silent", 0.0, is_cured=False)
    assert not rescues.may_ask("a", "m", "silent", 0.0)
    rescues.asked("a", "m", "silent", 0.0, is_cured=True)
    assert rescues.may_ask("a", "m", "silent", 0.0)


def test_three_cures_in_twenty_answers_teach() -> None:
    rescues = Rescues()
    assert [rescues.answered("a", "m", is_cured=True) for _ in range(CURED)] == [False, False, True]
    assert not rescues.answered("a", "m", is_cured=True), "from then on anew"
    for _ in range(WINDOW - 1):
        assert not rescues.answered("a", "m")
    assert not rescues.answered("a", "m", is_cured=True)
    assert not rescues.answered("a", "m", is_cured=True), "the first is no longer among the last"


def test_usage_is_asked_for_where_it_is_known_not_to_come_unasked() -> None:
    rescues = Rescues()
    assert not rescues.may_ask_usage("a")
    rescues.saw_usage("a", is_told=False)
    assert rescues.may_ask_usage("a")
    rescues.refused_usage("a")
    assert not rescues.may_ask_usage("a")
    rescues.saw_usage("b", is_told=True)
    rescues.saw_usage("b", is_told=False)
    assert not rescues.may_ask_usage("b")


def test_simpler_tools_are_remembered_until_then() -> None:
    rescues = Rescues()
    rescues.learn_simpler("a", "m", 10.0)
    assert rescues.wants_simpler("a", "m", 9.0)
    assert not rescues.wants_simpler("a", "m", 10.0)
    assert not rescues.wants_simpler("a", "n", 0.0)


def test_names_that_clients_choose_are_bounded() -> None:
    rescues = Rescues()
    for number in range(MAX_PAIRS + 9):
        rescues.asked("a", f"m{number}", "silent", 0.0, is_cured=False)
        rescues.answered("a", f"m{number}")
        rescues.learn_simpler("a", f"m{number}", 1.0)
    assert len(rescues._faces) == len(rescues._answers) == len(rescues._simpler) == MAX_PAIRS
