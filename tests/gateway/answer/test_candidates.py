"""The records of an answer's candidates: how far each came, why, and what is shown of it."""

import json
from typing import Any

import pytest

from gateway.answer.body import BodyExchange
from gateway.answer.candidates import broken_calls, call_records, dialect_of
from gateway.answer.facts import Facts, delivered
from gateway.answer.stages import GuardedReader
from gateway.answer.stages.transcript import MAX_TEXT, Transcript
from gateway.answer.stream import StreamExchange
from gateway.core.events import Event, Note, Said, Text, Verdict
from gateway.core.limits import Limits
from gateway.core.reasons import Reason
from gateway.core.records import CallRecord
from gateway.core.sentences import reason_of
from gateway.telemetry.redaction import Redactor
from strategies.base import Prepared
from tests.support.chat import answer_body, answer_events, event, numbered_ids, prepared
from tests.support.reading import AGENT_TOOLS

CALL = "<read>\n<filePath>/a.py</filePath>\n</read>"
WRITE = "<write>\n<filePath>{}</filePath>\n<content>\n{}\n</content>\n</write>"
UNFIT = "<read>\n<filePath>/a.py</filePath>\n<limit>many</limit>\n</read>"


def facts_of(text: str, how: Prepared | None = None, *, keep_text: bool = True, more: tuple[bytes, ...] = ()) -> Facts:
    """What a streamed answer leaves behind."""
    exchange = StreamExchange(how or prepared(), make_id=numbered_ids(), limits=Limits(), keep_text=keep_text)
    events = answer_events([text[at : at + 7] for at in range(0, len(text), 7)])
    for part in (*events[:-2], *more, *events[-2:]):
        exchange.feed(part)
    exchange.finish()
    return exchange.facts


def records_of(facts: Facts, **how: Any) -> tuple[CallRecord, ...]:
    terms: dict[str, Any] = {"declared": AGENT_TOOLS, "audit": "redacted", "mask": str, **how}
    return call_records(facts, **terms)


def records(text: str, how: Prepared | None = None, **terms: Any) -> tuple[CallRecord, ...]:
    return records_of(facts_of(text, how), **terms)


def verdict(
    *reasons: str, why: Reason | None = None, score: int = 0, name: str = "read", accepted: bool = False
) -> Verdict:
    return Verdict(dialect="generic_xml", name=name, score=score, accepted=accepted, reasons=reasons, refusal=why)


def test_a_delivered_call_is_shown_before_and_after() -> None:
    (record,) = records(f"Let me look.\n\n{CALL}\n")
    assert (record.number, record.tool, record.dialect, record.score) == (0, "read", "generic_xml", 99)
    assert (record.decision, record.stage, record.reason) == ("delivered", "sent", "")
    assert record.before == f"Let me look.\n\n{CALL}\n"
    assert json.loads(record.after) == {"name": "read", "arguments": {"filePath": "/a.py"}}
    assert record.declared
    assert record.signs == ()


def test_a_call_that_nobody_got_is_one_that_would_have_been_delivered() -> None:
    (record,) = records(CALL, is_beside=True)
    assert (record.decision, record.stage) == ("would_deliver", "sent")


def test_a_refused_candidate_keeps_its_place_and_text() -> None:
    first, second = records(f"One.\n\n{UNFIT}\n\nTwo.\n\n{CALL}")
    assert (first.decision, first.stage) == ("refused", "parsed")
    assert first.reason == "schema_invalid"
    assert first.before.startswith("One.\n\n<read>")
    assert first.after == ""
    assert (second.number, second.decision) == (1, "delivered")


def test_whole_and_streamed_answers_leave_the_same_records() -> None:
    text = f"One.\n\n{UNFIT}\n\nTwo.\n\n{CALL}"
    body = BodyExchange(prepared(), make_id=numbered_ids(), limits=Limits(), keep_text=True)
    body.transform(answer_body(text))
    whole, streamed = records_of(body.facts), records(text)
    assert [(each.decision, each.tool, each.stage, each.after) for each in whole] == [
        (each.decision, each.tool, each.stage, each.after) for each in streamed
    ]


