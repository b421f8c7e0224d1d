"""When to come again, as servers say it."""

import pytest

from gateway.kinds.shared.faults import waiting_time

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("47", 47.0),
        (" 3 ", 3.0),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:13:50 -0000", 30.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("Tue, 99 Nov 2023 22:00:00 GMT", None),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_seconds_and_dates_are_read(told: str, seconds: float | None) -> None:
    assert waiting_time({"Retry-After": told}, NOW) == seconds


def test_nothing_said_is_nothing_to_wait_for() -> None:
    assert waiting_time({}, NOW) is None
