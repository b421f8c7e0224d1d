"""The golden cases: answers as models wrote them, each with the calls and the content that must come out of it.

A file per family holds its cases. A case is a heading, the rules it stands for (or `beside:`, why it stands for none),
a note, the expectation as JSON, and the answer between two fixed lines: what stands between them, without the line
break before `%%%% end`, is the answer to the last character.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen

__all__ = ["GOLDEN", "Case", "cases", "parse"]

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
    """Every case, in the order of the files."""
    found: list[Case] = []
    for path in sorted(GOLDEN.glob("*.txt")):
        found += parse(path.stem, path.read_bytes().decode())
    return tuple(found)


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
        found.append(
            Case(
                family=family,
                name=match["name"],
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
