"""What is paid once: by tools that were never seen, a long conversation's next turn, a start, a second of nothing.

Run `python -m tests.bench.cold` for the table; the counts of calls are exact and the same on any machine. A start and
an idle process are those of `toolgate serve` with a store in a file, as the system counts them (Linux alone).
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from gateway.wire.chat_request import parse_request
from gateway.wire.known_texts import forget_all
from strategies.base import Options
from strategies.xml_prompt import XmlPromptStrategy

__all__ = ["calls", "figures", "idle", "started"]

MESSAGES = 2000
ROUNDS = 5
IDLE_S = 30.0
READY_S = 60.0
SETTLES_S = 6.0
"""So long a process that has just begun still has to do with its store."""


def tools(count: int, mark: str = "") -> list[dict[str, Any]]:
    """Tools as agents have them: five parameters, one of them an object."""
    names = {"type": "array", "items": {"type": "string"}}
    properties = {
        "path": {"type": "string", "description": f"The file to change, absolute or relative{mark}"},
        "content": {"type": "string", "description": "What is to stand in the file"},
        "mode": {"type": "string", "enum": ["append", "replace", "insert"], "default": "replace"},
        "limit": {"type": "integer", "minimum": 0, "description": "How many lines at most"},
        "options": {"type": "object", "properties": {"deep": {"type": "boolean"}, "names": names}},
    }
    parameters = {"type": "object", "properties": properties, "required": ["path", "content"]}
    described = "Changes a file in one of several ways.\n\nUse it where that has to be done, and only there."
    return [
        {"type": "function", "function": {"name": name, "description": described, "parameters": parameters}}
        for name in (f"tool_{at}{mark.replace(' ', '_')}" for at in range(count))
    ]


def history(count: int) -> list[dict[str, Any]]:
    """So many messages of an agent at work."""
    told: list[dict[str, Any]] = [
        {"role": "system", "content": "You write code. " * 50},
        {"role": "user", "content": "Go."},
    ]
    for at in range((count - 2) // 2):
        arguments = json.dumps({"path": f"src/file_{at}.py", "content": "x = 1\n" * 10})
        call = {"id": f"call_{at}", "type": "function", "function": {"name": f"tool_{at % 10}", "arguments": arguments}}
        told.append({"role": "assistant", "content": f"I look at file {at}.", "tool_calls": [call]})
        told.append({"role": "tool", "tool_call_id": f"call_{at}", "content": f"line {at}\n" * 40})
    return told


def _prepare(body: bytes) -> None:
    XmlPromptStrategy().prepare(parse_request(body), Options())


def _body(offered: list[dict[str, Any]], messages: list[dict[str, Any]]) -> bytes:
    return json.dumps({"model": "m", "messages": messages, "tools": offered}).encode()


def _unseen(count: int, mark: str) -> Callable[[], None]:
    """A request with tools that nobody sent before."""
    body = _body(tools(count, mark), history(2))
    forget_all()
    return lambda: _prepare(body)


def _turn(mark: str) -> Callable[[], None]:
    """A conversation's next turn."""
    offered, told = tools(10), history(MESSAGES + 2)
    told[1] = {"role": "user", "content": f"Go on.{mark}"}
    _prepare(_body(offered, told[:-2]))
    body = _body(offered, told)
    return lambda: _prepare(body)


def _counted(work: Callable[[], None]) -> float:
    """The Python functions that it has called."""
    count = 0

    def called(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return float(count)


def _least_ms(make: Callable[[str], Callable[[], None]]) -> float:
    least = float("inf")
    for number in range(ROUNDS):
        work = make(f" {number}")
        begun = time.process_time()
        work()
        least = min(least, time.process_time() - begun)
    return least * 1e3


def calls() -> dict[str, float]:
    """What is exact."""
    _unseen(1, "first")()  # what is made once for all
    return {
        "calls, 128 tools never seen": _counted(_unseen(128, " counted")),
        "calls, a turn behind 2,000 messages": _counted(_turn(" counted")),
    }


def figures() -> dict[str, float]:
    """What is measured in this process."""
    return {
        "ms, 10 tools never seen, prompted": _least_ms(lambda mark: _unseen(10, mark)),
        "ms, 128 tools never seen, prompted": _least_ms(lambda mark: _unseen(128, mark)),
        "ms, a turn behind 2,000 messages, prompted": _least_ms(_turn),
    }


@frozen(kw_only=True)
class Used:
    """What a process has used, as the system counts it."""

    cpu_s: float
    wakeups: int

    @classmethod
    def by(cls, pid: int) -> "Used":
        waits = 0
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError):  # it may end meanwhile
                lines = (thread / "status").read_text().splitlines()
                waits += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
        # The clock of another process, by its number (clock_getcpuclockid(3)): threads that have ended count as well.
        return cls(cpu_s=time.clock_gettime(~pid << 3 | 2), wakeups=waits)


@contextmanager
def started(**settings: str) -> Iterator[tuple[int, Used, int]]:
    """A gateway with nothing to do, what it had used when it was ready, and its port."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        environ = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ},
            "UPSTREAM_URL": "http://127.0.0.1:9/v1",
            "GATEWAY_PORT": "0",
            "METRICS_PORT": "0",
            "STORE_URL": f"sqlite:///{folder}/store.db",
            "LOG_FORMAT": "json",
            **settings,
        }
        with log.open("wb") as written:
            command = [sys.executable, "-m", "gateway", "serve"]
            process = subprocess.Popen(command, env=environ, stdout=written, stderr=written)
        try:
            due = time.monotonic() + READY_S
            while b'"gateway_started"' not in log.read_bytes():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < due, log.read_text()
                time.sleep(0.01)
            used = Used.by(process.pid)
            [ready] = [line for line in log.read_bytes().splitlines() if b'"gateway_started"' in line]
            yield process.pid, used, int(json.loads(ready)["url"].rpartition(":")[2].partition("/")[0])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def idle(seconds: float = IDLE_S) -> dict[str, float]:
    """A start, and what one second of nothing costs afterwards."""
    with started() as (pid, ready, _):
        time.sleep(SETTLES_S)
        before = Used.by(pid)
        time.sleep(seconds)
        after = Used.by(pid)
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return {
        "ms of CPU until `toolgate serve` is ready": ready.cpu_s * 1e3,
        "ms of CPU in a second of nothing": (after.cpu_s - before.cpu_s) / seconds * 1e3,
        "wake-ups in a second of nothing": (after.wakeups - before.wakeups) / seconds,
        "MiB resident, with nothing to do": size / (1 << 20),
    }


def main() -> None:
    for name, number in {**calls(), **figures(), **idle()}.items():
        print(f"{name:52} {number:10.2f}")


if __name__ == "__main__":
    main()
