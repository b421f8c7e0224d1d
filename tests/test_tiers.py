"""The tests' own tiers: what is near a change, and that no process outlives the test that has started it."""

import re
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

from tests.support.near import (
    ALWAYS,
    BUDGET_S,
    BY_FOLDER,
    DOCUMENTED,
    NO_GIT,
    ROOM,
    ROOT,
    THROUGH_ALL,
    Item,
    distances,
    ranks,
    spend,
    summary,
    words_of,
)
from tests.support.processes import children, end, is_alive

GRAPH = {
    "strategies.a": frozenset[str](),
    "strategies.b": frozenset({"strategies.a"}),
    "gateway.c": frozenset({"strategies.b"}),
    "gateway.d": frozenset({"gateway.c"}),
    "tests.support.s": frozenset({"gateway.c"}),
    "tests.test_a": frozenset({"strategies.a"}),
    "tests.test_b": frozenset({"strategies.b"}),
    "tests.test_c": frozenset({"tests.support.s"}),
    "tests.test_d": frozenset({"gateway.d"}),
}
GRANDPARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def test_how_far_a_test_is_are_the_imports_between() -> None:
    def steps(*changed: str) -> dict[str, int]:
        return {name: far for name, far in distances(changed, GRAPH).items() if ".test_" in name}

    assert steps("strategies.a") == {"tests.test_a": 1, "tests.test_b": 2, "tests.test_c": 4, "tests.test_d": 4}
    assert steps("gateway.c") == {"tests.test_c": 2, "tests.test_d": 2}
    assert steps("gateway.c", "gateway.d") == {"tests.test_c": 2, "tests.test_d": 1}
    assert steps("tests.support.s") == {"tests.test_c": 1}
    assert steps("tests.test_a") == {"tests.test_a": 0}


def test_what_the_sources_say_is_near() -> None:
    found = ranks(["strategies/text/tolerant_json.py"])
    assert found["tests/strategies/text/test_tolerant_json.py"] == 0
    assert found["tests/strategies/text/test_python_text.py"] == ROOM
    assert ROOM < found["tests/strategies/test_golden.py"] < found["tests/integration/test_clients.py"]
    assert "tests/gateway/state/test_redis.py" not in found
    found = ranks(["gateway/front/server.py"])
    assert found["tests/integration/test_clients.py"] > ROOM, "by the fixtures that it asks for"
    assert "tests/strategies/test_golden.py" not in found
    assert "tests/integration/test_repairs.py" in ranks(["strategies/xml_prompt.py"]), "found by its entry point"
    assert "tests/gateway/cli/test_root.py" in ranks(["gateway/cli/run/demo.py"]), "looked up by its name"


def test_what_nobody_imports_has_tests_too() -> None:
    assert "tests/test_docs.py" in ranks(["README.md"])
    assert "tests/grafana/test_rules.py" in ranks(["grafana/anything.yml"])
    assert ranks(["tests/test_docs.py"])["tests/test_docs.py"] == 0
    assert len(ranks(["tests/conftest.py"])) > len(ranks(["tests/sdk/conftest.py"])) > 1
    assert set(ranks([])) == set(ALWAYS), "where nothing differs"
    assert ranks(["gateway/gone.py"]) == ranks([])
    named = {*ALWAYS, *DOCUMENTED, *chain(*THROUGH_ALL.values(), *BY_FOLDER.values())}
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert set(ranks(["pyproject.toml"])) == set(ranks([NO_GIT])) >= set(ranks(["gateway/core/events.py"]))


def made(function: str, cases: int, *, rank: int, each_s: float = 0.01) -> list[Item]:
    return [Item(f"tests/test_{rank}.py::{function}[case-{at}]", rank, each_s) for at in range(cases)]


def numbers(items: list[Item]) -> dict[str, int]:
    return dict(Counter(item.function.partition("::")[2] for item in items))


def test_a_budget_is_spent_from_the_nearest_outward() -> None:
    own, room, far = made("own", 400, rank=0), made("room", 99, rank=2), made("far", 99, rank=6)
    assert numbers(spend([*far, *room, *own])) == {"own": 400, "room": 99, "far": 99}
    many = [item for at in range(100) for item in made(f"far_{at}", 100, rank=6)]
    chosen = spend([*many, *room, *own])
    assert (numbers(chosen)["own"], numbers(chosen)["room"]) == (400, 99)
    assert numbers(chosen)["far_99"] >= 10
    assert sum(item.each_s for item in chosen) <= BUDGET_S
    assert [item.rank for item in chosen] == sorted(item.rank for item in chosen)
    assert chosen == spend([*own, *room, *many]), "the same change has the same tests"


def test_what_would_take_all_the_time_goes_only_where_it_is_the_changes_own() -> None:
    dear = BUDGET_S / 10
    assert numbers(spend(made("dear", 1, rank=0, each_s=dear))) == {"dear": 1}
    many = [item for at in range(200) for item in made(f"far_{at}", 100, rank=6)]
    assert "dear" not in numbers(spend([*made("dear", 1, rank=2, each_s=dear), *many]))
    assert "dear" in numbers(spend([*made("dear", 1, rank=2, each_s=dear), *many[:100]])), "nothing else needs it"
    assert 1 <= numbers(spend([*made("dear", 9, rank=0, each_s=dear), *many]))["dear"] < 5


def test_cases_that_speak_of_what_changed_go_first() -> None:
    cases = [Item(f"tests/test_a.py::test[{name}/{at}]", 3, 0.8) for name in ("qwen", "kimi_k3") for at in range(50)]
    chosen = [item.id for item in spend(cases, words_of(["strategies/dialects/tokens/kimi_k3.py"]))]
    assert len([each for each in chosen if "kimi" in each]) == len(chosen) < 50
    chosen = [item.id for item in spend(cases)]
    assert {"kimi" in each for each in chosen} == {True, False}, "without such they are spread over all"


def test_it_says_what_was_chosen() -> None:
    chosen = {"tests": 9, "whole": ["tests/security/test_hostile_json.py", *ALWAYS], "part": ["tests/test_docs.py"]}
    said = "\n".join(summary(["gateway/wire/sse.py"], chosen, 3))
    for part in ("gateway/wire/sse.py", "9 tests", ALWAYS[0], "some of 1 ", "none of 3 "):
        assert part in said
    assert "nothing differs" in "\n".join(summary([], chosen, 0))
    assert "every test" in "\n".join(summary(["tests/conftest.py"], {}, 0))


SKIP = re.compile(r'\b(?:skip\(|skipif\(.*?reason=)\s*(f?"[^"]*")', re.DOTALL)
NEEDS = re.compile(
    r'f?"needs (?:node, and `npm ci` in tests/sdk/node|to become another user|[\w{}-]+(?: and [\w-]+)?)"'
)


def test_a_clone_with_nothing_beside_it_skips_only_what_needs_a_program() -> None:
    """Other data than the project's own is read by commands and by `--answers`, not by tests of their own accord."""
    given = [
        (path.name, reason)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.name != Path(__file__).name
        for reason in SKIP.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(given) > 10
    assert [each for each in given if not NEEDS.fullmatch(each[1])] == []


def test_what_a_test_leaves_behind_ends_with_all_that_it_had_started() -> None:
    before = children()
    with subprocess.Popen([sys.executable, "-c", GRANDPARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        end(children() - before)
    assert children() == before
    assert not is_alive(grandchild)
