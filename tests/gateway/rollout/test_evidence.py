"""The last bad requests of each slice stay, however many another slice has."""

from gateway.core.ports import Block
from gateway.rollout.counters import named
from gateway.rollout.evidence import MAX_ALL_EXAMPLES, MAX_EXAMPLES, Evidence, after
from gateway.rollout.judge import JudgeRules


def block(number: int, *examples: tuple[str, str]) -> Block:
    marks = frozenset(named("example", 1, "live", where, id) for where, id in examples)
    return Block(number=number, counts={}, marks=marks)


def test_the_last_few_of_each_slice_are_kept() -> None:
    blocks = [block(1, ("recovery/hermes", "req-a"))]
    blocks += [block(number, ("recovery/glm", f"req-{number}")) for number in range(2, 60)]
    kept = after(Evidence(epoch=1), blocks, JudgeRules()).examples
    assert [id for where, id in kept if where == "recovery/hermes"] == ["req-a"]
    assert [id for where, id in kept if where == "recovery/glm"] == [f"req-{n}" for n in range(60 - MAX_EXAMPLES, 60)]


def test_they_are_bounded_over_all() -> None:
    blocks = [block(number, (f"recovery/{number}", f"req-{number}")) for number in range(1, 200)]
    kept = after(Evidence(epoch=1), blocks, JudgeRules()).examples
    assert len(kept) == MAX_ALL_EXAMPLES
    assert kept[-1] == ("recovery/199", "req-199")
