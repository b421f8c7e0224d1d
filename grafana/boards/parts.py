"""What the dashboards have in common."""

from collections.abc import Sequence

from attrs import frozen
from panels import ALL, ARMED, Panel, Query, quantile, share

__all__ = [
    "ENDS",
    "ERROR",
    "FIRST",
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

RISKY = ((None, "green"), (0.01, "orange"), (0.05, "red"))
NONE_YET = "None so far"
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
    asked = [Query(expr=expr, legend=legend, instant=kind in ("bars", "table")) for expr, legend in named]
    return Panel(kind=kind, title=title, description=description, unit=unit, queries=asked, **more)  # type: ignore[arg-type]


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
