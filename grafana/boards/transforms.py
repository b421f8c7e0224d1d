"""What became of calls written as text."""

from panels import ALL, increase, per_second, share

from boards.parts import (
    BY_MODEL,
    ERROR,
    NONE_YET,
    OUTCOMES,
    OVERHEAD,
    READ,
    RISKY,
    TRANSFORMED,
    Board,
    Row,
    panel,
    quantiles,
)

__all__ = ["TRANSFORMS"]

_GOOD = ((None, "red"), (0.9, "orange"), (0.95, "green"))
_CONFIDENCE = "toolgate_transform_confidence_ratio"
_SUCCESS = 'outcome="success"'
BY_MODELS = "toolgate_transforms_by_model_total"
STRUCTURED = "toolgate_structured_calls_total"
_TOTAL = 'phase="total"'
_UP_TO_80 = 'le="0.8"'
_UP_TO_95 = 'le="0.95"'
_WITHIN = 'phase="total",le="0.05"'

TRANSFORMS = Board(
    uid="toolgate-transforms",
    title="Toolgate / Transforms",
    description="What became of the calls that models wrote as text, and what that cost.",
    rows=[
        Row(
            title="Leaks by model",
            panels=[
                panel(
                    "bars",
                    "Leak rate by model",
                    "Of a model's answers to requests with tools, the share that wrote a call as text, whether it "
                    "could be read or not, in the time shown.",
                    "percentunit",
                    (
                        f"topk(15, {increase(BY_MODELS, READ, by='model')} / ({increase(BY_MODELS, by='model')} > 0))",
                        "{{model}}",
                    ),
                    limits=((None, "green"), (0.1, "orange"), (0.5, "red")),
                    most=1.0,
                    looks=BY_MODEL,
                ),
                panel(
                    "series",
                    "Leak rate over time",
                    "The same, over time: a line that jumps is a model, a template or a server that was changed.",
                    "percentunit",
                    (share(BY_MODELS, READ, by="model"), "{{model}}"),
                    most=1.0,
                    looks=BY_MODEL,
                ),
                panel(
                    "series",
                    "Leaks that stayed text",
                    "Answers per second with a call as text that could not be read: the agent sees it as markup.",
                    "ops",
                    (per_second(BY_MODELS, ERROR, by="model"), "{{model}}"),
                    looks=BY_MODEL,
                    no_value=NONE_YET,
                ),
            ],
        ),
        Row(
            title="Structured calls",
            panels=[
                panel(
                    "series",
                    "Valid-call rate by model",
                    "Of the calls that model servers made themselves, the share that their tools take, as they came.",
                    "percentunit",
                    (share(STRUCTURED, 'class="valid"', by="model", of=ALL), "{{model}}"),
                    most=1.0,
                    limits=_GOOD,
                    looks=BY_MODEL,
                ),
                panel(
                    "series",
                    "Structured calls by class",
                    "Calls per second that model servers made themselves: valid, no JSON, a tool that was not offered, "
                    "arguments that do not fit.",
                    "ops",
                    (per_second(STRUCTURED, by="class", of=ALL), "{{class}}"),
                    colours={
                        "valid": "green",
                        "schema_mismatch": "orange",
                        "invalid_json": "red",
                        "unknown_name": "red",
                    },
                    no_value=NONE_YET,
                ),
                panel(
                    "series",
                    "What became of misfits",
                    "Structured calls per second that did not fit: mended, supplied by the text beside, asked again, "
                    "untouched, or found out when they had gone out.",
                    "ops",
                    (per_second("toolgate_structured_outcomes_total", by="outcome", of=ALL), "{{outcome}}"),
                    colours={"mended": "green", "supplied": "green", "untouched": "orange", "late": "red"},
                    no_value=NONE_YET,
                ),
            ],
        ),
        Row(
            title="Outcomes",
            panels=[
                panel(
                    "series",
                    "Answers read, by outcome",
                    "Answers per second: with a call delivered, without a call, or with one that could not be read.",
                    "ops",
                    (per_second(TRANSFORMED, by="outcome"), "{{outcome}}"),
                    stacked=True,
                ),
                panel(
                    "table",
                    "Success by strategy and dialect",
                    "Of the answers with calls in them, the share of which a call was read, in the time shown.",
                    "percentunit",
                    f"{increase(TRANSFORMED, _SUCCESS, by='strategy, dialect')}"
                    f" / ({increase(TRANSFORMED, READ, by='strategy, dialect')} > 0)",
                    width=16,
                    limits=_GOOD,
                    matrix=("dialect", "strategy"),
                    no_value="-",
                ),
                panel(
                    "bars",
                    "Tools with most errors",
                    "Candidates that stayed text, by the tool that they named, in the time shown.",
                    "short",
                    (
                        f"topk(10, {increase('toolgate_transforms_by_tool_total', ERROR, by='tool')} > 0)",
                        "{{tool}}",
                    ),
                    no_value=NONE_YET,
                ),
                panel(
                    "bars",
                    "Models with the highest error share",
                    "Of the answers with calls in them, the share with a broken one; only models with more than 50 "
                    "answers in the time shown.",
                    "percentunit",
                    (
                        f"topk(10, {increase('toolgate_transforms_by_model_total', ERROR, by='model')}"
                        f" / ({increase('toolgate_transforms_by_model_total', READ, by='model')} > 0)"
                        f" and {increase('toolgate_transforms_by_model_total', by='model')} > 50)",
                        "{{model}}",
                    ),
                    limits=RISKY,
                    most=1.0,
                    no_value="Too few answers",
                ),
                panel(
                    "series",
                    "Outcomes of calls",
                    "Calls per second, as the next request told: accepted, rejected, or no tool used.",
                    "ops",
                    (per_second(OUTCOMES, by="outcome"), "{{outcome}}"),
                    no_value=NONE_YET,
                ),
            ],
        ),
        Row(
            title="Errors and skips by reason",
            panels=[
                panel(
                    "series",
                    "Errors by reason",
                    "Candidates per second that could not become a call.",
                    "ops",
                    (per_second("toolgate_transform_errors_total", by="reason", of=ALL), "{{reason}}"),
                    no_value=NONE_YET,
                ),
                panel(
                    "series",
                    "Left alone on purpose",
                    "Candidates per second that could be read and were left as text, by reason.",
                    "ops",
                    (per_second("toolgate_transform_skips_total", by="reason", of=ALL), "{{reason}}"),
                    no_value=NONE_YET,
                ),
                panel(
                    "series",
                    "Repairs",
                    "Broken calls asked for again per second, and turns that the model server's own parser swallowed, "
                    "by what came of it.",
                    "ops",
                    (per_second("toolgate_repairs_total", by="result", of=ALL), "{{result}}"),
                    (per_second("toolgate_rescues_total", by="face, result", of=ALL), "{{face}} {{result}}"),
                    no_value=NONE_YET,
                ),
                panel(
                    "series",
                    "Native tools given up",
                    "Models per second that were given described tools instead of native ones, by reason.",
                    "ops",
                    (
                        per_second("toolgate_native_fallbacks_total", by="upstream, reason", of=ALL),
                        "{{upstream}} {{reason}}",
                    ),
                    no_value=NONE_YET,
                ),
                panel(
                    "series",
                    "Mended and dropped",
                    "Wire faults of structured calls mended, and pieces of text dropped, per second.",
                    "ops",
                    (per_second("toolgate_native_faults_mended_total", by="fault", of=ALL), "mended {{fault}}"),
                    (per_second("toolgate_dropped_text_total", by="reason", of=ALL), "dropped {{reason}}"),
                    no_value=NONE_YET,
                ),
                panel(
                    "series",
                    "Calls outside the rules",
                    "Calls per second of tools that the request did not declare, calls that their tool does not take "
                    "and that went out after asking again, calls behind the first that were not delivered, calls in "
                    "answers to requests without tools, those that stood in reasoning, and markup where calls were "
                    "forbidden.",
                    "ops",
                    (per_second("toolgate_undeclared_calls_total", of=ALL), "undeclared"),
                    (per_second("toolgate_unfit_calls_total", of=ALL), "unfit"),
                    (per_second("toolgate_undelivered_calls_total", of=ALL), "not delivered"),
                    (per_second("toolgate_overheard_calls_total", of=ALL), "overheard"),
                    (per_second("toolgate_reasoning_calls_total", of=ALL), "in reasoning"),
                    (per_second("toolgate_none_markup_total", of=ALL), "forbidden"),
                    no_value=NONE_YET,
                ),
            ],
        ),
        Row(
            title="Confidence",
            panels=[
                panel(
                    "heatmap",
                    "Confidence of candidates",
                    "How many candidates got which score. A cloud just below the threshold asks for a look at records.",
                    "percentunit",
                    (f"sum by (le) (increase({_CONFIDENCE}_bucket{{{ALL}}}[$__rate_interval]))", "{{le}}"),
                    width=12,
                    no_value=NONE_YET,
                ),
                panel(
                    "series",
                    "Applied and passed near the threshold",
                    "Candidates per second that scored above 0.80 and at most 0.95, by what was decided.",
                    "ops",
                    (
                        f"{per_second(_CONFIDENCE + '_bucket', _UP_TO_95, by='decision', of=ALL)}"
                        f" - {per_second(_CONFIDENCE + '_bucket', _UP_TO_80, by='decision', of=ALL)}",
                        "{{decision}}",
                    ),
                    width=12,
                    no_value=NONE_YET,
                ),
            ],
        ),
        Row(
            title="Overhead",
            panels=[
                panel(
                    "series",
                    "Added time by phase",
                    "Time that the gateway itself spent on a request.",
                    "s",
                    *quantiles(OVERHEAD, "phase", 0.5, 0.95, 0.99, of=ALL),
                    limits=((None, "green"), (0.05, "red")),
                ),
                panel(
                    "series",
                    "Requests above 50 ms",
                    "Share of requests to which the gateway added more than its budget of 50 ms.",
                    "percentunit",
                    (
                        f"1 - {per_second(OVERHEAD + '_bucket', _WITHIN, by='strategy', of=ALL)}"
                        f" / ({per_second(OVERHEAD + '_count', _TOTAL, by='strategy', of=ALL)} > 0)",
                        "{{strategy}}",
                    ),
                    limits=RISKY,
                ),
                panel(
                    "series",
                    "Size of delivered arguments",
                    "Bytes of arguments per delivered call.",
                    "bytes",
                    *quantiles("toolgate_call_bytes", "", 0.5, 0.95, of=ALL),
                    no_value=NONE_YET,
                ),
            ],
        ),
    ],
)
