"""Metrics: declared once, bounded whatever names arrive, readable by a scraper."""

import random
import re
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.ports import Fed, Meter
from gateway.telemetry.labels import OTHER, LabelGuard, cleaned
from gateway.telemetry.metrics import CATALOGUE, Metrics, metrics_table_markdown
from gateway.telemetry.series import Family, HistogramFamily

BY_MODEL = "toolgate_transforms_by_model_total"

BY_TOOL = "toolgate_transforms_by_tool_total"


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def series(metrics: Metrics) -> int:
    return sum(len(family.samples) for family in metrics.registry.collect())


def by_model(model: str) -> dict[str, str]:
    return {"model": model, "arm": "live", "outcome": "success"}


def test_every_metric_can_be_fed_with_its_labels():
    metrics = Metrics()
    for metric in CATALOGUE:
        labels = dict.fromkeys(metric.labels, "x")
        match metric.kind:
            case "counter":
                metrics.count(metric.name, labels, 2)
            case "histogram":
                metrics.observe(metric.name, labels, 0.5)
            case "gauge":
                metrics.set(metric.name, labels, 3)
                metrics.gauge(metric.name, labels)[0] -= 1
    families = {family.name for family in text_string_to_metric_families(metrics.render()[0].decode())}
    assert {metric.name.removesuffix("_total") for metric in CATALOGUE} <= families


def test_the_metrics_are_a_meter():
    meter: Meter = Metrics()
    meter.count("toolgate_dropped_text_total", {"reason": "trailing"})
    meter.observe("toolgate_hold_seconds", {}, 0.1)


def test_names_and_labels_follow_the_rules_of_the_trade():
    for metric in CATALOGUE:
        assert re.fullmatch(r"toolgate_[a-z_]+", metric.name)
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert (metric.kind == "histogram") == bool(metric.buckets)
        assert metric.buckets == tuple(sorted(set(metric.buckets)))
        assert all(len(values) == len(metric.labels) for values in metric.zero)
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_a_wrong_label_set_is_a_mistake_of_ours():
    with pytest.raises(KeyError):
        Metrics().count(BY_MODEL, {"model": "x"})


def test_series_that_an_alert_needs_are_there_from_the_start():
    metrics = Metrics()
    unhealthy = {"route": "chat", "stream": "true", "code": "5xx", "arm": "live", "health": "unhealthy"}
    assert sample(metrics, "toolgate_requests_total", **unhealthy) == 0
    assert sample(metrics, "toolgate_stream_ends_total", reason="upstream_error", arm="live") == 0
    assert sample(metrics, "toolgate_label_overflows_total", label="model") == 0


def test_a_model_has_a_series_of_its_own_once_it_was_answered_well():
    metrics = Metrics()
    metrics.count(BY_MODEL, by_model("qwen3"))
    assert metrics.bounded("model", "qwen3") == OTHER
    assert metrics.admit("model", "qwen3") == "qwen3"
    metrics.count(BY_MODEL, by_model("qwen3"))
    assert sample(metrics, BY_MODEL, **by_model("qwen3")) == 1
    assert sample(metrics, BY_MODEL, **by_model(OTHER)) == 1


def test_configured_names_need_no_admission_and_take_no_room():
    metrics = Metrics(models=["gpt-x"], label_cap=1)
    assert metrics.bounded("model", "gpt-x") == "gpt-x"
    assert metrics.admit("model", "first") == "first"
    assert metrics.admit("model", "second") == OTHER


def test_ten_thousand_invented_names_add_few_series():
    metrics = Metrics()
    before = series(metrics)
    for number in range(10_000):
        for name in (BY_MODEL, BY_TOOL):
            label = "model" if name == BY_MODEL else "tool"
            metrics.admit(label, f"invented-{number}")
            metrics.count(name, {label: f"invented-{number}", "arm": "live", "outcome": "error"})
        metrics.count("toolgate_dropped_text_total", {"reason": f"reason-{number}"})
    assert series(metrics) - before < 300
    cached = sum(len(family.known) for family in metrics._counters.values())
    assert cached < 400
    assert (sample(metrics, "toolgate_label_overflows_total", label="tool") or 0) > 9000


def test_a_hostile_name_cannot_break_the_exposition():
    metrics = Metrics()
    hostile = 'x"} 1\n# HELP evil \u2028\x1b[31m' + "y" * 500
    metrics.admit("model", hostile)
    metrics.count(BY_MODEL, by_model(hostile))
    text = metrics.render()[0].decode()
    assert not [line for line in text.split("\n") if line.startswith("# HELP evil")]
    assert list(text_string_to_metric_families(text))
    assert sample(metrics, BY_MODEL, **by_model(cleaned(hostile))) == 1
    assert re.fullmatch(r"[A-Za-z0-9_.:/-]{1,64}", cleaned(hostile))


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/openmetrics-text;version=1.0.0",
        "application/openmetrics-text; version=zz",
        "text/plain;version=zz",
        ";;,=\r\n",
        "application/openmetrics-text;version=1.0.0;escaping=\r\nX-Evil: 1",
    ],
)
def test_any_accept_header_gets_an_exposition(accept):
    data, content_type = Metrics().render(accept)
    assert data.endswith(b"\n")
    assert content_type.startswith(("text/plain", "application/openmetrics-text"))
    assert content_type.isprintable()
    assert b"_created" not in data


