"""What systemd is told, and that nothing happens where there is none."""

import os
import socket
from pathlib import Path

import pytest

from gateway.process.notify import Notifier


def test_without_systemd_nothing_is_told() -> None:
    notifier = Notifier.from_environ({})
    notifier.ready("fine")
    assert (notifier.address, notifier.watchdog_s) == (None, None)


@pytest.mark.parametrize("abstract", [True, False])
def test_every_message_is_one_datagram(abstract: bool, tmp_path: Path) -> None:
    name = f"@toolgate-test-{os.getpid()}" if abstract else str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name[1:]}" if abstract else name)
        notifier = Notifier.from_environ({"NOTIFY_SOCKET": name})
        notifier.ready("listens")
        notifier.reloading()
        notifier.alive()
        notifier.stopping()
        assert listening.recv(4096) == b"READY=1\nSTATUS=listens"
        first, second = listening.recv(4096).decode().split("\n")
        assert first == "RELOADING=1"
        assert int(second.removeprefix("MONOTONIC_USEC=")) > 0
        assert listening.recv(4096) == b"WATCHDOG=1"
        assert listening.recv(4096) == b"STOPPING=1\nSTATUS=draining"


def test_who_does_not_listen_any_more_harms_nothing(tmp_path: Path) -> None:
    Notifier(address=str(tmp_path / "gone")).alive()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_ours_or_none(environ: dict[str, str], expected: float | None) -> None:
    assert Notifier.from_environ({"NOTIFY_SOCKET": "/run/notify", **environ}).watchdog_s == expected


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1"])
def test_an_address_of_another_kind_is_left_alone(address: str) -> None:
    assert Notifier.from_environ({"NOTIFY_SOCKET": address}).address is None
