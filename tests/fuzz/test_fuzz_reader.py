"""A short run of the reader's fuzzer, always over the same answers."""

import pytest

from gateway.core.events import End
from tests.fuzz.fuzz_reader import inputs
from tests.support.fragments import check

INPUTS = 10_000
SHARES = 4
LATER = [pytest.param(share, marks=pytest.mark.long) for share in range(2, SHARES)]


@pytest.mark.parametrize("share", [0, 1, *LATER])
def test_random_answers_keep_every_promise(share: int) -> None:
    calls = 0
    for _, text, way, cuts in inputs(seed=share, count=INPUTS // SHARES):
        calls += sum(isinstance(event, End) for event in check(text, way, cuts))
    assert calls > 100, "the answers must hold real calls, or nothing is tested"
