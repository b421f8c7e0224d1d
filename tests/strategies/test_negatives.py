"""Text that talks about tools, shows their markup or merely looks like it: never a call, never changed."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.core.events import Note
from strategies.dialects.rows import TABLE
from tests.bench.corpus import DIFFERENCES, main
from tests.support.chat import answer_body, answer_events, hear_body, hear_stream, prepared, stream, whole
from tests.support.damage import (
    DATA_FORMS,
    TAG_FORMS,
    Outcome,
    damaged_calls,
    outcome_of,
    read_in_pieces,
    read_whole,
    told_in_vain,
)
from tests.support.golden import own_labels
from tests.support.reading import AGENT_TOOLS, read, together

RECORDS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "negatives.jsonl").read_text(encoding="utf-8").split("\n")
    if line
]


def by_kind() -> dict[str, dict[str, Any]]:
    """The records of each kind, by their names."""
    found: dict[str, dict[str, Any]] = {}
    for record in RECORDS:
        found.setdefault(record["kind"], {})[record["id"]] = record
    return found


BY_KIND = by_kind()


@pytest.mark.parametrize("kind", BY_KIND)
def test_no_call_and_no_change(kind):
    together("record", BY_KIND[kind])(left_alone)()


def left_alone(record):
    for parts in ([record["text"]], list(record["text"])):
        found = read(parts)
        assert found.calls == []
        assert found.text == record["text"]
        assert found.dropped == []
    if any(isinstance(event, Note) and event.seen for event in found.events):
        assert told_in_vain(record["text"], AGENT_TOOLS) == [], "nor where the model was asked again"
    assert_no_part_flows_as_a_call(record)


def assert_no_part_flows_as_a_call(record):
    found = read(list(record["text"]), reasoned=True, stream_arguments="incremental", reason="length")
    assert found.calls == []
    if record["kind"] != "unfinished":
        assert found.broken == []


def test_the_set_is_broad():
    assert len(RECORDS) >= 300
    assert len({record["id"] for record in RECORDS}) == len(RECORDS)
    languages = Counter(record["lang"] for record in RECORDS)
    assert len(languages) >= 6
    assert min(languages.values()) >= 40
    assert len({record["kind"] for record in RECORDS}) >= 15


# --- The command that reads labelled answers of other engines, on the project's own, and its list of differences


LISTED: dict[str, Any] = json.loads(DIFFERENCES.read_bytes())


def written(folder: Path, labels: list[dict[str, Any]], known: dict[str, str]) -> list[str]:
    """The command's arguments for these labels, in two files of a folder, and these known differences."""
    (folder / "labels").mkdir()
    half = len(labels) // 2
    for name, some in (("one", labels[:half]), ("two", labels[half:])):
        (folder / "labels" / f"{name}.jsonl").write_text("".join(json.dumps(label) + "\n" for label in some))
    (folder / "known.json").write_text(json.dumps({"records": known}))
    return [str(folder / "labels"), "--differences", str(folder / "known.json")]


def test_the_projects_own_answers_are_read_as_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = own_labels(step=3)
    calls = [label for label in labels if label["kind"] == "valid"]
    assert main(written(tmp_path, labels, {})) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"negative    {len(labels) - len(calls):4} of {len(labels) - len(calls)} as labelled",
        f"valid       {len(calls):4} of {len(calls)} as labelled",
    ]


CALL, PLAIN = '<tool_call>\n{"name": "glob", "arguments": {"pattern": "*"}}\n</tool_call>', "Nothing to do."


@pytest.mark.parametrize(
    ("text", "expected", "known", "told"),
    [
        (CALL, [{"name": "glob", "arguments": {"pattern": "**"}}], {}, "nobody says why: it"),
        (CALL, [], {}, "made a call of plain text: it"),
        (PLAIN, [], {"it": "a_cause"}, "listed as a difference, but read as labelled: it"),
        (CALL, [{"name": "glob", "arguments": {"pattern": "**"}}], {"it": "a_cause"}, ""),
    ],
)
def test_what_is_read_otherwise_is_told_unless_it_is_listed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    expected: list[dict[str, Any]],
    known: dict[str, str],
    told: str,
) -> None:
    label = {"id": "it", "text": text, "expected": expected, "kind": "valid" if expected else "negative"}
    label["tools"] = [{"type": "function", "function": {"name": "glob", "parameters": {"type": "object"}}}]
    assert main(written(tmp_path, [label], known)) == (1 if told else 0)
    assert told in capsys.readouterr().out


def test_a_set_without_answers_proves_nothing(tmp_path: Path) -> None:
    assert main(written(tmp_path, [], {})) == 1


def test_every_cause_has_a_reason_and_a_record() -> None:
    causes, used = LISTED["causes"], set(LISTED["records"].values())
    assert causes.keys() == used
    assert all(len(reason.split()) >= 8 and reason.endswith(".") for reason in causes.values())
    assert list(causes) == sorted(causes)
    assert list(LISTED["records"]) == sorted(LISTED["records"])


# --- The classes of answers that models give, and what is made of each: calls of what was meant, text of all the
# rest.


PATHS = ("/src/app.py", "docs/a b.md", "C:\\work\\x.ts", "/tmp/ü.txt", "./-")

TEXTS = ("x = 1\n", "<b>bold</b>", 'say "hi"', "```\nfence\n```", "a\\nb", "{}", "</write>", "it's", "漢字\n\n")

LEADS = ("", "Reading the file.\n\n", "I need to look at this first.\n", "好的。\n\n", "Je regarde le fichier.\n\n")


