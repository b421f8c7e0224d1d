"""What the inspector's page costs over many records: `python -m tests.bench.records [--count N]`.

The store is made first, in a folder of its own; then a fresh process asks for the first page and for pages of filters
that find nothing or little, for figures and for details, and says what CPU time each took and how much memory all
together.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gateway.core.records import Record
from gateway.inspector.figures import PERIODS, Figures
from gateway.inspector.filters import parsed
from gateway.inspector.reader import Reader
from gateway.state.sqlite import SqliteStore
from tests.support.week import evolve, week

__all__ = ["make", "measured"]

FILTERS = (
    "",
    *("model:nobody", "-model:*", "model:*coder* arm:live", "arm:control", "-arm:*", "nobody", "-nobody model:nobody"),
    *("tool:rare_tool", "tool:nobody", "tool:x* reason:none", "dialect:shell score<0.01", "dialect:nobody"),
    *("score<0.01", "score:0.37 tool:rare_tool", "reason:nobody", "reason:low_confidence score>0.88 -tool:*_*"),
    *("decision:refused", "decision:nobody", "decision:overheard arm:off", "outcome:nothing", "outcome:cut"),
    *("outcome:rejected", "outcome:rejected model:nobody*", "outcome:complained", "outcome:unknown score<0.02"),
    *("outcome:accepted outcome:complained", "-outcome:accepted -outcome:unknown -outcome:rejected", "outcome:error"),
    *("-outcome:native -outcome:prose -outcome:error", "outcome:unknown outcome:accepted"),
    *("label:none", "-label:none", "label:wrong score<0.1", "label:none decision:nobody"),
    *("id:req-000007", "id:req-00000*", "id:abc*", "-id:*", "id:*7", "id:none", "-id:req-0000?? model:nobody"),
)
"""Each word of the language, alone and with others; some find much, some one old answer, some nothing."""
_BATCH = 200


async def make(path: Path, count: int) -> float:
    """Write a store of so many requests with what became of them; says the CPU time of one record in microseconds."""
    made = week(count)
    shift = time.time() - made.until
    store = SqliteStore(path, timeout_s=30)
    await store.open()
    requests = [evolve(each, at=each.at + shift) for each in made.requests]
    outcomes = [evolve(each, at=each.at + shift) for each in made.outcomes]
    records: list[Record] = [*requests, *outcomes]
    started = time.process_time()
    for begin in range(0, len(records), _BATCH):
        await store.append(records[begin : begin + _BATCH])
    spent = time.process_time() - started
    await store.close()
    return spent / len(records) * 1e6


def measured(path: Path) -> dict[str, Any]:
    """`cpu_ms` by filter, `figures_ms` by period, `detail_ms` of an answer, `mib`; of a process that does just that."""
    out = subprocess.run([sys.executable, "-m", "tests.bench.records", "--read", str(path)], stdout=-1, check=True)
    return dict(json.loads(out.stdout))


async def _read(path: Path) -> dict[str, Any]:
    store = SqliteStore(path, timeout_s=30, read_only=True)
    await store.open()
    try:
        return await _told(store)
    finally:
        await store.close()


async def _told(store: SqliteStore) -> dict[str, Any]:
    cpu_ms = {}
    for text in FILTERS:
        reader = Reader(store)
        started = time.process_time()
        await reader.page(parsed(text), before="", limit=100)
        cpu_ms[text] = (time.process_time() - started) * 1000
    figures_ms = {}
    for period in PERIODS:
        started = time.process_time()
        await Figures(store).of(period)
        figures_ms[period] = (time.process_time() - started) * 1000
    reader, started = Reader(store), time.process_time()
    for number in range(0, 10):
        await reader.detail(f"req-{number * 7777:06d}", PERIODS["7d"])
    detail_ms = (time.process_time() - started) * 100
    return {"cpu_ms": cpu_ms, "figures_ms": figures_ms, "detail_ms": detail_ms, "mib": _most_memory()}


def _most_memory() -> float:
    """In MiB. What `getrusage` says begins with the most that the parent had."""
    words = Path("/proc/self/status").read_text(encoding="utf-8").split()
    return int(words[words.index("VmHWM:") + 1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--read", type=Path)
    given = parser.parse_args()
    if given.read is not None:
        sys.stdout.write(json.dumps(asyncio.run(_read(given.read))))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        each = asyncio.run(make(path, given.count))
        found = measured(path)
        sys.stdout.write(f"{given.count:,} requests, {path.stat().st_size / 1e6:,.0f} MB, {each:.0f} us a record\n")
    for text, spent in found["cpu_ms"].items():
        sys.stdout.write(f"{text or 'first page':40} {spent:7.1f} ms\n")
    for period, spent in found["figures_ms"].items():
        sys.stdout.write(f"{'figures of ' + period:40} {spent:7.1f} ms\n")
    sys.stdout.write(f"{'a detail':40} {found['detail_ms']:7.1f} ms\n")
    sys.stdout.write(f"{'memory':40} {found['mib']:7.1f} MiB\n")


if __name__ == "__main__":
    main()
