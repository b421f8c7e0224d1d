"""One answer in full: its sentence, what stood there and what became of it, why, and what was done with the request."""

import json
from typing import Any

import pytest

from gateway.core.records import CallRecord, OtherReading, RequestRecord
from gateway.inspector.detail import detail_of, sentence_of
from gateway.inspector.rows import CallHead, Head, Next, row_of
from tests.support.week import evolve

BEFORE = "I read it. <read>a.py</read>"
SENT = CallRecord(
    number=0,
    dialect="hermes",
    tool="read_file",
    score=97,
    threshold=90,
    decision="delivered",
    stage="sent",
    reasons=("hermes 97", "apostrophes"),
    before=BEFORE,
    span=(11, len(BEFORE)),
    after='{"name": "read_file", "arguments": {"path": "a.py"}}',
)
REFUSED = evolve(
    SENT,
    number=1,
    tool="rare",
    decision="refused",
    stage="known_tool",
    reason="low_confidence",
    sentence="it was not sure enough",
    setting="TRANSFORM_MIN_CONFIDENCE=0.85",
    signs=("in_fence",),
    others=(OtherReading(dialect="invoke", score=40, reason="parse"),),
    after="",
)


def request(*calls: CallRecord, **fields: Any) -> RequestRecord:
    told = {"id": "r", "at": 1.0, "key": "k", "model": "m", "upstream": "u", "tools": 2, **fields}
    return RequestRecord(calls=calls, **told)


def shown(record: RequestRecord, next_: Next | None = None) -> dict[str, Any]:
    heads = tuple(
        CallHead(
            number=call.number,
            dialect=call.dialect,
            tool=call.tool,
            score=call.score,
            decision=call.decision,
            reason=call.reason,
            meant=call.meant,
        )
        for call in record.calls
    )
    row = row_of(Head(id=record.id, at=record.at, calls=heads), cursor="1", next_=next_ or Next())
    found = detail_of(record, row, [{"role": "user"}])
    json.dumps(found)
    return found


# --- The sentence


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (SENT, "`read_file` was written as text and arrived as a call (hermes, 0.97)"),
        (evolve(SENT, decision="would_deliver"), "left so; it would be a call (hermes, 0.97)"),
        (evolve(SENT, decision="repaired", score=0), "asked again, and then called `read_file` rightly (hermes)"),
        (evolve(SENT, decision="overheard", tool=""), "a call stands in an answer to a request without tools"),
        (REFUSED, "it was not sure enough"),
        (evolve(REFUSED, sentence="", reason="of no known kind"), "it stayed text"),
    ],
)
def test_what_became_of_a_candidate_is_a_sentence(call: CallRecord, words: str) -> None:
    assert words in sentence_of(request(call), call)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"error": "upstream_refused"}, "there is no answer to read: "),
        ({"error": "of_no_known_kind"}, "there is no answer to read: of_no_known_kind"),
        ({"native_calls": 1, "native_tools": ("read",)}, "gave one call of `read`; it went out as it came"),
        ({"native_calls": 3, "native_tools": ("a", "b", "a")}, "gave 3 calls of `a`, `b`; they went out as they came"),
        ({"native_calls": 2}, "gave 2 calls; they went out as they came"),
        ({"finish_reason": "length"}, "cut by its length limit"),
        ({"tools": 0}, "the request offered no tools"),
        ({}, "nothing that looks like a call"),
    ],
)
def test_an_answer_without_a_candidate_has_one_too(fields: dict[str, Any], words: str) -> None:
    assert words in sentence_of(request(**fields), None)


# --- Before and after


def test_a_candidate_is_shown_in_the_whole_answer_where_that_was_kept() -> None:
    whole = f"Well.\n{BEFORE}\nDone."
    for record, text in ((request(SENT), BEFORE), (request(SENT, answer_text=whole), whole)):
        panes = shown(record)["panes"]
        assert panes["before"] == text
        assert panes["before"][slice(*panes["span"])] == "<read>a.py</read>"
    cut = shown(request(SENT, answer_text="of another time"))["panes"]
    assert cut["before"] == BEFORE


def test_calls_are_shown_with_their_arguments_in_lines() -> None:
    odd = evolve(SENT, number=2, after="[" * 100_000)
    (call,) = shown(request(SENT, REFUSED, odd))["panes"]["after"]
    assert call == {"name": "read_file", "arguments": '{\n  "path": "a.py"\n}', "number": 0}


