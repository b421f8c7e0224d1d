"""A day that never was, in the gateway's own metrics: two workers, a canary, an outage, a rollback.

Midnight to eight: dry run. From eight on a canary of 5 %, from noon on 25 %. At three the model server fails for a
quarter of an hour, in every arm. At half past four in the afternoon a model changes its form and live requests begin
to fail; ten minutes later the judge rolls back. At six somebody resumes at 5 %.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator

from attrs import define, field

from gateway.telemetry.metrics import Metrics

__all__ = ["HOURS", "STEP_S", "exposition"]

STEP_S = 120
HOURS = 24
_WORKERS = ("10.0.0.5:9464", "10.0.0.5:9465")
_STATES = ("off", "dry_run", "canary", "full", "paused", "rolled_back")
_MODELS = (
    ("qwen3-coder-30b", "xml_prompt", 40),
    ("glm-4.6", "recovery", 30),
    ("llama-3.3-70b", "recovery", 20),
    ("gpt-5-mini", "native", 10),
)
_DIALECTS = (("hermes", 40), ("generic_xml", 30), ("qwen3_coder", 15), ("json_fence", 10), ("python_calls", 5))
_TOOLS = (("read_file", 40), ("execute_command", 20), ("apply_diff", 15), ("search_files", 15), ("write_to_file", 10))
_ENDS = ("completed", "client_abort", "upstream_error", "upstream_timeout")
_LIMIT = math.log(10_000)
_Key = tuple[str, str, str, tuple[tuple[str, str], ...]]


@define
class _Worker:
    """One worker, minute by minute."""

    instance: str
    chance: random.Random
    metrics: Metrics = field(factory=lambda: Metrics(models=[m for m, *_ in _MODELS], tools=[t for t, _ in _TOOLS]))
    decisions: int = 0

    def begin(self, at: float) -> None:
        self.metrics.inform_build("0.1.0", "4f1c2d9")
        self.metrics.inform("toolgate_config_info", {"hash": "9c41f0", "mode": "canary"})
        self.metrics.set("toolgate_config_last_reload_timestamp_seconds", {}, at - 7 * 3600)
        for name in ("toolgate_config_last_reload_successful", "toolgate_shared_state_up"):
            self.metrics.set(name, {}, 1)
        self.metrics.set("toolgate_upstream_breaker_open", {"upstream": "default"}, 0)

    def pass_(self, hour: float) -> None:
        """What happens in one step."""
        state, percent, epoch = _rollout(hour)
        self._rolls(hour, state, percent, epoch)
        for _ in range(round(_traffic(hour) * self.chance.uniform(0.85, 1.15))):
            self._request(hour, state, percent)
        for _ in range(60):
            lag = self.chance.expovariate(1 / 0.0005) * (1 + _traffic(hour) / 100)
            self.metrics.observe("toolgate_event_loop_lag_seconds", {}, lag)
        self.metrics.set("toolgate_event_loop_tasks", {}, round(20 + _traffic(hour) / 4))
        self.metrics.set("toolgate_active_streams", {}, round(_traffic(hour) / 12 * self.chance.uniform(0.6, 1.4)))
        self.metrics.set("toolgate_requests_in_flight", {"route": "chat"}, round(_traffic(hour) / 10))
        self.metrics.set("toolgate_store_lag_seconds", {}, self.chance.uniform(0.2, 0.26))
        self.metrics.set("toolgate_upstream_breaker_open", {"upstream": "default"}, float(3.05 < hour < 3.25))

    def _rolls(self, hour: float, state: str, percent: float, epoch: int) -> None:
        for each in _STATES:
            self.metrics.set("toolgate_rollout_state", {"state": each}, float(each == state))
        target = percent if state != "rolled_back" else 25
        for kind, share in (("target", target), ("effective", percent)):
            self.metrics.set("toolgate_rollout_percent", {"kind": kind}, share)
        self.metrics.set("toolgate_rollout_epoch", {}, epoch)
        self.metrics.inform("toolgate_rollout_epoch_info", {"epoch": str(epoch)})
        fault = max(0.0, min(1.4, (hour - 16.5) * 7)) if 16.5 <= hour < 16.75 else 0.0
        for test, level in (("arms", fault), ("transform", fault * 0.8)):
            noise = self.chance.uniform(0, 0.9) if state == "canary" else 0
            self.metrics.set("toolgate_rollout_statistic", {"test": test}, noise + level * _LIMIT)
        self.metrics.set("toolgate_rollout_statistic", {"test": "limit"}, _LIMIT)
        self.metrics.set("toolgate_rollout_slices_off", {}, float(hour >= 18))
        labels = {"strategy": "recovery", "dialect": "hermes"}
        self.metrics.set("toolgate_rollout_slice_off", labels, float(hour >= 18))
        if epoch != self.decisions:
            decision = {0: "", 1: "resume", 2: "promote", 3: "rollback", 4: "resume"}[epoch]
            self.metrics.count("toolgate_rollout_decisions_total", {"decision": decision, "reason": "none"})
            self.decisions = epoch

    def _request(self, hour: float, state: str, percent: float) -> None:
        model, strategy, _ = self._one(_MODELS)
        live = self.chance.random() * 100 < percent
        arm = "live" if live else "control" if state == "canary" else "dry_run"
        end = self._end(hour, arm)
        bad = end.startswith("upstream")
        first = self.chance.lognormvariate(-0.7, 0.55)
        own = self.chance.lognormvariate(-6.6, 0.8)
        held = self.chance.expovariate(4) if live and strategy != "native" else 0.0
        count, observe = self.metrics.count, self.metrics.observe
        labels = {"route": "chat", "stream": "true", "arm": arm}
        count("toolgate_requests_total", {**labels, "code": "2xx", "health": "unhealthy" if bad else "ok"})
        observe("toolgate_request_duration_seconds", labels, first + self.chance.lognormvariate(1.6, 0.7))
        count("toolgate_stream_ends_total", {"reason": end, "arm": arm})
        observe("toolgate_time_to_first_token_seconds", {"upstream": "default", "arm": arm}, first + own + held)
        observe("toolgate_upstream_first_token_seconds", {"upstream": "default"}, first)
        observe("toolgate_stream_gap_seconds", {"arm": arm}, self.chance.lognormvariate(-1, 0.8))
        code = "5xx" if bad else "2xx"
        count("toolgate_upstream_requests_total", {"upstream": "default", "code": code})
        duration = first + self.chance.lognormvariate(1.5, 0.7)
        observe("toolgate_upstream_request_duration_seconds", {"upstream": "default", "code": code}, duration)
        if bad and self.chance.random() < 0.5:
            count("toolgate_upstream_retries_total", {"upstream": "default", "reason": "upstream_rejected"})
        for kind, tokens in (("input", 2600), ("output", 240)):
            amount = tokens * self.chance.uniform(0.4, 1.6)
            count("toolgate_tokens_total", {"type": kind, "upstream": "default"}, amount)
        if not bad:
            self._answer(hour, model, strategy, arm)
        for phase, part in (("prepare", 0.3), ("read", 0.7), ("total", 1.0)):
            labels = {"strategy": strategy, "phase": phase}
            observe("toolgate_transform_overhead_seconds", labels, own * part)
        observe("toolgate_hold_seconds", {}, held)
        observe("toolgate_stream_held_bytes", {"family": strategy}, self.chance.lognormvariate(6, 1.2))

    def _answer(self, hour: float, model: str, strategy: str, arm: str) -> None:
        count, observe = self.metrics.count, self.metrics.observe
        dialect, _ = self._one(_DIALECTS)
        tool, _ = self._one(_TOOLS)
        broken = self.chance.random() < (0.25 if 16.5 <= hour and dialect == "python_calls" else 0.015)
        has_call = self.chance.random() < 0.6 and strategy != "native"
        outcome = "noop" if not has_call else "error" if broken else "success"
        shown = dialect if has_call else "none"
        labels = {"strategy": strategy, "dialect": shown, "arm": arm, "outcome": outcome}
        count("toolgate_transforms_total", labels)
        count("toolgate_transforms_by_model_total", {"model": model, "arm": arm, "outcome": outcome})
        if strategy == "native":
            fits = self.chance.random() < 0.94
            kind = "valid" if fits else self.chance.choice(("schema_mismatch", "schema_mismatch", "invalid_json"))
            count("toolgate_structured_calls_total", {"upstream": "default", "model": model, "class": kind})
            if not fits:
                became = {"upstream": "default", "outcome": self.chance.choice(("mended", "mended", "untouched"))}
                count("toolgate_structured_outcomes_total", became)
        if has_call:
            count("toolgate_transforms_by_tool_total", {"tool": tool, "arm": arm, "outcome": outcome})
            score = 0.97 - (0.0 if not broken else self.chance.choice((0.02, 0.08, 0.12, 0.27)))
            labels = {"strategy": strategy, "decision": "pass" if broken else "apply"}
            observe("toolgate_transform_confidence_ratio", labels, score - self.chance.choice((0, 0, 0, 0.02, 0.03)))
            self._called(arm, strategy, shown, outcome)
        if arm != "live":
            verdict = {"noop": "identical", "error": "would_fail", "success": "would_change"}[outcome]
            verdict = "ignored" if self.chance.random() < 0.01 else verdict
            count("toolgate_dryrun_verdicts_total", {"dialect": shown, "verdict": verdict})

    def _called(self, arm: str, strategy: str, dialect: str, outcome: str) -> None:
        count, chance = self.metrics.count, self.chance.random()
        if outcome == "error":
            reason = self.chance.choice(("parse", "schema_invalid", "schema_invalid", "unknown_tool"))
            count("toolgate_transform_errors_total", {"strategy": strategy, "reason": reason})
            count("toolgate_transform_skips_total", {"reason": self.chance.choice(("low_confidence", "provenance"))})
            count("toolgate_repairs_total", {"result": "repaired" if chance < 0.7 else "failed"})
        elif arm == "live":
            count("toolgate_recovered_calls_total", {"dialect": dialect})
            self.metrics.observe("toolgate_call_bytes", {"dialect": dialect}, self.chance.lognormvariate(6.5, 1.3))
            if chance < 0.02:
                count("toolgate_undeclared_calls_total", {"dialect": dialect})
            if chance < 0.01:
                count("toolgate_unfit_calls_total", {"dialect": dialect})
                count("toolgate_reasoning_calls_total", {"dialect": dialect, "arm": arm})
                count("toolgate_none_markup_total", {"dialect": dialect, "result": "kept"})
            if chance < 0.05:
                count("toolgate_dropped_text_total", {"reason": "trailing"})
                count("toolgate_native_faults_mended_total", {"fault": "missing_id"})
                count("toolgate_feedback_total", {"rating": "good" if chance < 0.045 else "bad"})
        fate = "accepted" if chance < (0.985 if arm == "live" else 0.86) else "no_tool_used"
        fate = "rejected" if fate != "accepted" and chance > 0.995 else fate
        labels = {"arm": arm, "strategy": strategy, "dialect": dialect, "outcome": fate}
        count("toolgate_outcomes_total", labels)

    def _end(self, hour: float, arm: str) -> str:
        failing = 0.004
        if 3.0 <= hour < 3.25:
            failing = 0.35
        elif 16.5 <= hour < 16.7 and arm == "live":
            failing = 0.14
        chance = self.chance.random()
        if chance < failing:
            return _ENDS[2] if chance < failing * 0.7 else _ENDS[3]
        return _ENDS[1] if chance > 0.97 else _ENDS[0]

    def _one(self, weighted: tuple[tuple[object, ...], ...]) -> tuple[str, ...]:
        return self.chance.choices(weighted, weights=[entry[-1] for entry in weighted])[0]  # type: ignore[misc, return-value]


def exposition(start: float) -> Iterator[str]:
    """The day as OpenMetrics text with timestamps, line by line."""
    values: dict[_Key, list[tuple[float, float]]] = defaultdict(list)
    for number, instance in enumerate(_WORKERS):
        worker = _Worker(instance, random.Random(number))  # noqa: S311 - the same day every time
        worker.begin(start)
        for step in range(HOURS * 3600 // STEP_S + 1):
            at = start + step * STEP_S
            worker.pass_(step * STEP_S / 3600)
            for key, value in _samples(worker):
                values[key].append((at, value))
    family = ""
    for name, kind, sample, labels in sorted(values):
        if name != family:
            family = name
            yield f"# TYPE {name} {kind}\n"
        shown = ",".join(f'{label}="{value}"' for label, value in labels)
        for at, value in values[name, kind, sample, labels]:
            yield f"{sample}{{{shown}}} {value} {at:.0f}\n"
    yield "# EOF\n"


def _samples(worker: _Worker) -> Iterable[tuple[_Key, float]]:
    where = (("instance", worker.instance), ("job", "toolgate"))
    for family in worker.metrics.registry.collect():
        if family.name.startswith("toolgate_"):
            for sample in family.samples:
                yield (family.name, family.type, sample.name, (*sorted(sample.labels.items()), *where)), sample.value
    lag = worker.metrics.registry.get_sample_value("toolgate_event_loop_lag_seconds_sum") or 0.0
    process = {
        "up": 1.0,
        "process_resident_memory_bytes": 92e6 + 4e6 * math.log1p(lag),
        "process_open_fds": 40 + (worker.metrics.registry.get_sample_value("toolgate_active_streams") or 0) * 2,
        "process_max_fds": 65536.0,
        "process_start_time_seconds": 1.0,
    }
    for name, value in process.items():
        yield (name, "gauge", name, where), value
    yield ("process_cpu_seconds", "counter", "process_cpu_seconds_total", where), lag * 40


def _rollout(hour: float) -> tuple[str, float, int]:
    """The state, the share in force and the epoch at a time of the day."""
    steps = (
        (18.0, "canary", 5.0, 4),
        (16.7, "rolled_back", 0.0, 3),
        (12.0, "canary", 25.0, 2),
        (8.0, "canary", 5.0, 1),
    )
    for since, state, percent, epoch in steps:
        if hour >= since:
            return state, percent, epoch
    return "dry_run", 0.0, 0


def _traffic(hour: float) -> float:
    """Requests per worker and step."""
    return 40 + 110 * math.exp(-((hour - 14) ** 2) / 22)
