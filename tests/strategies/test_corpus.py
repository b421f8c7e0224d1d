"""The command that reads labelled answers of other engines, on the project's own, and its list of differences."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.corpus import DIFFERENCES, main
from tests.support.labelled import own_labels

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
