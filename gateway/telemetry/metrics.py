"""Every metric of the gateway, declared once in `CATALOGUE`, and the registry that holds them."""

import platform
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from threading import get_ident
from typing import Literal

from attrs import frozen
from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.process_collector import ProcessCollector

from gateway.core.ports import Fed
from gateway.telemetry.labels import LabelGuard
from gateway.telemetry.series import Families, Family, HistogramFamily, Series

__all__ = ["CATALOGUE", "Metric", "Metrics", "metrics_table_markdown"]

Kind = Literal["counter", "gauge", "histogram"]
Zero = tuple[tuple[str, ...], ...]

_OVERHEAD = (50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 1.0)
_FIRST_TOKEN = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 12.0, 25.0, 60.0)
_DURATION = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
_CONFIDENCE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
_BYTES = tuple(float(256 * 4**power) for power in range(9))
_LAG = (1e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0)

_ARMS = ("live", "control", "dry_run", "off")
_STRATEGIES = ("native", "recovery", "xml_prompt")
_ENDS = ("completed", "client_abort", "upstream_error", "upstream_timeout", "gateway_error", "drained")
_FAULTS = ("parse", "schema_invalid", "unknown_tool", "timeout", "too_large", "internal")
_SKIPS = ("low_confidence", "control_arm", "slice_off", "over_budget", "disabled", "provenance", "unsayable")
_REPAIRS = ("repaired", "failed", "error", "cancelled", "no_budget")
_FALLBACKS = ("refused", "as_text", "bad_arguments", "parser_failed")
_RESCUES = ("read", "asked", "failed", "not_possible", "would")
_VERDICTS = ("identical", "would_change", "would_fail", "dropped", "ignored")
_OUTCOMES = ("accepted", "rejected", "no_tool_used")
_STATES = ("off", "dry_run", "canary", "full", "paused", "rolled_back")
_DECISIONS = ("hold", "promote", "rollback", "pause", "resume", "slice_off", "slice_on", "kill", "unkill")
_SHARED = ("read", "write", "tally")
_LOSSES = ("queue_full", "write_failed")


