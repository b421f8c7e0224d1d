"""Evidence in, score and reasons out, in whole hundredths."""

from collections.abc import Mapping, Sequence

from attrs import frozen

from gateway.core.events import Verdict
from gateway.core.reasons import Reason
from strategies.grammar.dialect import Context, Draft
from strategies.schema.tool_schema import ToolSchema
from strategies.text.tolerant_json import CHOSEN
from strategies.text.turns import TURN, Turns, whole

__all__ = ["ANNOUNCED", "FORMS", "IN_PROSE", "UNDECLARED", "UNFIT", "Judged", "cost", "judge", "judging"]

IN_PROSE = "in_prose"
"""The form of bare data with words around it."""
ANNOUNCED = "announced_example"
"""The mend of a call that the words before it announce as an example."""
UNDECLARED = "undeclared"
"""What is said of a call of a tool that the request did not offer, in a form that leaves no doubt that it is a call."""
UNFIT = "unfit"
"""What is said of a call that its tool does not take and that the model, asked again, did not write otherwise."""

# Threshold 90 by default: `shell` and what stands in prose are below it on purpose, an operator has to ask for them.
FORMS = {
    "prompted": 99,
    "special": 99,
    "tag": 97,
    "hermes": 97,
    "function": 97,
    "invoke": 97,
    "tool_fence": 95,
    "fence": 92,
    "bare": 92,
    "pythonic": 95,
    "react": 92,
    "shell": 80,
    IN_PROSE: 70,
    "shell_lines": 70,
}
"""Base value of each form of a call."""

_FAMILY = 1
"""What it counts that the model's family writes this dialect by training."""

_CHOSEN = 7
"""For a mend that had to choose. The contract starts at 8, which no form but the prompted one survives at the default
threshold; on the labelled answers 7 recovers what was meant and makes no call of any text that is none."""
_COSTS = {
    # More than any form has above the default threshold: by itself enough to refuse.
    ANNOUNCED: 12,
    # One key with two values: https://www.rfc-editor.org/rfc/rfc8259#section-4 lets readers take either.
    "duplicate_keys": 12,
    "value_closed_by_call": 12,
    "document_closed_by_next": 12,
    "value_closed_by_next": 5,
    "value_closed_by_end": 5,
    "closer_foreign": 5,
    "in_line_of_words": 5,
    "sole_words": 5,
    # One does not make text of the barest form: OpenCode took `description` from its `bash`, and models go on to write
    # it. Two do, and four of a tag: then it is rather a call of another tool.
    "unknown_argument": 2,
    "argument_left_out": 2,
    "known_tool_only": 1,
    "call_closer_missing": 2,
    "call_closer_wrong": 2,
    "value_closer_wrong": 2,
    "parameter_chosen": 8,
    # What is only another way to write the same value says nothing against the call.
    "apostrophes": 0,
    "typed_string": 0,
    "null_dropped": 0,
    "bare_text": 0,
}
"""What these mends take off, any other 2; what only brings a value to its declared type takes nothing."""

_TYPED = frozenset({"typed_string", "null_dropped"})
"""Mends of a value's type that leave what the model wrote."""

_MANY = 10 * TURN
"""Of so small a thing as a mend that is known."""

_SHELL_FORMS = frozenset({"shell", "shell_lines"})
"""Forms that the operator switched on, with a threshold of their own."""
_IN_PLACE = frozenset({IN_PROSE, "shell_lines"})
"""Where a call stands makes it weak, whoever asked for its form."""


@frozen(kw_only=True)
class Judged:
    """The judge's word on one draft; `arguments` are final when it was accepted."""

    verdict: Verdict
    arguments: dict[str, object]
    is_as_written: bool = False
    """Nothing was mended but types, so that these are the arguments which the model wrote."""


def cost(mend: str) -> int:
    """What one mend takes off the score."""
    if mend in _COSTS:
        return _COSTS[mend]
    return _CHOSEN if mend in CHOSEN else 2


def judge(draft: Draft, context: Context, dialect: str) -> Judged:
    """Accept or refuse a draft."""
    return whole(judging(draft, context, dialect))


