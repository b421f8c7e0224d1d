"""The look for cycles: now and then, where something was made, and only while it is quick."""

import gc

import pytest

from gateway.background.garbage import LOOK_S, Garbage


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often young objects were looked at, and how many objects there are."""
    told = {"young": 1, "objects": 1}
    monkeypatch.setattr(gc, "get_stats", lambda: [{"collections": told["young"]}])
    monkeypatch.setattr(gc, "get_objects", lambda: range(told["objects"]))
    return told


def minute(garbage: Garbage) -> None:
    for _ in range(LOOK_S):
        garbage()


def test_it_looks_once_a_minute_where_something_was_made(made: dict[str, int]) -> None:
    looks: list[int] = []
    garbage = Garbage(lambda: looks.append(1))
    minute(garbage)
    assert len(looks) == 1
    minute(garbage)
    assert len(looks) == 1, "nothing was made since"
    made["young"] += 1
    minute(garbage)
    assert len(looks) == 2


def test_it_waits_for_large_values_to_go_but_not_for_ever(made: dict[str, int]) -> None:
    looks: list[int] = []
    garbage = Garbage(lambda: looks.append(1))
    made["objects"] = 300_000
    minute(garbage)
    minute(garbage)
    assert looks == [], "a look would take all others' time"
    minute(garbage)
    assert len(looks) == 1
