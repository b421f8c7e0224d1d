"""Reads labelled answers of other engines as the recovery strategy reads them, and says where it reads otherwise.

Run `python -m tests.bench.corpus PATH...`, where a path is a file of labels or a folder of such files (`--help`, and
`tests/support/golden.py`). A label is what another parser made of the text, not the law: where this reader says
otherwise on purpose, the record stands in `tests/data/corpus_differences.json` under the cause of the difference. The
exit code is 1 where text is lost, where a reading depends on the cuts, where plain text becomes a call, and where a
difference is not listed or a listed one is gone. Labels whose calls do not fit what the request itself declares are a
class of their own, `unfit`: a parser hands them on, and here they are no calls.
"""

import argparse
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from attrs import frozen
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import UnknownType  # type: ignore[import-untyped]

from gateway.core.events import End, Text
from gateway.wire.chat_request import parse_request
from strategies.base import Options
from strategies.recovery import RecoveryStrategy
from tests.support.golden import labels_of
from tests.support.reading import pieces

__all__ = ["DIFFERENCES", "faults", "main", "record"]

DIFFERENCES = Path(__file__).parents[1] / "data" / "corpus_differences.json"
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
    if kind == "valid":
        return "valid" if all(map(_declared_fit(label), label["expected"])) else "unfit"
    return "neg+markup" if kind == "negative" and "markup" in flags(label) else kind


def _declared_fit(label: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    """Whether a call is what the request's own tools say, by another validator than the project's."""
    functions = [tool.get("function", tool) for tool in label["tools"]]
    schemas = {function["name"]: function.get("parameters", {}) for function in functions}

    def fits(call: dict[str, Any]) -> bool:
        schema = schemas.get(call["name"], {})
        try:
            return bool(Draft202012Validator(schema).is_valid(call["arguments"]))
        except UnknownType:
            return True  # it declares what no validator knows, so it rules nothing out

    return fits


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
        dialect=label.get("dialect", ""),
        kind=class_of(label),
        label=label,
        whole=read(label, [label["text"]]),
        others=tuple(read(label, parts) for parts in cuttings(label)),
    )


def faults(records: Sequence[Record], known: Iterable[str]) -> dict[str, list[str]]:
    """What is wrong, and the records that show it."""
    differing, listed = {each.id for each in records if not each.agrees}, {*known}
    return {
        "lost text": [each.id for each in records if each.whole.raw != each.label["text"]],
        "read otherwise in pieces": [each.id for each in records if any(other != each.whole for other in each.others)],
        "made a call of plain text": [each.id for each in records if each.kind == "negative" and not each.agrees],
        "read otherwise than labelled, and nobody says why": sorted(differing - listed),
        "listed as a difference, but read as labelled": sorted(listed - differing),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="+", type=Path)
    parser.add_argument("--differences", type=Path, default=DIFFERENCES, help="what is read otherwise on purpose")
    asked = parser.parse_args(arguments)
    records = [record(label) for label in labels_of(*asked.path)]
    table: dict[str, Counter[bool]] = defaultdict(Counter)
    for each in records:
        table[each.kind][each.agrees] += 1
    for kind, counts in sorted(table.items()):
        print(f"{kind:11} {counts[True]:4} of {counts.total()} as labelled")
    wrong = {
        fault: ids for fault, ids in faults(records, json.loads(asked.differences.read_bytes())["records"]).items()
    }
    for fault, ids in wrong.items():
        if ids:
            print(f"{fault}: {', '.join(ids)}")
    return 1 if not records or any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
