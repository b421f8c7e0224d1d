"""The line of each kind of answer, and how the next turn took it."""

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.records import LabelRecord, OutcomeRecord, Record
from gateway.inspector.figures import Figures
from gateway.inspector.filters import BadFilter, parsed
from gateway.inspector.reader import Reader
from gateway.inspector.rows import CallHead, Head, Next, next_of, row_of
from gateway.state.memory import MemoryStore
from gateway.state.sqlite import SqliteStore
from tests.support.week import evolve, week


def call(decision, tool="write_file", reason="", score=97, meant=None):
    return CallHead(number=0, dialect="hermes", tool=tool, score=score, decision=decision, reason=reason, meant=meant)


@pytest.mark.parametrize(
    ("fields", "sign", "what"),
    [
        ({"calls": (call("delivered"),)}, "✓", "write_file"),
        ({"calls": (call("delivered"),) * 3}, "✓", "write_file +2"),
        ({"calls": (call("delivered"), call("refused", "x", "parse"))}, "✓", "write_file, 1 stayed text"),
        ({"calls": (call("would_deliver"),)}, "◇", "would be write_file"),
        ({"calls": (call("refused", "launch_rocket", "unknown_tool", 0),)}, "✗", "stayed text: launch_rocket"),
        ({"calls": (call("refused", reason="cut"),), "finish_reason": "length"}, "✗", "cut by length: write_file"),
        ({"calls": (call("refused", reason="cut"),)}, "✗", "cut off: write_file"),
        ({"calls": (call("repaired", "read_file"),)}, "↻", "asked again, then ✓ read_file"),
        ({"native_calls": 1}, "=", "native call"),
        ({"native_calls": 1, "native_tools": ("read_file",)}, "=", "native read_file"),
        ({"native_calls": 3, "native_tools": ("read_file", "x", "y")}, "=", "native read_file +2"),
        ({"native_calls": 2}, "=", "native call +1"),
        ({}, "·", "prose"),
        ({"calls": (call("refused", "", "parse", 0, meant=False),)}, "·", "prose"),
        ({"healthy": False, "error": "upstream_refused"}, "!", "upstream_refused"),
        ({"calls": (call("overheard"),)}, "◇", "overheard: write_file"),
    ],
)
def test_what_happened_is_a_sign_and_a_word(fields, sign, what):
    row = row_of(Head(id="r", at=1.0, **fields), cursor="1", next_=Next())
    assert (row.sign, row.what) == (sign, what)


def test_a_line_has_the_fields_that_the_interface_promises():
    row = row_of(Head(id="r", at=1.0, calls=(call("delivered"),)), cursor="1", next_=Next("accepted"))
    promised = {"id", "at", "model", "arm", "what", "tool", "dialect", "score", "next", "ms"}
    assert promised <= row.document().keys()


def told(at, outcome, reporter, reason=""):
    return OutcomeRecord(
        at=at,
        key="k",
        arm="live",
        strategy="s",
        dialect="d",
        epoch=0,
        outcome=outcome,
        reported_by=reporter,
        reason=reason,
    )


def test_the_first_turn_behind_an_answer_speaks_for_it():
    outcomes = [told(9.0, "rejected", "c"), told(5.0, "accepted", "b"), told(1.0, "rejected", "a")]
    assert next_of(2.0, outcomes) == Next("accepted")
    assert next_of(6.0, outcomes) == Next("rejected")
    assert next_of(10.0, outcomes) == Next()


def test_what_a_request_told_of_the_answer_before_it_is_not_said_of_its_own():
    """It is told when the request has been read, and so later than the request began."""
    outcomes = [told(2.01, "rejected", "b"), told(3.01, "accepted", "c")]
    assert next_of(1.0, outcomes, "a") == Next("rejected")
    assert next_of(2.0, outcomes, "b") == Next("accepted")
    assert next_of(3.0, outcomes, "c") == Next()


def test_one_rejected_call_of_a_turn_makes_it_rejected():
    outcomes = [told(5.0, "accepted", "b"), told(5.0, "rejected", "b", "missing_argument")]
    assert next_of(1.0, outcomes) == Next("rejected", "missing_argument")
    assert next_of(1.0, [told(5.0, "no_tool_used", "b")]) == Next("complained")


