"""Twenty faults, put into a copy of the gateway one by one: each has to be seen by one of the attacks.

    python -m tests.attacks.mutants [--only NAME] [--jobs 2]

Each fault is a line that holds a defence, replaced by one that does not. Says for each which attack saw it; a fault
that none sees is a hole in the suite, and the exit code is 1.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("gateway", "strategies", "tests/attacks", "tests/support", "tests/golden", "tests/data")
FILES = ("pyproject.toml", "tests/conftest.py")
SECONDS = 600


@frozen
class Fault:
    """One line of a file that is replaced."""

    name: str
    path: str
    line: str
    instead: str


FAULTS = (
    Fault(
        "heads on kept connections have no time", "gateway/front/connection.py", "elif is_early and", "elif False and"
    ),
    Fault(
        "a body has no time of its own",
        "gateway/request/state.py",
        "min(BODY_WINDOW_S - waited_s, due - asked)",
        "BODY_WINDOW_S - waited_s",
    ),
    Fault("bodies are not counted", "gateway/request/state.py", "if self.bytes_in > cap:", "if False:"),
    Fault(
        "any key opens",
        "gateway/front/middleware.py",
        "key = state.configuration.authenticate(state.credential)",
        "key = None",
    ),
    Fault("any host may be named", "gateway/traffic/door.py", "not all(map(self._knows, knock.authorities))", "False"),
    Fault("fields may stand twice", "gateway/wire/chat_request.py", "if names.count(name) > 1:", "if False:"),
    Fault(
        "a request without a version is one",
        "gateway/front/server.py",
        "if http.version < HttpVersion10:",
        "if False:",
    ),
    Fault("any status is an answer", "gateway/upstream/attempts.py", "if not 200 <= reply.status < 300:", "if False:"),
    Fault("any choice is read", "gateway/answer/choice.py", "if not 0 <= index < most:", "if False:"),
    Fault("an event may be of any size", "gateway/wire/sse.py", "self._max = max_event_bytes", "self._max = 1 << 40"),
    Fault(
        "a stream that breaks off is whole",
        "gateway/answer/endings.py",
        "if error is None and unfinished:",
        "if False:",
    ),
    Fault(
        "our key is told",
        "gateway/upstream/client.py",
        "payload=mask(payload) if payload is not None else None",
        "payload=payload",
    ),
    Fault(
        "a call in two forms is two",
        "gateway/wire/structured_calls.py",
        "            if given and call.key in given:\n                call.is_dropped, moved[index]",
        "            if False:\n                call.is_dropped, moved[index]",
    ),
    Fault(
        "what a reader cut is a call",
        "gateway/core/events.py",
        'frozenset({None, "", *_ENDS, *map(str.upper, _ENDS)})',
        'frozenset({None, "", *_ENDS, *map(str.upper, _ENDS), "length", "cut", "content_filter"})',
    ),
    Fault(
        "a copied call is the model's own",
        "strategies/grammar/provenance.py",
        "if not self._messages or not arguments:",
        "if True:",
    ),
    Fault(
        "quotes are no quotes",
        "strategies/grammar/literal.py",
        "if _opens_quotation(opening.before) or _inside_call(opening.before) or _inside_string(opening.before):",
        "if level:\n        return False\n    if level:",
    ),
    Fault(
        "tools may write special tokens", "strategies/writing/prompt.py", "text = _SPECIAL.sub(broken, text)", "pass"
    ),
    Fault(
        "everybody rates",
        "gateway/pages/feedback.py",
        'known is None or known.who not in ("", state.shown)',
        "known is None",
    ),
    Fault(
        "one key is all",
        "gateway/rollout/judge.py",
        "return MAX_SCORE if self.credentials < 2 else",
        "return MAX_SCORE if True else",
    ),
    Fault("an outcome counts each time", "gateway/rollout/counters.py", "if call in self._told:", "if False:"),
    Fault(
        "one key takes all names",
        "gateway/telemetry/labels.py",
        "if not (who and 2 * (mine + 1) > self._cap) and",
        "if",
    ),
    Fault(
        "who does not read is waited for",
        "gateway/request/state.py",
        "due = self.deadline.now() + self.configuration.settings.client_write_timeout_s",
        "due = self.deadline.now() + 3600",
    ),
)


def mutated(fault: Fault, folder: Path) -> None:
    """A copy of the project with the fault in it."""
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    path = folder / fault.path
    source = path.read_text("utf-8")
    if source.count(fault.line) != 1:
        raise SystemExit(f"{fault.name}: the line stands {source.count(fault.line)} times in {fault.path}")
    path.write_text(source.replace(fault.line, fault.instead), "utf-8")


def seen_by(fault: Fault | None) -> str:
    """The attack that fails with the fault; empty where none does."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as made:
        folder = Path(made)
        if fault is None:
            fault = Fault("none", "pyproject.toml", "[build-system]", "[build-system]")
        mutated(fault, folder)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-x",
            "-q",
            "--no-header",
            "--timeout",
            "100",
            "tests/attacks",
        ]
        environ = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    failed = re.search(r"^(?:FAILED|ERROR) \S*::(\S+)", done.stdout, re.MULTILINE)
    if failed:
        return failed[1]
    return "" if done.returncode == 0 else f"(pytest ended with {done.returncode}) {done.stdout[-300:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose name has this in it")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    if fails := seen_by(None):
        sys.stdout.write(f"without any fault fails: {fails}\n")
        return 2
    faults = [fault for fault in FAULTS if given.only in fault.name]
    began, missed = time.monotonic(), 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for fault, seen in zip(faults, pool.map(seen_by, faults), strict=True):
            missed += not seen
            sys.stdout.write(f"{fault.name}: {seen or 'NOT SEEN'}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(faults)} faults, {missed} not seen, {time.monotonic() - began:.0f} s\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
