"""A damaged closer never changes a value: the call that was meant, text, or a call to be asked for again."""

import random
from collections import Counter

import pytest

from tests.support.damage import FORMS, Outcome, damaged_calls, outcome_of, read_in_pieces, read_whole

SEEDS = 5


def tally(seed: int, count: int) -> Counter[Outcome]:
    """What so many damaged calls came to, read whole, in pieces and while they are shown; none may be wrong."""
    rng = random.Random(seed)
    outcomes: Counter[Outcome] = Counter()
    for case in damaged_calls(seed, count):
        prompted = rng.random() < 0.6
        whole = read_whole(case, prompted=prompted)
        outcome = outcome_of(case, whole)
        shown = f"{case.form.id}, {case.damage}:\n{case.text}\ncame to {whole.calls}"
        assert outcome != "wrong", shown
        assert read_in_pieces(case, rng, prompted=prompted).outcome == whole.outcome, shown
        if rng.random() < 0.3:
            live = read_in_pieces(case, rng, prompted=prompted, stream_arguments="incremental")
            assert outcome_of(case, live) != "wrong", shown
        outcomes[outcome] += 1
    return outcomes


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_damaged_closer_changes_no_value(seed: int) -> None:
    outcomes = tally(seed, 1000)
    assert outcomes["right"] > 600, "most of them are read all the same"
    assert outcomes["text"] == 0, "what is not read is asked for again"


def test_every_dialect_of_tags_is_damaged() -> None:
    forms = Counter(case.form.id for case in damaged_calls(1, 1000))
    assert forms.keys() == {form.id for form in FORMS}


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 200))
def test_a_damaged_closer_changes_no_value_in_a_hundred_thousand(seed: int) -> None:
    print(dict(tally(seed, 1000)))
