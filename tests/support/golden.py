"""The golden cases: answers as models wrote them, each with the calls and the content that must come out of it.

A file per family holds its cases; families of few share one, and the headings of their cases begin with their name. A
case is a heading, the rules it stands for (or `beside:`, why it stands for none), a note, the expectation as JSON, and
the answer between two fixed lines: what stands between them, without the line break before `%%%% end`, is the answer
to the last character.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen

from gateway.core.tools import Tool
from tests.support.reading import AGENT_TOOLS

__all__ = ["BARE", "GOLDEN", "LINES", "SAMPLES", "SHORT", "Case", "cases", "labels_of", "own_labels", "parse"]


GOLDEN = Path(__file__).parents[1] / "golden"

_CASE = re.compile(
    r"## (?P<name>[^\n]+)\n(?P<head>.*?)%%%% expected\n(?P<expected>.*?)\n%%%% input\n(?P<text>.*?)\n%%%% end\n",
    re.DOTALL,
)


@frozen(kw_only=True)
class Case:
    """One answer and what must come out of it."""

    family: str
    name: str
    text: str
    expected: dict[str, Any]
    rules: tuple[str, ...] = ()
    beside: str = ""
    note: str = ""

    @property
    def id(self) -> str:
        return f"{self.family}/{self.name}"


@cache
def cases() -> tuple[Case, ...]:
    """Every case, family by family."""
    found: list[Case] = []
    for path in sorted(GOLDEN.glob("*.txt")):
        found += parse(path.stem, path.read_bytes().decode())
    return tuple(sorted(found, key=lambda case: case.family))


def parse(family: str, page: str) -> list[Case]:
    """The cases of one file; `ValueError` for a line that belongs to none."""
    heading = f"# {family}\n"
    if not page.startswith(heading):
        raise ValueError(f"{family}: the page does not begin with its name")
    found: list[Case] = []
    at = len(heading)
    for match in _CASE.finditer(page):
        if page[at : match.start()].strip():
            raise ValueError(f"{family}: a line of no case before {match['name']!r}")
        at = match.end()
        head = _head(match["head"], f"{family}/{match['name']}")
        own, _, name = match["name"].rpartition("/")
        found.append(
            Case(
                family=own or family,
                name=name,
                text=match["text"],
                expected=json.loads(match["expected"]),
                rules=tuple(head.get("rule", ())),
                beside=" ".join(head.get("beside", ())),
                note=" ".join(head.get("note", ())),
            )
        )
    if page[at:].strip():
        raise ValueError(f"{family}: a line of no case at the end")
    return found


def _head(lines: str, case: str) -> dict[str, list[str]]:
    head: dict[str, list[str]] = {}
    for line in lines.splitlines():
        kind, colon, words = line.partition(": ")
        if kind not in ("rule", "beside", "note") or not colon:
            raise ValueError(f"{case}: {line!r} is neither a rule nor a note")
        head.setdefault(kind, []).append(words)
    return head


# --- Answers with the tools of their requests and the calls that are labelled in them, one JSON object each. The
# project's own are the golden cases. `pytest --answers PATH` takes others in their place for the tests that let
# answers go through untouched: a file of one object a line, or a folder of such files. A label holds `id`,
# `text`, `tools`, `expected` (the calls) and `kind`, and may hold `dialect`, `flags`, and `chunks` (the text as
# an engine once streamed it).


Label = dict[str, Any]

_PLAIN = {"tools", "calls", "content"}


def labels_of(*paths: Path) -> list[Label]:
    """The labels in these files, and in the files of these folders."""
    found: list[Label] = []
    for path in paths:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        found += [json.loads(line) for file in files for line in file.read_bytes().splitlines() if line.strip()]
    return found


def own_labels(step: int = 1) -> list[Label]:
    """Every so many of the golden cases that ask for no settings of their own."""
    return [_label(case) for case in cases() if case.expected.keys() == _PLAIN][::step]


def _label(case: Case) -> Label:
    expected = case.expected
    kind = "negative" if not expected["calls"] else "valid"
    tools = [_declared(tool) for tool in AGENT_TOOLS] if expected["tools"] == "agent" else expected["tools"]
    return {"id": case.id, "text": case.text, "tools": tools, "expected": expected["calls"], "kind": kind}


def _declared(tool: Tool) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}}


# --- Answers without a call, of the kinds that models write, for whatever must leave them alone


_ANSWER = re.compile(r"^%%%% ([\w-]+)-\d+\n(.*?)\n%%%% end$", re.MULTILINE | re.DOTALL)

"""A kind and a number, and the answer to its last line break."""

_ANSWERS = _ANSWER.findall((Path(__file__).parents[1] / "data" / "answers.txt").read_text())


def _answers(kind: str) -> tuple[str, ...]:
    return tuple(text for named, text in _ANSWERS if named == kind)


SAMPLES = {
    kind: _answers(kind) for kind in ("english", "chinese", "markdown", "code", "jsx", "json", "diff", "thinking")
}

"""By kind, some hundred events each."""

BARE = {kind: _answers(f"bare-{kind}") for kind in ("jsx", "json", "code")}

"""Markup and data outside of any fence: each line of it may begin a call."""

LINES = {
    kind: _answers(f"lines-{kind}")
    for kind in (
        *("apart", "csv", "dialogue", "fences", "headings", "log", "pairs"),
        *("paragraphs", "poem", "stars", "table", "trace", "words", "yaml"),
    )
}
"""Of short lines, or of such as hardly stand in any other: each of them may begin a call, too."""
SHORT = {kind: _answers(f"short-{kind}") for kind in ("code", "json")}

"""A fence with a few words around it."""
