"""Damaged markup never changes a value: the call that was meant, text, or a call to be asked for again."""

import random
from collections import Counter

import pytest

from strategies.dialects.rows import TABLE
from tests.support.damage import (
    DATA_FORMS,
    TAG_FORMS,
    Outcome,
    damaged_calls,
    outcome_of,
    read_in_pieces,
    read_whole,
    told_in_vain,
)

SEEDS = 5
ELSEWHERE = {
    *("apply_patch", "shell"),  # a command or a patch has no markup of its own within
    *("prefixed_xml", "named_function"),  # damaged already; the undamaged form is in the list
}


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
        if outcome == "asked" and case.level == "A" and (vain := told_in_vain(case.text, case.tools)):
            assert vain == case.expected[: len(vain)], f"{shown}, asked again in vain to {vain}"
        outcomes[outcome] += 1
    return outcomes


@pytest.mark.parametrize("seed", range(SEEDS))
def test_damaged_markup_changes_no_value(seed: int) -> None:
    outcomes = tally(seed, 1000)
    assert outcomes["right"] > 400, "many of them are read all the same"


def test_every_dialect_is_damaged() -> None:
    forms = {form.id for form in (*TAG_FORMS, *DATA_FORMS)}
    assert forms | ELSEWHERE == {dialect.id for dialect in TABLE}
    assert {case.form.id for case in damaged_calls(1, 1000)} == forms


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 200))
def test_damaged_markup_changes_no_value_in_a_hundred_thousand(seed: int) -> None:
    print(dict(tally(seed, 1000)))
