"""Candidates: their bound, what may flow before they are complete, and what is told of those that are none."""

import json
from typing import Any

import pytest

from gateway.core.events import Note
from gateway.core.limits import Limits
from gateway.core.tools import ToolSet
from strategies.base import Options
from strategies.reading.candidate import Candidate
from strategies.reading.factory import reader_factory
from strategies.reading.reader import Reader
from tests.support.reading import AGENT_TOOLS, read, read_every_way, tool

OPEN, CLOSE = "<write>\n<filePath>a</filePath>\n<content>\n", "\n</content>\n</write>"
FRAME = len(OPEN + CLOSE)
READ = "<read>\n<filePath>/a</filePath>\n</read>"


@pytest.mark.parametrize("char", ["x", "é", "😀"])
@pytest.mark.parametrize("surplus", [0, 1])
def test_the_bound_of_a_call_counts_bytes(char: str, surplus: int) -> None:
    text = OPEN + char * 30 + CLOSE
    limits = Limits(max_call_bytes=len(text.encode()) - surplus)
    found = read([text[:50], text[50:]], limits=limits)
    assert len(found.calls) == 1 - surplus
    assert read(list(text), limits=limits).outcome == found.outcome
    if surplus:
        assert found.text == text
        assert "too_large" in [note[-1] for note in found.notes]


def test_a_call_that_is_too_large_is_told_as_refused() -> None:
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(limits=Limits(max_call_bytes=FRAME + 31)), model="m")()
    events = [*reader.feed(OPEN + "é" * 30 + CLOSE), *reader.finish("stop")]
    (note,) = [event for event in events if isinstance(event, Note)]
    assert not note.verdict.accepted


def test_a_call_that_flows_breaks_at_the_bound() -> None:
    found = read(
        OPEN + "é" * 30 + CLOSE, limits=Limits(max_call_bytes=FRAME + 31), reasoned=True, stream_arguments="incremental"
    )
    assert (found.calls, found.broken) == ([], ["too_large"])


def test_what_is_behind_a_call_that_is_too_large_is_read_again() -> None:
    text = OPEN + "x" * 200 + CLOSE + "\n" + READ
    found = read_every_way(text, limits=Limits(max_call_bytes=100))
    assert found.calls == []
    assert ("too_large",) in found.notes
    assert found.text == text


@pytest.mark.parametrize(
    "options",
    [{"min_confidence": 98}, {"min_confidence": 100}],
)
def test_what_could_not_be_accepted_does_not_flow(options: dict[str, Any]) -> None:
    found = read(READ, reasoned=True, stream_arguments="incremental", **options)
    assert (found.calls, found.broken, found.text) == ([], [], READ)


def test_what_the_schema_adds_is_told_where_a_call_flowed() -> None:
    tools = ToolSet([tool("save", "path", "note", note={"type": ["string", "null"]})])
    found = read("<save>\n<path>a</path>\n</save>", tools=tools, reasoned=True, stream_arguments="incremental")
    assert json.loads(found.streamed) == {"path": "a", "note": None}
    assert found.calls == [("save", found.streamed)]


@pytest.mark.parametrize(("model", "score"), [("m", 97), ("glm-4.5", 98), ("org/GLM-4.6-Air", 98), ("qwen3-coder", 97)])
def test_a_form_of_the_models_own_family_counts_more(model: str, score: int) -> None:
    text = "<tool_call>read\n<arg_key>filePath</arg_key>\n<arg_value>/a</arg_value>\n</tool_call>"
    assert read_every_way(text, model=model).scores == [score]


def test_a_long_candidate_is_read_again_in_another_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many dialects and attempts there are, one turn begins with one of them."""
    begun: list[str] = []
    start = Candidate._start

    def counted(self: Candidate) -> None:
        begun.append("")
        start(self)

    monkeypatch.setattr(Candidate, "_start", counted)
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m", prompted="hermes")()
    assert isinstance(reader, Reader)
    reader.step('<tool_call>\n{"name": "write", "arguments": {"content": "' + "x = 1; " * 6_000)
    most = 0
    for work in (lambda: reader.step(reason="stop"), *[reader.step] * 99):
        begun.clear()
        work()
        most = max(most, len(begun))
    assert most == 1
