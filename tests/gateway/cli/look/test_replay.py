"""`toolgate replay` and `toolgate export`, over what a real gateway kept of real requests."""

import asyncio
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.change.export import export
from gateway.cli.look.replay import replay
from gateway.core.events import IN_REASONING
from gateway.core.records import CallRecord, LabelRecord, Record, RequestRecord
from gateway.report.cases import Case, case_of, masked, parse_fixture
from gateway.state.opening import open_store
from gateway.telemetry.redaction import Redactor
from tests.support.client import TOOLS, ask, chat
from tests.support.faulty_upstream import DONE, answer_json, completion, event, in_turn, stream, text
from tests.support.week import evolve

SECRET = "sk-live-abcdefgh12345678"
TAGS = "I will look.\n<read_file>\n<path>a.py</path>\n</read_file>"
TWO = f"{TAGS}\n<read_file>\n<path>b.py</path>\n</read_file>"
QUOTED = "Write this:\n```\n<read_file>\n<path>x</path>\n</read_file>\n```\nand wait."
BROKEN = "<read_file>\n<path>a.py"
MODELS = ("qwen3-coder", "some-model")
NATIVE = "gpt-4o"
"""A model whose answers nobody reads where its server's leaks are left alone."""
ANSWERS = 5 * 2
"""Of each model: five texts, streamed and whole."""


def run(command: Any, *arguments: str, store: Path, text: str | None = None, **more: str) -> Result:
    own = [name for name in os.environ if name.startswith(("STORE_", "TRANSFORM_", "CANARY_", "GATEWAY_", "UPSTREAM_"))]
    environ: Mapping[str, str | None] = {**dict.fromkeys(own), "STORE_URL": f"sqlite:///{store}", **more}
    return CliRunner().invoke(command, arguments, env=environ, input=text)


async def used(gateway: Any, upstream: Any, client: Any, store: Path, **environ: str) -> None:
    """A gateway that answered every kind of answer to every kind of model, streamed and whole."""
    running = await gateway(upstream.url, STORE_URL=f"sqlite:///{store}", REPAIR_ATTEMPTS="0", **environ)
    for model in (*MODELS, NATIVE):
        for said in (TAGS, TWO, QUOTED, BROKEN, "Just prose."):
            streamed = stream(*map(text, (said[:9], said[9:])), event(finish="stop"), DONE)
            upstream.script = in_turn(streamed, answer_json(completion(said)))
            messages = [{"role": "user", "content": f"Use {SECRET} to look at the file."}]
            for is_stream in (True, False):
                await ask(client, running.url, chat(model=model, stream=is_stream, messages=messages, tools=TOOLS))
    await running.close()


async def kept(path: Path, kind: Any = RequestRecord) -> list[Any]:
    store = open_store(f"sqlite:///{path}", prefix="", timeout_ms=2000)
    await store.open()
    found = [record async for record in store.scan(kind)]
    await store.close()
    return found


async def keep(path: Path, *records: Record) -> None:
    store = open_store(f"sqlite:///{path}", prefix="", timeout_ms=2000)
    await store.open()
    await store.append(records)
    await store.close()


@pytest.fixture(params=["full", "dry_run"])
async def store(request, gateway, upstream, client, tmp_path: Path) -> Path:
    path = tmp_path / "kept.db"
    await used(gateway, upstream, client, path, AUDIT_BODIES="full", TRANSFORM_MODE=request.param, NATIVE_LEAKS="off")
    return path


async def invoked(*arguments: Any, **more: Any) -> Result:
    """The command, beside this test's own event loop."""
    return await asyncio.to_thread(run, *arguments, **more)


async def test_what_the_gateway_read_reads_the_same_again(store):
    result = await invoked(replay, "--store", "--json", "--fail-on", "differences", store=store)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["read"] == len(MODELS) * ANSWERS
    assert told["skipped"] == {"no_text": ANSWERS}
    assert (told["differences"], told["faults"]) == (0, 0)


async def test_what_was_looked_through_for_leaks_reads_the_same_again(gateway, upstream, client, tmp_path):
    path = tmp_path / "kept.db"
    await used(gateway, upstream, client, path, AUDIT_BODIES="full")
    result = await invoked(replay, "--store", "--json", "--fail-on", "differences", store=path)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["read"], told["differences"], told["faults"]) == ((len(MODELS) + 1) * ANSWERS, 0, 0)


