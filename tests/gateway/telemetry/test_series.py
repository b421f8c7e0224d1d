"""The series behind the metrics: what a scrape reads of what was fed."""

from gateway.telemetry.labels import LabelGuard
from gateway.telemetry.series import Family, HistogramFamily


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