def test_two_hundred_characters_around_a_candidate_are_kept() -> None:
    (record,) = records("a" * 500 + "\n\n" + CALL + "\n" + "b" * 500)
    assert record.before == "a" * 198 + "\n\n" + CALL + "\n" + "b" * 199


def test_a_long_candidate_is_shown_by_its_beginning() -> None:
    text = WRITE.format("a.py", "x = 1\n" * 4000)
    (record,) = records(text)
    assert len(record.before) <= 3500
    assert record.before.startswith("<write>")
    (full,) = records(text, audit="full")
    assert full.before == text


def test_nothing_is_shown_where_bodies_are_not_audited() -> None:
    (record,) = records(CALL, audit="none")
    assert (record.before, record.after) == ("", "")
    assert record.decision == "delivered"


def test_what_is_not_kept_is_recorded_without_its_text() -> None:
    facts = facts_of(f"One.\n\n{UNFIT}\n\n{CALL}", keep_text=False)
    assert facts.transcripts == {}
    assert [(each.decision, each.before) for each in records_of(facts)] == [("delivered", ""), ("refused", "")]
    assert json.loads(records_of(facts)[0].after)["arguments"] == {"filePath": "/a.py"}


# Secrets

SECRET = "sk-live-0123456789abcdef"


@pytest.mark.parametrize("distance", [0, 1, 5, 190, 195, 199, 200, 201, 210, 400])
def test_no_part_of_a_secret_near_a_candidate_is_shown(distance: int) -> None:
    mask = Redactor().text
    for text in (
        f"key {SECRET} " + "a " * (distance // 2) + f"\n\n{CALL}",
        f"{CALL}\n" + "b " * (distance // 2) + f" {SECRET} end",
    ):
        (record,) = records(text, mask=mask)
        assert not any(SECRET[at : at + 8] in record.before for at in range(len(SECRET) - 8))
        assert "<filePath>" in record.before


def test_arguments_are_masked_by_value_and_by_name() -> None:
    text = WRITE.format("/a", f"API_KEY={SECRET}")
    (record,) = records(text, mask=Redactor().text)
    after = json.loads(record.after)
    assert after["arguments"]["filePath"] == "/a"
    assert SECRET not in record.after
    assert SECRET not in record.before
    facts = Facts()
    facts.calls.append(
        delivered(verdict(accepted=True, score=99), '{"list": [{"password": "hunter2 is it"}], "n": 1.5}')
    )
    (other,) = records_of(facts, mask=Redactor().text)
    assert "hunter2" not in other.after
    assert json.loads(other.after)["arguments"]["n"] == 1.5


def test_words_of_the_model_in_reasons_are_masked_and_bounded() -> None:
    facts = Facts()
    facts.refused.append(verdict(f"`x` is {SECRET}", "y" * 5000, score=90, name=SECRET + "z" * 999))
    (record,) = records_of(facts, mask=Redactor().text)
    assert SECRET not in str(record)
    assert all(len(reason) <= 200 for reason in (*record.reasons, record.tool))


# Stages, reasons, signs


@pytest.mark.parametrize(
    ("seen", "word", "stage"),
    [
        (verdict("cut"), "parse", "recognised"),
        (verdict("too_large", why=Reason.TOO_LARGE), "too_large", "recognised"),
        (verdict("the reader failed: ValueError", why=Reason.INTERNAL, name="(reader)"), "internal", "seen"),
        (verdict("unknown_tool", why=Reason.UNKNOWN_TOOL), "unknown_tool", "schema_valid"),
        (verdict("tag 97", "`limit` must be a number", score=97), "schema_invalid", "parsed"),
        (verdict("tag 97", "confidence 0.85", why=Reason.LOW_CONFIDENCE, score=85), "low_confidence", "known_tool"),
        (verdict("tag 97", why=Reason.PROVENANCE, score=97), "provenance", "above_threshold"),
        (verdict("tag 97", why=Reason.UNSAYABLE, score=97), "unsayable", "above_threshold"),
        (verdict("no call", name=""), "parse", "seen"),
        (verdict(), "parse", "recognised"),
    ],
)
def test_a_refusal_has_one_word_and_a_stage(seen: Verdict, word: str, stage: str) -> None:
    facts = Facts()
    facts.refused.append(seen)
    (record,) = records_of(facts)
    assert reason_of(seen) == record.reason == word
    assert record.stage == stage
    assert broken_calls(facts) == ([seen] if seen.name else [])


def signs(*verdicts: Verdict, native: int = 0, intents: tuple[Verdict, ...] = ()) -> list[tuple[str, ...]]:
    facts = Facts(native_calls=native)
    facts.refused += verdicts
    facts.intents += intents
    return [record.signs for record in records_of(facts)]


def test_signs_say_what_speaks_against_a_call() -> None:
    assert signs(verdict("tag 97", why=Reason.PROVENANCE, score=97)) == [("echo",)]
    assert signs(verdict("tag 97", "`limit` must be a number", score=97)) == [("schema",)]
    assert signs(verdict("unknown_tool", why=Reason.UNKNOWN_TOOL)) == [("undeclared",)]
    assert signs(verdict("tag 97", why=Reason.LOW_CONFIDENCE, score=50, name="nope")) == [("undeclared",)]
    odd = verdict("tag 97", "argument_left_out -2", "known_tool_only -1", score=93, name="nope", accepted=True)
    assert signs(intents=(odd,), native=1) == [("undeclared", "schema", "native_beside")]
    assert signs(verdict("cut", name="<read>")) == [()]
    # A tool that takes whatever it is given was called as its schema says.
    beside = verdict("tag 97", "unknown_argument -2", score=95, accepted=True)
    assert signs(intents=(beside,)) == [()]


def test_a_call_beside_native_ones_has_the_sign() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    facts = facts_of(f"{CALL}\n", prepared(wait=True), more=(event({"tool_calls": [call]}),))
    (record,) = records_of(facts)
    assert (record.decision, record.stage, record.signs) == ("overheard", "above_threshold", ("native_beside",))


def test_an_undelivered_call_is_overheard() -> None:
    first, second = records(f"{CALL}\n\n{CALL}", prepared(first_only=True))
    assert (first.decision, second.decision) == ("delivered", "overheard")
    assert first.signs == second.signs == ()


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        (f"```xml\n{CALL}\n```", False),
        (f"```xml\n{CALL}\n{CALL}\n```", False),
        (f"```xml\nhere: \n{CALL}\n```", True),
        (f"```\n{CALL}\n# done\n```\nbye", True),
        (f"~~~~\n```\n{CALL}", True),
        (f"> {CALL}", True),
        (f"```\nx\n```\n{CALL}", False),
        (f"`` ` `` {CALL}", False),
    ],
)
def test_a_candidate_in_a_fence_with_other_things_is_literal(text: str, literal: bool) -> None:
    transcript = Transcript()
    transcript.add(text)
    at = 0
    facts = Facts(transcripts={0: transcript})
    while (begun := text.find(CALL, at)) >= 0:
        noted = verdict("tag 97", why=Reason.LOW_CONFIDENCE, score=50)
        facts.refused.append(noted)
        transcript.take(Note(noted, seen=CALL, size=len(CALL)), begun)
        at = begun + len(CALL)
    found = [record.signs for record in records_of(facts)]
    assert found == [("in_fence",) if literal else ()] * text.count(CALL)


