"""The tests' own tiers: what is near a change, and that no process outlives the test that has started it."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.near import ALWAYS, MANY, ROOT, far_tests, near, near_tests
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


def near_modules(*changed: str) -> set[str]:
    return {name.rpartition("_")[2] for name in near(changed, GRAPH)}


def test_near_are_those_that_import_what_changed_or_its_importers() -> None:
    assert near_modules("strategies.a") == {"a", "b", "c"}, "of another package the importers alone"
    assert near_modules("strategies.b") == {"b", "c"}
    assert near_modules("gateway.c") == {"c", "d"}
    assert near_modules("gateway.d") == {"d"}
    assert near_modules("tests.support.s") == {"c"}
    assert near_modules("tests.test_a") == {"a"}


def test_what_the_sources_say_is_near() -> None:
    def found(*files: str) -> frozenset[str]:
        told = near_tests(files)
        assert told is not None
        return told

    assert {"tests/strategies/test_golden.py", "tests/strategies/text/test_tolerant_json.py"} <= found(
        "strategies/text/tolerant_json.py"
    )
    assert "tests/integration/test_clients.py" in found("gateway/front/server.py"), "by the fixtures that it asks for"
    assert "tests/strategies/test_golden.py" not in found("gateway/front/server.py")
    assert "tests/test_docs.py" in found("README.md")
    assert "tests/grafana/test_rules.py" in found("grafana/anything.yml")
    assert near_tests(["tests/conftest.py"]) is None


def test_of_very_many_those_of_other_packages_are_far() -> None:
    own, others = [f"tests/strategies/test_{at}.py" for at in range(MANY)], ["tests/gateway/test_a.py", *ALWAYS]
    assert far_tests(["strategies/a.py"], [*own, *others]) == {"tests/gateway/test_a.py"}
    assert far_tests(["strategies/a.py", "tests/gateway/test_a.py"], [*own, *others]) == set()
    assert far_tests(["strategies/a.py", "gateway/a.py"], [*own, *others]) == set()
    assert far_tests(["strategies/a.py"], [*own[2:], others[0]]) == set()
    assert far_tests(["README.md"], [*own, *others]) == set()


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
