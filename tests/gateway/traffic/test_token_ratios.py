"""What a request takes in tokens, by what answers have told of others."""

import pytest

from gateway.traffic.token_ratios import IMAGE_TOKENS, SAMPLES, TokenRatios


def test_before_any_answer_it_is_an_estimate_on_the_safe_side() -> None:
    assert TokenRatios().tokens("u", "m", 3600) == (1050, False)


def test_the_median_of_the_last_answers_counts() -> None:
    ratios = TokenRatios()
    for size, tokens in ((400, 100), (400, 100), (6000, 100)):
        ratios.observe("u", "m", size, tokens)
    assert ratios.tokens("u", "m", 4000) == (1050, True)
    assert ratios.tokens("u", "other", 3600) == (1050, False)
    for _ in range(SAMPLES):
        kept = ratios.observe("u", "m", 200, 100)
    assert kept == [2.0] * SAMPLES


def test_pictures_are_counted_by_the_piece() -> None:
    assert TokenRatios().tokens("u", "m", 0, images=2) == (2 * IMAGE_TOKENS, False)


@pytest.mark.parametrize(("size", "tokens"), [(1, 1000), (1_000_000, 1), (10, 0), (10, -1)])
def test_what_no_tokenizer_makes_is_not_learned(size: int, tokens: int) -> None:
    assert TokenRatios().observe("u", "m", size, tokens) == []


def test_what_another_process_has_learned_is_taken_over_and_odd_figures_are_not() -> None:
    ratios = TokenRatios()
    assert not ratios.knows("u", "m")
    ratios.load("u", "m", [4.0, "x", None, float("nan"), 1e9])
    assert ratios.knows("u", "m")
    assert ratios.tokens("u", "m", 4000) == (1050, True)