def test_calls_of_a_second_answer_are_repaired_ones() -> None:
    facts = facts_of(UNFIT)
    facts.has_second_answer = True
    facts.calls.append(delivered(verdict(accepted=True, score=99), '{"filePath":"/a"}'))
    assert [record.decision for record in records_of(facts)] == ["refused", "repaired"]


def test_a_call_that_breaks_after_it_began_is_recorded() -> None:
    how = prepared(stream_arguments="incremental")
    facts = facts_of("<think></think>\n<write>\n<filePath>a</filePath>\n<content>\n" + "x" * 99 + "\n", how)
    (record,) = records_of(facts)
    assert (record.decision, record.tool, record.stage, record.reason) == (
        "refused",
        "write",
        "recognised",
        "not_closed",
    )


def test_records_of_one_answer_are_bounded() -> None:
    facts = Facts()
    facts.refused += [verdict("x", name="") for _ in range(5000)]
    facts.refused += [verdict("cut") for _ in range(10)]
    facts.calls += [delivered(verdict(accepted=True, score=99), "{}") for _ in range(5)]
    made = records_of(facts)
    assert len(made) == 128
    assert sum(record.decision == "delivered" for record in made) == 5
    assert sum(record.reason == "parse" and bool(record.tool) for record in made) == 10
    assert [record.number for record in made] == list(range(128))


