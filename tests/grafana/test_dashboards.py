"""The dashboards: generated, whole, bound to their variables, and asking only for what the gateway exports; and that
what is said and shown of them fits what is there.
"""

import copy
import enum
import json
import re
import struct
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml  # type: ignore[import-untyped]
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from gateway.core.call_class import CallClass
from tests.grafana.queries import DASHBOARDS, FOREIGN, METRICS, ROOT, SHIPPED, filled, panels, selectors, targets

__all__ = ["mistyped"]


SDK = "grafana_foundation_sdk"


def mistyped(dashboard: dict[str, Any]) -> list[str]:
    """Where a dashboard's values have another type, or are none of the words, that Grafana's types allow."""
    plugins.register_default_plugins()
    return list(_faults(Dashboard.from_json(dashboard), Dashboard, "dashboard"))


def _faults(value: Any, hint: Any, path: str) -> Iterator[str]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object):
        yield from _fields(value, path)
    elif origin in (typing.Union, types.UnionType):
        found = [list(_faults(value, one, path)) for one in inner]
        yield from min(found, key=len)
    elif origin is typing.Literal:
        if value not in inner:
            yield f"{path}: {value!r} is none of {inner}"
    elif origin is list:
        yield from _all(value, list, enumerate(value) if isinstance(value, list) else (), inner[0], path)
    elif origin is dict:
        yield from _all(value, dict, value.items() if isinstance(value, dict) else (), inner[1], path)
    elif isinstance(hint, enum.EnumMeta):
        members: list[Any] = list(hint)
        if value not in [*members, *(member.value for member in members)]:
            yield f"{path}: {value!r} is no {hint.__name__}"
    elif isinstance(value, dict) and getattr(hint, "__module__", "").startswith(SDK):
        yield from _fields(hint.from_json(value), path)
    elif not _is_a(value, hint):
        yield f"{path}: {value!r} is no {hint.__name__}"
    else:
        yield from _fields(value, path)


def _all(value: Any, kind: type, items: Any, hint: Any, path: str) -> Iterator[str]:
    if not isinstance(value, kind):
        yield f"{path}: {value!r} is no {kind.__name__}"
    for key, item in items:
        yield from _faults(item, hint, f"{path}[{key}]")


def _is_a(value: Any, hint: Any) -> bool:
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def _fields(value: Any, path: str) -> Iterator[str]:
    if type(value).__module__.startswith(SDK) and not isinstance(value, enum.Enum):
        for name, hint in typing.get_type_hints(type(value).__init__).items():
            if name != "return":
                yield from _faults(getattr(value, name), hint, f"{path}.{name}")


# --- The dashboards: generated, whole, bound to their variables, and asking only for what the gateway exports


GENERATE = ROOT / "generate.py"

SOURCE = {"type": "prometheus", "uid": "${datasource}"}

WIDTH = 24

UNITS = {
    "bytes",
    "none",
    "ops",
    "percent",
    "percentunit",
    "reqps",
    "s",
    "short",
}

WORDS = {
    "class": {each.value for each in CallClass},
    "result": {"read", "asked"},
    "route": {"chat"},
    "phase": {"prepare", "read", "total"},
    "kind": {"target", "effective"},
    "state": {"off", "dry_run", "canary", "full", "paused", "rolled_back"},
    "status": {"499", "502", "504"},
    "outcome": {"success", "noop", "skipped", "error"},
}

"""Values of labels that have no series from the start."""

each_dashboard = pytest.mark.parametrize("name", DASHBOARDS)


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, GENERATE, *arguments], capture_output=True, text=True, check=False)


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """Where `given` has something that `kept` has not, or has otherwise."""
    if isinstance(given, dict) and isinstance(kept, dict):
        missing = [f"{path}/{key}" for key in given.keys() - kept.keys()]
        return missing + [
            each for key in given.keys() & kept.keys() for each in lost(given[key], kept[key], f"{path}/{key}")
        ]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        pairs = enumerate(zip(given, kept, strict=True))
        return [each for index, (one, other) in pairs for each in lost(one, other, f"{path}/{index}")]
    return [] if given == kept else [path]


def misread(dashboard: dict[str, Any]) -> list[str]:
    """What Grafana's own types for dashboards do not know of it."""
    plugins.register_default_plugins()
    kept = json.loads(json.dumps(Dashboard.from_json(copy.deepcopy(dashboard)), cls=JSONEncoder))
    return lost(dashboard, kept)


def matcher_values(values: list[str]) -> set[str]:
    return {word for value in values for word in value.split("|") if "$" not in value and value != ".+"}


