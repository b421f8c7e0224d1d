"""What requests add to the metrics: by their end, by what was read in them and why it stayed text, and with traces."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from gateway.answer.facts import Delivered, Facts
from gateway.answer.structured.review import CallFacts
from gateway.core.call_class import CallClass
from gateway.core.events import IN_REASONING, NONE_MARKUP, Verdict
from gateway.core.ports import Fed
from gateway.core.reasons import Reason
from gateway.front.measures import SKIPPED, measure
from gateway.front.summary import Summary
from gateway.request.shared import Telemetry
from strategies.grammar.confidence import UNDECLARED, UNFIT
from tests.gateway.front.test_server import ANSWER
from tests.integration.test_calls import FINISH, ROLE, WRITTEN
from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import (
    DONE,
    answer_json,
    event,
    stream,
    text,
)


async def test_what_was_done_is_counted_and_written_down(gateway, upstream, client, log):
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    upstream.script = stream(ROLE, text(WRITTEN), FINISH, event(choices=[], usage=usage), DONE)
    running = await gateway(upstream.url)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"X-Request-Id": "mine-7", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    await ask(client, running.url, chat(model="deepseek", tools=TOOLS), headers=headers)
    record = await log.record("request_ended")
    assert record["request_id"] == "mine-7"
    assert record["trace_id"] == trace
    assert (record["model"], record["strategy"], record["arm"], record["status"]) == (
        "deepseek",
        "recovery",
        "live",
        200,
    )
    assert record["calls"][0]["tool"] == "read_file"
    assert record["calls"][0]["score"] >= 0.9
    assert record["usage"] == {"input": 11, "output": 7}
    assert record["end"] == "completed"
    assert "src/a.py" not in await log.until("request_ended")
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    dialect = record["calls"][0]["dialect"]
    for series in (
        f'toolgate_recovered_calls_total{{dialect="{dialect}"}} 1.0',
        f'toolgate_transforms_total{{arm="live",dialect="{dialect}",outcome="success",strategy="recovery"}} 1.0',
        'toolgate_transforms_by_tool_total{arm="live",outcome="success",tool="read_file"} 1.0',
        'toolgate_transforms_by_model_total{arm="live",model="deepseek",outcome="success"} 1.0',
        'toolgate_tokens_total{type="input",upstream="default"} 11.0',
        'toolgate_tokens_total{type="output",upstream="default"} 7.0',
        'toolgate_transform_overhead_seconds_count{phase="total",strategy="recovery"} 1.0',
        "toolgate_hold_seconds_count 1.0",
    ):
        assert series in exposition


async def test_a_call_that_stays_text_is_counted_with_its_reason(gateway, upstream, client, log):
    upstream.script = stream(ROLE, text("<read_file>\n<path>src/a.py"), FINISH, DONE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="deepseek", tools=TOOLS))
    assert got.content == "<read_file>\n<path>src/a.py"
    assert (await log.record("request_ended"))["refused"]
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_transform_errors_total{reason="not_closed",strategy="recovery"} 1.0' in exposition
    assert 'outcome="error",strategy="recovery"} 1.0' in exposition


async def test_a_failed_stream_is_unhealthy_and_a_refused_request_is_not(gateway, upstream, client, log):
    upstream.script = stream(ROLE, text("hel"))
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(model="deepseek", tools=TOOLS))
    assert (await log.record("request_ended"))["failure"] == "upstream_truncated"
    upstream.script = answer_json({"error": {"code": "context_length_exceeded"}}, status="400 X")
    await ask(client, running.url)
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'code="2xx",health="unhealthy",route="chat",stream="true"} 1.0' in exposition
    assert 'code="4xx",health="ok",route="chat",stream="true"} 1.0' in exposition
    assert 'toolgate_stream_ends_total{arm="live",reason="upstream_error"} 1.0' in exposition


async def test_requests_are_counted_by_their_end(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    await ask(client, running.url)
    await ask(client, running.url, b"no json".decode())
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_requests_total{arm="live",code="2xx",health="ok",route="chat",stream="true"} 1.0' in exposition
    assert 'toolgate_requests_total{arm="off",code="4xx",health="ok",route="chat",stream="false"} 1.0' in exposition
    assert 'toolgate_stream_ends_total{arm="live",reason="completed"} 1.0' in exposition
    assert 'toolgate_upstream_requests_total{code="2xx",upstream="default"} 1.0' in exposition
    assert "toolgate_active_streams 0.0" in exposition
    assert 'toolgate_requests_in_flight{route="chat"} 0.0' in exposition


async def test_times_lead_to_their_traces(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    await ask(client, running.url, headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    asked = {"Accept": "application/openmetrics-text; version=1.0.0"}
    exposition = (await get(client, f"{running.url}/metrics", headers=asked)).body.decode()
    for name in ("toolgate_request_duration_seconds", "toolgate_time_to_first_token_seconds"):
        traced = [line for line in exposition.splitlines() if line.startswith(f"{name}_bucket{{") and trace in line]
        assert len(traced) == 1
        assert f'# {{trace_id="{trace}"}}' in traced[0]
    plain = (await get(client, f"{running.url}/metrics")).body.decode()
    assert trace not in plain


# --- One summary, and what it adds


class Counted:
    """Metrics, as far as they are counted and observed by name."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.observed: dict[tuple[str, ...], float] = {}
        self.fed: list[tuple[str, float]] = []
        self.admitted: list[tuple[str, str]] = []

    def count(self, name: str, labels: Mapping[str, str], amount: float = 1.0) -> None:
        self.counts[(name.removeprefix("toolgate_"), *labels.values())] += int(amount)

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        self.observed[(name.removeprefix("toolgate_"), *labels.values())] = value

    def observe_traced(self, name: str, labels: Mapping[str, str], value: float, trace: str | None) -> None:
        self.observed[(name.removeprefix("toolgate_"), str(trace))] = value

    def admit(self, label: str, raw: str, who: str = "") -> str:
        self.admitted.append((label, raw))
        return raw

    def feed(self, key: object, rows: Callable[[], Sequence[Fed]], values: Sequence[float | None]) -> None:
        told = rows()
        assert len(told) == len(values)
        self.fed = [
            (row.name.removeprefix("toolgate_"), value)
            for row, value in zip(told, values, strict=True)
            if value is not None
        ]


