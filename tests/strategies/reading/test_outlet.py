"""The way out of a reader: what goes at once, what waits with what holds it, and calls that were only drafts."""

from collections.abc import Sequence

import pytest

from gateway.core.events import Args, Drop, End, Event, Note, Start, Text, Verdict
from strategies.base import Options
from strategies.grammar.dialect import Context
from strategies.reading.left_out import REMAINS
from strategies.reading.outlet import Held, Outlet, as_text, joined
from tests.support.reading import AGENT_TOOLS

FAMILIES = {"hermes": "hermes", "invoke": "claude"}


def verdict(dialect: str = "hermes") -> Verdict:
    return Verdict(dialect=dialect, name="read", score=97, accepted=True)


def call(path: str = "a", dialect: str = "hermes") -> list[Event]:
    """A call as a reader tells it, in three parts."""
    arguments = f'{{"filePath":"{path}"}}'
    return [Start("<", "read", dialect), Args(path, arguments), End(">", "read", arguments, verdict(dialect))]


def outlet() -> Outlet:
    return Outlet(Context(tools=AGENT_TOOLS, options=Options()), FAMILIES)


def over(*events: Event) -> Outlet:
    """One whose answer has ended its reasoning, so that no call waits."""
    made = outlet()
    made.is_thought_over = True
    for event in events:
        made.add(event)
    return made


def raw(events: Sequence[Event]) -> str:
    return "".join(event.raw for event in events)


# --- Held


def held(*events: Event) -> Held:
    made = Held()
    for event in events:
        made.add(event, FAMILIES)
    return made


def test_what_is_held_is_calls_where_they_may_be_and_else_their_own_text() -> None:
    found = held(Text("so "), *call())
    assert (found.size, found.calls, found.families) == (len("so <a>"), 1, {"hermes"})
    assert found.decided(accept=True) == found.events
    assert found.decided(accept=False) == [Text("so "), Text("<"), Text("a"), Text(">")]
    nothing = held(Text("so "), Drop("x", "leftover"))
    assert nothing.decided(accept=True) == [Text("so "), Text("x")]


def test_a_refused_call_in_it_is_remembered() -> None:
    assert not held(*call()).refused
    assert held(Note(verdict()), *call()).refused


def test_calls_of_other_dialects_than_may_stand_become_their_text() -> None:
    found = held(*call("a"), Text("b"), *call("c", "invoke"))
    found.keep({"invoke"})
    assert found.calls == 1
    assert [type(event).__name__ for event in found.events] == ["Text"] * 4 + ["Start", "Args", "End"]
    assert raw(found.events) == "<a>b<c>"
    found.keep(set())
    assert (found.calls, raw(found.events)) == (0, "<a>b<c>")
    assert all(isinstance(event, Text) for event in found.events)


def test_what_was_said_stands_behind_the_last_call() -> None:
    assert held(Text("a"), *call(), Text("b"), Text("c")).said() == "bc"
    assert held(Text("a"), *call()).said() == ""


# --- What goes out


def test_text_goes_out_in_one_piece_up_to_where_it_is_firm() -> None:
    events: list[Event] = [Text("a"), Text("b", firm=True), Text("c"), Text("d"), Drop("e", "leftover"), Text("f")]
    assert joined(events) == [Text("ab", firm=True), Text("cd"), Drop("e", "leftover"), Text("f")]
    assert joined(events[:1]) == events[:1]


def test_each_part_of_a_call_may_be_told_as_text_and_a_note_stays() -> None:
    note = Note(verdict())
    assert as_text([*call(), note]) == [Text("<"), Text("a"), Text(">"), note]


def test_an_event_goes_out_once() -> None:
    made = over(Text("a"), Text("b"))
    assert made.taken() == [Text("ab")]
    assert made.taken() == []
    assert made.idle


def test_what_is_held_waits_and_what_is_shown_does_not() -> None:
    made = over()
    waiting = made.hold()
    made.add(Text("held"))
    made.show(Text("shown"))
    assert made.taken() == [Text("shown")]
    assert made.size == len("held")
    assert waiting.events == [Text("held")]


def test_a_copy_of_a_call_that_does_harm_is_left_out_and_one_behind_words_is_not() -> None:
    def bash() -> list[Event]:
        return [
            Start("<", "bash", "hermes"),
            Args("b", '{"command":"x"}'),
            End(">", "bash", '{"command":"x"}', verdict()),
        ]

    made = over(*bash(), Text("\n"), *bash())
    events = [*made.taken(), *made.finish(cut=False)]
    assert [event.name for event in events if isinstance(event, End)] == ["bash"]
    assert raw(events) == "<b>\n<b>"
    made = over(*bash(), Text("Again."), *bash())
    assert [event.name for event in made.taken() if isinstance(event, End)] == ["bash", "bash"]


# --- What is known of what went out


def test_behind_a_call_only_white_space_is_fresh() -> None:
    made = over(*call())
    assert (made.fresh, made.callers) == (True, {"hermes"})
    made.add(Text("\n"))
    assert made.fresh
    made.pass_by(" ")
    assert made.fresh
    made.pass_by("x")
    assert not made.fresh


@pytest.mark.parametrize(("before", "speaks"), [("\n", True), ("Well. ", False)])
def test_markup_at_the_answers_edge_tells_of_a_server_that_shows_it(before: str, speaks: bool) -> None:
    made = over(Text(before), Drop("<|im_start|>", REMAINS, "qwen"))
    assert made.is_speaking is speaks


def test_an_answer_is_plain_until_something_else_than_text_has_come() -> None:
    made = over(Text("a"))
    made.taken()
    assert made.is_plain
    assert not over(*call()).is_plain
    waiting = over(Text("a"))
    waiting.hold()
    waiting.add(Text("b"))
    assert not waiting.is_plain


# --- Drafts


def test_a_call_waits_for_a_closer_of_reasoning_and_was_a_draft_where_one_comes() -> None:
    made = outlet()
    for event in (Text("I look. "), *call(), Text(" Or not.")):
        made.add(event)
    assert made.taken() == [Text("I look. ")]
    assert made.size == len("<a> Or not.")
    made.end_thought("</think>")
    assert made.drafts is None or made.drafts.held
    made.fall()
    assert made.callers == set()
    events = made.taken()
    assert raw(events) == "<a> Or not."
    assert not [event for event in events if isinstance(event, End)]


def test_a_call_that_waited_stands_where_no_closer_comes() -> None:
    made = outlet()
    for event in (*call(), Text(" So.")):
        made.add(event)
    made.stand(in_fence=False)
    assert [event.name for event in made.taken() if isinstance(event, End)] == ["read"]
    assert (made.callers, made.size) == ({"hermes"}, 0)


def test_nothing_waits_once_reasoning_is_over() -> None:
    made = outlet()
    made.end_thought("</think>")
    for event in call():
        made.add(event)
    assert made.drafts is None
    assert [type(event).__name__ for event in made.taken()] == ["Start", "Args", "End"]


def test_a_closer_within_a_call_that_waits_is_told() -> None:
    made = outlet()
    start, arguments, _ = call()
    assert made.add(start) is None
    assert made.add(arguments) is None
    assert made.add(End("</think>", "read", "{}", verdict())) == "</think>"
