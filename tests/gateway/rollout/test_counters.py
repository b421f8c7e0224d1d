"""What one process counts: bounded, by slice, and with examples of now."""

from gateway.rollout.counters import MAX_EXAMPLES, MAX_SLICES, MAX_TOLD, MAX_WHO, WHO_S, Counting, read

NOW = 1_000_000.0


def fail(counting: Counting, number: int, *, dialect: str = "hermes", now: float = NOW, epoch: int = 1) -> None:
    counting.ended(
        "live",
        epoch,
        strategy="recovery",
        dialect=dialect,
        key=f"conversation-{number}",
        bad=True,
        request_id=f"req-{number}",
        transformed=True,
        slow=False,
        now=now,
    )


def examples(counting: Counting) -> list[tuple[str, str]]:
    """Slices and ids that were named since the last look."""
    names = [read(mark) for mark in sorted(counting.take()[1])]
    return [(name.slice, name.subject) for name in names if name is not None and name.kind == "example"]


def test_a_slice_that_fails_late_is_named_though_another_has_failed_all_the_time() -> None:
    counting = Counting()
    for number in range(1000):
        fail(counting, number, dialect="glm")
    assert len(examples(counting)) == MAX_EXAMPLES
    fail(counting, 2000)
    assert examples(counting) == [("recovery/hermes", "req-2000")]


def test_requests_of_now_are_named_and_not_those_of_last_week_alone() -> None:
    counting = Counting()
    for number in range(10):
        fail(counting, number)
    assert len(examples(counting)) == MAX_EXAMPLES
    fail(counting, 11, now=NOW + 61)
    assert examples(counting) == [("recovery/hermes", "req-11")]


def test_a_new_epoch_is_named_anew() -> None:
    counting = Counting()
    for number in range(10):
        fail(counting, number)
    counting.take()
    fail(counting, 11, epoch=2)
    assert examples(counting) == [("recovery/hermes", "req-11")]


def test_no_number_of_slices_makes_it_remember_more() -> None:
    counting = Counting()
    for number in range(10 * MAX_SLICES):
        fail(counting, number, dialect=f"made-up-{number}")
    assert len(examples(counting)) == MAX_SLICES


def test_a_call_counts_once_and_as_many_calls_as_are_remembered_are_bounded() -> None:
    counting = Counting()
    assert counting.is_news("a", 1, bad=True)
    assert not any(counting.is_news("a", 1, bad=bad) for bad in (True, False))
    _, marks = counting.take()
    elsewhere = Counting()
    elsewhere.learn(marks)
    assert not elsewhere.is_news("a", 1, bad=True)
    for number in range(MAX_TOLD):
        counting.is_news(f"{number}", 1, bad=False)
    assert counting.is_news("a", 1, bad=True), "the oldest are forgotten"


def test_it_is_said_of_a_credential_now_and_then_that_it_asks() -> None:
    counting = Counting()

    def asked(who: str, now: float) -> list[str]:
        given = {"key": "k", "bad": False, "request_id": "", "transformed": None, "slow": False, "now": now}
        counting.ended("live", 1, strategy="recovery", dialect="none", who=who, **given)  # type: ignore[arg-type]
        return [name.subject for mark in counting.take()[1] if (name := read(mark)) and name.kind == "who"]

    assert (asked("ada", NOW), asked("ada", NOW + 1), asked("", NOW)) == (["ada"], [], ["-"])
    assert asked("ada", NOW + WHO_S) == ["ada"]
    assert len([who for number in range(1000) for who in asked(f"w{number}", NOW + 700)]) <= MAX_WHO
