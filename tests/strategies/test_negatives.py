"""Text that talks about tools, shows their markup or merely looks like it: never a call, never changed."""

import json
from collections import Counter
from pathlib import Path

import pytest

from gateway.core.events import Note
from tests.support.damage import told_in_vain
from tests.support.reading import AGENT_TOOLS, read

RECORDS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "negatives.jsonl").read_text(encoding="utf-8").split("\n")
    if line
]


@pytest.mark.parametrize("record", RECORDS, ids=[record["id"] for record in RECORDS])
def test_no_call_and_no_change(record):
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
