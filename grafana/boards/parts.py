"""What the dashboards have in common."""

import re
from collections.abc import Sequence

from attrs import frozen
from panels import ALL, ARMED, Panel, Query, or_zero, quantile, share

__all__ = [
    "BY_DIALECT",
    "BY_MODEL",
    "ENDS",
    "ERROR",
    "FIRST",
    "INSPECTOR",
    "NONE_YET",
    "NO_ROLLOUT",
    "OUTCOMES",
    "OVERHEAD",
    "READ",
    "REQUESTS",
    "RISKY",
    "TRANSFORMED",
    "UNHEALTHY",
    "UNHEALTHY_BY_ARM",
    "Board",
    "Row",
    "gauge",
    "panel",
    "quantiles",
]

INSPECTOR = "${inspector}/?filter="
BY_MODEL = (
    ("Answers of this model, in the inspector", INSPECTOR + "model:${__field.labels.model}"),
    ("The report", "${report}#models"),
)
BY_DIALECT = (
    ("Answers in this dialect, in the inspector", INSPECTOR + "dialect:${__field.labels.dialect}"),
    ("The report", "${report}#success"),
)
"""Where a click on a value leads: from a figure to what it was made of."""
RISKY = ((None, "green"), (0.01, "orange"), (0.05, "red"))
NONE_YET = "0"
NO_ROLLOUT = "No rollout"
REQUESTS = "toolgate_requests_total"
UNHEALTHY = 'health="unhealthy"'
TRANSFORMED = "toolgate_transforms_total"
READ = 'outcome=~"success|error"'
FIRST = "toolgate_time_to_first_token_seconds"
OVERHEAD = "toolgate_transform_overhead_seconds"
ENDS = "toolgate_stream_ends_total"
OUTCOMES = "toolgate_outcomes_total"
ERROR = 'outcome="error"'


@frozen(kw_only=True)
class Row:
    """A heading and the panels below it."""

    title: str
    panels: Sequence[Panel]


@frozen(kw_only=True)
class Board:
    """One dashboard; `has_nginx` gives it the variable that names nginx's scrape job."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    range: str = "now-6h"
    has_nginx: bool = False


def panel(kind: str, title: str, description: str, unit: str, *queries: tuple[str, str] | str, **more: object) -> Panel:
    """A panel; its queries are PromQL alone or with what the legend says."""
    named = [(query, "") if isinstance(query, str) else query for query in queries]
    if kind in ("series", "stat", "bars"):
        named = [(or_zero(query, legend) if _counts(query) else query, legend) for query, legend in named]
    asked = [Query(expr=expr, legend=legend, instant=kind in ("bars", "table")) for expr, legend in named]
    return Panel(kind=kind, title=title, description=description, unit=unit, queries=asked, **more)  # type: ignore[arg-type]


def _counts(query: str) -> bool:
    """It says how often something happened, so that nothing is zero; a share or a quantile of nothing is nothing."""
    return re.match(r"sum[^(]*\((rate|increase)\(", query) is not None and "_bucket" not in query and " / " not in query


def quantiles(metric: str, label: str, *levels: float, of: str = ARMED) -> list[tuple[str, str]]:
    """Quantiles of a histogram by one label, or by none, and their legends."""
    named = f" {{{{{label}}}}}" if label else ""
    return [(quantile(level, metric, by=label, of=of), f"p{round(level * 100)}{named}") for level in levels]


def gauge(how: str, metric: str, *matchers: str) -> str:
    """A gauge, combined over what the dashboard is about."""
    return f"{how} ({metric}{{{','.join([ALL, *matchers])}}})"


UNHEALTHY_BY_ARM = panel(
    "series",
    "Unhealthy share by arm",
    "Share of requests that ended in a fault of the gateway or of a model server. Both arms rising together means "
    "the model server; live alone means the transformation.",
    "percentunit",
    (share(REQUESTS, UNHEALTHY, by="arm"), "{{arm}}"),
    limits=RISKY,
)
