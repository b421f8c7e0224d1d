"""The line of each kind of answer, and how the next turn took it."""

import pytest

from gateway.core.records import OutcomeRecord
from gateway.inspector.rows import CallHead, Head, Next, next_of, row_of


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
