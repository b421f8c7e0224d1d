"""A filter finds the same by briefs as by the records themselves."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from attrs import evolve

from gateway.core.records import LabelRecord, Record
from gateway.inspector.figures import Figures
from gateway.inspector.filters import parsed
from gateway.inspector.reader import Reader
from gateway.state.memory import MemoryStore
from gateway.state.sqlite import SqliteStore
from tests.support.week import week

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
