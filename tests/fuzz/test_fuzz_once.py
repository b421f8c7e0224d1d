"""A short run of the fuzzer that looks for a call that is given twice, always over the same orders."""

import pytest

from tests.fuzz.fuzz_once import check

ORDERS = 1_500


def test_no_order_gives_a_call_twice() -> None:
    assert sum(map(check, range(ORDERS))) > 10, "second answers must be asked for, or nothing of them is tested"


@pytest.mark.long
def test_no_order_of_very_many_gives_a_call_twice() -> None:
    for seed in range(50_000):
        check(seed)
