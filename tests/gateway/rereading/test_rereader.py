"""Cases read again with the settings in force, and which records become lines of a file."""

import json
from typing import Any

import pytest

from gateway.config.load import load
from gateway.core.records import CallRecord, LabelRecord, RequestRecord
from gateway.core.tools import ToolSet
from gateway.report.cases import Call, Case
from gateway.rereading.rereader import Exporter, Reread, Rereader
from tests.support.client import TOOLS
from tests.support.reading import tool
from tests.support.week import evolve

SECRET = "sk-live-abcdefgh12345678"
TAGS = "I will look.\n<read_file>\n<path>a.py</path>\n</read_file>"
READ = Call("read_file", {"path": "a.py"})
ASKED = {"messages": [{"role": "user", "content": f"Use {SECRET}."}], "tools": TOOLS}
CALL = CallRecord(
    number=0,
    dialect="tag_xml",
    tool="read_file",
    score=97,
    decision="delivered",
    stage="sent",
    after='{"name": "read_file", "arguments": {"path": "a.py"}}',
)


def rereader(**settings: str) -> Rereader:
    return Rereader.of(load({"STORE_URL": "memory://", **settings}))


def case(answer: str = TAGS, *expected: Call, **more: Any) -> Case:
    told = {"id": "r", "model": "qwen3-coder", "request": ASKED, "expected": expected, **more}
    return Case(answer=answer, **told)


def record(*calls: CallRecord, **fields: Any) -> RequestRecord:
    body = json.dumps({"model": "qwen3-coder", **ASKED})
    told = {"id": "r", "at": 1.0, "key": "k", "model": "qwen3-coder", "upstream": "u", "finish_reason": "stop"}
    return RequestRecord(calls=calls or (CALL,), **{**told, "request_body": body, "answer_text": TAGS, **fields})


def label(*, is_right: bool) -> dict[tuple[str, int], LabelRecord]:
    return {("r", 0): LabelRecord(at=1.0, request_id="r", number=0, is_right=is_right)}


# --- Read again


def test_what_is_read_as_it_was_expected_is_the_same() -> None:
    assert rereader().read(case(TAGS, READ)) == Reread(case=case(TAGS, READ), calls=(READ,), text="I will look.\n")


def test_another_call_than_was_expected_is_a_difference() -> None:
    assert not rereader().read(case(TAGS, Call("read_file", {"path": "b.py"}))).is_same
    assert not rereader().read(case(TAGS)).is_same
    assert rereader().read(case(TAGS, expected=None)).is_same, "where nobody knows"


def test_the_settings_in_force_decide() -> None:
    found = rereader(TRANSFORM_MIN_CONFIDENCE="1.0").read(case(TAGS, READ))
    assert (found.calls, found.text, found.is_same) == ((), TAGS, False)
    (reason,) = found.reasons
    assert reason.startswith("read_file: ")


def test_an_answer_that_nobody_reads_today_is_text() -> None:
    found = rereader(NATIVE_LEAKS="off").read(case(TAGS, READ, model="gpt-4o"))
    assert (found.calls, found.text) == ((), TAGS)
    assert rereader(NATIVE_LEAKS="off").read(case(TAGS, READ, model="gpt-4o", strategy="recovery")).calls == (READ,)


def test_an_answer_that_was_cut_is_read_as_one() -> None:
    cut = TAGS.removesuffix("</read_file>")
    assert rereader().read(case(cut, READ)).calls == (READ,)
    assert rereader().read(case(cut, READ, finish="length")).calls == ()


def test_a_request_that_is_refused_today_is_a_fault() -> None:
    found = rereader().read(case(TAGS, READ, request={"messages": "none", "tools": TOOLS}))
    assert found.fault.startswith("the request is refused today: ")
    assert found.calls == ()


def test_secrets_are_no_difference() -> None:
    said = TAGS.replace("a.py", SECRET)
    masked = Call("read_file", {"path": rereader().mask(SECRET)})
    assert masked.arguments["path"] != SECRET
    assert rereader().read(case(said, masked)).is_same


def test_a_plain_answer_is_read_with_the_tools_that_are_given() -> None:
    sing = ToolSet([tool("sing", "song")])
    plain = case("<sing>\n<song>la</song>\n</sing>", expected=None)
    assert rereader().plain(plain, sing).calls == (Call("sing", {"song": "la"}),)
    assert rereader().plain(plain, ToolSet([tool("dance")])).calls == ()


# --- Lines of a file


def exported(kind: str, made: RequestRecord, labels: Any = None) -> tuple[Any, Exporter]:
    exporter = Exporter(rereader(), kind)
    line = exporter.line(made, labels or {})
    assert line is None or line.endswith(b"\n")
    return (None if line is None else json.loads(line)), exporter


def test_a_fixture_holds_what_was_asked_answered_and_expected() -> None:
    line, exporter = exported("fixtures", record())
    assert (line["answer"], line["expected"]) == (TAGS, [{"name": "read_file", "arguments": {"path": "a.py"}}])
    assert SECRET not in json.dumps(line)
    assert exporter.summary() == "1 fixtures written, 0 left out for what speaks against them."


def test_a_pair_ends_in_the_call_with_an_id_of_its_own() -> None:
    line, _ = exported("pairs", record())
    *asked, answer = line["messages"]
    assert [each["role"] for each in asked] == ["user"]
    assert answer["content"] == "I will look."
    assert [(each["id"], each["function"]["name"]) for each in answer["tool_calls"]] == [("call_0", "read_file")]
    assert SECRET not in json.dumps(line)


def test_the_text_of_a_pair_is_left_out_where_it_would_be_read_otherwise_today() -> None:
    other = evolve(CALL, after='{"name": "read_file", "arguments": {"path": "b.py"}}')
    line, _ = exported("pairs", record(other))
    assert line["messages"][-1]["content"] is None


@pytest.mark.parametrize("kind", ["fixtures", "pairs"])
def test_records_without_calls_or_bodies_make_no_line_and_are_told_apart(kind: str) -> None:
    line, exporter = exported(kind, evolve(record(), calls=()))
    assert (line, exporter.written, exporter.without_bodies, exporter.left_out) == (None, 0, 0, 0)
    line, exporter = exported(kind, record(answer_text=None))
    assert (line, exporter.without_bodies, exporter.left_out) == (None, 1, 0)
    assert "1 records hold no bodies (AUDIT_BODIES=full keeps them)" in exporter.summary()


@pytest.mark.parametrize("kind", ["fixtures", "pairs"])
def test_what_somebody_called_wrong_is_left_out(kind: str) -> None:
    line, exporter = exported(kind, record(), label(is_right=False))
    assert (line, exporter.left_out) == (None, 1)
    assert exported(kind, record(), label(is_right=True))[0] is not None


def test_what_has_a_sign_against_it_is_no_pair_until_somebody_looked() -> None:
    doubtful = record(evolve(CALL, signs=("in_fence",)))
    assert exported("pairs", doubtful)[0] is None
    assert exported("fixtures", doubtful)[0] is not None
    assert exported("pairs", doubtful, label(is_right=True))[0] is not None


@pytest.mark.parametrize("fields", [{"healthy": False}, {"end": "upstream_error"}])
def test_an_answer_that_ended_badly_is_no_example_to_learn_from(fields: dict[str, Any]) -> None:
    assert exported("pairs", record(**fields))[0] is None
    assert exported("fixtures", record(**fields))[0] is not None
