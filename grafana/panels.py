"""The kinds of panel that the dashboards are made of, and the PromQL that they have in common.

Every query is bound to the dashboard's variables: `$job` and `$instance` everywhere, `$arm` where a metric has arms.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen
from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common as styles
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heats
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

__all__ = [
    "ALL",
    "ARMED",
    "SOURCE",
    "Panel",
    "Query",
    "built",
    "increase",
    "or_zero",
    "per_second",
    "quantile",
    "share",
]

ALL = 'job=~"$job",instance=~"$instance"'
"""Matches what the dashboard is about."""

ARMED = f'{ALL},arm=~"$arm"'
"""The same, for metrics that tell arms apart."""

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

Limits = tuple[tuple[float | None, str], ...]
"""From which value on a colour holds; the first colour holds below all values."""

_COLOURS = {"live": "blue", "control": "orange", "dry_run": "purple", "off": "#8e8e8e"}


@frozen(kw_only=True)
class Query:
    """One query of a panel; `instant` asks for the end of the range alone."""

    expr: str
    legend: str = ""
    instant: bool = False


@frozen(kw_only=True)
class Panel:
    """One panel: what it shows, in which unit, how wide (of 24), and what it says when there is nothing to show."""

    kind: str
    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    width: int = 8
    height: int = 8
    no_value: str = "No traffic"
    limits: Limits = ((None, "green"),)
    mappings: Mapping[str, tuple[str, str]] = field(factory=dict)
    stacked: bool = False
    most: float | None = None
    looks: Sequence[tuple[str, str]] = ()
    """Where a click on a value leads: a name, and an address with the value's labels."""
    colours: Mapping[str, str] = field(factory=dict)
    """By the name of a series, where the name itself is good or bad."""
    matrix: tuple[str, str] | None = None


def per_second(metric: str, *matchers: str, by: str = "", of: str = ARMED) -> str:
    """The rate of a counter, summed over all but the labels in `by`."""
    return f"sum{_by(by)} (rate({metric}{{{_all(of, matchers)}}}[$__rate_interval]))"


def increase(metric: str, *matchers: str, by: str = "", of: str = ARMED) -> str:
    """By how much a counter grew in the time that the dashboard shows."""
    return f"sum{_by(by)} (increase({metric}{{{_all(of, matchers)}}}[$__range]))"


def or_zero(query: str, legend: str = "") -> str:
    """Zero where nothing was counted yet: a gap would look like a fault of the scrape."""
    label = "".join(legend.split("{{")[1:2]).partition("}}")[0]
    zero = f'label_replace(vector(0), "{label}", "none so far", "", "")' if label else "vector(0)"
    return f"{query} or on () {zero}"


def share(metric: str, part: str, whole: str = "", *, by: str = "", of: str = ARMED) -> str:
    """The part of a counter's events that match; nothing, instead of not a number, where there were none."""
    rest = (whole,) if whole else ()
    return f"{per_second(metric, part, by=by, of=of)} / ({per_second(metric, *rest, by=by, of=of)} > 0)"


def quantile(level: float, metric: str, *matchers: str, by: str = "", of: str = ARMED) -> str:
    """A quantile of a histogram."""
    labels = ", ".join(["le", by] if by else ["le"])
    return f"histogram_quantile({level}, {per_second(f'{metric}_bucket', *matchers, by=labels, of=of)})"


def built(panel: Panel, number: int) -> Any:
    """The panel as the SDK's builder."""
    builder: Any = _KINDS[panel.kind](panel)
    builder.id(number).title(panel.title).description(panel.description).datasource(SOURCE)
    builder.unit(panel.unit).no_value(panel.no_value).span(panel.width).height(panel.height)
    builder.thresholds(_thresholds(panel.limits))
    if panel.mappings:
        builder.mappings([_mapping(panel.mappings)])
    if panel.looks:
        builder.data_links([_look(title, url) for title, url in panel.looks])
    for name, colour in panel.colours.items():
        builder.override_by_regexp(name, [_fixed(colour)])
    for index, query in enumerate(panel.queries):
        builder.with_target(_target(panel, query, chr(ord("A") + index)))
    return builder


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


def _all(of: str, matchers: Sequence[str]) -> str:
    return ",".join([of, *matchers])


