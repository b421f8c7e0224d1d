"""What is kept of the gateway's work: what is as it is by default is not written, and what was written is read."""

import inspect
from typing import Any, get_args

import attrs
import msgspec
import pytest

from gateway.core import records
from gateway.core.records import (
    RECORDS,
    Brief,
    BriefCall,
    CallRecord,
    FeedbackRecord,
    LabelRecord,
    OtherReading,
    Record,
    RequestRecord,
)
from tests.support.week import week


def request(**fields: Any) -> RequestRecord:
    return RequestRecord(id="r", at=1.0, key="k", model="m", upstream="u", **fields)


def test_every_kind_of_record_has_a_name_to_be_kept_under() -> None:
    assert {*RECORDS.values()} == {*get_args(Record)}
    assert len(RECORDS) == len(get_args(Record))


def test_of_a_plain_request_only_what_it_has_is_written() -> None:
    written = msgspec.json.decode(msgspec.json.encode(request()))
    assert written == {"id": "r", "at": 1.0, "key": "k", "model": "m", "upstream": "u"}
    written = msgspec.json.decode(msgspec.json.encode(request(stream=True, status=200, end="completed", tools=2)))
    assert {*written} == {"id", "at", "key", "model", "upstream", "stream", "tools"}


def test_a_request_of_every_kind_is_read_as_it_was_written() -> None:
    made = week(200)
    assert any(each.calls for each in made.requests)
    for each in made.requests:
        assert msgspec.json.decode(msgspec.json.encode(each), type=RequestRecord) == each


def test_a_field_of_a_later_version_is_passed_over() -> None:
    raw = msgspec.json.decode(msgspec.json.encode(request(tools=1)))
    assert msgspec.convert({**raw, "of_tomorrow": [1]}, RequestRecord) == request(tools=1)


@pytest.mark.parametrize("wrong", [{"arm": "sideways"}, {"at": "today"}, {"verdict": "maybe"}, {"calls": [{}]}])
def test_a_word_that_is_none_is_no_record(wrong: dict[str, Any]) -> None:
    raw = msgspec.json.decode(msgspec.json.encode(request()))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**raw, **wrong}, RequestRecord)


def test_briefs_are_lists_and_can_be_counted_by_themselves() -> None:
    call = BriefCall("hermes", "read", 97, "delivered")
    brief = Brief("m", "live", native_calls=1, calls=(call,), tools=1)
    raw = msgspec.json.encode(brief)
    assert raw.startswith(b'["m","live",true')
    assert msgspec.json.decode(raw, type=Brief) == brief
    assert {brief: 1}[Brief("m", "live", native_calls=1, calls=(call,), tools=1)] == 1
    assert msgspec.json.decode(b'["m","off"]', type=Brief) == Brief("m", "off"), "as an earlier version wrote it"


@pytest.mark.parametrize(
    "made",
    [
        LabelRecord(at=1.0, request_id="r", number=0, is_right=True),
        FeedbackRecord(at=1.0, completion_id="c", rating="good"),
        OtherReading(dialect="hermes", score=3, reason="parse"),
        CallRecord(number=0, dialect="d", tool="t", score=1, decision="refused", stage="parsed"),
    ],
)
def test_nobody_changes_what_was_kept(made: Any) -> None:
    field = attrs.fields(type(made))[0].name
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(made, field, "x")


def test_every_record_says_what_it_is() -> None:
    own = [each for _, each in inspect.getmembers(records, inspect.isclass) if each.__module__ == records.__name__]
    assert [each.__name__ for each in own if not each.__doc__] == []
