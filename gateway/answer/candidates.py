"""What is kept of an answer's candidates: how far each came, why, what speaks against it, and how it stood there.

Nothing leaves here that has not gone through `mask`, which is given what is shown and a margin around it, so that no
secret is cut in two before it is looked at. Sizes are bounded whatever the answer was.
"""

import json
from collections.abc import Callable, Container, Iterator
from typing import Any, Literal

import msgspec
from attrs import evolve, field, frozen

from gateway.answer.facts import Facts
from gateway.answer.stages.transcript import Candidate, Transcript
from gateway.core.events import Verdict
from gateway.core.reasons import Reason
from gateway.core.records import CallRecord, OtherReading, Stage
from gateway.core.sentences import furthest, reason_of, why
from strategies.base.tries import Span
from strategies.grammar.literal import FenceMark, closes_fence, may_open_fence, opens_fence

__all__ = ["Audit", "broken_calls", "call_records", "dialect_of"]

Audit = Literal["none", "redacted", "full"]
Mask = Callable[[str], str]
Decision = Literal["delivered", "would_deliver", "refused", "overheard", "repaired"]

_MAX_RECORDS = 128
_AROUND = 200
"""Characters around a candidate that are kept."""
_MARGIN = 1 << 11
"""Characters beyond them that are only looked at."""
_SHOWN = {"none": 0, "redacted": 3 << 10, "full": 1 << 16}
"""Characters of a candidate that are kept."""
_MAX_DEPTH = 64
_MAX_REASONS = 32
_MAX_OTHERS = 8
_MAX_SENTENCE = 600
_STAGES: dict[Reason, Stage] = {
    Reason.INTERNAL: "seen",
    Reason.PARSE: "recognised",
    Reason.NOT_CLOSED: "recognised",
    Reason.CUT: "recognised",
    Reason.TOO_LARGE: "recognised",
    Reason.SCHEMA_INVALID: "parsed",
    Reason.UNKNOWN_TOOL: "schema_valid",
    Reason.NOT_LISTED: "known_tool",
    Reason.LOW_CONFIDENCE: "known_tool",
    Reason.PROVENANCE: "above_threshold",
    Reason.SLICE_OFF: "above_threshold",
    Reason.UNSAYABLE: "above_threshold",
}
"""How far a refused candidate came."""


def broken_calls(facts: Facts) -> list[Verdict]:
    """The candidates that stayed text though they were meant as calls; the others were prose with a marker in it."""
    return [verdict for verdict in facts.refused if verdict.meant] if facts.refused else []


def dialect_of(facts: Facts) -> str:
    """The dialect of the first call that was, or would have been, delivered; else that of the first broken call."""
    verdicts = [call.verdict for call in facts.calls[:1]] or broken_calls(facts)
    return verdicts[0].dialect if verdicts else "none"


def call_records(
    facts: Facts, *, declared: Container[str], audit: Audit, mask: Mask, is_beside: bool = False
) -> tuple[CallRecord, ...]:
    """The records of an answer's candidates, in their order; `is_beside`: the client was given none of the calls."""
    entries = _weightiest(_folded(sorted(_entries(facts, is_beside=is_beside), key=_place)))
    finish = next(iter(facts.finish_reasons.values()), None)
    showing = _Showing(transcript=facts.transcripts, audit=audit, mask=mask, finish=finish)
    return tuple(
        _record(number, entry, showing, declared=declared, native=facts.native_calls > 0)
        for number, entry in enumerate(entries)
    )


@frozen(kw_only=True)
class _Entry:
    """One candidate, what became of it, and where it stands, if that is known."""

    verdict: Verdict
    decision: Decision
    arguments: str = ""
    choice: int = 0
    candidate: Candidate | None = None
    others: tuple[Verdict, ...] = ()
    """What else was read of the same characters."""


def _entries(facts: Facts, *, is_beside: bool) -> Iterator[_Entry]:
    given: Decision = "would_deliver" if is_beside else "repaired" if facts.has_second_answer else "delivered"
    # By identity, as two candidates may have verdicts that are equal.
    told: dict[int, tuple[Verdict, Decision, str]] = {}
    for call in facts.calls:
        told[id(call.verdict)] = (call.verdict, given, call.arguments)
    for verdict in facts.refused:
        told[id(verdict)] = (verdict, "refused", "")
    for verdict in facts.intents:
        told[id(verdict)] = (verdict, "overheard", "")
    for choice, transcript in facts.transcripts.items():
        for candidate in transcript.candidates:
            verdict = candidate.verdict
            other: Decision = "overheard" if verdict.accepted else "refused"
            _, decision, arguments = told.pop(id(verdict), (verdict, other, ""))
            yield _Entry(
                verdict=verdict,
                decision=decision,
                arguments=arguments or candidate.arguments,
                choice=choice,
                candidate=candidate,
            )
    for verdict, decision, arguments in told.values():
        yield _Entry(verdict=verdict, decision=decision, arguments=arguments)