def verdict(*reasons: str, accepted: bool = True, **more: Any) -> Verdict:
    told = {"dialect": "hermes", "name": "read", "score": 97, **more}
    return Verdict(accepted=accepted, reasons=reasons, **told)


def refused(refusal: Reason, **more: Any) -> Verdict:
    return verdict(accepted=False, refusal=refusal, **more)


def measured(facts: Facts | None = None, **fields: Any) -> Counted:
    known: dict[str, Any] = dict.fromkeys(Summary.__struct_fields__)
    told = Facts(read=True) if facts is None else facts
    known |= {
        "id": "r",
        "route": "chat",
        "model": "m",
        "stream": True,
        "who": "",
        "arm": "live",
        "strategy": "recovery",
    }
    known |= {"upstream": "u", "upstream_code": "2xx", "status": 200, "end": "completed", "is_healthy": True}
    known |= {"duration_s": 2.0, "upstream_s": 1.5, "upstream_first_s": 0.5, "first_sent_s": 0.6, "longest_gap_s": 0.1}
    known |= {"longest_hold_s": 0.2, "prepare_s": 0.01, "read_s": 0.02, "overhead_s": 0.03, "has_answer": True}
    known |= {"facts": told, "attempted": (), "dialect": "hermes", "outcome": "success", "is_plain": False, "kind": ()}
    telemetry = Counted()
    measure(Summary(**{**known, **fields}), cast(Telemetry, telemetry))
    return telemetry


def test_of_an_answer_that_nobody_read_no_reading_is_told() -> None:
    read, unread = dict(measured().fed), dict(measured(Facts()).fed)
    assert read.keys() - unread.keys() == {
        *("transforms_total", "transforms_by_model_total", "transform_overhead_seconds"),
        *("stream_held_bytes", "hold_seconds"),
    }
    assert unread["requests_total"] == 1.0


def test_a_stream_that_never_began_has_no_gap_and_no_end() -> None:
    names = {name for name, _ in measured(first_sent_s=None).fed}
    assert not names & {"stream_ends_total", "stream_gap_seconds", "time_to_first_token_seconds"}
    assert {name for name, _ in measured(stream=False).fed}.isdisjoint({"stream_ends_total", "hold_seconds"})


def test_times_with_a_trace_are_told_by_themselves() -> None:
    found = measured(trace="t1")
    assert not {"request_duration_seconds", "time_to_first_token_seconds"} & dict(found.fed).keys()
    assert found.observed == {("request_duration_seconds", "t1"): 2.0, ("time_to_first_token_seconds", "t1"): 0.6}
    assert ("time_to_first_token_seconds", "t1") not in measured(trace="t1", first_sent_s=None).observed


def test_a_model_earns_its_name_by_an_answer_that_went_well() -> None:
    assert measured().admitted == [("model", "m")]
    assert measured(end="upstream_error").admitted == []


def test_of_an_answer_of_plain_text_nothing_else_is_counted() -> None:
    facts = Facts(read=True, mended=Counter(x=1), undelivered=2)
    assert measured(facts, is_plain=True).counts == {}
    assert measured(facts).counts == {
        ("native_faults_mended_total", "x"): 1,
        ("undelivered_calls_total", "recovery"): 2,
    }


