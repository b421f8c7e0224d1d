"""Every "why?" in one sentence with the facts in it: log, `try`, records, report and inspector say it in these words.

A sentence is made of what the verdict holds. It may quote names that the model wrote, so whoever shows or keeps it
treats it as model text.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from attrs import frozen

from gateway.core.events import Verdict
from gateway.core.reasons import Reason

__all__ = [
    "FORM_WORDS",
    "MENDS",
    "REASON_WORDS",
    "Step",
    "Why",
    "furthest",
    "reason_of",
    "step_of",
    "told_mends",
    "why",
]

_MOST_NAMED = 8
_MOST_CHARS = 120
"""Of anything that is quoted."""
_ENDS = {"length": "was cut by its length limit", "content_filter": "was cut by a content filter"}


REASON_WORDS: Mapping[str, str] = {
    Reason.INTERNAL: "the reader failed",
    Reason.PARSE: "its markup could not be read",
    Reason.NOT_CLOSED: "a part of it was never closed",
    Reason.CUT: "the answer was cut inside it",
    Reason.TOO_LARGE: "it is larger than a call may be",
    Reason.SCHEMA_INVALID: "its arguments do not fit the tool",
    Reason.UNKNOWN_TOOL: "it names no tool that is known",
    Reason.NOT_LISTED: "its tool is none of those that may be recovered",
    Reason.LOW_CONFIDENCE: "its score is below the threshold",
    Reason.PROVENANCE: "it quotes what the client had sent",
    Reason.SLICE_OFF: "its dialect is switched off",
    Reason.UNSAYABLE: "the client's own form cannot say it",
    "timeout": "reading took too long",
}
"""What each reason says of many candidates at once."""


MENDS = {
    "announced_example": "the words before it announce an example",
    "apostrophes": "apostrophes stand where JSON has quotes",
    "argument_beside": "an argument was written beside the others",
    "argument_left_out": "an argument is left out that the tool does not take",
    "bad_escape": "{of} has an escape that JSON does not know",
    "bare_argument": "the argument was written without its name",
    "bare_text": "the text of {of} was written without quotes",
    "call_closer_missing": "the call's closing tag is missing",
    "call_closer_wrong": "the call was closed by another tag",
    "call_opener_broken": "the call's opening tag is broken",
    "call_opener_missing": "the call's opening tag is missing",
    "closer_foreign": "{of} was closed by another dialect's tag",
    "closer_repeated": "a closing tag was written twice",
    "comment": "a comment stands in it",
    "control_chars": "line breaks or control characters in {of} were not escaped",
    "document_closed_by_next": "the text of {of} was ended only by what follows it",
    "doubled_braces": "its braces were written twice, as in a template",
    "doubled_tag": "a tag was written twice",
    "duplicate_keys": "a key was written twice, with two values",
    "element_unwrapped": "{of} was wrapped in another tag",
    "entities": "{of} was written with entities",
    "fence_stripped": "a code fence stood around {of}",
    "frame_closer_missing": "the frame's closing tag is missing",
    "function_tag": "the tag around the function is broken",
    "function_word": "the function was closed by its own name",
    "html_escaped": "it was written with entities of HTML",
    "escaped_twice": "its quotes were escaped as if all of it were a text",
    "huge_number": "a number is longer than numbers are",
    "in_reasoning": "it stood in a field of reasoning, and was all of the answer",
    "in_line_of_words": "it stands in a line of words",
    "inner_quotes": "quotes inside {of} were not escaped",
    "item_unwrapped": "the items of {of} were wrapped in other tags",
    "key_repeated": "a key was written twice",
    "key_tag": "the tags around a key are broken",
    "key_without_value": "a key has no value",
    "known_tool_only": "the tool is well known but was not offered",
    "leading_zero": "a number begins with a zero",
    "literal_newline": "line breaks were written as \\n",
    "message_around": "a whole message was written around it",
    "missing_braces": "closing braces are missing",
    "missing_bracket": "a closing bracket is missing",
    "missing_brackets": "closing brackets are missing",
    "missing_comma": "a comma is missing",
    "missing_quote": "a quote is missing",
    "name_alias": "the tool goes by another name",
    "name_case": "the tool's name is written in another case",
    "name_cleaned": "the tool's name had other signs around it",
    "name_folded": "the tool's name is spelt in another way",
    "name_prefix": "the tool's name has a prefix",
    "names_as_text": "parameters were named by the word parameter",
    "non_finite": "a number is none that JSON knows",
    "none_markup": "the request forbids calls",
    "null_dropped": "a parameter that was given as null was left out",
    "null_filled": "a parameter that may be null was left out",
    "default_filled": "a parameter that has a default was left out",
    "number_as_text": "{of} was written as a number",
    "odd_space": "it holds white space that JSON does not know",
    "parameter_alias": "a parameter goes by another name",
    "parameter_case": "a parameter's name is written in another case",
    "parameter_chosen": "a parameter was given twice, with two values",
    "parameter_repeated": "a parameter was given twice",
    "parameter_tag": "a parameter's opening tag is broken",
    "prototype_key": "a key that no tool may be given was left out",
    "python_literal": "a value is written as Python does",
    "python_value": "a value is written as Python does",
    "quoted_call": "the call stands in quotes",
    "smart_quotes": "it is written with typographic quotes",
    "sole_words": "the only argument was written as plain words",
    "stray_closer": "a closing tag too many stands in it",
    "stringified": "the arguments are a text that holds JSON",
    "surplus_braces": "there are closing braces too many",
    "tool_name": "the tool's name was given apart",
    "trailing_comma": "a comma stands before a closing brace",
    "truncated": "it ends before it is complete",
    "typed_string": "a value was written as text and has the type that the tool wants now",
    "undeclared": "the request did not offer the tool",
    "unfit": "its tool does not take it, and the model, asked again, did not write it otherwise",
    "unknown_argument": "it has an argument that the tool does not name",
    "unknown_sibling": "a call beside it names a tool that is not known",
    "unquoted_keys": "keys are written without quotes",
    "value_closed_by_call": "{of} was not closed before the call's end",
    "value_closed_by_end": "{of} was not closed before the answer's end",
    "value_closed_by_next": "{of} was not closed before the next one",
    "value_closer_wrong": "{of} was closed by another tag",
    "value_tag": "the tags around a value are broken",
    "wrapped": "the arguments were wrapped once more",
}
"""What had to be mended in a call, by the codes of verdicts; `{of}` is the parameter that it concerns, if known."""
FORM_WORDS: Mapping[str, str] = {
    "prompted": "the form that the model had been asked to write",
    "special": "the model's own tokens for a call",
    "tag": "a tag named like the tool",
    "hermes": "JSON between tags of a call",
    "function": "a function's tag with its parameters",
    "invoke": "an invoke tag with its parameters",
    "tool_fence": "a code fence that names the tool",
    "fence": "JSON in a code fence",
    "bare": "JSON that stands alone",
    "pythonic": "a call as Python writes it",
    "react": "lines of action and input",
    "shell": "a command in a code fence",
    "in_prose": "a form that stands in prose",
    "shell_lines": "lines of a shell",
    "family": "models of this family write it by training",
}
"""What the base value of a score is given for."""

_STEP = re.compile(r"([a-z][a-z_]*)(?: ([+-]?[0-9]+))?")
_DEDUCTION = re.compile(r"([a-z_]+) -([0-9]+)")
_MOST_MENDS = 4


@frozen
class Step:
    """One of the reasons of a verdict, for a person."""

    words: str
    code: str = ""
    """The word that log and metrics have for it."""
    points: int | None = None
    """What it adds or takes, in hundredths."""


def step_of(reason: str) -> Step:
    """What a reason of a verdict says; one that is no code says it already."""
    found = _STEP.fullmatch(reason)
    if found is None:
        return Step(reason)
    code, points = found[1], None if found[2] is None else int(found[2])
    words = MENDS.get(code) or FORM_WORDS.get(code) or REASON_WORDS.get(code)
    if words is None:
        # Strategies from elsewhere tell reasons in words of their own; only what looks like a code is taken for one.
        return Step(reason) if points is None and "_" not in code else Step(code.replace("_", " "), code, points)
    return Step(words.format(of="a value"), code, points)


@frozen(kw_only=True)
class Why:
    """Why a candidate became no call."""

    reason: Reason
    sentence: str
    setting: str = ""
    """`NAME=value` of the setting under which it had become one, where there is such a setting."""


def reason_of(verdict: Verdict) -> Reason:
    """Why a candidate stayed text; where a strategy of somebody else's does not say, how far it came tells."""
    if verdict.refusal is not None:
        return verdict.refusal
    return Reason.SCHEMA_INVALID if verdict.score else Reason.PARSE