def _folded(entries: list[_Entry]) -> Iterator[_Entry]:
    """One entry for each try: of several readings of one span the one that came furthest."""
    tries: list[list[_Entry]] = []
    span, choice = Span(), -1
    for entry in entries:
        if entry.choice != choice:
            span, choice = Span(), entry.choice
        at, size = (entry.candidate.at, entry.candidate.size) if entry.candidate is not None else (-1, 0)
        if entry.decision != "refused" or at < 0:
            tries.append([entry])
        elif span.take(at, size, entry.verdict.name):
            tries[-1].append(entry)
        else:
            tries.append([entry])
    for readings in tries:
        first = readings[0]
        if len(readings) == 1:
            yield first
            continue
        best = furthest([each.verdict for each in readings])
        others = tuple(each.verdict for each in readings if each.verdict is not best)
        yield evolve(next(each for each in readings if each.verdict is best), others=others)


def _weightiest(entries: Iterator[_Entry]) -> list[_Entry]:
    """As many as are kept: first the calls, then what was meant as one."""
    ranked = sorted(entries, key=lambda entry: (entry.decision == "refused", not entry.verdict.meant))
    return sorted(ranked[:_MAX_RECORDS], key=_place)


def _place(entry: _Entry) -> tuple[bool, int, int]:
    return (entry.candidate is None, entry.choice, entry.candidate.at if entry.candidate else 0)


def _record(number: int, entry: _Entry, showing: "_Showing", *, declared: Container[str], native: bool) -> CallRecord:
    verdict = entry.verdict
    is_named = verdict.accepted or verdict.score > 0
    is_declared = verdict.name in declared if is_named else verdict.refusal is not Reason.UNKNOWN_TOOL
    before, span = showing.before(entry)
    told = why(verdict, showing.finish) if entry.decision == "refused" else None
    return CallRecord(
        number=number,
        dialect=verdict.dialect,
        tool=showing.word(verdict.name),
        score=verdict.score,
        decision=entry.decision,
        stage=_stage(entry),
        reasons=tuple(showing.word(reason) for reason in verdict.reasons[-_MAX_REASONS:]),
        reason=told.reason.value if told else "",
        sentence=showing.sentence(told.sentence) if told else "",
        setting=showing.word(told.setting) if told else "",
        threshold=verdict.threshold,
        meant=verdict.meant,
        others=tuple(_other(each) for each in entry.others[:_MAX_OTHERS]),
        declared=is_declared,
        signs=tuple(_signs(entry, showing, is_declared=is_declared, native=native)),
        before=before,
        span=span,
        after=showing.after(entry),
    )


def _other(verdict: Verdict) -> OtherReading:
    return OtherReading(dialect=verdict.dialect, score=verdict.score, reason=reason_of(verdict).value)


def _stage(entry: _Entry) -> Stage:
    if entry.decision in ("delivered", "would_deliver", "repaired"):
        return "sent"
    if entry.decision == "overheard":
        return "above_threshold"
    return _STAGES[reason_of(entry.verdict)] if entry.verdict.meant else "seen"


def _signs(entry: _Entry, showing: "_Showing", *, is_declared: bool, native: bool) -> Iterator[str]:
    reasons = entry.verdict.reasons
    if showing.is_literal(entry):
        yield "in_fence"
    if not is_declared:
        yield "undeclared"
    refused_by_schema = entry.decision == "refused" and reason_of(entry.verdict) is Reason.SCHEMA_INVALID
    if refused_by_schema or any(reason.startswith("argument_left_out") for reason in reasons):
        yield "schema"
    if entry.verdict.refusal is Reason.PROVENANCE:
        yield "echo"
    if native and entry.verdict.accepted:
        yield "native_beside"


