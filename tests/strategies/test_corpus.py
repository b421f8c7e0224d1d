"""Labelled answers of other engines, read as the recovery strategy reads them.

The set is no part of the project; where it is missing these tests are skipped by name. A label is what another parser
made of the text, not the law: where this reader says otherwise on purpose, the record stands in
`tests/data/corpus_differences.json` under the cause of the difference.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from attrs import frozen

from gateway.core.events import End, Text
from gateway.wire.chat_request import parse_request
from strategies.base import Options
from strategies.recovery import RecoveryStrategy
from tests.support.reading import pieces

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
FILES = sorted(CORPUS.glob("*.jsonl")) if CORPUS.is_dir() else []
DIFFERENCES: dict[str, Any] = json.loads((ROOT / "tests" / "data" / "corpus_differences.json").read_bytes())

pytestmark = pytest.mark.skipif(not FILES, reason="the labelled answers are not here")

RANDOM_SPLITS = 3
UNASSERTED = {"content_unasserted", "reasoning"}
"""Flags of records whose content nobody vouches for."""
NEGATIVE = {"negative", "neg+markup"}


@frozen(kw_only=True)
class Outcome:
    """What one reading came to; nothing in it may depend on the cuts."""

    calls: tuple[tuple[str, str], ...]
    scores: tuple[int, ...]
    text: str
    """All text, before, between and behind the calls."""
    raw: str
    """Everything, as the events hold it."""

    @property
    def decoded(self) -> list[tuple[str, Any]]:
        return [(name, json.loads(arguments)) for name, arguments in self.calls]


@frozen(kw_only=True)
class Record:
    """One labelled answer, its class, and how it was read."""

    id: str
    dialect: str
    kind: str
    label: dict[str, Any]
    whole: Outcome
    others: tuple[Outcome, ...]
    """The same text in pieces."""

    @property
    def agrees(self) -> bool:
        """Whether the reading is the label's: the same calls, and of a plain text not a character changed."""
        wanted = [(call["name"], call["arguments"]) for call in self.label["expected"]]
        found = self.whole.decoded
        same = len(wanted) == len(found) and all(
            name == other and is_equal(given, taken)
            for (name, given), (other, taken) in zip(wanted, found, strict=True)
        )
        if self.kind in NEGATIVE and not UNASSERTED & flags(self.label):
            return same and self.whole.text == self.label["text"]
        return same


def flags(label: dict[str, Any]) -> set[str]:
    return set(label.get("flags") or [])


def class_of(label: dict[str, Any]) -> str:
    """What a record shows: valid or damaged calls, plain text, or a case on which the engines disagree."""
    kind: str = label["kind"]
    if "doubtful" in flags(label):
        return "doubtful"
    if "unknown_tool" in flags(label):
        return "unknown"
    if kind == "malformed":
        return "malformed+" if label["expected"] else "malformed-"
    return "neg+markup" if kind == "negative" and "markup" in flags(label) else kind


def is_equal(one: Any, other: Any) -> bool:
    """Equal as JSON, where 1 is 1.0 but never true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return bool(one == other)


def read(label: dict[str, Any], parts: Sequence[str]) -> Outcome:
    body = {"model": "corpus", "messages": [{"role": "user", "content": "Please do it."}], "tools": label["tools"]}
    prepared = RecoveryStrategy().prepare(parse_request(msgspec.json.encode(body)), Options())
    if prepared.make_reader is None:
        return Outcome(calls=(), scores=(), text="".join(parts), raw="".join(parts))
    reader = prepared.make_reader()
    events = [event for part in parts for event in reader.feed(part)] + reader.finish("stop")
    assert reader.idle
    ends = [event for event in events if isinstance(event, End)]
    return Outcome(
        calls=tuple((end.name, end.arguments) for end in ends),
        scores=tuple(end.verdict.score for end in ends),
        text="".join(event.raw for event in events if isinstance(event, Text)),
        raw="".join(event.raw for event in events),
    )


def cuttings(label: dict[str, Any]) -> Iterator[list[str]]:
    """Per character, as an engine once streamed it, and at random."""
    text: str = label["text"]
    yield list(text)
    if label.get("chunks"):
        yield label["chunks"]
    rng = random.Random(label["id"])
    for _ in range(RANDOM_SPLITS):
        yield list(pieces(text, sorted(rng.choices(range(len(text) + 1), k=rng.randint(1, 24)))))


def record(label: dict[str, Any]) -> Record:
    return Record(
        id=label["id"],
        dialect=label["dialect"],
        kind=class_of(label),
        label=label,
        whole=read(label, [label["text"]]),
        others=tuple(read(label, parts) for parts in cuttings(label)),
    )


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return [record(json.loads(line)) for path in FILES for line in path.read_bytes().splitlines() if line.strip()]


def test_the_set_is_whole(records: list[Record]) -> None:
    assert len(records) > 1_100
    assert len({each.id for each in records}) == len(records)
    assert {each.kind for each in records} == {
        *("valid", "malformed+", "malformed-", "negative", "neg+markup", "unknown", "doubtful"),
    }


def test_nothing_is_lost(records: list[Record]) -> None:
    assert [each.id for each in records if each.whole.raw != each.label["text"]] == []


def test_no_reading_depends_on_the_cuts(records: list[Record]) -> None:
    assert [each.id for each in records if any(other != each.whole for other in each.others)] == []


def test_plain_text_stays_as_it_is(records: list[Record]) -> None:
    plain = [each for each in records if each.kind == "negative"]
    assert len(plain) > 50
    assert [each.id for each in plain if not each.agrees] == []


def test_differences_from_the_labels_are_known_with_their_cause(records: list[Record]) -> None:
    differing = {each.id for each in records if not each.agrees}
    listed = set(DIFFERENCES["records"])
    assert differing - listed == set(), "read otherwise than labelled, and nobody says why"
    assert listed - differing == set(), "listed, but read as labelled"


def test_every_cause_has_a_reason_and_a_record() -> None:
    causes, used = DIFFERENCES["causes"], set(DIFFERENCES["records"].values())
    assert causes.keys() == used
    assert all(len(reason.split()) >= 8 and reason.endswith(".") for reason in causes.values())
    assert list(causes) == sorted(causes)
    assert list(DIFFERENCES["records"]) == sorted(DIFFERENCES["records"])


def test_most_calls_are_read_as_labelled(records: list[Record]) -> None:
    table: dict[str, Counter[bool]] = defaultdict(Counter)
    for each in records:
        table[each.kind][each.agrees] += 1
    for kind, counts in sorted(table.items()):
        print(f"{kind:11} {counts[True]:4} of {counts.total()}")
    assert table["valid"][True] >= 0.95 * table["valid"].total()
    assert table["malformed+"][True] >= 0.74 * table["malformed+"].total()
