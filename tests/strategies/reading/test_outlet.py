"""The way out of a reader: what goes at once, what waits with what holds it, and calls that were only drafts."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.answer.stages import Shaper
from gateway.core.events import Args, Drop, End, Event, Note, Start, Text, Verdict
from strategies.base import Options, Shape
from strategies.dialects.rows import TABLE
from strategies.grammar.dialect import Context
from strategies.grammar.lexicon import REASONING
from strategies.reading.factory import reader_factory
from strategies.reading.left_out import REMAINS
from strategies.reading.outlet import Held, Outlet, as_text, joined
from tests.support.reading import AGENT_TOOLS, Reading, pieces, read, together

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


def test_a_call_goes_out_at_once_where_reasoning_is_over() -> None:
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


# --- Calls in reasoning that began in the prompt: drafts, told by the closer that comes later without an opener


ROWS = [row for row in TABLE if row.example]
WORDS = (
    "No, that is too early.",
    "The user wants the newest log, so the folder has to be known first.\n\nThen the rest follows.",
    "Hmm. Wait!\n- one\n- two",
    "Could that work?\n\n```py\nprint(1)\n```\n\nProbably not.",
    "It is `a < b` here.",
    "x",
)
ANSWERS = ("", "\n\nNothing to do: it is 4.", "\n\nDone.\n\n")
CALL = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'
DRAFT = "<read>\n<filePath>/draft</filePath>\n</read>"
WAYS: tuple[dict[str, Any], ...] = ({}, {"stream_arguments": "incremental"})


def cuts_of(text: str, rng: random.Random) -> list[list[str]]:
    """Whole, by characters, and at random places."""
    places = sorted(rng.sample(range(len(text) + 1), min(len(text), rng.randint(1, 30))))
    at = rng.randrange(len(text) + 1)
    return [[text], list(text), list(pieces(text, places)), [text[:at], text[at:]]]


def draft_of(rng: random.Random, example: str, *, words: bool) -> str:
    """Thought in which one or two calls are drafted."""
    drafts = [f"{example}\n"] * rng.randint(1, 2)
    told = [f"{rng.choice(WORDS)}\n\n" if rng.random() < 0.7 else "" for _ in drafts]
    last = f"{rng.choice(WORDS)}\n" if words or rng.random() < 0.6 else ""
    return "".join(part for pair in zip(told, drafts, strict=True) for part in pair) + last


def shaped(parts: Sequence[str], **options: Any) -> list[tuple[str, str]]:
    """The calls that a client gets who takes one of a message."""
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(**options), model="")()
    shaper = Shaper(Shape(first_only=True))
    events: list[Event] = []
    for part in parts:
        events += shaper.feed(reader.feed(part))
    events += [*shaper.feed(reader.finish("stop")), *shaper.finish("stop")]
    assert "".join(event.raw for event in events) == "".join(parts)
    return [(event.name, event.arguments) for event in events if isinstance(event, End)]


def answer_alone(opener: str, closer: str, answer: str) -> Reading:
    """What is read in the answer where the reasoning before it has its opener, and nothing in doubt."""
    head = f"{opener}\nx\n{closer}"
    found = read(head + answer)
    assert found.text.startswith(head)
    return Reading(**{**_fields(found), "text": found.text[len(head) :]})


def _fields(found: Reading) -> dict[str, Any]:
    return {name: getattr(found, name) for name in Reading.__annotations__}


def some_of_them():
    """Every closer behind a quarter of the dialects, and every dialect before a quarter of the closers; else all."""
    closers = [*REASONING.values()]
    return [
        pytest.param(
            row, closers[(number + part) % 4 :: 4], marks=[pytest.mark.long] if part else [], id=f"{row.id}-{part}"
        )
        for number, row in enumerate(ROWS)
        for part in range(4)
    ]


@pytest.mark.parametrize(("row", "closers"), some_of_them())
def test_what_stands_behind_the_closer_is_the_answer(row, closers):
    together("closer", {closer: closer for closer in closers})(answered_behind)(row=row)


def answered_behind(row, closer):
    """Each dialect has each kind of answer behind some closers, and each closer behind some dialects."""
    rng = random.Random(f"{row.id} {closer}")
    opener = next(opener for opener, closes in REASONING.items() if closes == closer)
    kind = (ROWS.index(row) + [*REASONING.values()].index(closer)) % 3
    thought = draft_of(rng, row.example, words=closer == "<|end|>")
    answer = rng.choice(ANSWERS[1:]) if kind == 0 else f"\n\n{rng.choice((row, *ROWS)).example}\n"
    if kind == 2:
        answer = f"\n\nReading now.{answer}"
    alone = answer_alone(opener, closer, answer)
    text = thought + closer + answer
    for how in WAYS:
        for parts in cuts_of(text, rng):
            found = read(parts, **how)
            assert found.calls == alone.calls, (how, parts)
            assert found.text == thought + closer + alone.text
            assert not found.broken
        assert shaped(cuts_of(text, rng)[2], **how) == alone.calls[:1]


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_calls_of_an_answer_without_a_closer_count(row):
    rng = random.Random(row.id)
    for _ in range(4):
        text = draft_of(rng, row.example, words=False)
        expected = read(text, reasoned=True)
        for how in WAYS:
            for parts in cuts_of(text, rng):
                assert read(parts, **how).outcome == expected.outcome, (how, parts)


def test_text_before_a_call_flows_and_nothing_behind_it_is_said_before_its_end():
    for how in WAYS:
        reader = reader_factory(tools=AGENT_TOOLS, options=Options(**how), model="")()
        assert [event.raw for event in reader.feed("Let me look. ")] == ["Let me look. "]
        assert reader.feed(f"\n{DRAFT}\n")[0] == Text("\n")
        assert reader.feed("That should do.") == []
        assert not reader.idle
        assert reader.held == len(f"{DRAFT}\nThat should do.")
        assert isinstance(reader.finish("stop")[0], Start)
        assert reader.idle
        assert reader.held == 0


@pytest.mark.parametrize(
    "before", ["<think>\n</think>\n", "<think>Easy.</think>", "Easy.\n</think>\n\n", "[THINK]x[/THINK]"]
)
def test_nothing_waits_once_reasoning_is_over(before):
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="")()
    events = reader.feed(f"{before}{DRAFT}\nN")  # behind its closer another one may come that was exchanged with it
    assert any(isinstance(event, End) for event in events)
    found = read(f"{before}{DRAFT}\nWell.\n</think>\nDone.")
    assert [name for name, _ in found.calls] == ["read"]


def test_nothing_waits_where_the_answer_has_a_field_for_reasoning():
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(stream_arguments="incremental"), model="")()
    reader.reasoned()
    assert isinstance(reader.feed(DRAFT[:-20])[0], Start)
    assert read(f"{DRAFT}\nWell.\n</think>\nDone.", reasoned=True).calls == [("read", '{"filePath":"/draft"}')]


def test_what_waits_stands_as_soon_as_reasoning_turns_out_to_have_a_field():
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="")()
    assert reader.feed(f"{DRAFT}\nSo.") == []
    events = reader.reasoned()
    assert "".join(event.raw for event in events) == f"{DRAFT}\nSo."
    assert [event.name for event in events if isinstance(event, End)] == ["read"]
    assert reader.idle
    assert reader.feed(" And more") == [Text(" And more")]


@pytest.mark.parametrize(
    "behind",
    [
        "I left `</think>` out.",
        'I left "</think>" out.',
        "It stands in:\n```\n</think>\n```\nas you see.",
        "Then <think>it is</think> done.",
        "\n<think>\nIt is.\n</think>\nDone.",
        "\n<thinking>\nIt is.\n</thinking>\nDone.",
        "The end is </thinking-hard>.",
    ],
)
def test_a_closer_that_is_mentioned_or_has_an_opener_makes_no_drafts(behind):
    text = f"Now.\n{DRAFT}\n{behind}"
    for how in WAYS:
        for parts in cuts_of(text, random.Random(behind)):
            assert read(parts, **how).calls == [("read", '{"filePath":"/draft"}')]


@pytest.mark.parametrize(
    "thought",
    [
        f"{CALL}\n<tool_response>\nfoo\n</tool_response>\nSo it is foo.\n",
        f"{CALL}\nAnd in code:\n```py\nx = 1\n",
        f"{CALL}\n`a\n\n",
        f"{CALL}\nor <write> with\n<filePath>x\n",
        f"For example:\n{CALL}\n",
        f"{CALL}\nfor example:\n{CALL}\n",
        f"```json\n{CALL}\n```\n",
        '```tool_code\n{"name": "read", "arguments": {"filePath": "/a"}}\n```\nNo.\n',
        '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n',
        f'{CALL}\nNo.\n<tool_call>\n{{"name": "read", "arguments": {{"filePath": "/a"}}}}\n',
        f"{CALL}\nI see <think> in it.\n" + "</think>",
        f"{CALL}\n</tool_call>",
    ],
)
def test_whatever_the_thought_is_full_of_it_makes_no_call(thought):
    text = f"{thought}</think>\n\nNo need: it is 4."
    for how in WAYS:
        for parts in cuts_of(text, random.Random(thought)):
            found = read(parts, **how)
            assert found.calls == []
            assert found.text == text


@pytest.mark.parametrize(
    "thought",
    [
        f"{CALL}\n<tool_response>\nfoo\n</tool_response>\nSo it is foo.\n",
        f"{CALL}\nor <write> with\n<filePath>x\n",
        DRAFT,
    ],
)
def test_the_answer_is_read_whatever_the_thought_is_full_of(thought):
    text = f"{thought}</think>\n\n```json\n{CALL.split(chr(10))[1]}\n```"
    for how in WAYS:
        for parts in cuts_of(text, random.Random(thought)):
            assert read(parts, **how).calls == [("read", '{"filePath":"/a"}')]


@pytest.mark.parametrize(
    "end", ["</think>", "\n</think>\n", "</think></think>", "</think><|im_end|>", "</think>\n</tool_call>"]
)
def test_a_call_that_meets_the_closer_counts_where_nothing_follows(end):
    for before in ("", "So.\n", f"{DRAFT}\nNo.\n"):
        for call in (CALL, CALL.removesuffix("</tool_call>")):
            text = before + call + end
            for how in WAYS:
                for parts in cuts_of(text, random.Random(text)):
                    found = read(parts, **how)
                    assert found.calls == [("read", '{"filePath":"/a"}')], parts
                    assert found.text.startswith(before)


def test_a_token_that_ends_turns_and_reasoning_makes_no_drafts_at_the_end():
    text = f"{CALL}\nThat reads it.<|end|>"
    for parts in cuts_of(text, random.Random(1)):
        assert read(parts).calls == [("read", '{"filePath":"/a"}')]
        assert read([*parts, "\n"]).calls == [("read", '{"filePath":"/a"}')]
        assert read([*parts, "<|start|>assistant<|channel|>final<|message|>No."]).calls == []


def test_a_draft_loses_nothing():
    text = f"```json\n{CALL}\n```\n{CALL}</tool_call><|im_end|>\nNo.</think>Done."
    found = read(text)
    assert found.text == text
    assert not [event for event in found.events if isinstance(event, Drop)]
