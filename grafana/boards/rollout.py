"""The rollout: its state, its arms, its evidence."""

from panels import ALL, increase, per_second, quantile, share

from boards.parts import (
    ENDS,
    ERROR,
    FIRST,
    NO_ROLLOUT,
    NONE_YET,
    OUTCOMES,
    READ,
    REQUESTS,
    RISKY,
    TRANSFORMED,
    UNHEALTHY,
    UNHEALTHY_BY_ARM,
    Board,
    Row,
    gauge,
    panel,
    quantiles,
)

__all__ = ["ROLLOUT"]

_CHAT = 'route="chat"'
_LIVE = 'arm="live"'
_CONTROL = 'arm="control"'
_BAD_LIVE = f"{UNHEALTHY},{_LIVE}"
_BAD_CONTROL = f"{UNHEALTHY},{_CONTROL}"
_COMPARED = 'arm=~"live|control"'

_STATE = panel(
    "timeline",
    "Rollout state over time",
    "Which state each moment was in. Two rows lit at once means that workers disagree.",
    "none",
    (gauge("max by (state)", "toolgate_rollout_state") + " == 1", "{{state}}"),
    width=24,
    height=6,
    mappings={"1": ("in force", "blue")},
    no_value=NO_ROLLOUT,
)

ROLLOUT = Board(
    uid="toolgate-rollout",
    title="Toolgate / Rollout",
    description="What is live, whether it is worse than what it replaces, and what the judge makes of it.",
    range="now-24h",
    rows=[
        Row(
            title="State",
            panels=[
                _STATE,
                panel(
                    "series",
                    "Share live: target and effective",
                    "The share that was asked for and the share in force; they part after a pause, a rollback or the "
                    "kill switch.",
                    "percent",
                    (gauge("max by (kind)", "toolgate_rollout_percent"), "{{kind}}"),
                    most=100.0,
                    no_value=NO_ROLLOUT,
                ),
                panel(
                    "series",
                    "Evidence against the canary",
                    "The judge's statistics as logarithms. One that reaches the limit rolls back, if the difference is "
                    "large enough and enough conversations are hit.",
                    "none",
                    (gauge("max by (test)", "toolgate_rollout_statistic"), "{{test}}"),
                    no_value=NO_ROLLOUT,
                ),
                panel(
                    "series",
                    "Decisions",
                    "Decisions of the judge and of operators, per scrape interval.",
                    "short",
                    (
                        f"sum by (decision) (increase(toolgate_rollout_decisions_total{{{ALL}}}[$__rate_interval]))",
                        "{{decision}}",
                    ),
                    no_value="No decision",
                ),
                panel(
                    "series",
                    "Slices switched off",
                    "Strategies in a dialect that the judge, or an operator, has switched off while the rest went on: "
                    "1 for as long as it is off. `toolgate rollout status` says since when, and why.",
                    "short",
                    (gauge("max by (job)", "toolgate_rollout_slices_off"), "all"),
                    (gauge("max by (strategy, dialect)", "toolgate_rollout_slice_off"), "{{strategy}}/{{dialect}}"),
                    width=12,
                    height=6,
                    no_value=NO_ROLLOUT,
                ),
                panel(
                    "series",
                    "Workers by epoch",
                    "How many workers are in which epoch. More than one epoch for longer than a minute means that "
                    "they do not share their state.",
                    "short",
                    (f"count by (epoch) (toolgate_rollout_epoch_info{{{ALL}}})", "epoch {{epoch}}"),
                    width=12,
                    height=6,
                    stacked=True,
                    no_value=NO_ROLLOUT,
                ),
            ],
        ),
        Row(
            title="Arms side by side",
            panels=[
                UNHEALTHY_BY_ARM,
                panel(
                    "series",
                    "Outcomes rejected, by arm",
                    "Share of calls and answers that the conversation's next request told to be faulty. Live should "
                    "be far below the untouched arms.",
                    "percentunit",
                    (share(OUTCOMES, 'outcome!="accepted"', by="arm"), "{{arm}}"),
                    no_value=NONE_YET,
                ),
                panel(
                    "series",
                    "First token by arm",
                    "Time from the request to the first content byte that was sent.",
                    "s",
                    *quantiles(FIRST, "arm", 0.5, 0.95),
                ),
                panel(
                    "series",
                    "Duration by arm, p95",
                    "Time from the request's head to the answer's end.",
                    "s",
                    (quantile(0.95, "toolgate_request_duration_seconds", _CHAT, by="arm"), "{{arm}}"),
                ),
                panel(
                    "series",
                    "Stream ends other than completed",
                    "Streams per second that did not run to their end, by reason and arm.",
                    "ops",
                    (per_second(ENDS, 'reason!="completed"', by="reason, arm") + " > 0", "{{reason}} {{arm}}"),
                ),
                panel(
                    "series",
                    "Answers with a broken call, by arm",
                    "Share of answers with calls in them of which a call could not be read.",
                    "percentunit",
                    (share(TRANSFORMED, ERROR, READ, by="arm"), "{{arm}}"),
                    limits=RISKY,
                    no_value=NONE_YET,
                ),
            ],
        ),
        Row(
            title="Evidence",
            panels=[
                panel(
                    "bars",
                    "Chat requests per arm",
                    "How many requests each arm had in the time shown. Start the range at the last change to see what "
                    "this step rests on.",
                    "short",
                    (increase(REQUESTS, _CHAT, by="arm"), "{{arm}}"),
                ),
                panel(
                    "series",
                    "Observed and nominal share",
                    "Share of chat requests that was live beside the share in force. Conversations are assigned, not "
                    "requests, so small traffic wanders.",
                    "percent",
                    (
                        f"100 * {per_second(REQUESTS, _CHAT, _LIVE, of=ALL)} "
                        f"/ ({per_second(REQUESTS, _CHAT, _COMPARED, of=ALL)} > 0)",
                        "observed",
                    ),
                    (gauge("max", "toolgate_rollout_percent", 'kind="effective"'), "nominal"),
                    most=100.0,
                ),
                panel(
                    "series",
                    "Unhealthy: live less control",
                    "The difference of the two arms' unhealthy shares; below zero, live is the better one.",
                    "percentunit",
                    (
                        f"{share(REQUESTS, _BAD_LIVE, _LIVE, of=ALL)}"
                        f" - {share(REQUESTS, _BAD_CONTROL, _CONTROL, of=ALL)}",
                        "difference",
                    ),
                    no_value="One arm has no traffic",
                ),
            ],
        ),
    ],
)