async def test_another_threshold_is_seen_as_a_difference(store):
    result = await invoked(replay, "--store", "--fail-on", "differences", store=store, TRANSFORM_MIN_CONFIDENCE="1.0")
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    assert '  - read_file {"path":"a.py"}' in lines
    assert "  + no call" in lines
    assert any(line.startswith("    left as text: read_file:") for line in lines)
    assert not lines[-1].endswith(" 0 differences.")
    assert (await invoked(replay, "--store", store=store, TRANSFORM_MIN_CONFIDENCE="1.0")).exit_code == 0


async def test_fixtures_go_out_and_come_back_without_a_difference(store, tmp_path):
    target = tmp_path / "fixtures.jsonl"
    result = await invoked(export, "--fixtures", "-o", str(target), store=store)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert len(lines) >= len(MODELS) * 2 * 2
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    for line in lines:
        assert line["schema_version"] == 1
        assert line["tools"] == TOOLS
        assert line["answer"] in (TAGS, TWO, QUOTED, BROKEN)
        if line["answer"] == TAGS:
            assert line["expected"] == [{"name": "read_file", "arguments": {"path": "a.py"}}]
        if line["answer"] in (QUOTED, BROKEN):
            assert line["expected"] == []
    assert SECRET not in target.read_text()
    again = await invoked(replay, str(target), "--fail-on", "differences", store=store)
    assert again.exit_code == 0, again.output
    assert again.stdout.endswith(f"{len(lines)} answers read, 0 differences.\n")
    # A fixture that says otherwise is noticed.
    lines[0]["expected"] = [{"name": "read_file", "arguments": {"path": "other.py"}}]
    target.write_text("\n".join(map(json.dumps, lines)))
    changed = await invoked(replay, str(target), "--fail-on", "differences", "--json", store=store)
    assert changed.exit_code == 3
    [found] = json.loads(changed.stdout)["results"]
    assert found["before"] == [{"name": "read_file", "arguments": {"path": "other.py"}}]


async def test_pairs_are_conversations_with_their_right_call(store):
    result = await invoked(export, store=store)
    assert result.exit_code == 0, result.output
    pairs = [json.loads(line) for line in result.stdout.splitlines()]
    assert pairs
    for pair in pairs:
        assert pair["tools"] == TOOLS
        *conversation, answer = pair["messages"]
        assert [message["role"] for message in conversation] == ["user"]
        assert answer["role"] == "assistant"
        assert answer["content"] == "I will look."
        for call in answer["tool_calls"]:
            assert call["type"] == "function"
            assert json.loads(call["function"]["arguments"])["path"] in ("a.py", "b.py")
    assert SECRET not in result.stdout
    assert "pairs written" in result.stderr


async def test_what_people_call_wrong_is_left_out(store):
    before = (await invoked(export, store=store)).stdout.splitlines()
    wrong = json.loads(before[0])["id"]
    await keep(store, LabelRecord(at=1.0, request_id=wrong, number=0, is_right=False))
    for kind in ("--pairs", "--fixtures"):
        lines = (await invoked(export, kind, store=store)).stdout.splitlines()
        assert wrong not in {json.loads(line)["id"] for line in lines}
        assert len(lines) > 0
    await keep(store, LabelRecord(at=2.0, request_id=wrong, number=0, is_right=True))
    assert (await invoked(export, store=store)).stdout.splitlines() == before


async def test_what_has_a_sign_against_it_is_no_pair_until_somebody_looked(store):
    record = next(each for each in await kept(store) if case_of(each).expected)  # type: ignore[union-attr]
    doubtful = evolve(
        record,
        id="doubtful",
        at=record.at - 0.001,
        calls=tuple(evolve(call, signs=("in_fence",)) for call in record.calls),
    )
    await keep(store, doubtful)
    assert "doubtful" not in (await invoked(export, store=store)).stdout
    assert "doubtful" in (await invoked(export, "--fixtures", store=store)).stdout
    numbers = [call.number for call in record.calls]
    await keep(store, *(LabelRecord(at=1.0, request_id="doubtful", number=each, is_right=True) for each in numbers))
    assert "doubtful" in (await invoked(export, store=store)).stdout


async def test_without_bodies_there_is_nothing_to_export_or_replay(gateway, upstream, client, tmp_path):
    path = tmp_path / "kept.db"
    await used(gateway, upstream, client, path, AUDIT_BODIES="redacted")
    result = await invoked(export, store=path)
    assert result.exit_code == 4
    assert "AUDIT_BODIES=full" in result.stderr
    again = await invoked(replay, "--store", "--json", store=path)
    told = json.loads(again.stdout)
    assert (told["read"], told["skipped"]) == (0, {"no_text": (len(MODELS) + 1) * ANSWERS})


