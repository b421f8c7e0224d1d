"""Hosts of the test's own: network namespaces on one bridge, with a link each, and programs that run on them."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

__all__ = ["HUB", "Hosts", "needs_hosts"]

_NET = "10.77.0"
HUB = f"{_NET}.254"
"""The address of the host that all others reach."""


def _can_make_hosts() -> bool:
    """Namespaces want the rights of root, and the program that makes them."""
    return os.geteuid() == 0 and shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


needs_hosts = pytest.mark.skipif(not _can_make_hosts(), reason="needs root and iproute2")


class Hosts:
    """A hub and some hosts around it; nothing in them reaches anything outside."""

    def __init__(self, count: int) -> None:
        self._tag = f"tg{os.getpid()}"
        self.addresses = [f"{_NET}.{number}" for number in range(1, count + 1)]
        self._programs: list[asyncio.subprocess.Process] = []

    def __enter__(self) -> "Hosts":
        hub = self._name("hub")
        self._ip("netns", "add", hub)
        self._in(hub, "link", "set", "lo", "up")
        self._in(hub, "link", "add", "br0", "type", "bridge")
        self._in(hub, "addr", "add", f"{HUB}/24", "dev", "br0")
        self._in(hub, "link", "set", "br0", "up")
        for number, address in enumerate(self.addresses):
            host = self._name(address)
            self._ip("netns", "add", host)
            self._in(host, "link", "set", "lo", "up")
            self._in(hub, "link", "add", f"to{number}", "type", "veth", "peer", "name", "eth0", "netns", host)
            self._in(hub, "link", "set", f"to{number}", "master", "br0", "up")
            self._in(host, "addr", "add", f"{address}/24", "dev", "eth0")
            self._in(host, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for address in ("hub", *self.addresses):
            subprocess.run(["ip", "netns", "del", self._name(address)], check=False, capture_output=True)

    async def start(self, address: str, *command: str, log: Path, **environ: str) -> asyncio.subprocess.Process:
        """Start a program on a host (`hub`, or one of the addresses); it is ended with the hosts."""
        with log.open("ab") as out:
            program = await asyncio.create_subprocess_exec(
                *self.on(address, *command),
                env={"PATH": os.environ["PATH"], **environ},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self._programs.append(program)
        return program

    async def run(self, address: str, *command: str) -> str:
        """What a program prints that ends by itself."""
        program = await asyncio.create_subprocess_exec(
            *self.on(address, *command), stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
        self._programs.append(program)
        out, _ = await asyncio.wait_for(program.communicate(), 90)
        assert program.returncode == 0, out.decode()
        return out.decode()

    async def python(self, address: str, module: str, *arguments: str) -> str:
        """What a module of the tests prints, run on a host."""
        return await self.run(address, sys.executable, "-m", module, *arguments)

    async def end(self) -> None:
        """End every program that is still there."""
        for program in self._programs:
            if program.returncode is None:
                program.kill()
            await program.wait()

    def on(self, address: str, *command: str) -> Sequence[str]:
        """The command that runs another one on a host."""
        return ("ip", "netns", "exec", self._name(address), *command)

    def _name(self, address: str) -> str:
        return f"{self._tag}-{address.rpartition('.')[2]}"

    def _in(self, host: str, *words: str) -> None:
        self._ip("-n", host, *words)

    def _ip(self, *words: Any) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)