@frozen(kw_only=True)
class _Showing:
    """How the candidates of one answer are shown."""

    transcript: dict[int, Transcript]
    audit: Audit
    mask: Mask
    finish: str | None = None
    """The finish reason of the answer."""
    _fences: dict[int, list[tuple[int, int]]] = field(factory=dict, init=False)
    """The code fences of each choice whose content is more than calls."""

    def word(self, text: str) -> str:
        """A name or a reason, which may quote what the model wrote."""
        return self.mask(text[:_MARGIN])[:_AROUND]

    def sentence(self, text: str) -> str:
        """A sentence, which may quote what the model wrote."""
        return self.mask(text[:_MARGIN])[:_MAX_SENTENCE]

    def before(self, entry: _Entry) -> tuple[str, tuple[int, int] | None]:
        """The candidate with the text around it, and where in that it begins and ends."""
        candidate = entry.candidate
        if self.audit == "none" or candidate is None:
            return "", None
        text = self.transcript[entry.choice].text
        size = min(candidate.size, _SHOWN[self.audit])
        # A transcript keeps only so much: beyond that the candidate's own text is all there is.
        if candidate.at + candidate.size > len(text):
            return self._window(candidate.text, 0, 0, size)
        return self._window(text, candidate.at, _AROUND, size)

    def _window(self, text: str, at: int, around: int, size: int) -> tuple[str, tuple[int, int]]:
        """A part of a text, masked as it stands there, and where in it the candidate begins and ends."""
        start, end = max(0, at - around), min(len(text), at + size + around)
        # Masked with a margin: a credential that the edge cuts in two would not be known for one.
        left, right = max(0, start - _MARGIN), min(len(text), end + _MARGIN)
        clean = self.mask(text[left:right])
        shown = clean[start - left : max(start - left, len(clean) - (right - end))]
        # What is masked before the candidate moves it; the text in front of it is masked as a part of the whole.
        begin = len(self.mask(text[left:at])) - (start - left) if clean != text[left:right] else at - start
        last = len(shown) - (end - min(len(text), at + size))
        begin = max(0, min(begin, len(shown)))
        return shown, (begin, max(begin, min(last, len(shown))))

    def after(self, entry: _Entry) -> str:
        """The call that it became."""
        if self.audit == "none" or not entry.arguments:
            return ""
        try:
            arguments = msgspec.json.decode(entry.arguments)
        except (ValueError, RecursionError):
            return ""
        return json.dumps({"name": entry.verdict.name, "arguments": self._masked(arguments, 0)}, ensure_ascii=False)

    def _masked(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        # Arguments nest as deep as the model wrote them, and this recurses.
        if depth >= _MAX_DEPTH:
            return None
        if isinstance(value, list):
            return [self._masked(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {self.mask(key): self._under(key, item, depth + 1) for key, item in value.items()}
        return value

    def _under(self, key: str, value: Any, depth: int) -> Any:
        """A value, masked together with the key that may say what it is."""
        if not isinstance(value, str):
            return self._masked(value, depth)
        # `password` says what its value is, which by itself looks like any word.
        label = f"{key}="
        clean = self.mask(label + value)
        return clean[len(label) :] if clean.startswith(label) else clean

    def is_literal(self, entry: _Entry) -> bool:
        """Whether the candidate stands in a quotation, or in a code fence beside something else."""
        candidate = entry.candidate
        if candidate is None or candidate.at >= len(self.transcript[entry.choice].text):
            return False
        transcript = self.transcript[entry.choice]
        before = transcript.text[max(0, candidate.at - _MARGIN) : candidate.at]
        if before[before.rfind("\n") + 1 :].lstrip().startswith(">"):
            return True
        if entry.choice not in self._fences:
            self._fences[entry.choice] = list(_mixed_fences(transcript))
        return any(start <= candidate.at < end for start, end in self._fences[entry.choice])


def _mixed_fences(transcript: Transcript) -> Iterator[tuple[int, int]]:
    """The contents of those code fences that hold anything beside candidates."""
    text = transcript.text
    spans = sorted((each.at, each.at + each.size) for each in transcript.candidates)
    for start, end in _fences(text):
        at = start
        for begun, ended in spans:
            if start <= begun < end and text[at:begun].strip():
                break
            at = max(at, ended) if start <= begun < end else at
        if text[at:end].strip():
            yield start, end


def _fences(text: str) -> Iterator[tuple[int, int]]:
    """Where the contents of the code fences begin and end."""
    fence: FenceMark | None = None
    begun = at = 0
    for line in text.split("\n"):
        if fence is None:
            fence, begun = _opened(line), at + len(line) + 1
        elif closes_fence(line, fence):
            yield begun, at
            fence = None
        at += len(line) + 1
    if fence is not None:
        yield begun, len(text)


def _opened(line: str) -> FenceMark | None:
    """The fence that a line opens."""
    for mark in "`~":
        column = line.find(mark * 3)
        if column < 0 or not may_open_fence(line[:column]):
            continue
        size = len(line) - column - len(line[column:].lstrip(mark))
        if opens_fence(line[column + size :], mark) is not None:
            return mark, size, column
    return None
