"""When a server reads less of a prompt than it is sent."""

import pytest

from gateway.traffic.token_ratios import MAX_PAIRS, NEEDED, ContextCuts


def test_far_fewer_tokens_than_the_bytes_can_mean() -> None:
    cuts = ContextCuts()
    for number in range(NEEDED):
        assert cuts.observe("a", "m", size=4_000 + 400 * number, tokens=1_000 + 100 * number) is None
    assert cuts.observe("a", "m", size=40_000, tokens=9_000) is None
    found = cuts.observe("a", "m", size=40_000, tokens=2_500)
    assert found is not None
    assert (found.at, found.sent) == (2_500, 10_000)
    assert cuts.of("a", "m") == found
    assert cuts.of("a", "other") is None


@pytest.mark.parametrize("figure", [2_048, 4_096, 4_095, 8_192])
def test_the_same_round_figure_three_times(figure: int) -> None:
    cuts = ContextCuts()
    found = [cuts.observe("a", "m", size=size, tokens=figure) for size in (30_000, 40_000, 50_000)]
    assert [cut is not None for cut in found] == [False, False, True]


def test_figures_that_are_not_round_or_long_ago_say_nothing() -> None:
    cuts = ContextCuts()
    assert not any(cuts.observe("a", "m", size=9_000, tokens=3_000) for _ in range(9))
    for _ in range(5):
        assert cuts.observe("a", "n", size=16_000, tokens=4_096) is None
        for other in range(20):
            assert cuts.observe("a", "n", size=4_000 + other, tokens=1_100 + other) is None
    assert cuts.observe("a", "m", size=0, tokens=4_096) is None


def test_names_that_clients_choose_are_bounded() -> None:
    cuts = ContextCuts()
    for number in range(MAX_PAIRS + 5):
        cuts.observe("a", f"m{number}", size=9, tokens=3)
    assert len(cuts._seen) == MAX_PAIRS
