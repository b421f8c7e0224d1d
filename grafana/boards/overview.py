"""What runs, how well, how fast."""

from panels import ALL, increase, per_second, quantile, share

from boards.parts import (
    BY_DIALECT,
    INSPECTOR,
    NO_ROLLOUT,
    NONE_YET,
    OUTCOMES,
    REQUESTS,
    RISKY,
    UNHEALTHY,
    UNHEALTHY_BY_ARM,
    Board,
    Row,
    gauge,
    panel,
    quantiles,
)

__all__ = ["OVERVIEW"]

_FITTED = 'outcome=~"mended|supplied"'
_BACK = 'result=~"read|asked"'


def _day(metric: str, *matchers: str) -> str:
    """By how much a counter grew in the last 24 hours."""
    return increase(metric, *matchers, of=ALL).replace("[$__range]", "[24h]")


_NOW = Row(
    title="Now",
    panels=[
        panel(
            "stat",
            "Requests",
            "Requests answered per second, all routes, in the selected arms.",
            "reqps",
            per_second(REQUESTS),
            width=4,
            height=5,
        ),
        panel(
            "stat",
            "Unhealthy share",
            "Share of requests that ended in a fault of the gateway or of a model server.",
            "percentunit",
            share(REQUESTS, UNHEALTHY),
            width=4,
            height=5,
            limits=RISKY,
        ),
        panel(
            "stat",
            "Active streams",
            "Streams being answered at this moment.",
            "short",
            gauge("sum", "toolgate_active_streams"),
            width=4,
            height=5,
            no_value="No worker",
        ),
        panel(
            "stat",
            "Share in canary",
            "Share of conversations that is live, as the rollout has it in force.",
            "percent",
            gauge("max", "toolgate_rollout_percent", 'kind="effective"'),
            width=4,
            height=5,
            no_value=NO_ROLLOUT,
        ),
        panel(
            "stat",
            "Rollout state",
            "The state that the rollout is in.",
            "none",
            (gauge("max by (state)", "toolgate_rollout_state") + " == 1", "{{state}}"),
            width=4,
            height=5,
            no_value=NO_ROLLOUT,
        ),
        panel(
            "stat",
            "Workers up",
            "Workers that answered the last scrape.",
            "short",
            gauge("sum", "up"),
            width=4,
            height=5,
            limits=((None, "red"), (1.0, "green")),
            no_value="No worker",
        ),
    ],
)
_BROUGHT = Row(
    title="What Toolgate brought in the last 24 hours",
    panels=[
        panel(
            "stat",
            "Calls that the agent would not have had",
            "Calls that models wrote as text and that were delivered, and structured ones that did not fit and were "
            "mended; in the last 24 hours, whatever range is shown.",
            "short",
            f"({_day('toolgate_recovered_calls_total')} or on () vector(0))"
            f" + ({_day('toolgate_structured_outcomes_total', _FITTED)} or on () vector(0))",
            width=6,
            height=5,
            looks=(("The report", "${report}#models"),),
            no_value=NONE_YET,
        ),
        panel(
            "stat",
            "Written as text, delivered",
            "Of them, calls that a model wrote as text.",
            "short",
            _day("toolgate_recovered_calls_total"),
            width=6,
            height=5,
            looks=(("Recovered answers, in the inspector", f"{INSPECTOR}outcome:recovered"),),
            no_value=NONE_YET,
        ),
        panel(
            "stat",
            "Structured, mended",
            "Of them, structured calls that did not fit and were mended, or supplied by the text beside them.",
            "short",
            _day("toolgate_structured_outcomes_total", _FITTED),
            width=6,
            height=5,
            no_value=NONE_YET,
        ),
        panel(
            "stat",
            "Swallowed turns, brought back",
            "Turns that the model server's own parser had swallowed, read again or asked for again.",
            "short",
            _day("toolgate_rescues_total", _BACK),
            width=6,
            height=5,
            no_value=NONE_YET,
        ),
    ],
)
_RED = Row(
    title="Rate, errors, duration by arm",
    panels=[
        panel(
            "series",
            "Requests by arm",
            "Requests per second, stacked by arm.",
            "reqps",
            (per_second(REQUESTS, by="arm"), "{{arm}}"),
            stacked=True,
        ),
        UNHEALTHY_BY_ARM,
        panel(
            "series",
            "Duration by arm",
            "Time from the request's head to the answer's end; mostly the model's own time.",
            "s",
            *quantiles("toolgate_request_duration_seconds", "arm", 0.5, 0.95),
        ),
        panel(
            "series",
            "Requests by status class",
            "Answers per second by the status class that the client saw. Each stands by itself: a fault must not look "
            "like traffic.",
            "reqps",
            (per_second(REQUESTS, by="code"), "{{code}}"),
            colours={"2xx": "green", "4xx": "orange", "5xx": "red"},
        ),
        panel(
            "series",
            "Recovered calls by dialect",
            "Calls per second that a model wrote as text and the client received as calls.",
            "ops",
            (per_second("toolgate_recovered_calls_total", by="dialect", of=ALL), "{{dialect}}"),
            looks=BY_DIALECT,
            no_value=NONE_YET,
            stacked=True,
        ),
        panel(
            "series",
            "Outcomes rejected, by arm",
            "Share of calls and answers of which the conversation's next request told that they were faulty or that no "
            "tool was used.",
            "percentunit",
            (share(OUTCOMES, 'outcome!="accepted"', by="arm"), "{{arm}}"),
            limits=RISKY,
            no_value=NONE_YET,
        ),
        panel(
            "series",
            "Broken calls asked for again",
            "Repairs per second, by what came of them.",
            "ops",
            (per_second("toolgate_repairs_total", by="result", of=ALL), "{{result}}"),
            width=12,
            height=6,
            no_value=NONE_YET,
        ),
        panel(
            "series",
            "Ratings",
            "Ratings of answers that clients gave, in the time shown.",
            "short",
            (increase("toolgate_feedback_total", by="rating", of=ALL), "{{rating}}"),
            width=12,
            height=6,
            no_value=NONE_YET,
        ),
    ],
)
_UPSTREAMS = Row(
    title="Model servers",
    panels=[
        panel(
            "series",
            "Upstream requests",
            "Requests to model servers per second, by status class.",
            "reqps",
            (per_second("toolgate_upstream_requests_total", by="upstream, code", of=ALL), "{{upstream}} {{code}}"),
            colours={"/ 2xx$/": "green", "/ 4xx$/": "orange", "/ 5xx$/": "red"},
        ),
        panel(
            "series",
            "Upstream time, p95",
            "Time that model servers took for an answer.",
            "s",
            (quantile(0.95, "toolgate_upstream_request_duration_seconds", by="upstream", of=ALL), "{{upstream}}"),
        ),
        panel(
            "series",
            "Retries",
            "Repeated requests to model servers per second, by reason.",
            "ops",
            (per_second("toolgate_upstream_retries_total", by="upstream, reason", of=ALL), "{{upstream}} {{reason}}"),
            no_value=NONE_YET,
        ),
        panel(
            "timeline",
            "Left alone after failures",
            "Model servers whose circuit breaker is open in at least one worker.",
            "none",
            (gauge("max by (upstream)", "toolgate_upstream_breaker_open"), "{{upstream}}"),
            width=12,
            height=6,
            mappings={"0": ("in use", "green"), "1": ("left alone", "red")},
        ),
        panel(
            "series",
            "Tokens",
            "Tokens per second as model servers reported them.",
            "short",
            (per_second("toolgate_tokens_total", by="type, upstream", of=ALL), "{{upstream}} {{type}}"),
            width=12,
            height=6,
        ),
    ],
)
_PROCESS = Row(
    title="Process",
    panels=[
        panel(
            "series",
            "Event loop lag, p99",
            "How late timers ran. Lag is time in which a worker answers nobody.",
            "s",
            (quantile(0.99, "toolgate_event_loop_lag_seconds", by="instance", of=ALL), "{{instance}}"),
            limits=((None, "green"), (0.1, "red")),
            no_value="No worker",
        ),
        panel(
            "series",
            "Memory",
            "Resident memory of each worker.",
            "bytes",
            (gauge("sum by (instance)", "process_resident_memory_bytes"), "{{instance}}"),
            no_value="No worker",
        ),
        panel(
            "series",
            "Processor",
            "Processor seconds per second of each worker; 1 is a whole core, and a worker has no more.",
            "short",
            (per_second("process_cpu_seconds_total", by="instance", of=ALL), "{{instance}}"),
            most=1.0,
            no_value="No worker",
        ),
        panel(
            "series",
            "Open descriptors",
            "Share of the permitted open files and sockets that is in use.",
            "percentunit",
            (
                f"max by (instance) (process_open_fds{{{ALL}}} / process_max_fds{{{ALL}}})",
                "{{instance}}",
            ),
            limits=((None, "green"), (0.8, "red")),
            no_value="No worker",
        ),
        panel(
            "series",
            "Restarts",
            "Starts of workers in the last ten minutes.",
            "short",
            (f"sum by (instance) (changes(process_start_time_seconds{{{ALL}}}[10m]))", "{{instance}}"),
            no_value="No worker",
        ),
        panel(
            "series",
            "Store lag",
            "Age of the oldest record that waits to be written. Requests do not wait for it.",
            "s",
            (gauge("max by (instance)", "toolgate_store_lag_seconds"), "{{instance}}"),
            no_value="No worker",
        ),
        panel(
            "series",
            "Lost on the way",
            "Records, log lines and label values per second that were dropped or folded to protect the requests, and "
            "operations on the store that failed.",
            "ops",
            (per_second("toolgate_shared_state_errors_total", by="op", of=ALL), "store {{op}}"),
            (per_second("toolgate_store_records_lost_total", by="reason", of=ALL), "record {{reason}}"),
            (per_second("toolgate_log_events_dropped_total", by="reason", of=ALL), "log line {{reason}}"),
            (per_second("toolgate_label_overflows_total", by="label", of=ALL), "label {{label}}"),
            width=12,
        ),
        panel(
            "table",
            "Versions and settings",
            "What runs on each worker. More than one version or hash means that a worker was left behind.",
            "none",
            f"toolgate_build_info{{{ALL}}} * on (job, instance) group_left (hash, mode) toolgate_config_info{{{ALL}}}",
            width=12,
            no_value="No worker",
        ),
        panel(
            "timeline",
            "Store and settings",
            "Whether each worker reaches the store, and whether it took the last settings that it was given.",
            "none",
            (gauge("min by (instance)", "toolgate_shared_state_up"), "store, {{instance}}"),
            (gauge("min by (instance)", "toolgate_config_last_reload_successful"), "settings, {{instance}}"),
            width=16,
            height=6,
            mappings={"0": ("failed", "red"), "1": ("well", "green")},
            no_value="No worker",
        ),
        panel(
            "stat",
            "Settings in force for",
            "Time since a worker last took new settings, or started.",
            "s",
            f"time() - max (toolgate_config_last_reload_timestamp_seconds{{{ALL}}})",
            height=6,
            no_value="No worker",
        ),
    ],
)

OVERVIEW = Board(
    uid="toolgate-overview",
    title="Toolgate / Overview",
    description="Is it up, is it well, who answers slowly.",
    rows=[_NOW, _BROUGHT, _RED, _UPSTREAMS, _PROCESS],
    range="now-3h",
)