def test_dialect_is_that_of_the_first_call() -> None:
    assert dialect_of(Facts()) == "none"
    assert dialect_of(facts_of(UNFIT)) == "generic_xml"
    assert dialect_of(facts_of(CALL)) == "generic_xml"


# What a transcript keeps


class Silent:
    """Takes everything for text."""

    idle = True

    def feed(self, text: str) -> list[Event]:
        return [Text(text)]

    def finish(self, reason: str) -> list[Event]:
        return []


def test_text_is_kept_up_to_its_bound() -> None:
    transcript = Transcript()
    reader = GuardedReader(Silent, transcript)
    for _ in range(100):
        reader.feed("x" * 4096)
    reader.finish("stop")
    assert transcript.text == "x" * MAX_TEXT
    assert transcript.size == 409_600
    assert transcript.finish == "stop"


def test_a_call_beyond_what_is_kept_is_shown_by_itself() -> None:
    (record,) = records("word \n" * (MAX_TEXT // 6) + "\n\n" + CALL)
    assert record.before == CALL


@pytest.mark.parametrize("text", ["é" * 50 + "\n\n" + CALL, f"a\n\n{CALL}\n\nb\n\n{UNFIT}\n\n{CALL}"])
def test_candidates_stand_where_their_text_stands(text: str) -> None:
    transcript = facts_of(text).transcripts[0]
    assert transcript.text == text
    for candidate in transcript.candidates:
        assert text[candidate.at : candidate.at + len(candidate.text)] == candidate.text
    assert [name for _, name, _ in transcript.calls] == ["read"] * text.count(CALL)


def test_a_call_told_in_the_clients_own_words_is_kept() -> None:
    transcript = Transcript()
    transcript.take(Said("raw", "<told/>", "{}", verdict(accepted=True, score=97)), 2)
    (candidate,) = transcript.candidates
    assert (candidate.at, candidate.text, candidate.arguments) == (2, "raw", "{}")


def test_candidates_that_are_kept_are_bounded() -> None:
    transcript = Transcript()
    for _ in range(5000):
        transcript.take(Note(verdict("cut")), 0)
    assert len(transcript.candidates) == 1024


@pytest.mark.parametrize("arguments", ["{", "[" * 5000, "\ud800"])
def test_arguments_that_cannot_be_read_are_not_shown(arguments: str) -> None:
    facts = Facts()
    facts.calls.append(delivered(verdict(accepted=True, score=99), arguments))
    assert records_of(facts)[0].after == ""


def test_arguments_are_shown_to_a_depth() -> None:
    facts = Facts()
    facts.calls.append(delivered(verdict(accepted=True, score=99), '{"a":' + "[" * 100 + "1" + "]" * 100 + "}"))
    assert "null" in records_of(facts)[0].after