def meant(rng: random.Random) -> tuple[str, dict[str, Any]]:
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("read", {"filePath": rng.choice(PATHS), "limit": rng.randint(1, 500)}),
        ("write", {"filePath": rng.choice(PATHS), "content": "".join(rng.choices(TEXTS, k=3))}),
        ("grep", {"pattern": rng.choice(("def \\w+", "TODO|FIXME", "<div")), "include": "*.py"}),
        ("bash", {"command": rng.choice(("ls -la", "pytest -q", "echo 'a' > b"))}),
        ("edit", {"filePath": "/a", "oldString": rng.choice(TEXTS), "newString": "", "replaceAll": True}),
    )
    return rng.choice(calls)


def heard_both_ways(text: str, **options: Any) -> Any:
    how = prepared(prompted=None, wait=True, **options)
    streamed = hear_stream(stream(answer_events(list(text)), how)[0])
    assert hear_body(whole(answer_body(text), how)[0]).meaning == streamed.meaning
    return streamed


def test_json_in_a_tool_code_fence_is_recovered() -> None:
    rng = random.Random(4)
    right = 0
    for _ in range(200):
        name, arguments = meant(rng)
        keys = rng.choice((("name", "arguments"), ("tool", "parameters"), ("name", "args"), ("tool_name", "input")))
        said = json.dumps({keys[0]: name, keys[1]: arguments}, ensure_ascii=False, indent=rng.choice((None, 2)))
        heard = heard_both_ways(f"{rng.choice(LEADS)}```tool_code\n{said}\n```")
        found = [(call["name"], json.loads(call["arguments"])) for call in heard.calls]
        assert found in ([], [(name, arguments)])
        right += bool(found)
    assert right >= 190


NEVER = {
    "natural language": "I need to list the files first, then read the configuration and run the tests.",
    "a question": "Shall I read /src/app.py and write the result to /src/out.py?",
    "a plan": "1. read the file\n2. edit it with the new name\n3. bash: run the tests\n4. write a summary",
    "an error explained": 'The call failed: read() got no filePath. Pass {"filePath": "..."} next time.',
    "malformed JSON": '```tool_code\n{"name": "read", "arguments": {"filePath": \n```',
    "an unknown tool": '```tool_code\n{"name": "launch_rocket", "arguments": {"filePath": "/a"}}\n```',
    "a missing argument": '```tool_code\n{"name": "read", "arguments": {"limit": 3}}\n```',
    "a shell block in an explanation": "To run the tests yourself:\n\n```bash\npytest -q\n```\n\nThat is all you need.",
    "a shell command": "Let me look.\n\n```bash\nls -la\n```",
}


@pytest.mark.parametrize("kind", NEVER)
def test_everything_else_comes_back_byte_for_byte(kind: str) -> None:
    text = NEVER[kind]
    how = prepared(prompted=None, wait=True)
    events = answer_events(list(text))
    assert stream(events, how)[0] == b"".join(events)
    assert whole(answer_body(text), how)[0] == answer_body(text)


def test_low_confidence_comes_back_byte_for_byte() -> None:
    text = '```tool_code\n{"name": "read", "arguments": {"filePath": "/a"}}\n```'
    how = prepared(prompted=None, wait=True, min_confidence=97)
    events = answer_events([text])
    assert stream(events, how)[0] == b"".join(events)
    assert heard_both_ways(text).calls


def test_shell_command_is_a_call_only_where_the_operator_allows() -> None:
    heard = heard_both_ways(NEVER["a shell command"], recovery_shell=True)
    assert [(call["name"], json.loads(call["arguments"])["command"]) for call in heard.calls] == [("bash", "ls -la")]
    for forbidden in ("rm -rf /", "ls; rm x", "ls | sh", "ls > x", "$(ls)"):
        assert not heard_both_ways(f"Let me look.\n\n```bash\n{forbidden}\n```", recovery_shell=True).calls
    assert not heard_both_ways(NEVER["a shell block in an explanation"], recovery_shell=True).calls


SEEDS = 3
ELSEWHERE = {
    *("apply_patch", "shell"),  # a command or a patch has no markup of its own within
    *("prefixed_xml", "named_function"),  # damaged already; the undamaged form is in the list
}


def tally(seed: int, count: int) -> Counter[Outcome]:
    """What so many damaged calls came to, read whole, in pieces and while they are shown; none may be wrong."""
    rng = random.Random(seed)
    outcomes: Counter[Outcome] = Counter()
    for case in damaged_calls(seed, count):
        prompted = rng.random() < 0.6
        whole = read_whole(case, prompted=prompted)
        outcome = outcome_of(case, whole)
        shown = f"{case.form.id}, {case.damage}:\n{case.text}\ncame to {whole.calls}"
        assert outcome != "wrong", shown
        assert read_in_pieces(case, rng, prompted=prompted).outcome == whole.outcome, shown
        if rng.random() < 0.3:
            live = read_in_pieces(case, rng, prompted=prompted, stream_arguments="incremental")
            assert outcome_of(case, live) != "wrong", shown
        if outcome == "asked" and case.level == "A" and (vain := told_in_vain(case.text, case.tools)):
            assert vain == case.expected[: len(vain)], f"{shown}, asked again in vain to {vain}"
        outcomes[outcome] += 1
    return outcomes


@pytest.mark.parametrize("seed", range(SEEDS))
def test_damaged_markup_changes_no_value(seed: int) -> None:
    outcomes = tally(seed, 1000)
    assert outcomes["right"] > 400, "many of them are read all the same"


def test_every_dialect_is_damaged() -> None:
    forms = {form.id for form in (*TAG_FORMS, *DATA_FORMS)}
    assert forms | ELSEWHERE == {dialect.id for dialect in TABLE}
    assert {case.form.id for case in damaged_calls(1, 2500)} == forms


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 200))
def test_damaged_markup_changes_no_value_in_a_hundred_thousand(seed: int) -> None:
    print(dict(tally(seed, 1000)))
