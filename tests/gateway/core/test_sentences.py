"""Every reason has one sentence with the facts in it, and says the setting under which it would be another."""

import re

import pytest

from gateway.answer.candidates import _STAGES
from gateway.core.events import Verdict
from gateway.core.reasons import Reason
from gateway.core.sentences import MENDS, REASON_WORDS, Step, furthest, step_of, told_mends, why
from strategies.grammar.confidence import _COSTS, FORMS
from strategies.text.tolerant_json import CHOSEN

THREE = ("read_file", "write_file", "execute_command")


def refused_for(reason: Reason, *reasons: str, name: str = "write_file", **facts: object) -> Verdict:
    given = {"dialect": "hermes", "score": 0, "accepted": False, "refusal": reason, "reasons": reasons, **facts}
    return Verdict(name=name, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_sentence_words_and_a_stage(reason):
    told = why(refused_for(reason, "some words", score=89, threshold=90))
    assert told.reason is reason
    assert told.sentence == told.sentence.strip()
    assert "\n" not in told.sentence
    assert not told.sentence.endswith(".")
    assert REASON_WORDS[reason]
    assert reason in _STAGES


QUOTES = refused_for(Reason.LOW_CONFIDENCE, "bare 92", "inner_quotes -7", score=85, threshold=90, about="content")
BELOW = "0.85 is below 0.90: quotes inside `content` were not escaped (with TRANSFORM_MIN_CONFIDENCE=0.85 it is a call)"


@pytest.mark.parametrize(
    ("verdict", "finish", "sentence", "setting"),
    [
        (
            refused_for(Reason.UNKNOWN_TOOL, "unknown_tool", name="launch_rocket", offered=THREE),
            "stop",
            "`launch_rocket` is none of the 3 tools offered (read_file, write_file, execute_command)",
            "",
        ),
        (
            refused_for(Reason.UNKNOWN_TOOL, "unknown_tool", name="x", offered=("a",)),
            "stop",
            "`x` is not the one tool offered (a)",
            "",
        ),
        (QUOTES, "stop", BELOW, "TRANSFORM_MIN_CONFIDENCE=0.85"),
        (
            refused_for(Reason.CUT, "cut"),
            "length",
            "the answer was cut by its length limit inside the call of `write_file`",
            "",
        ),
        (refused_for(Reason.CUT, "cut"), "cut", "the answer was cut off inside the call of `write_file`", ""),
        (
            refused_for(Reason.SCHEMA_INVALID, "hermes 97", "missing required argument `path`", score=97),
            "stop",
            "the arguments of the call of `write_file` do not fit: missing required argument `path`",
            "",
        ),
        (
            refused_for(Reason.NOT_CLOSED, "value not closed"),
            "stop",
            "the call of `write_file` is not complete: value not closed",
            "",
        ),
    ],
)
def test_a_sentence_holds_the_facts(verdict, finish, sentence, setting):
    told = why(verdict, finish)
    assert (told.sentence, told.setting) == (sentence, setting)


def test_many_tools_and_long_names_are_shortened():
    told = why(refused_for(Reason.UNKNOWN_TOOL, name="n" * 100_000, offered=tuple("t" * 5000 for _ in range(500))))
    assert "500 tools" in told.sentence
    assert len(told.sentence) < 1500


def test_the_costliest_mend_is_told_first():
    assert told_mends(("tag 97", "trailing_comma -2", "inner_quotes -7", "typed_string")) == (
        "quotes inside a value were not escaped; a comma stands before a closing brace"
    )
    assert told_mends(("tag 97", "some_new_mend -2")) == "some new mend"


def test_every_step_of_a_score_has_words_with_its_code_beside_it():
    """Whatever the judge gives or takes for, and what is said of a value without taking anything."""
    for code in (*FORMS, *_COSTS, *CHOSEN):
        step = step_of(f"{code} -2")
        assert (step.code, step.points) == (code, -2)
        assert step.words not in (code, code.replace("_", " "))
    assert step_of("unknown_tool") == Step(REASON_WORDS[Reason.UNKNOWN_TOOL], "unknown_tool")
    assert step_of("missing required argument `path`") == Step("missing required argument `path`")
    assert step_of("some_new_mend -3") == Step("some new mend", "some_new_mend", -3)


def test_words_of_mends_can_be_filled_in():
    assert all(re.fullmatch(r"[^{}]*(\{of\})?[^{}]*", words) for words in MENDS.values())


def test_of_several_readings_the_one_that_came_furthest_speaks():
    prose = refused_for(Reason.PARSE, "no call", name="")
    unread = refused_for(Reason.PARSE, "JSON", name="write_file")
    unknown = refused_for(Reason.UNKNOWN_TOOL, "unknown_tool", name="launch")
    judged = refused_for(Reason.LOW_CONFIDENCE, "x", score=85)
    assert furthest([prose, unread]) is unread
    assert furthest([unread, unknown]) is unknown
    assert furthest([prose, unknown, judged, unread]) is judged
