"""Rules, alerts and their configuration, through Prometheus' and Alertmanager's own tools."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]

from gateway.cli.root import cli
from gateway.config.reference import settings_table_markdown
from gateway.telemetry.metrics import CATALOGUE, Metrics
from tests.grafana.queries import METRICS, ROOT, SHIPPED, selectors

PROMETHEUS = ROOT / "prometheus"

RUNBOOK = (ROOT / "RUNBOOK.md").read_text("utf-8")

SCENARIOS = PROMETHEUS / "tests" / "alerts.yml"

SENTENCE = 160


def rules(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "rules" / f"{name}.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = rules("alerts")

RECORDS = rules("recording")

NAMES = [alert["alert"] for alert in ALERTS]


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which(program) is None and "TOOLGATE_CI" not in os.environ:
        pytest.skip(f"needs {program}")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def fires(scenario: dict[str, Any]) -> set[str]:
    """The alerts that a scenario has firing."""
    return {
        found
        for test in scenario["promql_expr_test"]
        for sample in test["exp_samples"]
        for found in re.findall(r'alertname="(\w+)"', sample["labels"])
    }


def test_prometheus_takes_the_configuration_and_the_rules():
    result = run("promtool", "check", "config", PROMETHEUS / "prometheus.yml")
    assert result.returncode == 0, result.stderr
    assert f"{len(ALERTS)} rules found" in result.stdout
    assert f"{len(RECORDS)} rules found" in result.stdout


def test_what_is_commented_out_in_the_configuration_is_right_too(tmp_path: Path):
    text = (PROMETHEUS / "prometheus.yml").read_text("utf-8")
    lines = [re.sub(r"^(\s*)# (?=\s*(- |\w+:$|refresh_interval:))", r"\1", line) for line in text.splitlines()]
    shutil.copytree(PROMETHEUS / "rules", tmp_path / "rules")
    (tmp_path / "prometheus.yml").write_text("\n".join(lines))
    result = run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert result.returncode == 0, result.stderr
    jobs = {job["job_name"]: job for job in yaml.safe_load("\n".join(lines))["scrape_configs"]}
    assert jobs.keys() == {"toolgate", "prometheus", "nginx"}
    assert jobs["toolgate"]["http_sd_configs"][0]["url"].startswith("http://")
    assert 5_000 < jobs["toolgate"]["sample_limit"] < 100_000


def test_alertmanager_takes_its_configuration():
    result = run("amtool", "check-config", PROMETHEUS / "alertmanager.yml")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(("severity", "receiver"), [("page", "pages"), ("ticket", "tickets"), ("other", "tickets")])
def test_alerts_reach_the_receiver_for_their_severity(severity: str, receiver: str):
    file = f"--config.file={PROMETHEUS / 'alertmanager.yml'}"
    result = run("amtool", "config", "routes", "test", file, f"severity={severity}")
    assert result.stdout.strip() == receiver, result.stderr


@pytest.mark.system
def test_alerts_fire_when_they_should_and_only_then():
    result = run("promtool", "test", "rules", SCENARIOS)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_fires_in_a_scenario_and_is_silent_in_others():
    scenarios = [fires(test) for test in yaml.safe_load(SCENARIOS.read_text("utf-8"))["tests"]]
    assert set().union(*scenarios) == set(NAMES)
    assert set() in scenarios


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_says_how_bad_what_and_where_to_go_on(alert: dict[str, Any]):
    assert alert["labels"]["severity"] in ("page", "ticket")
    notes = alert["annotations"]
    assert notes.keys() == {"summary", "description", "runbook_url"}
    assert not notes["summary"].endswith(".")
    assert notes["description"].endswith(".")
    assert max(map(len, notes.values())) < SENTENCE
    assert notes["runbook_url"] == f"grafana/RUNBOOK.md#{alert['alert'].lower()}"


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_that_divides_by_traffic_asks_for_a_volume(alert: dict[str, Any]):
    if "ratio_rate" in alert["expr"] or " / sum" in alert["expr"]:
        assert re.search(r"increase\(.*\) > \d+", alert["expr"]), "one request of two would fire it"


def test_the_runbook_has_a_section_for_every_alert_in_their_order():
    assert re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE) == NAMES
    for section in re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)[1:]:
        assert re.findall(r"^\*\*([\w ]+):\*\*", section, re.MULTILINE) == ["Means", "How bad", "Look at", "Do"]


def test_the_runbook_says_how_bad_as_the_rule_does():
    for alert in ALERTS:
        section = RUNBOOK.split(f"## {alert['alert']}\n")[1]
        said = re.search(r"\*\*How bad:\*\* (\w+)", section)
        assert said is not None
        assert said[1] == alert["labels"]["severity"], alert["alert"]


def test_the_runbook_names_panels_that_are_there():
    titles = {
        title
        for path in (ROOT / "dashboards").glob("*.json")
        for title in re.findall(r'"title": "([^"]+)"', path.read_text("utf-8"))
    }
    named = set(re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", RUNBOOK.replace("\n", " ")))
    assert named
    assert named - titles == set()


@pytest.mark.parametrize("document", ["RUNBOOK.md", "README.md"])
def test_commands_are_there_with_their_options(document: str):
    typed = re.findall(r"`toolgate ([^`]+)`", (ROOT / document).read_text("utf-8"))
    assert typed
    for words in map(str.split, typed):
        command: click.Command = cli
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, words
            command = found
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, (command.name, words)


def test_the_runbook_names_settings_that_are_there():
    known = set(re.findall(r"^\| `([A-Z_]+)` \|", settings_table_markdown(), re.MULTILINE))
    named = set(re.findall(r"`([A-Z][A-Z_]+)(?:=\w+)?`", RUNBOOK))
    assert named - known == set()


@pytest.mark.parametrize("rule", [*ALERTS, *RECORDS], ids=lambda rule: rule.get("alert") or rule["record"])
def test_rules_ask_for_what_the_gateway_exports(rule: dict[str, Any]):
    recorded = {record["record"] for record in RECORDS}
    for selector in selectors(rule["expr"]):
        assert selector.family in METRICS.keys() | SHIPPED | recorded, selector.metric
        assert selector.matchers.keys() <= selector.labels
        assert all(by <= selector.labels for by in selector.grouped)
        for label, values in selector.matchers.items():
            if (metric := METRICS.get(selector.family)) and metric.zero and label in metric.labels:
                index = metric.labels.index(label)
                words = {word for value in values for word in value.split("|")}
                assert words <= {zero[index] for zero in metric.zero}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["record"])
def test_a_recorded_series_is_named_for_its_labels(record: dict[str, Any]):
    labels = set(record["record"].split(":")[0].split("_"))
    for selector in selectors(record["expr"]):
        assert all(by - {"le"} == labels for by in selector.grouped)


# --- What a scrape costs a worker whose metrics are at their limits


SERIES = 5_000

BUDGET_S = 0.05

MEASURE = """
import json, sys, time
from tests.grafana.test_rules import SERIES, filled