def test_a_plain_answer_is_read_and_shown(tmp_path):
    result = run(replay, "-", store=tmp_path / "none.db", text=TAGS)
    assert result.exit_code == 0, result.output
    assert '  + read_file {"path":"a.py"}' in result.stdout.splitlines()
    told = json.loads(run(replay, "-", "--json", store=tmp_path / "none.db", text=TAGS).stdout)
    assert told["results"][0]["before"] is None
    assert told["results"][0]["after"] == [{"name": "read_file", "arguments": {"path": "a.py"}}]


def test_a_plain_answer_may_have_its_own_tools(tmp_path):
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "sing", "parameters": {"type": "object"}}}]))
    result = run(replay, "-", "--tools", str(tools), store=tmp_path / "none.db", text="<sing>\n</sing>")
    assert "  + sing {}" in result.stdout.splitlines()


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"answer": "x", "expected": []}\nnonsense\n'])
def test_a_file_that_cannot_be_read_says_so(tmp_path, content):
    target = tmp_path / "file"
    target.write_bytes(content)
    result = run(replay, str(target), store=tmp_path / "none.db")
    assert result.exit_code == 1
    assert "Error:" in result.stderr


@pytest.mark.parametrize(
    "line",
    [
        {"answer": TAGS, "messages": "no list", "expected": []},
        {"answer": TAGS, "tools": [1], "expected": []},
        {"answer": TAGS, "messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "model": " ", "expected": []},
    ],
)
def test_a_fixture_whose_request_is_refused_is_a_difference(tmp_path, line):
    target = tmp_path / "file"
    target.write_text(json.dumps(line))
    result = run(replay, str(target), "--fail-on", "differences", store=tmp_path / "none.db")
    assert result.exit_code == 3
    assert "the request is refused today" in result.stdout


@pytest.mark.parametrize("arguments", [(), ("--store", "file"), ("file", "--days", "1")])
def test_mistakes_of_use(tmp_path, arguments, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    assert run(replay, *arguments, store=tmp_path / "none.db").exit_code == 2


def test_a_store_that_is_not_there_is_5_and_leaves_no_file(tmp_path):
    assert run(replay, "--store", store=tmp_path / "none.db").exit_code == 5
    target = tmp_path / "out.jsonl"
    assert run(export, "-o", str(target), store=tmp_path / "none.db").exit_code == 5
    assert list(tmp_path.iterdir()) == []


def record(**fields: Any) -> RequestRecord:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": TOOLS})
    given = {"id": "r", "at": 1.0, "key": "k", "model": "m", "upstream": "u", "request_body": body, "answer_text": TAGS}
    return RequestRecord(**{**given, **fields})


CALL = CallRecord(number=0, dialect="tag_xml", tool="t", score=97, decision="delivered", stage="sent")


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"answer_text": None}, "no_text"),
        ({"request_body": None}, "no_request"),
        ({"request_body": '{"messages": [{"role": "us'}, "no_request"),
        ({"request_body": "[" * 100_000}, "no_request"),
        ({"request_body": "[]"}, "no_request"),
        ({"native_calls": 1}, "other_calls"),
        ({"calls": (evolve(CALL, decision="repaired"),)}, "other_calls"),
        ({"calls": (evolve(CALL, reasons=(IN_REASONING,)),)}, "other_calls"),
        ({"calls": (evolve(CALL, after='{"name": "t", "argu'),)}, "no_text"),
        ({"calls": (evolve(CALL, after="[]"),)}, "no_text"),
    ],
)
def test_records_that_make_no_case_say_why(fields, word):
    assert case_of(record(**fields)) == word


def test_a_record_makes_a_case():
    case = case_of(record(calls=(evolve(CALL, after='{"name": "t", "arguments": {"a": 1}}'),), finish_reason=None))
    assert isinstance(case, Case)
    assert (case.finish, [(call.name, call.arguments) for call in case.expected or ()]) == ("cut", [("t", {"a": 1})])


@pytest.mark.parametrize("line", ["", "[]", "1", "{}", '{"answer": 1}', "[" * 100_000, '{"answer": "x"', "\ud800"])
def test_a_line_that_is_no_fixture_is_none(line):
    assert parse_fixture(line.encode("utf-8", "replace")) is None


def test_masking_reaches_every_text_and_keeps_the_rest():
    mask = Redactor().mask
    deep: Any = SECRET
    for _ in range(200):
        deep = [deep]
    value = {SECRET: [1, None, True, {"api_key": "hunter2hunter2"}, f"Bearer {SECRET}"], "deep": deep, "n": 1.5}
    shown = json.dumps(masked(value, mask))
    assert SECRET not in shown
    assert "hunter2" not in shown
    assert masked({"a": [1, 2.5, "plain", None]}, mask) == {"a": [1, 2.5, "plain", None]}