def vocabulary(family: str, label: str) -> set[str]:
    """The values of a label that exist from the start, or are known otherwise."""
    metric = METRICS.get(family)
    if metric is None or not metric.zero:
        return WORDS.get(label, set())
    index = metric.labels.index(label)
    return {values[index] for values in metric.zero}


def test_the_files_are_what_the_generator_writes():
    result = generate("--check")
    assert result.returncode == 0, result.stderr


def test_a_file_that_was_changed_by_hand_or_is_left_over_is_told(tmp_path: Path):
    assert generate("--folder", str(tmp_path)).returncode == 0
    assert {path.stem for path in tmp_path.iterdir()} == DASHBOARDS.keys()
    (tmp_path / "overview.json").write_text("{}")
    (tmp_path / "removed.json").write_text("{}")
    result = generate("--check", "--folder", str(tmp_path))
    assert result.returncode == 1
    assert result.stderr.splitlines() == ["overview.json is not up to date", "removed.json is not up to date"]


def test_there_are_five_with_ids_and_titles_of_their_own():
    assert len(DASHBOARDS) == 5
    assert {dashboard["uid"] for dashboard in DASHBOARDS.values()} == {f"toolgate-{name}" for name in DASHBOARDS}
    assert len({dashboard["title"] for dashboard in DASHBOARDS.values()}) == 5


@each_dashboard
def test_grafanas_types_know_every_field(name: str):
    assert misread(DASHBOARDS[name]) == []


@pytest.mark.parametrize(
    "path",
    [
        ("titel",),
        ("panels", 1, "descripton"),
        ("panels", 1, "options", "colourMode"),
        ("panels", 1, "targets", 0, "expression"),
        ("panels", 1, "fieldConfig", "defaults", "units"),
        ("templating", "list", 1, "multy"),
    ],
)
def test_a_misspelt_field_would_be_found(path: tuple[Any, ...]):
    dashboard = copy.deepcopy(DASHBOARDS["overview"])
    place: Any = dashboard
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = "x"
    assert misread(dashboard) == ["/" + "/".join(map(str, path))]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_value_has_the_type_that_grafana_declares(name: str):
    assert mistyped(DASHBOARDS[name]) == []


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("title",), 5),
        (("schemaVersion",), "41"),
        (("editable",), "yes"),
        (("panels", 1, "gridPos", "w"), "12"),
        (("panels", 1, "targets", 0, "refId"), 1),
        (("panels", 1, "targets", 0, "instant"), "true"),
        (("panels", 1, "fieldConfig", "defaults", "decimals"), "two"),
        (("panels", 1, "options", "graphMode"), "bars"),
        (("templating", "list", 1, "multi"), 1),
        (("tags",), "toolgate"),
    ],
)
def test_a_value_of_another_type_is_found(path: tuple[Any, ...], wrong: object):
    dashboard = copy.deepcopy(DASHBOARDS["overview"])
    *way, last = path
    place: Any = dashboard
    for step in way:
        place = place[step]
    place[last] = wrong
    assert len(mistyped(dashboard)) == 1


@each_dashboard
def test_variables_choose_source_job_instance_and_arm(name: str):
    variables = {variable["name"]: variable for variable in DASHBOARDS[name]["templating"]["list"]}
    assert list(variables)[:4] == ["datasource", "job", "instance", "arm"]
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    for variable in list(variables.values())[1:]:
        if variable["type"] == "textbox":
            assert variable["query"].startswith("http")
            assert variable["label"]
            continue
        assert variable["type"] == "query"
        assert variable["datasource"] == SOURCE
        assert variable["multi"]
        assert variable["includeAll"]
        assert variable["allValue"] == ".+"
        assert variable["label"]


@each_dashboard
def test_variables_ask_for_labels_that_exist(name: str):
    for variable in DASHBOARDS[name]["templating"]["list"][1:]:
        if variable["type"] == "textbox":
            continue
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        assert found is not None
        (selector,) = selectors(filled(found[1]))
        assert selector.metric in METRICS.keys() | FOREIGN.keys()
        assert found[2] in selector.labels


@each_dashboard
def test_every_variable_is_used(name: str):
    text = json.dumps([DASHBOARDS[name]["panels"], DASHBOARDS[name]["annotations"]])
    for variable in DASHBOARDS[name]["templating"]["list"]:
        assert re.search(rf"\$\{{?{variable['name']}\b", text), variable["name"]