@frozen(kw_only=True)
class Metric:
    """One metric: what it counts, by which labels, and the series that an alert needs from the start."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    zero: Zero = ()


def _pairs(left: Iterable[str], right: Sequence[str]) -> Zero:
    return tuple((one, other) for one in left for other in right)


def _counter(name: str, help: str, *labels: str, zero: Zero = ()) -> Metric:
    return Metric(name=name, kind="counter", help=help, labels=labels, zero=zero)


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(name=name, kind="gauge", help=help, labels=labels)


def _histogram(name: str, buckets: tuple[float, ...], help: str, *labels: str) -> Metric:
    return Metric(name=name, kind="histogram", help=help, labels=labels, buckets=buckets)


CATALOGUE: tuple[Metric, ...] = (
    _counter(
        "toolgate_requests_total",
        "Requests answered, by route, streaming, status class (2xx), arm, and health (ok or unhealthy).",
        "route",
        "stream",
        "code",
        "arm",
        "health",
        zero=tuple(
            ("chat", stream, code, arm, health)
            for stream in ("true", "false")
            for arm in _ARMS
            for code, health in (("2xx", "ok"), ("2xx", "unhealthy"), ("5xx", "unhealthy"))
        ),
    ),
    _histogram(
        "toolgate_request_duration_seconds",
        _DURATION,
        "Time from the request's head to the answer's end.",
        "route",
        "stream",
        "arm",
    ),
    _gauge("toolgate_requests_in_flight", "Requests being answered.", "route"),
    _gauge("toolgate_active_streams", "Streams being answered."),
    _histogram(
        "toolgate_time_to_first_token_seconds",
        _FIRST_TOKEN,
        "Time from the request to the first content byte that was sent.",
        "upstream",
        "arm",
    ),
    _histogram(
        "toolgate_upstream_first_token_seconds",
        _FIRST_TOKEN,
        "Time from the request to the first content byte that the model server sent.",
        "upstream",
    ),
    _histogram("toolgate_stream_gap_seconds", _FIRST_TOKEN, "Longest silence of a stream.", "arm"),
    _histogram("toolgate_stream_held_bytes", _BYTES, "Most bytes of a stream withheld while undecided.", "family"),
    _counter(
        "toolgate_stream_late_events_total",
        "Events of streams that left only after two or more later ones had been read.",
        "strategy",
        zero=tuple((strategy,) for strategy in _STRATEGIES),
    ),
    _counter(
        "toolgate_stream_ends_total",
        "Streams ended, by reason.",
        "reason",
        "arm",
        zero=_pairs(_ENDS, _ARMS),
    ),
    _counter(
        "toolgate_transforms_total",
        "Answers read, by strategy, dialect of the first call, arm, and outcome (success, noop, skipped, error).",
        "strategy",
        "dialect",
        "arm",
        "outcome",
        zero=tuple(
            (strategy, "none", arm, outcome)
            for strategy in _STRATEGIES
            for arm in ("live", "control", "dry_run")
            for outcome in ("success", "error", "noop")
        ),
    ),
    _counter("toolgate_transforms_by_tool_total", "Calls read, by tool, arm and outcome.", "tool", "arm", "outcome"),
    _counter(
        "toolgate_transforms_by_model_total", "Answers read, by model, arm and outcome.", "model", "arm", "outcome"
    ),
    _counter(
        "toolgate_transform_errors_total",
        "Candidates that could not become a call, by reason.",
        "strategy",
        "reason",
        zero=_pairs(_STRATEGIES, _FAULTS),
    ),
    _counter(
        "toolgate_transform_skips_total",
        "Candidates and answers left alone on purpose, by reason.",
        "reason",
        zero=tuple((reason,) for reason in _SKIPS),
    ),
    _histogram(
        "toolgate_transform_confidence_ratio",
        _CONFIDENCE,
        "Score of candidates, by what was decided (apply or pass).",
        "strategy",
        "decision",
    ),
    _histogram(
        "toolgate_transform_overhead_seconds",
        _OVERHEAD,
        "Time that the gateway itself added to a request, by phase (prepare, read, total).",
        "strategy",
        "phase",
    ),
    _counter("toolgate_recovered_calls_total", "Calls that were written as text and delivered as calls.", "dialect"),
    _counter(
        "toolgate_undeclared_calls_total",
        "Delivered calls of a tool that the request did not declare: a well-known one, or, after asking again, one of"
        " no tool.",
        "dialect",
    ),
    _counter(
        "toolgate_unfit_calls_total",
        "Delivered calls in a family's special tokens that their tool does not take, after asking again in vain.",
        "dialect",
    ),
    _counter(
        "toolgate_reasoning_calls_total",
        "Calls read in a field of reasoning that was all of the answer, by dialect and arm; delivered in live alone.",
        "dialect",
        "arm",
    ),
    _counter(
        "toolgate_none_markup_total",
        "Calls written in answers to requests whose tool_choice is none, by dialect and what became of them (kept, "
        "dropped).",
        "dialect",
        "result",
    ),
    _counter(
        "toolgate_overheard_calls_total",
        "Calls of well-known tools in answers to requests that offered none; counted, not delivered.",
        "dialect",
    ),
    _counter(
        "toolgate_undelivered_calls_total", "Complete calls behind the first that were not delivered.", "strategy"
    ),
    _counter("toolgate_duplicate_calls_total", "Exact copies of a call that were dropped.", "strategy"),
    _counter(
        "toolgate_repairs_total",
        "Broken calls asked for again, by what came of it (repaired, failed, error, cancelled, no_budget).",
        "result",
        zero=tuple((result,) for result in _REPAIRS),
    ),
    _counter(
        "toolgate_context_cut_total",
        "Answers whose model server read fewer tokens than it was sent, or the same round number again and again.",
        "upstream",
        "model",
    ),
    _counter(
        "toolgate_conversation_loops_total",
        "Requests whose history ends in four equal calls with equal results.",
        "model",
        "tool",
    ),
    _counter(
        "toolgate_rescues_total",
        "Turns that the model server's own parser swallowed, by how they showed and what came of it (read, asked, "
        "failed, not_possible, would).",
        "upstream",
        "face",
        "result",
        zero=tuple(("default", "silent", result) for result in _RESCUES),
    ),
    _counter(
        "toolgate_native_fallbacks_total",
        "Models given xml_prompt instead of native tools, by reason (refused, as_text, bad_arguments, parser_failed).",
        "upstream",
        "reason",
        zero=_pairs(("default",), _FALLBACKS),
    ),
    _counter(
        "toolgate_outcomes_total",
        "How calls and answers fared, as the next request of their conversation told, by arm, strategy, dialect and "
        "outcome (accepted, rejected, no_tool_used).",
        "arm",
        "strategy",
        "dialect",
        "outcome",
        zero=tuple((arm, "recovery", "none", outcome) for arm in _ARMS[:3] for outcome in _OUTCOMES),
    ),
    _counter(
        "toolgate_dryrun_verdicts_total",
        "Untouched answers that were read beside, by dialect and verdict (identical, would_change, would_fail, "
        "dropped, ignored).",
        "dialect",
        "verdict",
        zero=tuple(("none", verdict) for verdict in _VERDICTS),
    ),
    _counter(
        "toolgate_dryrun_noise_total",
        "Untouched answers that read differently when cut in another way; must stay 0.",
        "dialect",
        zero=(("none",),),
    ),
    _counter(
        "toolgate_surface_path_total",
        "Requests of clients that speak another wire than chat, by that wire (messages, responses), the kind of the "
        "model server, and the path (same_wire, converted).",
        "surface",
        "kind",
        "path",
    ),
    _counter(
        "toolgate_surface_dropped_total",
        "What of such requests has no place in chat and was left out.",
        "surface",
        "what",
    ),
    _counter(
        "toolgate_surface_mended_total", "What was put right in such requests and in their answers.", "surface", "what"
    ),
    _counter(
        "toolgate_token_counts_total",
        "Requests for a count of tokens, by who counted (upstream, learned, estimate).",
        "source",
    ),
    _gauge("toolgate_rollout_state", "1 for the state that the rollout is in.", "state"),
    _gauge("toolgate_rollout_percent", "Share of conversations that is live, in percent (target, effective).", "kind"),
    _gauge("toolgate_rollout_epoch_info", "1 for the epoch that the rollout is in.", "epoch"),
    _gauge("toolgate_rollout_epoch", "The rollout's epoch as a number."),
    _gauge(
        "toolgate_rollout_statistic",
        "Evidence of the judge as a logarithm (arms, transform); limit is where it rolls back.",
        "test",
    ),
    _gauge("toolgate_rollout_slices_off", "Slices (strategy and dialect) that are switched off."),
    _gauge("toolgate_rollout_slice_off", "1 for each slice that is switched off.", "strategy", "dialect"),
    _counter(
        "toolgate_rollout_decisions_total",
        "Decisions over the rollout (hold, promote, rollback, pause, resume, slice_off, slice_on, kill, unkill).",
        "decision",
        "reason",
        zero=tuple((decision, "none") for decision in _DECISIONS),
    ),
    _gauge("toolgate_shared_state_up", "1 while the store answers."),
    _counter(
        "toolgate_limits_unshared_total",
        "Decisions over the limits of keys that a process took alone, as Redis did not answer.",
    ),
    _counter("toolgate_rate_limited_total", "Requests refused because their key has used up a limit."),
    _counter(
        "toolgate_shared_state_errors_total",
        "Failed operations on the store.",
        "op",
        zero=tuple((op,) for op in _SHARED),
    ),
    _gauge("toolgate_store_lag_seconds", "Age of the oldest record that waits to be written."),
    _gauge("toolgate_store_records_waiting", "Records that wait to be written; those that stand nowhere else yet."),
    _counter(
        "toolgate_store_records_lost_total",
        "Records that could not be kept, by reason.",
        "reason",
        zero=tuple((reason,) for reason in _LOSSES),
    ),
    _counter("toolgate_feedback_total", "Ratings of answers that clients gave.", "rating", zero=(("good",), ("bad",))),
    _counter(
        "toolgate_structured_calls_total",
        "Calls that model servers made themselves, as they came, by model and class (valid, invalid_json, "
        "unknown_name, schema_mismatch).",
        "upstream",
        "model",
        "class",
    ),
    _counter(
        "toolgate_structured_outcomes_total",
        "What became of structured calls that did not fit and might be changed (mended; supplied by the text beside; "
        "asked again; untouched; late: found out when they had gone out).",
        "upstream",
        "outcome",
        zero=_pairs(("default",), ("mended", "supplied", "asked", "untouched", "late")),
    ),
    _counter(
        "toolgate_native_misfits_total",
        "Structured calls that do not fit the schema that their tool was declared with: the class schema_mismatch, "
        "until 0.5.",
        "upstream",
        zero=(("default",),),
    ),
    _counter(
        "toolgate_mapped_calls_total",
        "Structured calls of a mapped tool, by what became of them (translated, refused).",
        "result",
        zero=(("translated",), ("refused",)),
    ),
    _counter("toolgate_native_faults_mended_total", "Wire faults of structured calls that were mended.", "fault"),
    _counter("toolgate_dropped_text_total", "Pieces of text that were dropped, by reason.", "reason"),
    _histogram("toolgate_hold_seconds", _OVERHEAD + _FIRST_TOKEN[5:], "Longest time text was held, per answer."),
    _histogram("toolgate_call_bytes", _BYTES, "Size of delivered arguments.", "dialect"),
    _counter("toolgate_upstream_requests_total", "Requests to model servers, by status class.", "upstream", "code"),
    _histogram(
        "toolgate_upstream_request_duration_seconds",
        _DURATION,
        "Time that a model server took for an answer.",
        "upstream",
        "code",
    ),
    _counter("toolgate_upstream_retries_total", "Repeated requests to model servers.", "upstream", "reason"),
    _counter(
        "toolgate_upstream_failovers_total",
        "Requests that went to another model server, as this one could not be had.",
        "upstream",
        "reason",
    ),
    _gauge("toolgate_upstream_breaker_open", "1 while a model server is left alone after failures.", "upstream"),
    _counter(
        "toolgate_tokens_total", "Tokens as the model server reported them (input or output).", "type", "upstream"
    ),
    _counter(
        "toolgate_label_overflows_total",
        "Label values that were folded into other.",
        "label",
        zero=(("model",), ("tool",), ("own",)),
    ),
    _histogram("toolgate_event_loop_lag_seconds", _LAG, "How late the event loop ran a timer."),
    _gauge("toolgate_event_loop_tasks", "Tasks of the event loop, idle connections' included, at the time of asking."),
    _counter(
        "toolgate_log_events_dropped_total",
        "Log lines that were dropped because the log could not take them.",
        "reason",
        zero=(("queue_full",), ("write_failed",)),
    ),
    _gauge("toolgate_config_last_reload_successful", "1 if the last reading of the settings succeeded."),
    _gauge("toolgate_config_last_reload_timestamp_seconds", "When the settings were last read with success."),
    _gauge("toolgate_build_info", "What runs here.", "version", "revision", "python"),
    _gauge("toolgate_config_info", "Which settings are in force.", "hash", "mode"),
)


Bound = tuple[Series, tuple[float, ...] | None]
"""A series, and the edges of its buckets if it is a histogram's."""
_MOST_BUNDLES = 1024
_MOST_WAITING = 128
"""Requests whose values are not added yet: to add those of so many costs what a few would, one by one."""