# --- What a filter says, and what it refuses


def row(**fields):
    call = CallHead(
        number=0,
        dialect=fields.pop("dialect", "hermes"),
        tool=fields.pop("tool", "write_file"),
        score=fields.pop("score", 97),
        decision=fields.pop("decision", "delivered"),
        reason=fields.pop("reason", ""),
    )
    next_, labels = Next(fields.pop("next", "")), fields.pop("labels", {})
    head = Head(id="abc", at=1.0, calls=(call,), **{"model": "Qwen2.5-Coder", **fields})
    return row_of(head, cursor="1", next_=next_, labels=labels)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("model:Qwen*", True),
        ("model:llama*", False),
        ("-model:llama*", True),
        ("model:qwen*", False),
        ("tool:write_file arm:live", True),
        ("tool:write_file arm:control", False),
        ("score<0.9", False),
        ("score>=0.97", True),
        ("score:0.97", True),
        ("decision:delivered", True),
        ("decision:refused", False),
        ("outcome:unknown", True),
        ("outcome:delivered", True),
        ("label:none", True),
        ("label:right", False),
        ("id:abc", True),
        ("write", True),
        ("WRITE", True),
        ('model:"Qwen2.5-Coder"', True),
        ("-write", False),
        ("dialect:her?es", True),
    ],
)
def test_a_filter_means_what_it_says(text, matches):
    assert parsed(text).matches(row().seen) is matches


def test_what_was_refused_is_found_by_its_reason_and_its_label():
    refused = row(decision="refused", reason="low_confidence", score=85, labels={0: False}, next="rejected")
    for text in ("reason:low_confidence", "decision:refused", "label:wrong", "outcome:rejected", "score<0.9"):
        assert parsed(text).matches(refused.seen), text
    assert not parsed("label:none").matches(refused.seen)


@pytest.mark.parametrize("text", ["colour:red", "score<x", "score<2", "model<3", "a " * 30, "x" * 600])
def test_what_is_no_filter_says_so(text):
    with pytest.raises(BadFilter):
        parsed(text)


def test_pieces_of_json_are_asked_for_only_where_the_spelling_is_known():
    assert parsed("arm:dry_run dialect:her*").holding == ('"arm":"dry_run"', '"dialect":"her')
    assert parsed("arm:live arm:l* dialect:n*").holding == (), "records do not say what is so by default"
    assert parsed("model:qwen* tool:read").holding == ('"model":"qwen', '"read"')
    assert parsed("model:*x -arm:live reason:none tool:é").holding == ()


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_refused(text):
    with suppress(BadFilter):
        parsed(text).matches(row().seen)


# --- A filter finds the same by briefs as by the records themselves


FILTERS = (
    "",
    *("model:qwen*", "-model:*", "-model:qwen* -model:gpt*", "model:nobody", "arm:control -arm:live"),
    *("tool:read_file", "-tool:*", "tool:none", "tool:*_file score<0.5", "dialect:hermes -dialect:invoke"),
    *("score<0.3", "score>=0.99 -score<0.95", "score:0.9", "reason:unknown_tool", "-reason:none", "reason:p*"),
    *("decision:refused", "-decision:*", "decision:overheard", "decision:delivered arm:live"),
    *("outcome:rejected", "outcome:accepted", "outcome:unknown", "-outcome:accepted -outcome:unknown"),
    *("outcome:error", "outcome:native -outcome:accepted", "outcome:delivered outcome:rejected", "outcome:nothing"),
    *("label:none", "label:right", "label:wrong", "-label:none", "label:wrong -label:right", "label:none score<0.5"),
    *("id:req-000007", "id:req-00001*", "-id:req-0*", "id:nobody", "req-000012", "hermes", "-hermes", "nobody"),
    *("-id:req-000007", "id:none", "id:*7", "id:req-000007 id:req-000008", "-label:right id:*1*", "label:none id:*2"),
    *("outcome:complained", "outcome:complained arm:live -model:qwen*", "-outcome:rejected -outcome:error"),
    *("outcome:accepted outcome:rejected", "outcome:un* decision:refused", "outcome:*ed score>0.9"),
)