def why(verdict: Verdict, finish: str | None = None) -> Why:
    """Why this candidate stayed text; `finish` is the finish reason of its answer."""
    reason = reason_of(verdict)
    setting = _setting(verdict, reason)
    sentence = _SENTENCES[reason](verdict, finish)
    if setting:
        sentence = f"{sentence} (with {setting} it is a call)"
    return Why(reason=reason, sentence=sentence, setting=setting)


def furthest(verdicts: list[Verdict]) -> Verdict:
    """Of several readings of one span the one that says most of it: one that was meant, named and read furthest."""
    return max(
        verdicts, key=lambda each: (each.meant, each.score, bool(each.name), reason_of(each) is not Reason.PARSE)
    )


def _setting(verdict: Verdict, reason: Reason) -> str:
    match reason:
        # Commands of a shell are never taken for calls by a lower threshold: they are run.
        case Reason.LOW_CONFIDENCE if not verdict.dialect.startswith("shell"):
            return f"TRANSFORM_MIN_CONFIDENCE={verdict.score / 100:.2f}"
        case Reason.TOO_LARGE:
            return "a larger TOOL_CALLING_MAX_CALL_BYTES"
        case Reason.NOT_LISTED if verdict.name:
            return f"{_shown(verdict.name)} in RECOVERY_TOOLS"
        case _:
            return ""