metrics, series = filled(SERIES)
seconds = []
for _ in range(9):
    began = time.process_time()
    metrics.render(sys.argv[1])
    seconds.append(time.process_time() - began)
print(json.dumps([series, min(seconds), sys.gettrace() is None]))
"""


def count(metrics: Metrics) -> int:
    return sum(len(family.samples) for family in metrics.registry.collect())


def filled(series: int) -> tuple[Metrics, int]:
    """Metrics with at least so many series, spread over all that have labels."""
    metrics, number = Metrics(label_cap=1000), 0
    while (reached := count(metrics)) < series:
        number += 1
        for metric in CATALOGUE:
            labels = dict.fromkeys(metric.labels, f"value-{number}")
            match metric.kind:
                case "counter":
                    metrics.count(metric.name, labels, number * 1.5)
                case "histogram":
                    metrics.observe(metric.name, labels, number * 0.123)
                case "gauge":
                    metrics.set(metric.name, labels, number)
    return metrics, reached


@pytest.mark.cost
@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text;version=1.0.0"])
def test_five_thousand_series_take_less_than_fifty_milliseconds(accept: str):
    """In a process of its own: whatever traces the tests would be measured as well."""
    untraced = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE", "COV_"))}
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, accept],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT.parent,
        env=untraced,
    )
    series, seconds, is_untraced = json.loads(result.stdout)
    assert is_untraced
    assert SERIES <= series < 2 * SERIES
    assert seconds < BUDGET_S


def test_prometheus_has_nothing_to_say_against_names_and_texts():
    if shutil.which("promtool") is None and "TOOLGATE_CI" not in os.environ:
        pytest.skip("needs promtool")
    exposition = filled(1_000)[0].render()[0]
    result = subprocess.run(["promtool", "check", "metrics"], input=exposition, capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
