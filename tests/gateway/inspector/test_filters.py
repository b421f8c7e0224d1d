"""What a filter says, and what it refuses."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.inspector.filters import BadFilter, parsed
from gateway.inspector.rows import CallHead, Head, Next, row_of


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
    assert parsed("arm:live dialect:her*").holding == ('"arm":"live"', '"dialect":"her')
    assert parsed("model:qwen* tool:read").holding == ('"model":"qwen', '"read"')
    assert parsed("model:*x -arm:live reason:none tool:é").holding == ()


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_refused(text):
    with suppress(BadFilter):
        parsed(text).matches(row().seen)