def _internal(verdict: Verdict, _finish: str | None) -> str:
    return "reading the answer came upon a fault of the gateway's own, so all of it went out as it came"


def _parse(verdict: Verdict, _finish: str | None) -> str:
    if not verdict.meant:
        return f"there is no call in it that {_dialect(verdict)} could read ({_words(verdict)})"
    return f"{_call(verdict)} could not be read: {_words(verdict)}"


def _not_closed(verdict: Verdict, _finish: str | None) -> str:
    return f"{_call(verdict)} is not complete: {_words(verdict)}"


def _cut(verdict: Verdict, finish: str | None) -> str:
    return f"the answer {_ENDS.get(finish or '', 'was cut off')} inside {_call(verdict)}"


def _too_large(verdict: Verdict, _finish: str | None) -> str:
    return f"{_call(verdict)} is longer than a call may be"


def _schema_invalid(verdict: Verdict, _finish: str | None) -> str:
    return f"the arguments of {_call(verdict)} do not fit: {_words(verdict)}"


def _unknown_tool(verdict: Verdict, _finish: str | None) -> str:
    named = _quoted(verdict.name) if verdict.name else "the tool that is called"
    offered = verdict.offered
    if not offered:
        return f"{named} is none of the tools offered"
    shown = ", ".join(_shown(name) for name in offered[:_MOST_NAMED]) + (", ..." if len(offered) > _MOST_NAMED else "")
    if len(offered) == 1:
        return f"{named} is not the one tool offered ({shown})"
    return f"{named} is none of the {len(offered)} tools offered ({shown})"


def _not_listed(verdict: Verdict, _finish: str | None) -> str:
    return f"{_quoted(verdict.name)} is none of the tools in RECOVERY_TOOLS"


def _low_confidence(verdict: Verdict, _finish: str | None) -> str:
    said = f"{verdict.score / 100:.2f} is below {verdict.threshold / 100:.2f}"
    told = told_mends(verdict.reasons, verdict.about)
    return f"{said}: {told}" if told else f"{said}, the most that {_dialect(verdict)} is worth here"


def _provenance(verdict: Verdict, _finish: str | None) -> str:
    return f"{_call(verdict)} repeats what the client had sent, so it is a quotation"


def _slice_off(verdict: Verdict, _finish: str | None) -> str:
    return f"calls in {_dialect(verdict)} are switched off, as they fared worse than untouched answers"


def _unsayable(verdict: Verdict, _finish: str | None) -> str:
    return f"the client's own tags cannot say {_call(verdict)}"


_SENTENCES: dict[Reason, Callable[[Verdict, str | None], str]] = {
    Reason.INTERNAL: _internal,
    Reason.PARSE: _parse,
    Reason.NOT_CLOSED: _not_closed,
    Reason.CUT: _cut,
    Reason.TOO_LARGE: _too_large,
    Reason.SCHEMA_INVALID: _schema_invalid,
    Reason.UNKNOWN_TOOL: _unknown_tool,
    Reason.NOT_LISTED: _not_listed,
    Reason.LOW_CONFIDENCE: _low_confidence,
    Reason.PROVENANCE: _provenance,
    Reason.SLICE_OFF: _slice_off,
    Reason.UNSAYABLE: _unsayable,
}


def _call(verdict: Verdict) -> str:
    return f"the call of {_quoted(verdict.name)}" if verdict.name else "a call"


def _dialect(verdict: Verdict) -> str:
    return verdict.dialect if verdict.dialect not in ("", "none") else "any dialect"


def _words(verdict: Verdict) -> str:
    # The last reason is the one that decided.
    words = verdict.reasons[-1] if verdict.reasons else "no dialect reads it"
    return words if len(words) <= 2 * _MOST_CHARS else words[: 2 * _MOST_CHARS] + "..."


def _shown(name: str) -> str:
    return name if len(name) <= _MOST_CHARS else name[:_MOST_CHARS] + "..."


def _quoted(name: str) -> str:
    return f"`{_shown(name)}`"


def told_mends(reasons: Iterable[str], about: str = "") -> str:
    """What took something off the score, in words, the costliest first; empty where nothing did."""
    found = [(int(match[2]), match[1]) for reason in reasons if (match := _DEDUCTION.fullmatch(reason))]
    costliest = dict.fromkeys(code for _, code in sorted(found, key=lambda each: -each[0]))
    of = f"`{about[:120]}`" if about else "a value"
    return "; ".join(MENDS.get(code, code.replace("_", " ")).format(of=of) for code in list(costliest)[:_MOST_MENDS])