def _target(panel: Panel, query: Query, letter: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).ref_id(letter).datasource(SOURCE)
    if query.legend:
        target.legend_format(query.legend)
    if panel.kind == "heatmap":
        target.format(PromQueryFormat.HEATMAP)
    elif panel.kind == "table":
        target.format(PromQueryFormat.TABLE)
    return target.instant() if query.instant else target.range()


def _series(panel: Panel) -> timeseries.Panel:
    builder = (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(40 if panel.stacked else 8)
        .show_points(styles.VisibilityMode.AUTO)
        .legend(_legend())
        .tooltip(common.VizTooltipOptions().mode(styles.TooltipDisplayMode.MULTI).sort(styles.SortOrder.DESCENDING))
        .min(0)
    )
    if panel.most is not None:
        builder.axis_soft_max(panel.most)
    if panel.stacked:
        builder.stacking(common.StackingConfig().mode(styles.StackingMode.NORMAL))
    if len(panel.limits) > 1:
        builder.thresholds_style(common.GraphThresholdsStyleConfig().mode(styles.GraphThresholdsStyleMode.DASHED))
    if [query.legend for query in panel.queries] == ["{{arm}}"]:
        for arm, colour in _COLOURS.items():
            builder.override_by_name(arm, [_fixed(colour)])
    return builder


def _fixed(colour: str) -> models.DynamicConfigValue:
    return models.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})


def _look(title: str, url: str) -> builders.DashboardLink:
    return builders.DashboardLink(title).type(models.DashboardLinkType.LINK).url(url).target_blank(True)


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(styles.LegendDisplayMode.LIST)
        .placement(styles.LegendPlacement.BOTTOM)
        .show_legend(True)
    )


def _stat(panel: Panel) -> stat.Panel:
    builder = (
        stat.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .color_mode(styles.BigValueColorMode.VALUE)
        .graph_mode(styles.BigValueGraphMode.AREA)
    )
    if any(query.legend for query in panel.queries):
        builder.text_mode(styles.BigValueTextMode.NAME).graph_mode(styles.BigValueGraphMode.NONE)
    return builder


def _timeline(panel: Panel) -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .show_value(styles.VisibilityMode.NEVER)
        .row_height(0.8)
        .fill_opacity(80)
        .legend(common.VizLegendOptions().show_legend(False).display_mode(styles.LegendDisplayMode.HIDDEN))
        .color_scheme(builders.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
    )


def _heat(panel: Panel) -> heatmap.Panel:
    colours = heatmap.HeatmapColorOptions().mode(heats.HeatmapColorMode.SCHEME).scheme("Turbo").steps(64).exponent(0.5)
    return (
        heatmap.Panel()
        .calculate(False)
        .color(colours.fill("dark-blue"))
        .y_axis(heatmap.YAxisConfig().unit(panel.unit).axis_placement(styles.AxisPlacement.LEFT))
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .cell_gap(1)
        .show_legend()
    )


def _bars(panel: Panel) -> bargauge.Panel:
    return (
        bargauge.Panel()
        .orientation(styles.VizOrientation.HORIZONTAL)
        .display_mode(styles.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .min(0)
    )


def _table(panel: Panel) -> table.Panel:
    builder = table.Panel().show_header(True)
    if panel.matrix is None:
        return builder.with_transformation(_step("labelsToFields", {"mode": "columns"}))
    row, column = panel.matrix
    options = {"rowField": row, "columnField": column, "valueField": "Value", "emptyValue": "null"}
    builder.with_transformation(_step("groupingToMatrix", options))
    cells = {"type": "color-background", "mode": "basic"}
    return builder.override_by_field_type("number", [models.DynamicConfigValue("custom.cellOptions", cells)])


_KINDS: Mapping[str, Callable[[Panel], object]] = {
    "series": _series,
    "stat": _stat,
    "timeline": _timeline,
    "heatmap": _heat,
    "bars": _bars,
    "table": _table,
}


def _step(name: str, options: Mapping[str, object]) -> models.DataTransformerConfig:
    return models.DataTransformerConfig(id_val=name, options=dict(options))


def _thresholds(limits: Limits) -> builders.ThresholdsConfig:
    steps = [models.Threshold(value=value, color=colour) for value, colour in limits]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _mapping(values: Mapping[str, tuple[str, str]]) -> models.ValueMapping:
    options = {
        value: models.ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(values.items())
    }
    return models.ValueMap(options=options)