@each_dashboard
def test_panels_say_what_they_show(name: str):
    for panel in panels(DASHBOARDS[name]):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert defaults["unit"] in UNITS
        assert defaults["noValue"]
        assert panel["datasource"] == SOURCE
        assert panel["targets"]
    titles = [panel["title"] for panel in panels(DASHBOARDS[name])]
    assert len(titles) == len(set(titles))


@each_dashboard
def test_panels_have_ids_of_their_own_and_do_not_overlap(name: str):
    everything = DASHBOARDS[name]["panels"]
    assert [panel["id"] for panel in everything] == list(range(1, len(everything) + 1))
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= WIDTH
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    height = max(y for _, y in taken) + 1
    assert len(taken) == WIDTH * height, "the grid has holes"


@each_dashboard
def test_queries_have_letters_of_their_own_and_the_templated_source(name: str):
    for panel in panels(DASHBOARDS[name]):
        letters = [target["refId"] for target in panel["targets"]]
        assert len(letters) == len(set(letters))
        assert all(target["datasource"] == SOURCE for target in panel["targets"])
        if len(letters) > 1:
            legends = [target["legendFormat"] for target in panel["targets"]]
            assert len(legends) == len(set(legends)), panel["title"]


@each_dashboard
def test_legends_name_labels_that_the_result_has(name: str):
    for panel, target in targets(DASHBOARDS[name]):
        wanted = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
        available = {label for selector in selectors(filled(target["expr"])) for by in selector.grouped for label in by}
        assert wanted <= available, panel["title"]


@each_dashboard
def test_queries_are_bound_to_the_variables(name: str):
    for panel, target in targets(DASHBOARDS[name]):
        unfilled = re.sub(r"\$__\w+", "5m", target["expr"])
        for selector in selectors(unfilled):
            if selector.metric in FOREIGN:
                assert selector.matchers["job"] == ["$nginx_job"]
                continue
            assert selector.matchers.get("job") == ["$job"], panel["title"]
            assert selector.matchers.get("instance") == ["$instance"], panel["title"]
            assert selector.matchers.get("arm", ["$arm"]) != [".+"]


@each_dashboard
def test_queries_ask_for_what_the_gateway_exports(name: str):
    marks = [mark["expr"] for mark in DASHBOARDS[name]["annotations"]["list"] if "expr" in mark]
    for expr in [target["expr"] for _, target in targets(DASHBOARDS[name])] + marks:
        for selector in selectors(filled(expr)):
            assert selector.family in METRICS.keys() | SHIPPED | FOREIGN.keys()
            assert selector.matchers.keys() <= selector.labels, expr
            assert all(by <= selector.labels for by in selector.grouped), expr
            for label, values in selector.matchers.items():
                if label == "le":
                    edges = {str(float(edge)) for edge in METRICS[selector.family].buckets}
                    assert set(values) <= edges, expr
                elif words := matcher_values(values):
                    assert words <= vocabulary(selector.family, label), (expr, label)


@each_dashboard
def test_counters_are_read_as_rates_and_histograms_through_their_buckets(name: str):
    for panel, target in targets(DASHBOARDS[name]):
        for selector in selectors(filled(target["expr"])):
            if selector.metric.endswith(("_total", "_bucket", "_count")):
                assert {"rate", "increase"} & set(selector.around), panel["title"]
                assert "aggregation" in selector.around, panel["title"]
            if "histogram_quantile" in selector.around:
                assert selector.metric.endswith("_bucket")
                assert all("le" in by for by in selector.grouped)


@each_dashboard
def test_rates_follow_the_scrape_interval_and_the_resolution(name: str):
    for panel, target in targets(DASHBOARDS[name]):
        assert not re.search(r"rate\([^[]*\[(?!\$__rate_interval\])", target["expr"]), panel["title"]
        windows = set(re.findall(r"\[([^]]+)\]", target["expr"]))
        assert windows <= {"$__rate_interval", "$__range", "10m", "24h"}, panel["title"]


@each_dashboard
def test_a_share_without_traffic_is_nothing_rather_than_not_a_number(name: str):
    for panel, target in targets(DASHBOARDS[name]):
        if " / " in target["expr"] and "process_max_fds" not in target["expr"]:
            assert re.search(r" / (on \(\) group_left \(\) )?\(.*> 0\)", target["expr"], re.DOTALL), panel["title"]


@each_dashboard
def test_what_counts_says_zero_where_nothing_was_counted(name: str):
    for panel, target in targets(DASHBOARDS[name]):
        if re.match(r"sum[^(]*\((rate|increase)\(", target["expr"]) and panel["type"] not in ("heatmap", "table"):
            is_share = " / " in target["expr"] or "_bucket" in target["expr"]
            assert is_share or "or on () " in target["expr"], panel["title"]