class _Bundle(Struct, eq=False):
    """The rows that go under one key, and what has not been added to them."""

    rows: Sequence[Fed]
    bound: list[Bound | None]
    """What each of them leads to, where its labels may stand as they are and it has had a value."""
    is_whole: bool = False
    """All that had a value so far have labels that may stand as they are."""
    waiting: list[Sequence[float | None]] = []


class Metrics:
    """The registry of one process; counts and observes by metric name with bounded labels."""

    def __init__(
        self,
        *,
        models: Iterable[str] = (),
        tools: Iterable[str] = (),
        label_cap: int = 40,
        thresholds: Iterable[float] = (),
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._bundles: dict[Hashable, _Bundle] = {}
        self._waiting = 0
        self._thread = get_ident()
        self._counters: dict[str, Family] = {}
        self._gauges: dict[str, Family] = {}
        self._histograms: dict[str, HistogramFamily] = {}
        self._guard = LabelGuard({"model": models, "tool": tools}, cap=label_cap, on_overflow=self._overflowed)
        self.registry.register(Families([self._family(metric, thresholds) for metric in CATALOGUE], self.settle))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def count(self, name: str, labels: Mapping[str, str], amount: float = 1) -> None:
        """Add to a counter."""
        family = self._counters[name]
        series = family.known.get(family.key(labels))  # here, as a request does it some ten times
        (family.series(labels) if series is None else series)[0] += amount

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Put a value into a histogram."""
        family = self._histograms[name]
        series = family.known.get(family.key(labels))
        if series is None:
            series = family.series(labels)
        series[0] += value
        series[1 + bisect_left(family.edges, value)] += 1

    def feed(self, key: Hashable, rows: Callable[[], Sequence[Fed]], values: Sequence[float | None]) -> None:
        """Count and observe several at once: each value under the row in its place, `None` under none.

        The key stands for all that the rows' labels are made of. They are asked for where it is new, or where a label
        may not stand as it is; else the values wait for others under the same key, to be added together.
        """
        bundle = self._bundles.get(key)
        if bundle is None or not bundle.is_whole:
            self._feed_now(key, rows(), values)
            return
        bundle.waiting.append(values)
        self._waiting += 1
        if self._waiting >= _MOST_WAITING:
            self.settle()

    def settle(self) -> None:
        """Add what waits, before a scrape; for the thread that feeds alone, any other one does nothing here."""
        if get_ident() != self._thread:
            return
        self._waiting = 0
        for bundle in self._bundles.values():
            if bundle.waiting:
                self._add(bundle)

    def _feed_now(self, key: Hashable, rows: Sequence[Fed], values: Sequence[float | None]) -> None:
        bundle = self._bundles.get(key)
        if bundle is None:
            if len(self._bundles) >= _MOST_BUNDLES:
                self.settle()
                self._bundles.clear()
            bundle = self._bundles[key] = _Bundle(rows, [None] * len(rows))
        bundle.waiting.append(values)
        self._add(bundle)
        bundle.is_whole = all(bound or value is None for bound, value in zip(bundle.bound, values, strict=True))

    def _add(self, bundle: "_Bundle") -> None:
        columns = zip(*bundle.waiting, strict=True)
        bundle.waiting = []
        for at, column in enumerate(columns):
            told = [value for value in column if value is not None] if None in column else column
            if (bound := bundle.bound[at]) is not None:
                _sum_up(bound, told)
            else:
                for value in told:
                    _sum_up(self._found(bundle, at), (value,))

    def _found(self, bundle: "_Bundle", at: int) -> Bound:
        row = bundle.rows[at]
        histogram = self._histograms.get(row.name)
        family = self._counters[row.name] if histogram is None else histogram
        series = family.series(row.labels)
        feeds = series, None if histogram is None else histogram.edges
        if family.key(row.labels) in family.known:
            bundle.bound[at] = feeds
        return feeds

    def observe_traced(self, name: str, labels: Mapping[str, str], value: float, trace: str | None) -> None:
        """Put a value into a histogram, and the trace it belongs to, if there is one, beside it."""
        if trace is None:
            self.observe(name, labels, value)
        else:
            self._histograms[name].observe_traced(labels, value, trace, time.time())

    def set(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Set a gauge."""
        family = self._gauges[name]
        series = family.known.get(family.key(labels))
        (family.series(labels) if series is None else series)[0] = value

    def gauge(self, name: str, labels: Mapping[str, str]) -> list[float]:
        """A gauge to be moved up and down often: its only number is its value."""
        return self._gauges[name].series(labels)

    def inform(self, name: str, labels: Mapping[str, str]) -> None:
        """Make this the one fact that an `_info` gauge states."""
        self._gauges[name].clear()
        self._gauges[name].set(labels, 1)

    def inform_build(self, version: str, revision: str = "unknown") -> None:
        """State what runs here."""
        labels = {"version": version, "revision": revision, "python": platform.python_version()}
        self.inform("toolgate_build_info", labels)

    def bounded(self, label: str, raw: str) -> str:
        """The value of a label that may stand in a series: itself, or `other`."""
        return self._guard.bounded(label, raw)

    def admit(self, label: str, raw: str, who: str = "") -> str:
        """Let a model or tool name have a series of its own, now that the model server answered it well."""
        return self._guard.admit(label, raw, who)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition in the format that the scraper accepts, and its content type."""
        if "application/openmetrics-text" in accept:
            data = openmetrics.generate_latest(self.registry)  # type: ignore[no-untyped-call]
            return data, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def _family(self, metric: Metric, thresholds: Iterable[float]) -> Family:
        name, labels = metric.name, metric.labels
        if metric.kind == "histogram":
            edges = metric.buckets
            if edges is _CONFIDENCE:  # a threshold between two edges could not be seen in the histogram
                edges = tuple(sorted({*edges, *thresholds}))
            self._histograms[name] = histogram = HistogramFamily(name, metric.help, labels, self._guard, edges)
            return histogram
        family = Family(name, metric.help, metric.kind, labels, self._guard)
        for values in metric.zero:
            family.series(dict(zip(labels, values, strict=True)))
        (self._counters if metric.kind == "counter" else self._gauges)[name] = family
        return family

    def _overflowed(self, label: str) -> None:
        self.count("toolgate_label_overflows_total", {"label": label})


def _sum_up(bound: Bound, values: Sequence[float]) -> None:
    series, edges = bound
    series[0] = sum(values, series[0])
    if edges is not None:
        # A place is looked for by each edge and not by each value, of which there are many more.
        ordered, at = sorted(values), 0
        for place, edge in enumerate(edges, 1):
            behind = bisect_right(ordered, edge, at)
            series[place] += behind - at
            at = behind
            if at == len(ordered):
                return
        series[-1] += len(ordered) - at


def metrics_table_markdown() -> str:
    """The reference of all metrics as a Markdown table."""
    lines = ["| name | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in CATALOGUE:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"
