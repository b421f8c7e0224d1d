"""The reader's promises, over texts that Hypothesis grows from the markup of every dialect."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.events import Args, Broken, End, Event, Start, Text
from tests.support.fragments import (
    KEYS,
    NAMES,
    NOISE,
    VALUES,
    Way,
    check,
    events_of,
    examples,
    fragments,
    story,
    ways,
)
from tests.support.reading import APART, pieces

PIECE = (
    st.sampled_from(fragments())
    | st.sampled_from(NOISE)
    | st.sampled_from((*NAMES, *KEYS, *VALUES))
    | st.sampled_from(examples())
    | st.text(max_size=6)
)
ANSWER = st.lists(PIECE, max_size=16).map("".join)
WAY = st.sampled_from(ways())
CUTS = st.lists(st.integers(0, 400), max_size=12)
CONFIGURED = settings(max_examples=400, deadline=None)


def cut(text: str, places: list[int]) -> list[str]:
    return list(pieces(text, sorted(place for place in places if place <= len(text))))


@given(ANSWER, WAY, CUTS)
@CONFIGURED
def test_reading_never_depends_on_the_cuts_and_loses_nothing(text: str, way: Way, places: list[int]) -> None:
    check(text, way, sorted(place for place in places if place <= len(text)))


@given(ANSWER, WAY)
@CONFIGURED
def test_reading_character_by_character_is_reading_whole(text: str, way: Way) -> None:
    check(text, way, range(1, len(text)))


@given(ANSWER, ANSWER, ANSWER, WAY)
@CONFIGURED
def test_what_was_said_stands_whatever_comes_next(text: str, one: str, other: str, way: Way) -> None:
    def said(tail: str) -> tuple[list[tuple[str, str]], list[Event]]:
        events, counts = events_of(way, [text, tail])
        return story(events[: counts[0]]), events

    first, events = said(one)
    assert "".join(event.raw for event in events) == text + one
    assert said(other)[0] == first


@given(ANSWER, WAY)
@CONFIGURED
def test_every_call_that_starts_ends_or_breaks_once(text: str, way: Way) -> None:
    events, _ = events_of(way, [text])
    state = "text"
    for event in events:
        if isinstance(event, Start):
            assert state == "text"
            state = "call"
        elif isinstance(event, Args):
            assert state == "call"
        elif isinstance(event, End | Broken):
            assert state == "call"
            state = "text"
        elif isinstance(event, Text):
            assert state == "text"
    assert state == "text"


@given(st.text(max_size=200), WAY, CUTS)
@CONFIGURED
def test_any_text_at_all_comes_back(text: str, way: Way, places: list[int]) -> None:
    events, _ = events_of(way, cut(text, places))
    assert "".join(event.raw for event in events) == text


@pytest.mark.parametrize("example", examples())
def test_every_example_of_the_table_survives_every_cut(example: str) -> None:
    for way in ways()[-3:]:
        for first in range(1, min(APART, len(example))):
            check(example, way, range(first, len(example), APART))