def test_links_lead_from_a_value_to_the_answers_it_counts():
    filters = {"model", "dialect"}
    found = set()
    for dashboard in DASHBOARDS.values():
        for panel in panels(dashboard):
            for link in panel["fieldConfig"]["defaults"].get("links", []):
                assert link["targetBlank"]
                assert link["url"].startswith(("${inspector}/?filter=", "${report}#"))
                for label in re.findall(r"\$\{__field\.labels\.(\w+)\}", link["url"]):
                    found.add(label)
                    assert all(f"{{{{{label}}}}}" in target["legendFormat"] for target in panel["targets"]), panel[
                        "title"
                    ]
    assert found == filters


def test_faults_are_not_stacked_on_traffic_and_good_is_green():
    shown = {panel["title"]: panel for panel in panels(DASHBOARDS["overview"])}
    by_class = shown["Requests by status class"]
    assert "stacking" not in by_class["fieldConfig"]["defaults"].get("custom", {})
    colours = {
        each["matcher"]["options"]: each["properties"][0]["value"] for each in by_class["fieldConfig"]["overrides"]
    }
    assert {name: colour["fixedColor"] for name, colour in colours.items()} == {
        "2xx": "green",
        "4xx": "orange",
        "5xx": "red",
    }


@each_dashboard
def test_the_marks_show_rollbacks_changes_and_restarts(name: str):
    marks = {mark["name"]: mark for mark in DASHBOARDS[name]["annotations"]["list"]}
    assert {"Rollbacks", "Rollout changes", "Restarts"} <= marks.keys()
    for mark in marks.values():
        assert mark["datasource"] == SOURCE
        promql.parse(filled(mark["expr"]))


def test_the_kinds_of_panel_fit_what_they_show():
    kinds = {panel["title"]: panel["type"] for dashboard in DASHBOARDS.values() for panel in panels(dashboard)}
    assert kinds["Rollout state over time"] == "state-timeline"
    assert kinds["Confidence of candidates"] == kinds["First token"] == "heatmap"
    assert kinds["Success by strategy and dialect"] == "table"
    for dashboard in DASHBOARDS.values():
        for panel, target in targets(dashboard):
            assert (panel["type"] == "heatmap") == (target.get("format") == "heatmap"), panel["title"]
            assert (panel["type"] == "table") == (target.get("format") == "table"), panel["title"]


def test_dashboards_lead_to_each_other():
    for dashboard in DASHBOARDS.values():
        assert dashboard["tags"] == ["toolgate"]
        assert [link["tags"] for link in dashboard["links"]] == [["toolgate"]]


# --- What is said and shown about the dashboards fits what is there


README = (ROOT / "README.md").read_text("utf-8")

MOST_BYTES = 150_000


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_dashboard_has_a_preview_that_is_told_to_be_one(name: str):
    picture = (ROOT / "previews" / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 1000
    assert height > 1000
    assert len(picture) < MOST_BYTES
    assert f"previews/{name}.png" in README
    assert "They show what stands where, not how Grafana draws it." in README


def test_every_dashboard_has_a_heading_with_its_title():
    titles = [dashboard["title"].removeprefix("Toolgate / ") for dashboard in DASHBOARDS.values()]
    assert set(titles) == set(re.findall(r"^### (.+)$", README, re.MULTILINE))


def test_paths_that_are_copied_are_there():
    for path in re.findall(r"(?<![/\w])grafana/[\w./*-]+", README):
        assert list(ROOT.parent.glob(path.rstrip("./"))), path


def test_the_data_source_fits_the_scrapes_and_the_folder_the_copy():
    scrapes = yaml.safe_load((ROOT / "prometheus" / "prometheus.yml").read_text("utf-8"))
    source = yaml.safe_load((ROOT / "provisioning" / "datasources" / "prometheus.yaml").read_text("utf-8"))
    (only,) = source["datasources"]
    assert only["type"] == "prometheus"
    assert only["jsonData"]["timeInterval"] == scrapes["global"]["scrape_interval"]
    providers = yaml.safe_load((ROOT / "provisioning" / "dashboards" / "toolgate.yaml").read_text("utf-8"))["providers"]
    assert [provider["options"]["path"] for provider in providers] == ["/var/lib/grafana/dashboards/toolgate"]
    assert f"cp grafana/dashboards/*.json {providers[0]['options']['path']}/" in README
