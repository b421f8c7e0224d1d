"""The gateway under load over real sockets, beside a bare relay and whatever else the harness knows.

The harness is a folder with `run.py` and `report.py`, which put load on proxies and say what each costs in CPU time;
`python -m tests.bench --harness DIR` starts one gateway with one worker for it. Ratios to the bare relay hold within a
round; seconds of a machine that others use do not.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

__all__ = ["SCENARIOS", "network"]

SCENARIOS = "ns16,paced,busy,paced_qwen,busy_qwen"
_READY_S = 60.0
_MINUTES = 40


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + _READY_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urlopen(url, timeout=1):  # noqa: S310 - the gateway's own address
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the gateway does not start")


def network(harness: Path, *, rounds: int, scenarios: str = SCENARIOS, targets: str = "bare,gateway") -> str:
    """The harness's table."""
    upstream = os.environ.get("UPORT", "9100")
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "UPSTREAM_URL": f"http://127.0.0.1:{upstream}/v1",
            "GATEWAY_PORT": str(port),
            "METRICS_PORT": "0",
            "STORE_URL": f"sqlite:///{folder}/bench.db",
            "STRATEGY_RULES": "*=xml_prompt",
        }
        with Path(folder, "log").open("wb") as log:
            command = [sys.executable, "-m", "gateway", "serve"]
            gateway = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}/healthz", gateway)
            told = {
                **os.environ,
                "GATEWAY_URL": f"http://127.0.0.1:{port}",
                "GATEWAY_PID": str(gateway.pid),
                "BENCH_PYTHON": os.environ.get("BENCH_PYTHON", sys.executable),
            }
            out = f"{folder}/results.jsonl"
            asked = ["--targets", targets, "--scenarios", scenarios, "--rounds", str(rounds), "--out", out]
            asked += ["--minutes", str(_MINUTES)]
            subprocess.run([sys.executable, "run.py", *asked], cwd=harness, env=told, check=True, stdout=sys.stderr)
            report = [sys.executable, "report.py", out, "bare"]
            made = subprocess.run(report, cwd=harness, env=told, check=True, capture_output=True, text=True)
            return made.stdout
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(30)
