"""What the running gateway leaves in files for others: its pid and how the last reload went, and where its metrics are.

The first line of the pid file is the pid, as every tool expects; the second is a JSON document that `toolgate reload`
reads to say what became of its request.
"""

import json
import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import structlog
from attrs import asdict, define, evolve, field, frozen

__all__ = ["PidFile", "Status", "read_status", "target_of", "write_targets"]

log = structlog.get_logger("toolgate")


@frozen(kw_only=True)
class Status:
    """How often each was asked for and has ended, one way or the other, and how it last did."""

    pid: int
    workers: int = 1
    reloads: int = 0
    restarts: int = 0
    faults: tuple[str, ...] = ()

    def reloaded(self, faults: Sequence[str]) -> "Status":
        return evolve(self, reloads=self.reloads + 1, faults=tuple(faults))

    def restarted(self, faults: Sequence[str]) -> "Status":
        return evolve(self, restarts=self.restarts + 1, faults=tuple(faults))


@define
class PidFile:
    """The file, if one is wanted, and what stands in it."""

    path: str | None
    status: Status = field(factory=lambda: Status(pid=os.getpid()))

    def write(self, status: Status | None = None) -> None:
        """Replace the file as a whole; a file that cannot be written is logged and harms nothing."""
        self.status = status or self.status
        if self.path is None:
            return
        document = asdict(self.status)
        pid = document.pop("pid")
        _replace(self.path, f"{pid}\n{json.dumps(document, separators=(',', ':'))}\n")

    def remove(self) -> None:
        """Take it away, unless another process has written its own meanwhile."""
        if self.path is None:
            return
        with suppress(OSError, ValueError):
            if read_status(self.path).pid == self.status.pid:
                Path(self.path).unlink()


def read_status(path: str) -> Status:
    """Raises `OSError`, or `ValueError` for a file that holds no pid; without a second line only the pid is known."""
    first, _, rest = Path(path).read_text(encoding="utf-8").partition("\n")
    pid = int(first) if first.strip().isdecimal() else 0
    # A signal to 0 goes to the whole group of processes, one to 1 to the machine's first.
    if pid <= 1:
        raise ValueError(f"{path} holds no process id")
    try:
        document = json.loads(rest or "{}")
        return Status(
            pid=pid,
            workers=int(document.get("workers", 0)),
            reloads=int(document.get("reloads", 0)),
            restarts=int(document.get("restarts", 0)),
            faults=tuple(map(str, document.get("faults", ()))),
        )
    except (AttributeError, TypeError, ValueError, RecursionError):
        return Status(pid=pid, workers=0)


def target_of(metrics_url: str | None) -> str | None:
    """The address that Prometheus is told: one that listens everywhere goes by the name of this machine."""
    if metrics_url is None:
        return None
    address = metrics_url.removeprefix("http://").removesuffix("/metrics")
    host, _, port = address.rpartition(":")
    return f"{socket.gethostname()}:{port}" if host in ("0.0.0.0", "[::]") else address  # noqa: S104 - compared


def write_targets(path: str | None, targets: Iterable[tuple[int, str]]) -> None:
    """The document that `file_sd_configs` and `http_sd_configs` of Prometheus read: one target per worker."""
    if path is None:
        return
    document = [{"targets": [address], "labels": {"slot": str(slot)}} for slot, address in sorted(targets)]
    _replace(path, json.dumps(document, indent=1) + "\n", mode=0o644)  # Prometheus is another user


def _replace(path: str, content: str, *, mode: int | None = None) -> None:
    # Renamed into its place, so that nobody ever reads half of it: https://docs.python.org/3/library/os.html#os.replace
    beside = f"{path}.{os.getpid()}.new"
    try:
        Path(beside).write_text(content, encoding="utf-8")
        if mode is not None:
            Path(beside).chmod(mode)
        Path(beside).replace(path)
    except OSError as error:
        log.error("file_not_written", path=path, fault=error.strerror)
        with suppress(OSError):
            Path(beside).unlink()
