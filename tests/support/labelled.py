"""Answers with the tools of their requests and the calls that are labelled in them, one JSON object each.

The project's own are the golden cases. `pytest --answers PATH` takes others in their place for the tests that let
answers go through untouched: a file of one object a line, or a folder of such files. A label holds `id`, `text`,
`tools`, `expected` (the calls) and `kind`, and may hold `dialect`, `flags`, and `chunks` (the text as an engine once
streamed it).
"""

import json
from pathlib import Path
from typing import Any

from gateway.core.tools import Tool
from tests.support.golden import Case, cases
from tests.support.reading import AGENT_TOOLS

__all__ = ["labels_of", "own_labels"]

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