NOTHING = (
    *("-model:*", "outcome:nothing", "-id:req-0*", "id:none"),
    *("id:req-000007 id:req-000008", "outcome:accepted outcome:rejected"),
)


def _records() -> list[Record]:
    made = week(240, seed=3)
    shift = time.time() - made.until
    requests = [evolve(each, at=each.at + shift) for each in made.requests]
    outcomes = [
        evolve(each, at=each.at + shift, reported_by=requests[number // 2 * 7 % 240].id, outcome=word)
        for number, each in enumerate(made.outcomes * 2)
        for word in (each.outcome, *(("no_tool_used",) if number % 9 == 0 else ()))
    ]
    labelled = [each.id for each in requests if len(each.calls) == 2][:8]
    labels = [
        LabelRecord(at=shift, request_id=name, number=number, is_right=bool(place % 3) ^ bool(number))
        for place, name in enumerate(labelled)
        for number in (0, 1)
    ]
    return [*requests, *outcomes, *labels[:-3]]


@pytest.fixture
async def readers(tmp_path: Path) -> AsyncIterator[tuple[Reader, Reader]]:
    """One over a store that keeps briefs, and one over a store that keeps none."""
    with_briefs, without = SqliteStore(tmp_path / "store.db", timeout_s=5), MemoryStore()
    records = _records()
    for store in (with_briefs, without):
        await store.append(records)
    yield Reader(with_briefs), Reader(without)
    await with_briefs.close()


async def test_every_filter_finds_what_it_says_and_nothing_else(readers):
    by_briefs, by_records = readers
    empty = []
    for text in FILTERS:
        pages = [await reader.page(parsed(text), before="", limit=500) for reader in (by_briefs, by_records)]
        shown = [[row.document() | {"cursor": ""} for row in page.rows] for page in pages]
        assert shown[0] == shown[1], text
        if not shown[0]:
            empty.append(text)
    assert empty == [text for text in FILTERS if "nobody" in text or text in NOTHING]


async def test_pages_of_a_filter_follow_each_other(readers):
    for reader in readers:
        whole = await reader.page(parsed("-model:qwen*"), before="", limit=500)
        found, before = [], ""
        while True:
            page = await reader.page(parsed("-model:qwen*"), before=before, limit=20)
            found += [row.head.id for row in page.rows]
            if not page.next:
                break
            before = page.next
        assert found == [row.head.id for row in whole.rows]


async def test_an_outcome_that_came_later_is_seen_by_the_next_question(readers):
    reader, _ = readers
    before = await reader.page(parsed("outcome:rejected"), before="", limit=500)
    outcome = week(240, seed=3).outcomes[0]
    (row, *_) = (await reader.page(parsed("outcome:unknown arm:live"), before="", limit=1)).rows
    told = evolve(outcome, at=time.time(), key=row.head.key, outcome="rejected", reported_by="new")
    await reader.store.append([told])
    after = await reader.page(parsed("outcome:rejected"), before="", limit=500)
    new = {
        each.head.id: each.head.key for each in after.rows if each.head.id not in {old.head.id for old in before.rows}
    }
    assert row.head.id in new
    assert set(new.values()) == {row.head.key}


async def test_a_detail_finds_its_request_and_its_conversation(readers):
    for text in ("req-000007", "req-000200"):
        shown = [await reader.detail(text, 1e9) for reader in readers]
        assert shown[0] is not None
        assert shown[1] is not None
        for each in shown:
            each["row"]["cursor"] = ""
        assert shown[0] == shown[1]
        assert shown[0]["row"]["id"] == text
    assert await readers[0].detail("nobody", 1.0) is None


async def test_figures_are_the_same_by_briefs_as_by_records(readers):
    for period in ("24h", "7d"):
        by_briefs, by_records = [await Figures(reader.store).of(period) for reader in readers]
        assert by_briefs.pop("added_ms_p95") == pytest.approx(by_records.pop("added_ms_p95"), rel=0.02)
        assert abs(by_briefs.pop("since") - by_records.pop("since")) < 60
        assert by_briefs == by_records
        assert by_briefs["answers"] > 20
        assert sum(model["rejected"] for model in by_briefs["models"]) > 0
