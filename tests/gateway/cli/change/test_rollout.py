"""`toolgate rollout`: what it shows, what it changes, and what it refuses."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve
from click.testing import CliRunner, Result

from gateway.cli.change.rollout import rollout
from gateway.core.ports import Store
from gateway.core.records import DecisionRecord
from gateway.rollout.codec import EVIDENCE_KEY, STATE_KEY, encoded, state_of
from gateway.rollout.evidence import ArmTotals, Evidence
from gateway.rollout.stages import RolloutRules, RolloutState, begun
from gateway.state.opening import open_store

ROOT = Path(__file__).parents[4]
CANARY = RolloutRules(transform_mode="canary", canary_step_min_s=0.0)


@define
class Shell:
    """The command line with a store of its own."""

    url: str

    def run(self, *arguments: str, **environ: str) -> Result:
        env = {"STORE_URL": self.url, **environ}
        return CliRunner().invoke(rollout, list(arguments), env=env)

    def json(self, *arguments: str, code: int = 0, **environ: str) -> dict[str, Any]:
        result = self.run(*arguments, "--json", **environ)
        assert result.exit_code == code, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        assert document["schema_version"] == 1
        return document

    def store(self, work: Callable[[Store], Any]) -> Any:
        async def with_store() -> Any:
            store = open_store(self.url, prefix="toolgate:", timeout_ms=2000)
            await store.open()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(with_store())

    def put(self, state: RolloutState, evidence: Evidence | None = None) -> None:
        async def work(store: Store) -> None:
            await store.put(STATE_KEY, encoded(state))
            if evidence is not None:
                await store.put(EVIDENCE_KEY, encoded(evidence))

        self.store(work)

    @property
    def state(self) -> RolloutState | None:
        async def work(store: Store) -> RolloutState | None:
            return state_of((await store.get(STATE_KEY)).get(STATE_KEY))

        found: RolloutState | None = self.store(work)
        return found

    @property
    def decisions(self) -> list[DecisionRecord]:
        async def work(store: Store) -> list[DecisionRecord]:
            return [record async for record in store.scan(DecisionRecord)]

        found: list[DecisionRecord] = self.store(work)
        return found


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in ("TRANSFORM_MODE", "KILL_SWITCH", "KILL_SWITCH_FILE", "GATEWAY_ENV_FILE", "GATEWAY_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return Shell(f"sqlite:///{tmp_path}/store.db")


def proven(state: RolloutState) -> Evidence:
    return Evidence(
        epoch=state.epoch,
        totals={"live": ArmTotals(requests=3000, seen=3000), "control": ArmTotals(requests=9000, seen=9000)},
        sketch=tuple(range(30)),
    )


@pytest.mark.parametrize("verb", [["status"], ["kill", "--yes"], ["promote", "--dry-run"]])
def test_of_a_store_that_is_not_there_nothing_is_said_and_none_is_made(shell: Shell, verb: list[str]) -> None:
    result = shell.run(*verb)
    assert result.exit_code == 5
    assert shell.url.removeprefix("sqlite:///") in result.stderr
    assert result.stdout == ""
    assert not Path(shell.url.removeprefix("sqlite:///")).exists()


def test_status_of_a_new_store_says_what_would_begin(shell: Shell) -> None:
    assert shell.state is None
    result = shell.run("status", TRANSFORM_MODE="canary", CANARY_PERCENT="2.5")
    assert result.exit_code == 0
    assert "no gateway has used this store yet" in result.stderr
    assert "2.5 % of conversations" in result.stdout
    assert shell.state is None, "looking changes nothing"


def test_status_is_one_document(shell: Shell) -> None:
    state = begun(CANARY, 1_000_000.0, "gateway")
    shell.put(state, proven(state))
    document = shell.json("status")
    assert {key: document[key] for key in ("state", "percent", "epoch", "statistic", "since", "reason", "by")} == {
        "state": "canary",
        "percent": 10.0,
        "epoch": 1,
        "statistic": 0.0,
        "since": "1970-01-12T13:46:40Z",
        "reason": "settings",
        "by": "gateway",
    }
    assert document["counts"]["live_requests"] == 3000
    assert {gate["name"]: gate["met"] for gate in document["gates"]} == {
        "seconds": True,
        "requests": True,
        "conversations": True,
        "bad_share": True,
        "overhead_windows": True,
        "cooldown_seconds": True,
    }


def test_status_tells_of_other_settings_and_switches(shell: Shell, tmp_path: Path) -> None:
    shell.put(begun(CANARY, 1_000_000.0, "gateway"))
    assert "are not those in force" in shell.run("status").stderr
    assert shell.json("status", KILL_SWITCH="true")["state"] == "off"
    assert shell.json("status", KILL_SWITCH_FILE=str(tmp_path))["reason"] == "kill_file"


@pytest.mark.parametrize("verb", ["pause", "promote", "rollback", "kill"])
def test_without_a_terminal_nothing_is_changed_unless_yes(shell: Shell, verb: str) -> None:
    state = begun(CANARY, 1_000_000.0, "gateway")
    shell.put(state, proven(state))
    result = shell.run(verb)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert result.stdout == ""
    assert shell.state == state


@pytest.mark.parametrize("verb", ["pause", "promote", "rollback", "kill"])
def test_dry_run_changes_nothing(shell: Shell, verb: str) -> None:
    state = begun(CANARY, 1_000_000.0, "gateway")
    shell.put(state, proven(state))
    result = shell.run(verb, "--dry-run")
    assert result.exit_code == 0
    assert result.stderr.startswith("would change: canary at 10 % -> ")
    assert shell.state == state
    assert shell.decisions == []


@pytest.mark.system
@pytest.mark.parametrize(("answer", "code", "is_killed"), [(b"y\n", 0, True), (b"n\n", 1, False)])
def test_on_a_terminal_it_asks(shell: Shell, answer: bytes, code: int, is_killed: bool) -> None:
    shell.put(begun(CANARY, 1_000_000.0, "gateway"))
    terminal, its_end = os.openpty()
    command = [sys.executable, "-c", "from gateway.cli.change.rollout import rollout; rollout()", "kill"]
    environ = {"PYTHONPATH": str(ROOT), "STORE_URL": shell.url}
    with subprocess.Popen(command, stdin=its_end, stdout=its_end, stderr=its_end, env=environ) as process:
        os.close(its_end)
        shown = b""
        while b"Go on?" not in shown:
            shown += os.read(terminal, 1000)
        assert b"canary at 10 % -> canary at 10 % (killed)" in shown
        os.write(terminal, answer)
        assert process.wait(20) == code
    os.close(terminal)
    assert shell.state is not None
    assert shell.state.killed == is_killed


def test_a_week_of_an_operator(shell: Shell) -> None:
    rules = evolve(CANARY, rollback_cooldown_s=0.0)
    state = begun(rules, 1_000_000.0, "gateway")
    shell.put(state, proven(state))
    assert shell.json("promote", "--yes")["percent"] == 25
    assert shell.json("pause", "--yes", "--reason", "lunch")["state"] == "paused"
    assert shell.json("resume", "--yes", "--reason", "fed")["state"] == "canary"
    assert shell.json("kill", "--yes")["state"] == "off"
    killed = shell.json("status")
    assert (killed["percent"], killed["percent_target"], killed["killed"]) == (0, 25, True)
    assert shell.json("unkill", "--yes")["percent"] == 25
    back = shell.json("rollback", "--yes", "--reason", "wrong paths")
    assert (back["state"], back["percent"], back["reason"]) == ("rolled_back", 0, "wrong paths")
    assert shell.json("resume", "--yes", "--reason", "fixed")["percent"] == 10
    assert [(record.decision, record.reason) for record in shell.decisions] == [
        ("promote", "promoted by hand"),
        ("pause", "lunch"),
        ("resume", "fed"),
        ("kill", "killed by hand"),
        ("unkill", "switch turned off by hand"),
        ("rollback", "wrong paths"),
        ("resume", "fixed"),
    ]


def test_promote_names_the_gates_that_are_not_met(shell: Shell) -> None:
    shell.put(begun(evolve(CANARY, canary_step_min_s=1e12), 1_000_000.0, "gateway"))
    result = shell.run("promote", "--yes")
    assert result.exit_code == 3
    for gate in ("seconds", "requests", "conversations", "bad_share"):
        assert f"gate not met: {gate} " in result.stderr
    assert "gate not met: overhead" not in result.stderr
    assert shell.run("promote", "--yes", "--force").exit_code == 0
    assert shell.state is not None
    assert shell.state.percent == 2500


def test_resume_waits_for_the_cool_down(shell: Shell) -> None:
    shell.put(begun(CANARY, 1_000_000.0, "gateway"))
    assert shell.run("rollback", "--yes").exit_code == 0
    result = shell.run("resume", "--yes", "--reason", "r")
    assert result.exit_code == 3
    assert "cools down for another" in result.stderr


def test_resume_goes_by_the_settings_of_the_gateways(shell: Shell) -> None:
    """The shell of an operator seldom holds them."""
    rules = RolloutRules(transform_mode="dry_run", rollback_cooldown_s=0.0)
    shell.put(evolve(begun(rules, 1_000_000.0, "gateway"), state="rolled_back"))
    assert shell.json("resume", "--yes", "--reason", "r", TRANSFORM_MODE="full")["state"] == "dry_run"


def test_a_reason_can_be_kept_and_shown_whatever_it_holds(shell: Shell) -> None:
    shell.put(begun(CANARY, 1_000_000.0, "gateway"))
    assert shell.run("kill", "--reason", "a\x1b[31m\udcff", "--yes").exit_code == 0
    assert shell.json("status")["reason"] == "a\\x1b[31m\\udcff"
    for verb in ("resume", "unkill"):
        assert shell.run(verb, "--reason", " ", "--yes").exit_code == 2


def test_resume_asks_for_a_reason(shell: Shell) -> None:
    result = shell.run("resume", "--yes")
    assert result.exit_code == 2
    assert "--reason" in result.stderr


@pytest.mark.parametrize("verb", [("unkill",), ("resume", "--reason", "r")])
def test_what_the_state_does_not_allow_is_refused(shell: Shell, verb: tuple[str, ...]) -> None:
    shell.put(begun(CANARY, 1_000_000.0, "gateway"))
    result = shell.run(*verb, "--yes")
    assert result.exit_code == 1
    assert result.stderr


def test_kill_works_before_any_gateway_has_begun(shell: Shell) -> None:
    assert shell.state is None
    result = shell.run("kill", "--yes", "--json")
    assert json.loads(result.stdout)["state"] == "off"
    assert "no gateway has used this store yet" in result.stderr
    assert shell.state is not None
    assert shell.state.killed


def test_memory_is_out_of_reach(shell: Shell) -> None:
    result = shell.run("status", STORE_URL="memory://")
    assert result.exit_code == 2
    assert "memory://" in result.stderr


def test_store_that_does_not_answer_is_5(shell: Shell) -> None:
    result = shell.run("status", STORE_URL="redis://:hunter2@127.0.0.1:1/0")
    assert result.exit_code == 5
    assert result.stderr
    assert "hunter2" not in result.output


def test_fault_in_the_settings_is_78(shell: Shell) -> None:
    result = shell.run("status", CANARY_PERCENT="a lot")
    assert result.exit_code == 78
    assert "CANARY_PERCENT" in result.stderr


@pytest.mark.parametrize("verb", [(), ("status",), ("promote",), ("resume",), ("rollback",), ("kill",)])
def test_help_has_examples(shell: Shell, verb: tuple[str, ...]) -> None:
    result = shell.run(*verb, "--help")
    assert result.exit_code == 0
    assert "toolgate rollout" in result.stdout


def test_a_slice_is_switched_off_and_on_and_status_says_why(shell: Shell) -> None:
    shell.put(begun(CANARY, 1_000_000.0, "gateway"), Evidence(epoch=1, examples=(("recovery/hermes", "req-1"),)))
    off = shell.run("slice", "recovery/hermes", "off", "--reason", "half of its edits fail", "--yes")
    assert off.exit_code == 0, off.output
    assert "recovery/hermes off" in off.stderr
    told = shell.json("status")
    assert told["slices_off"] == ["recovery/hermes"]
    [why] = told["switched_off"]
    assert (why["slice"], why["reason"], why["examples"]) == ("recovery/hermes", "half of its edits fail", ["req-1"])
    shown = shell.run("status").stdout
    assert "half of its edits fail; requests: req-1" in shown
    assert shell.run("slice", "recovery/hermes", "on", "--reason", "mended", "--yes").exit_code == 0
    assert shell.json("status")["switched_off"] == []
    assert [record.decision for record in shell.decisions] == ["slice_off", "slice_on"]


@pytest.mark.parametrize("named", ["hermes", "/hermes", "recovery/", "recovery/hermess"])
def test_a_slice_that_is_none_is_refused_with_those_that_are(shell: Shell, named: str) -> None:
    result = shell.run("slice", named, "off", "--reason", "x", "--yes")
    assert result.exit_code == 2
    assert "hermes" in result.output


def test_a_slice_wants_a_reason(shell: Shell) -> None:
    assert shell.run("slice", "recovery/hermes", "off", "--yes").exit_code == 2


def test_history_has_the_newest_decision_first_with_what_it_rests_on(shell: Shell) -> None:
    shell.put(begun(CANARY, 1_000_000.0, "gateway"))
    assert "no decision" in shell.run("history").stdout
    assert shell.run("pause", "--reason", "maintenance", "--yes").exit_code == 0
    assert shell.run("resume", "--reason", "over", "--yes").exit_code == 0
    assert shell.run("promote", "--force", "--reason", "tested elsewhere", "--yes").exit_code == 0
    lines = shell.run("history").stdout.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert [head.split()[1].rstrip(",") for head in heads] == ["promote", "resume", "pause"]
    assert "paused -> canary" in heads[1]
    assert "by " in heads[2]
    assert "maintenance" in heads[2]
    assert any("requests_needed 2000" in line for line in lines)
    assert [each["decision"] for each in shell.json("history", "--last", "1")["decisions"]] == ["promote"]


def test_bounds_are_told_in_words_and_no_gate_is_judged_on_nothing(shell: Shell) -> None:
    shell.put(begun(CANARY, 1_000_000.0, "gateway"))
    shown = shell.run("status").stdout
    assert "needed at least 2000: not met" in shown
    assert "gate bad_share" in shown
    assert "no request yet, needed at most" in shown
    assert "not before 1970-01-12T13:46:40" in shown
    assert "by `toolgate rollout promote`" in shown
    gates = {gate["name"]: gate for gate in shell.json("status")["gates"]}
    assert gates["bad_share"] | {"need": 0} == {
        "name": "bad_share",
        "met": False,
        "known": False,
        "have": None,
        "bound": "at_most",
        "need": 0,
    }


def test_a_dry_run_without_a_call_is_no_proof_that_calls_are_right(shell: Shell) -> None:
    shell.put(begun(RolloutRules(transform_mode="dry_run"), 1_000_000.0, "gateway"))
    [gate] = [gate for gate in shell.json("status")["gates"] if gate["name"] == "failed_share"]
    assert (gate["met"], gate["known"]) == (False, False)


@pytest.mark.system
def test_a_watched_status_is_printed_again_when_it_changes(shell: Shell) -> None:
    shell.put(begun(CANARY, 1_000_000.0, "gateway"))
    command = [sys.executable, "-m", "gateway", "rollout", "status", "--watch"]
    environ = {"PATH": os.environ["PATH"], "STORE_URL": shell.url, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environ, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline()]
        assert "canary" in seen[0]
        assert shell.run("kill", "--yes").exit_code == 0
        for line in process.stdout:
            if line.startswith("state"):
                assert line.split()[1] == "off"
                break
        process.terminate()