def judging(draft: Draft, context: Context, dialect: str) -> Turns[Judged]:
    """The same in turns."""
    tool = draft.tool
    options = context.options
    reasons: list[str] = []
    # Every step leaves its reason, with its number: an operator can add them up in the log.
    score = base(draft.form, context, dialect, reasons)
    arguments: dict[str, object] = draft.arguments
    mends: Sequence[str] = draft.mends
    fault = draft.fault
    if tool is not None:
        schema = context.schema(tool)
        filled = schema.fill_missing(draft.arguments)
        arguments = filled.arguments
        reasons.extend(filled.mends)
        arguments, unknown = yield from _taken(schema, filled.arguments)
        mends = (*mends, *unknown, *(("known_tool_only",) if tool.known else ()))
        # The first fault is told: what a value turned out to be explains more than that it does not fit.
        fault = fault or (yield from schema.checking(arguments))
    else:
        reasons.append(UNDECLARED)
    for count, mend in enumerate(mends, 1):
        if not count % _MANY:
            yield
        taken = cost(mend)
        score -= taken
        reasons.append(f"{mend} -{taken}" if taken else mend)
    name = tool.name if tool else draft.name
    threshold = options.confidence_shell if draft.form in _SHELL_FORMS else options.min_confidence
    refusal: Reason | None = None
    if fault is not None:
        refusal = Reason.SCHEMA_INVALID
    # Before the score: an operator who left a tool out should read that, not a number.
    elif not context.may_recover(name):
        refusal, fault = Reason.NOT_LISTED, "tool not in RECOVERY_TOOLS"
    elif dialect in options.dialects_off:
        refusal, fault = Reason.SLICE_OFF, Reason.SLICE_OFF.value
    elif score < threshold:
        refusal, fault = Reason.LOW_CONFIDENCE, f"confidence {score / 100:.2f} is below {threshold / 100:.2f}"
    if fault is not None:
        reasons.append(fault)
    verdict = Verdict(
        dialect=dialect,
        name=name,
        # Many unknown arguments take more than there is.
        score=max(score, 0),
        accepted=refusal is None,
        reasons=tuple(reasons),
        refusal=refusal,
        meant=True,
        threshold=threshold,
        about=_quoted_in(draft.arguments) if refusal is Reason.LOW_CONFIDENCE and "inner_quotes" in mends else "",
    )
    return Judged(verdict=verdict, arguments=arguments, is_as_written=_TYPED.issuperset(draft.mends))


def _taken(schema: ToolSchema, given: Mapping[str, object]) -> Turns[tuple[dict[str, object], list[str]]]:
    """The arguments that the schema takes, and a word for each that it does not know."""
    kept: dict[str, object] = {}
    unknown: list[str] = []
    for count, (key, value) in enumerate(given.items(), 1):
        if not count % TURN:
            yield
        takes = schema.takes(key)
        if _is_unknown(schema, key):
            unknown.append("unknown_argument" if takes else "argument_left_out")
        if takes:
            kept[key] = value
    return kept, unknown


def _quoted_in(arguments: Mapping[str, object]) -> str:
    """The one argument with quotes inside."""
    found = [key for key, value in arguments.items() if isinstance(value, str) and '"' in value]
    return found[0] if len(found) == 1 else ""


def _is_unknown(schema: ToolSchema, key: str) -> bool:
    """Whether the schema says what parameters there are, and this is none of them."""
    if schema.declares(key):
        return False
    return bool(schema.properties) or not schema.takes(key)


def base(form: str, context: Context, dialect: str, reasons: list[str]) -> int:
    """The base value of a form; the prompted dialect and the model family's own count highest."""
    options = context.options
    if context.prompted == dialect and form not in _IN_PLACE:
        form = "prompted"
    # The settings' own number, so the family's bonus must not be added to it.
    elif form == "tool_fence":
        reasons.append(f"{form} {options.confidence_json_block}")
        return options.confidence_json_block
    elif form == "shell":
        reasons.append(f"{form} {options.confidence_shell}")
        return options.confidence_shell
    score = FORMS[form]
    reasons.append(f"{form} {score}")
    # The highest forms stay at 99: nothing is certain but a structured call.
    if dialect in context.family and score < FORMS["special"]:
        score += _FAMILY
        reasons.append(f"family +{_FAMILY}")
    return score