def test_text_stands_beside_only_where_it_stayed_text() -> None:
    assert shown(request(SENT, answer_text=BEFORE))["panes"]["text"] == ""
    assert shown(request(REFUSED, answer_text="all of it"))["panes"]["text"] == "all of it"
    assert shown(request(REFUSED))["panes"]["text"] == BEFORE


@pytest.mark.parametrize(("arm", "title"), [("live", "As the client got it"), ("dry_run", "As it would have been")])
def test_the_titles_say_what_the_client_got(arm: str, title: str) -> None:
    assert shown(request(SENT, arm=arm))["panes"]["titles"][1] == title


def test_what_was_not_kept_is_said_with_the_setting() -> None:
    bare = evolve(SENT, before="", span=None, after="")
    assert "AUDIT_BODIES=full" in shown(request(bare))["panes"]["note"]
    assert "AUDIT_BODIES=none" in shown(request(bare, left_out="AUDIT_BODIES=none"))["panes"]["note"]
    assert "DRY_RUN_SAMPLES_PER_SLICE" in shown(request(bare, left_out="samples"))["panes"]["note"]
    assert shown(request(SENT, left_out="samples"))["panes"]["note"] == ""


# --- Why, and what was done


def test_why_is_told_by_steps_with_what_each_took() -> None:
    why = shown(request(REFUSED))["why"]
    assert [step["points"] for step in why["steps"]] == [0.97, None]
    assert (why["score"], why["threshold"]) == (0.97, 0.9)
    assert [(each["dialect"], each["score"], each["code"]) for each in why["others"]] == [("invoke", 0.4, "parse")]
    assert [sign["code"] for sign in why["signs"]] == ["in_fence"]
    assert all(each["words"] for each in (*why["steps"], *why["signs"]))


def test_an_answer_without_a_candidate_has_no_why() -> None:
    found = shown(request())
    assert (found["why"], found["shown"], found["setting"], found["dialect"]) == (None, None, "", "")


def test_all_candidates_are_listed_and_the_one_of_the_row_is_shown() -> None:
    found = shown(request(SENT, REFUSED))
    assert [each["number"] for each in found["candidates"]] == [0, 1]
    assert (found["shown"], found["code"]) == (0, "")
    found = shown(request(evolve(REFUSED, number=0)))
    assert (found["code"], found["setting"]) == ("low_confidence", "TRANSFORM_MIN_CONFIDENCE=0.85")


def test_of_the_request_only_what_there_is_is_told() -> None:
    told = {name: rest for name, *rest in shown(request(SENT))["request"]}
    assert told["tools"] == ["2 offered"]
    assert told["request"] == ["as it came"]
    assert told["next turn"] == ["not seen yet"]
    assert not {"retries", "error", "tokens", "held", "first byte", "notes"} & told.keys()
    full = request(
        SENT,
        **{"prompted_tools": 2, "retries": 1, "upstream_status": 200, "usage": {"input": 1200}, "rewritten": True},
        **{
            "held_bytes": 4096,
            "upstream_first_s": 0.25,
            "first_sent_s": 0.5,
            "overhead_s": 0.0015,
            "notes": ("a", "b"),
        },
    )
    told = {name: rest for name, *rest in shown(full, Next("rejected", "missing_argument"))["request"]}
    assert told["tools"] == ["2 offered, 2 in the prompt"]
    assert (told["request"], told["retries"], told["server"]) == (["rewritten"], ["1"], ["u, status 200"])
    assert (told["tokens"], told["held"]) == (["1,200 input"], ["4,096 bytes at most"])
    assert (told["first byte"], told["added"]) == (["250.0 ms, sent 500.0 ms"], ["1.5 ms"])
    assert told["notes"] == ["a; b"]
    assert told["next turn"][0].startswith("rejected (")
    assert told["next turn"][1] == "missing_argument"


@pytest.mark.parametrize(("body", "text", "can"), [("{}", "x", True), (None, "x", False), ("{}", None, False)])
def test_a_fixture_can_be_made_of_what_was_kept_whole(body: str | None, text: str | None, can: bool) -> None:
    assert shown(request(SENT, request_body=body, answer_text=text))["can_be_fixture"] is can


def test_an_answer_without_a_finish_reason_is_tried_as_one_that_stopped() -> None:
    assert shown(request(SENT))["finish"] == "stop"
    assert shown(request(SENT, finish_reason="length"))["finish"] == "length"
