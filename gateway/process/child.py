"""One worker process from outside: how it is started, what it is told, what it says."""

import json
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import IO, Literal, Protocol, Self

from attrs import define, field

from gateway.config.load import Settings
from gateway.process.channel import Channel
from gateway.process.zygote import Zygote

__all__ = ["Worker", "worker_command"]


def worker_command(module: str = "gateway.process.worker") -> tuple[str, ...]:
    """How a process of this module is started; those of the working folder count only where they do for this one."""
    # A `json.py` in the folder where somebody starts it would be imported else:
    # https://docs.python.org/3/using/cmdline.html#cmdoption-P
    safely = () if {"", os.getcwd()} & set(sys.path) else ("-P",)
    return (sys.executable, *safely, "-m", module)


class Process(Protocol):
    """A process of ours."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        ...

    def send_signal(self, sig: int, /) -> None: ...


@define(kw_only=True, eq=False)
class Worker:
    """One process, as the supervisor sees it."""

    process: Process
    channel: Channel
    lane: int
    slot: int
    settings: Settings
    started: float
    heard: float
    state: Literal["starting", "serving", "leaving"] = "starting"
    served_since: float | None = None
    kill_at: float | None = None
    target: str | None = None
    """Where its metrics are."""
    also: set[int] = field(factory=set)
    """Lanes of others that it accepts from."""
    faults: tuple[str, ...] = ()
    """Why it cannot start."""
    replaces: "Worker | None" = None

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        environ: Mapping[str, str],
        settings: Settings,
        zygote: Zygote | None = None,
        *,
        lane: int,
        slot: int,
        lanes: list[list[int]],
        now: float,
    ) -> Self:
        """Start the process; it inherits its end of the channel and the sockets of every lane."""
        with ExitStack() as opened:
            ours, theirs = map(opened.enter_context, socket.socketpair())
            number = theirs.fileno()
            part = {"lane": lane, "slot": slot, "workers": len(lanes), "channel": number, "lanes": lanes}
            # Environment and arguments of a process can be read in `/proc`; keys stand in the settings.
            with _sealed(pickle.dumps(settings)) as handed:
                if zygote is not None:
                    process: Process = zygote.start(part, number, handed.fileno())
                else:
                    process = subprocess.Popen(  # noqa: S603 - our own interpreter
                        [*command, json.dumps(part)],
                        stdin=handed,
                        pass_fds=[number, *(sock for each in lanes for sock in each)],
                        env=environ,
                        process_group=0,  # Ctrl-C is the supervisor's to pass on
                    )
            opened.pop_all()
            theirs.close()
        return cls(
            process=process, channel=Channel(ours), lane=lane, slot=slot, settings=settings, started=now, heard=now
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self, number: int) -> None:
        """Signal it, if it is still there."""
        if self.process.poll() is None:
            self.process.send_signal(number)


def _sealed(data: bytes) -> IO[bytes]:
    """A file without a name, from which a worker reads its settings: they are in no argument list."""
    file = open(os.memfd_create("toolgate-settings"), "w+b")
    file.write(data)
    file.seek(0)
    return file
