"""`systemctl` for a test: starts, reloads and stops toolgate.service as its unit file says, and waits for READY=1.

Run as `service.py UNIT STATE VERB...`: STATE is a folder for the process id, the credentials and the log.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

READY_S = 30.0
STOP_S = 30.0


def main(unit: Path, state: Path, words: list[str]) -> None:
    """Do what systemctl would."""
    verb = next(word for word in words if not word.startswith("-"))
    match verb:
        case "daemon-reload":
            assert unit.exists()
        case "enable" | "start":
            _start(unit, state)
        case "reload":
            os.kill(_pid(state), signal.SIGHUP)
        case "stop":
            _stop(state)
        case "restart":
            _stop(state)
            _start(unit, state)
        case other:
            raise SystemExit(f"systemctl {other}: not known to this test")


def _values(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def _start(unit: Path, state: Path) -> None:
    credentials = state / "credentials"
    credentials.mkdir(exist_ok=True)
    for value in _values(unit, "LoadCredential"):
        name, _, source = value.partition(":")
        shutil.copy(source, credentials / name)
    environ = {"PATH": os.environ["PATH"], "NOTIFY_SOCKET": str(state / "notify")}
    environ |= dict(value.replace("%d", str(credentials)).split("=", 1) for value in _values(unit, "Environment"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard, (state / "log").open("ab") as log:
        (state / "notify").unlink(missing_ok=True)
        heard.bind(str(state / "notify"))
        heard.settimeout(0.1)
        (command,) = _values(unit, "ExecStart")
        process = subprocess.Popen(
            shlex.split(command), env=environ, cwd=state, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        (state / "pid").write_text(str(process.pid))
        _until_ready(process, heard)


def _until_ready(process: subprocess.Popen[bytes], heard: socket.socket) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the service ended with {process.returncode}")
        with suppress(TimeoutError):
            if b"READY=1" in heard.recv(4096):
                return
    raise SystemExit("the service did not say that it is ready")


def _pid(state: Path) -> int:
    return int((state / "pid").read_text())


def _stop(state: Path) -> None:
    pid = _pid(state)
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
