"""A process that has loaded all that a worker needs and does nothing but fork: workers share what it has loaded.

A worker that is a fresh interpreter holds 45 MiB of code of its own and takes half a second of CPU to load it. Forked
from here it shares much of that with all others. What usually speaks against forks, threads and locks in an undefined
state, does not arise: neither thread nor event loop has ever begun here.

There is one while all workers are started: at the start, a fork of the supervisor that has no threads yet, so that it
shares what both have loaded; and for a rolling restart, a fresh interpreter, as what is installed may be another
version by then. It is told of each worker in one message, with the descriptors of its channel and its settings. The
worker is the supervisor's child. A worker that takes the place of one that failed is a fresh interpreter, and so are
all where a system cannot do this.
"""

from gateway.process.lean import load_quietly

if __name__ == "__main__":
    load_quietly()

# isort: split

import atexit
import gc
import json
import linecache
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, Self

from attrs import define

from gateway.process.channel import Channel
from gateway.process.exits import EXIT_FAILED, EXIT_INTERRUPTED

__all__ = ["Forked", "Zygote", "can_adopt", "main"]

FORKED_S = 5.0
"""So long a fork may take; on a busy machine it is some milliseconds."""
_LARGEST = 1 << 16
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
# https://www.man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html
_SET_SUBREAPER = 36


# --- from outside ----------------------------------------------------------------------------------------------------


def can_adopt() -> bool:
    """Whether this system lets a process be the parent of those that its children leave behind."""
    try:
        with _adopting():
            return True
    except OSError:
        return False


@contextmanager
def _adopting() -> Iterator[None]:
    """Be that parent, and only for so long: nobody would wait for the end of others."""
    prctl = None
    # Hardened systems let nobody make code of his own, which some versions of the library do.
    with suppress(ImportError, MemoryError):
        import ctypes  # here: nobody else needs it

        prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None
    if prctl is None or prctl(_SET_SUBREAPER, 1, 0, 0, 0):
        raise OSError("processes cannot be adopted here")
    try:
        yield
    finally:
        prctl(_SET_SUBREAPER, 0, 0, 0, 0)


@define(kw_only=True, eq=False)
class Forked:
    """A child process that another one has forked for us."""

    pid: int
    _code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._code = EXIT_FAILED
            else:
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def send_signal(self, sig: int, /) -> None:
        """Signal it, if it is still there: before it is waited for, its number is nobody else's."""
        if self.poll() is None:
            os.kill(self.pid, sig)


@define(kw_only=True, eq=False)
class Zygote:
    """The process that forks, as the supervisor sees it."""

    pid: int
    channel: Channel
    due: float
    """When it is given up if it is not ready yet."""
    _socket: socket.socket
    is_ready: bool = False
    is_gone: bool = False
    _process: "subprocess.Popen[bytes] | None" = None

    @classmethod
    def forked(cls, environ: Mapping[str, str], due: float) -> Self:
        """A fork of this very process, which must have no threads yet."""
        # The collector writes into what it looks at, which would be shared no more.
        gc.collect(0)
        gc.freeze()
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            os.environ.clear()
            os.environ.update(environ)
            _serve(theirs)
        theirs.close()
        return cls(pid=pid, channel=Channel(ours), due=due, socket=ours)

    @classmethod
    def fresh(cls, command: Sequence[str], environ: Mapping[str, str], inherited: Sequence[int], due: float) -> Self:
        """A fresh interpreter with these descriptors."""
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            try:
                process = subprocess.Popen(  # noqa: S603 - our own interpreter
                    [*command, str(number)], env=environ, pass_fds=[number, *inherited], stdin=subprocess.DEVNULL
                )
            except OSError:
                ours.close()
                raise
        return cls(pid=process.pid, channel=Channel(ours), due=due, socket=ours, process=process)

    def start(self, part: Mapping[str, Any], channel: int, settings: int) -> Forked:
        """A worker with this part, on this channel, with the settings in this file; raises `OSError` without one."""
        order = json.dumps(part).encode()
        try:
            with _adopting():
                socket.send_fds(self._socket, [order], [channel, settings])
                while select.select([self._socket], [], [], FORKED_S)[0] and not self.is_gone:
                    for word in self.listen():
                        return Forked(pid=word["forked"])
                raise OSError("the process that forks does not answer")
        except OSError:
            self.end()  # one that does not answer will not do so next time
            raise

    def listen(self) -> list[dict[str, Any]]:
        """Hear whether it is ready; gives what else it says."""
        words = self.channel.words()
        self.is_ready = self.is_ready or {"is": "ready"} in words
        self.is_gone = self.is_gone or self.channel.is_closed
        return [word for word in words if "forked" in word]

    def end(self) -> None:
        """It has nothing that could be lost."""
        if self.is_gone and self._socket.fileno() < 0:
            return
        self.is_gone = True
        self.channel.close()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        else:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)


# --- from inside -----------------------------------------------------------------------------------------------------


def _serve(control: socket.socket) -> NoReturn:
    """Load, then fork whenever told to, until there is no supervisor any more."""
    code = EXIT_FAILED
    try:
        os.setpgid(0, 0)  # Ctrl-C is the supervisor's to pass on
        for number in (*_SIGNALS, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        _load()
        code = _forking(control)
    except Exception:  # noqa: BLE001 - it is told here, as nobody above may go on in this process
        traceback.print_exc()
    finally:
        # What the supervisor has open, and means to do at its end, is not done here, too.
        os._exit(code)


def _load() -> None:
    import gateway.process.worker  # noqa: F401 - so that nobody who is forked has to
    from gateway.app import load_ahead

    load_ahead()
    linecache.clearcache()  # the methods that attrs has written wait there for a debugger
    gc.collect(0)
    gc.freeze()


def _forking(control: socket.socket) -> int:
    """Orders are obeyed one by one; gives the exit code."""
    channel = Channel(control)
    channel.say(**{"is": "ready"})
    control.setblocking(True)
    while True:
        # Each is answered before the next comes, so that there is one in a read.
        order, handed, _, _ = socket.recv_fds(control, _LARGEST, 2)
        if not order:
            return 0
        channel.say(forked=_fork(json.loads(order), handed, control))
        for number in handed:
            os.close(number)


def _fork(part: dict[str, Any], handed: Sequence[int], control: socket.socket) -> int:
    """The process of a worker, which is a child of the supervisor as soon as that between has ended."""
    heard, told = os.pipe()
    between = os.fork()
    if between == 0:
        code = EXIT_FAILED
        try:
            pid = os.fork()
            if pid == 0:
                for number in (heard, told):
                    os.close(number)
                control.close()
                _work(part, handed)
            os.write(told, str(pid).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(told)
    os.waitpid(between, 0)
    with os.fdopen(heard) as pipe:
        return int(pipe.read())


def _work(part: dict[str, Any], handed: Sequence[int]) -> NoReturn:
    """Be a worker, as a fresh interpreter would be."""
    code = EXIT_FAILED
    try:
        from gateway.process.worker import WorkerShare, work

        os.setpgid(0, 0)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(OSError), open("/proc/self/comm", "w") as name:
            name.write("toolgate-worker")
        channel, file = handed
        with os.fdopen(file, "rb") as data:
            settings = pickle.load(data)  # noqa: S301 - from our parent, through an anonymous file of its own
        code = work(WorkerShare(**{**part, "channel": channel}), settings)
        atexit._run_exitfuncs()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except Exception:  # noqa: BLE001 - as above
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main(arguments: Sequence[str]) -> NoReturn:
    """Serve the supervisor whose end of the channel this descriptor is."""
    _serve(socket.socket(fileno=int(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
