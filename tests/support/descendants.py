"""Processes that a test has started, and those that they had started themselves."""

import ctypes
import os
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["adopt_orphans", "children", "end"]

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of whatever loses its own: the workers of a supervisor that was killed would be nobody's."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> frozenset[int]:
    """The processes that this one is the parent of; to have none is told by one question."""
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return frozenset(_with_parent(os.getpid()))
    return frozenset()


def _with_parent(parent: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                yield int(path.parent.name)


def end(processes: Collection[int]) -> None:
    """Kill them and all that come to us by their end."""
    before = children() - set(processes)
    waiting = set(processes)
    while waiting:
        for pid in waiting:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        waiting = set(children() - before)
