"""The process that forks: when it is ready, what it forks whose child, and what ends with it."""

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.process import zygote
from gateway.process.exits import EXIT_FAILED
from gateway.process.zygote import Forked, Zygote, can_adopt
from tests.gateway.process.test_supervisor import Fake
from tests.support.processes import adopt_orphans, is_alive

READY = """
import socket, sys, time
control = socket.socket(fileno=int(sys.argv[1]))
control.send(b'{"is":"ready"}\\n')
control.recv(100)
"""
FORKS = f"""{READY}
control.send(b'{{"forked":7}}\\n')
control.recv(100)
"""
LATE_S = 20.0


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Fake]:
    def made(mode: str = "fine", *, pace: dict[str, float] | None = None, **more: Any) -> Fake:
        return Fake(tmp_path, mode=mode, pace={"tick_s": 0.02, **(pace or {})}, **more)

    return made


@pytest.fixture
def fresh() -> Iterator[Callable[..., Zygote]]:
    """One that is a program of a few lines, once it has said whether it is ready."""
    made: list[Zygote] = []

    def begun(*command: str) -> Zygote:
        made.append(Zygote.fresh([sys.executable, *command], os.environ, [], time.monotonic() + LATE_S))
        until(lambda: bool(made[-1].listen()) or made[-1].is_ready or made[-1].is_gone)
        return made[-1]

    yield begun
    for each in made:
        each.end()
    adopt_orphans()  # a start ends that, for this process too


def until(is_so: Callable[[], bool]) -> None:
    late = time.monotonic() + LATE_S
    while not is_so():
        assert time.monotonic() < late
        time.sleep(0.005)


@pytest.mark.system
def test_one_is_ready_when_it_says_so_and_gone_when_it_has_ended(fresh: Callable[..., Zygote]) -> None:
    found = fresh("-c", READY)
    assert (found.is_ready, found.is_gone) == (True, False)
    found.end()
    assert found.is_gone
    assert not is_alive(found.pid)
    found.end()
    assert fresh("-c", "raise SystemExit(1)").is_gone


@pytest.mark.system
def test_what_it_has_forked_is_told_with_its_number(fresh: Callable[..., Zygote]) -> None:
    found = fresh("-c", FORKS)
    with socket.socket() as channel, tempfile.TemporaryFile() as settings:
        assert found.start({"lane": 0}, channel.fileno(), settings.fileno()).pid == 7


@pytest.mark.system
def test_one_that_does_not_answer_is_ended(fresh: Callable[..., Zygote], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "FORKED_S", 0.1)
    found = fresh("-c", READY + "\ntime.sleep(600)")
    with socket.socket() as channel, tempfile.TemporaryFile() as settings, pytest.raises(OSError, match="not answer"):
        found.start({"lane": 0}, channel.fileno(), settings.fileno())
    assert found.is_gone
    assert not is_alive(found.pid)


@pytest.mark.system
def test_a_worker_is_the_child_of_whoever_asked_for_it(fresh: Callable[..., Zygote]) -> None:
    """These settings are none, so that each worker ends at once; the process that forks does not."""
    if not can_adopt():
        pytest.skip("needs linux")
    found = fresh("-m", "gateway.process.zygote")
    assert found.is_ready
    for _ in range(2):
        ours, theirs = socket.socketpair()
        with ours, theirs, tempfile.TemporaryFile() as settings:
            worker = found.start({"lane": 0}, theirs.fileno(), settings.fileno())
            assert worker.pid not in (found.pid, os.getpid())
            until(lambda worker=worker: worker.poll() is not None)  # type: ignore[misc]
            assert worker.poll() == EXIT_FAILED
    assert is_alive(found.pid)
    assert not found.is_gone


def test_a_child_is_waited_for_once_and_told_as_often_as_wanted() -> None:
    child = Forked(pid=os.posix_spawn(sys.executable, [sys.executable, "-c", "raise SystemExit(3)"], os.environ))
    until(lambda: child.poll() is not None)
    assert (child.poll(), child.poll()) == (3, 3)
    child.send_signal(signal.SIGTERM)


def test_whoever_is_no_child_of_ours_has_failed() -> None:
    assert Forked(pid=os.getppid()).poll() == EXIT_FAILED


@pytest.mark.system
@pytest.mark.parametrize("forking", ["raise SystemExit(1)", READY])
async def test_without_a_process_that_forks_each_worker_is_an_interpreter_of_its_own(
    forking: str, fake: Callable[..., Fake]
) -> None:
    """It cannot load, or it does not answer."""
    async with fake(forking=[forking], pace={"longest_backoff_s": 0.05}) as program:
        await program.logged("supervisor_started")
        assert program.events("worker_ready")
        assert program.events("zygote_lost") or program.events("worker_not_started")