def test_a_threshold_is_an_edge_of_the_confidence_histogram():
    metrics = Metrics(thresholds=[0.93])
    metrics.observe("toolgate_transform_confidence_ratio", {"strategy": "recovery", "decision": "pass"}, 0.92)
    labels = {"strategy": "recovery", "decision": "pass"}
    assert sample(metrics, "toolgate_transform_confidence_ratio_bucket", **labels, le="0.93") == 1
    assert sample(metrics, "toolgate_transform_confidence_ratio_bucket", **labels, le="0.9") == 0


def test_a_fact_replaces_the_one_before():
    metrics = Metrics()
    metrics.inform("toolgate_config_info", {"hash": "a", "mode": "full"})
    metrics.inform("toolgate_config_info", {"hash": "b", "mode": "full"})
    assert sample(metrics, "toolgate_config_info", hash="a", mode="full") is None
    assert sample(metrics, "toolgate_config_info", hash="b", mode="full") == 1
    metrics.inform_build("0.1.0")
    assert b'version="0.1.0"' in metrics.render()[0]


def test_two_registries_live_side_by_side():
    first, second = Metrics(), Metrics()
    first.count("toolgate_recovered_calls_total", {"dialect": "hermes"})
    assert sample(second, "toolgate_recovered_calls_total", dialect="hermes") is None


def test_the_process_and_the_collector_are_watched():
    text = Metrics().render()[0].decode()
    assert "process_resident_memory_bytes" in text
    assert "python_gc_collections_total" in text


def test_the_reference_names_every_metric():
    table = metrics_table_markdown()
    for metric in CATALOGUE:
        assert table.count(f"| `{metric.name}` |") == 1


# --- The series behind the metrics: what a scrape reads of what was fed


def guard() -> LabelGuard:
    return LabelGuard({}, cap=2, on_overflow=lambda label: None)


def told(family: Family) -> dict[tuple[str, ...], float]:
    return {(sample.name, *sample.labels.values()): sample.value for sample in family.sampled().samples}


def test_a_value_on_an_edge_falls_into_the_bucket_below_it():
    histogram = HistogramFamily("hold", "Held.", (), guard(), (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe({}, value)
    assert told(histogram) == {
        ("hold_bucket", "0.1"): 2,
        ("hold_bucket", "1.0"): 4,
        ("hold_bucket", "+Inf"): 5,
        ("hold_count",): 5,
        ("hold_sum",): 8.65,
    }


def test_a_metric_without_labels_is_there_before_it_is_fed():
    assert told(Family("lag", "Lag.", "gauge", (), guard())) == {("lag",): 0.0}
    assert told(Family("seen_total", "Seen.", "counter", ("by",), guard())) == {}


def test_values_that_are_cleaned_alike_share_a_series():
    family = Family("seen_total", "Seen.", "counter", ("by",), guard())
    family.add({"by": "a b"}, 1)
    family.add({"by": "a\tb"}, 2)
    family.add({"by": "a_b"}, 4)
    assert told(family) == {("seen_total", "a_b"): 7}


def test_what_is_added_together_is_what_would_be_added_one_by_one():
    together, singly, drawn = Metrics(), Metrics(), random.Random(7)
    seconds = "toolgate_request_duration_seconds"
    for number in range(400):
        arm, model = drawn.choice(["live", "off"]), drawn.choice(["known", f"invented-{number}"])
        for metrics in (together, singly):
            if model == "known":
                metrics.admit("model", model)
        way, labels = {"route": "chat", "stream": "true", "arm": arm}, by_model(model)
        took = drawn.choice([None, 0.25, 1000.0, drawn.randrange(3000) / 64])  # whose sums are exact in any order
        rows = (Fed(BY_MODEL, labels), Fed(seconds, way))
        together.feed((arm, model), partial(tuple, rows), (1.0, took))
        singly.count(BY_MODEL, labels)
        if took is not None:
            singly.observe(seconds, way, took)

    def told(metrics: Metrics) -> list[str]:
        lines = metrics.render()[0].decode().splitlines()
        return sorted(line for line in lines if line.startswith((BY_MODEL, seconds, "toolgate_label")))

    assert told(together) == told(singly)