def test_what_was_mended_dropped_and_translated_is_counted_in_every_arm() -> None:
    facts = Facts(mended=Counter(x=2), dropped=Counter(trailing=3), translated=4, untranslated=0)
    assert measured(facts, arm="off").counts == {
        ("native_faults_mended_total", "x"): 2,
        ("dropped_text_total", "trailing"): 3,
        ("mapped_calls_total", "translated"): 4,
    }


def test_structured_calls_are_counted_by_class_outcome_and_step() -> None:
    found = CallFacts(
        classes=Counter({CallClass.VALID: 2, CallClass.SCHEMA_MISMATCH: 1}),
        outcomes=Counter(mended=1),
        steps=Counter(quotes=1),
        copies=3,
    )
    assert measured(Facts(structured=found, undelivered=1)).counts == {
        ("structured_calls_total", "u", "m", "valid"): 2,
        ("structured_calls_total", "u", "m", "schema_mismatch"): 1,
        ("native_misfits_total", "u"): 1,
        ("structured_outcomes_total", "u", "mended"): 1,
        ("native_faults_mended_total", "quotes"): 1,
        ("duplicate_calls_total", "recovery"): 3,
        ("undelivered_calls_total", "recovery"): 1,
    }
    assert measured(Facts(structured=CallFacts(copies=1))).counts == {("duplicate_calls_total", "recovery"): 1}


def test_a_call_that_arrived_is_told_with_its_score_and_its_doubts() -> None:
    call = Delivered(verdict=verdict(UNDECLARED, UNFIT, IN_REASONING), size=12)
    found = measured(Facts(read=True, calls=[call]))
    assert found.counts == {
        ("transforms_by_tool_total", "read", "live", "success"): 1,
        ("reasoning_calls_total", "hermes", "live"): 1,
        ("recovered_calls_total", "hermes"): 1,
        ("undeclared_calls_total", "hermes"): 1,
        ("unfit_calls_total", "hermes"): 1,
    }
    assert found.observed == {
        ("transform_confidence_ratio", "recovery", "apply"): 0.97,
        ("call_bytes", "hermes"): 12,
    }
    assert ("tool", "read") in found.admitted
    assert measured(Facts(read=True, calls=[call]), arm="control").counts == {
        ("transforms_by_tool_total", "read", "control", "success"): 1,
        ("reasoning_calls_total", "hermes", "control"): 1,
    }


@pytest.mark.parametrize("reason", sorted(SKIPPED))
def test_what_was_left_alone_on_purpose_is_no_error(reason: Reason) -> None:
    found = measured(attempted=(refused(reason),))
    assert found.counts[("transform_skips_total", reason)] == 1
    assert not [name for name, *_ in found.counts if name == "transform_errors_total"]
    assert found.observed == {("transform_confidence_ratio", "recovery", "pass"): 0.97}


def test_what_could_not_be_read_is_an_error_with_its_reason() -> None:
    found = measured(attempted=(refused(Reason.SCHEMA_INVALID, score=0),))
    assert found.counts == {
        ("transform_errors_total", "recovery", "schema_invalid"): 1,
        ("transforms_by_tool_total", "read", "live", "error"): 1,
    }
    assert found.observed == {}


def test_what_was_only_overheard_is_told_from_markup_where_calls_are_forbidden() -> None:
    found = measured(Facts(read=True, intents=[verdict(), verdict(NONE_MARKUP)], late_events=2))
    assert found.counts == {
        ("overheard_calls_total", "hermes"): 1,
        ("none_markup_total", "hermes", "kept"): 1,
        ("stream_late_events_total", "recovery"): 2,
    }
    facts = Facts(read=True, intents=[verdict(NONE_MARKUP)], dropped=Counter({NONE_MARKUP: 1, "duplicate": 2}))
    assert measured(facts).counts[("none_markup_total", "hermes", "dropped")] == 1
    assert measured(facts, arm="control").counts[("none_markup_total", "hermes", "kept")] == 1
    assert measured(facts).counts[("duplicate_calls_total", "recovery")] == 2


@pytest.mark.parametrize(
    ("word", "skipped"), [("dropped", "over_budget"), ("would_change", "control_arm"), ("same", "")]
)
def test_the_verdict_on_an_answer_that_was_read_beside_is_counted(word: str, skipped: str) -> None:
    found = measured(verdict=word, arm="dry_run")
    assert found.counts[("dryrun_verdicts_total", "hermes", word)] == 1
    assert [each for each in found.counts if each[0] == "transform_skips_total"] == (
        [("transform_skips_total", skipped)] if skipped else []
    )
    assert measured(verdict=word, noise=True).counts[("dryrun_noise_total", "hermes")] == 1
