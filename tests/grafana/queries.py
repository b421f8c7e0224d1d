"""The queries of dashboards and rules, taken apart, and what the gateway exports to answer them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
from attrs import frozen

from gateway.telemetry.metrics import CATALOGUE, Metric

ROOT = Path(__file__).parents[2] / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((ROOT / "dashboards").glob("*.json"))}

METRICS: dict[str, Metric] = {metric.name: metric for metric in CATALOGUE}
EVERYWHERE = frozenset({"job", "instance"})
FOREIGN = {"nginx_http_response_count_total": frozenset({"job", "instance", "method", "status"})}
"""What exporters of others are known to have."""

SHIPPED = frozenset(
    {
        "up",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
    }
)
"""What every Python process exports, and what Prometheus itself says of a scrape."""


@frozen
class Selector:
    """One selector of series, and the functions and aggregations around it."""

    metric: str
    matchers: dict[str, list[str]]
    around: tuple[str, ...]
    grouped: tuple[frozenset[str], ...]

    @property
    def family(self) -> str:
        """The metric without the suffix that a histogram's series have."""
        name = re.sub(r"_(bucket|count|sum)$", "", self.metric)
        return name if name in METRICS and METRICS[name].kind == "histogram" else self.metric

    @property
    def labels(self) -> frozenset[str]:
        """The labels that the metric's series have."""
        if ":" in self.metric:
            return frozenset(self.metric.split(":")[0].split("_"))
        if self.metric in FOREIGN:
            return FOREIGN[self.metric]
        own = frozenset(METRICS[self.family].labels) if self.family in METRICS else frozenset()
        return own | EVERYWHERE | ({"le"} if self.metric.endswith("_bucket") else frozenset())


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every query with its panel."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel, target


def filled(query: str, *, interval: str = "5m", range_: str = "1h", **variables: str) -> str:
    """The query with the dashboard's variables filled in."""
    query = query.replace("$__rate_interval", interval).replace("$__range", range_)
    for name, value in {"job": ".+", "instance": ".+", "arm": ".+", "nginx_job": ".+", **variables}.items():
        query = re.sub(rf"\${name}\b", value, query)
    assert "$" not in query, query
    return query


def selectors(query: str) -> list[Selector]:
    """All selectors of a query that has no variables."""
    found: list[Selector] = []
    _collect(promql.parse(query), (), (), found)
    return found


def _collect(node: Any, around: tuple[str, ...], grouped: tuple[frozenset[str], ...], found: list[Selector]) -> None:
    match node:
        case promql.VectorSelector():
            matchers: dict[str, list[str]] = {}
            for matcher in node.matchers.matchers:
                matchers.setdefault(matcher.name, []).append(matcher.value)
            found.append(Selector(node.name or "", matchers, around, grouped))
        case promql.MatrixSelector():
            _collect(node.vector_selector, around, grouped, found)
        case promql.Call():
            for argument in node.args:
                _collect(argument, (*around, node.func.name), grouped, found)
        case promql.AggregateExpr():
            by = (frozenset(node.modifier.labels),) if node.modifier is not None else ()
            _collect(node.expr, (*around, "aggregation"), (*grouped, *by), found)
        case promql.BinaryExpr():
            _collect(node.lhs, around, grouped, found)
            _collect(node.rhs, around, grouped, found)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            _collect(node.expr, around, grouped, found)
        case _:
            pass
