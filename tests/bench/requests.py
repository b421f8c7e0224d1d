"""What one request, and one event of a stream, cost the gateway: CPU time of a whole process on loopback.

Run `python -m tests.bench.requests` for the table, with `--profile` for where the time goes. Gateway, model server and
client share the process, the last two as bare protocols; what they cost by themselves is measured first, without the
gateway between them, and taken off. Figures are the least of several rounds: other work on the machine only adds.
"""

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast
from urllib.request import urlopen

import structlog
from attrs import field, frozen

from gateway.app import Gateway, build
from gateway.config import load as config
from gateway.telemetry.logs import configure_logging

__all__ = ["SCENARIOS", "Figures", "measure", "network"]

PROSE = "The model reads a file and then writes what it found into another one. " * 7
EVENTS = 1000
STRATEGIES = ("native", "recovery", "xml_prompt")
CLIENTS = 8
HEAD_END = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


@frozen(kw_only=True)
class Figures:
    """Microseconds of CPU time."""

    request: float
    """For one whole answer."""
    event: float
    """For one event of an answer whose events come together, the request's share included."""


def measure(strategy: str, *, requests: int = 160, rounds: int = 7, profile: str | None = None) -> Figures:
    """Put the load through a gateway that reads with this strategy, and through none, and take the difference."""
    return asyncio.run(_measured(strategy, requests, rounds, profile))


def _body(stream: bool) -> bytes:
    if stream:
        return b"".join([*(_event({"content": word}) for word in _words()), _event({}, "stop"), b"data: [DONE]\n\n"])
    message = {"role": "assistant", "content": PROSE}
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "bench",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110},
        }
    ).encode()


def _words() -> list[str]:
    words = PROSE.split()
    return [f"{words[number % len(words)]} " for number in range(EVENTS)]


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "chatcmpl-1", "model": "bench", "choices": [choice]}).encode() + b"\n\n"


def _request(stream: bool) -> bytes:
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("write", "read")]
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Tell me of files."}]
    return json.dumps({"model": "bench", "messages": messages, "tools": tools, "stream": stream}).encode()


def _reply(stream: bool) -> bytes:
    body = _body(stream)
    if not stream:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"%x\r\n%b\r\n" % (len(body), body) + LAST_CHUNK


def _post(port: int, stream: bool) -> bytes:
    body = _request(stream)
    lines = ["POST /v1/chat/completions HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


class _Peer(asyncio.Protocol):
    """Either end: calls `on_message` whenever a message is complete."""

    def __init__(self, on_message: Callable[["_Peer", bytes], None]) -> None:
        self._on_message = on_message
        self._held = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        head_end = self._held.find(HEAD_END)
        if head_end < 0:
            return
        head = self._held[:head_end].lower()
        if b"chunked" in head:
            is_whole = self._held.endswith(LAST_CHUNK)
        else:
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            is_whole = len(self._held) >= head_end + len(HEAD_END) + length
        if is_whole:
            message, self._held = self._held, b""
            self._on_message(self, message)


@frozen
class _Load:
    """Clients that ask one after the other, each a share of the requests."""

    port: int
    stream: bool
    _post: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_post", _post(self.port, self.stream))

    async def run(self, requests: int) -> float:
        """CPU seconds for all of them."""
        before = time.process_time()
        await asyncio.gather(*(self._client(requests // CLIENTS) for _ in range(CLIENTS)))
        return time.process_time() - before

    async def _client(self, left: int) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def answered(peer: _Peer, message: bytes) -> None:
            nonlocal left
            left -= 1
            if not message.startswith(b"HTTP/1.1 200"):
                done.set_exception(RuntimeError(repr(message[:500])))
            elif left > 0:
                peer.transport.write(self._post)
            else:
                done.set_result(None)

        transport, _ = await loop.create_connection(lambda: _Peer(answered), "127.0.0.1", self.port)
        transport.write(self._post)
        await done
        transport.close()


async def repeat(port: int, message: bytes, count: int, on_answer: Callable[[], object] = lambda: None) -> float:
    """Ask this so often, one after another, over one connection; the CPU seconds that it took the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def answered(peer: _Peer, reply: bytes) -> None:
        nonlocal count
        assert reply.startswith(b"HTTP/1.1 200"), reply[:500]
        on_answer()
        count -= 1
        if count > 0:
            peer.transport.write(message)
        else:
            done.set_result(None)

    transport, _ = await loop.create_connection(lambda: _Peer(answered), "127.0.0.1", port)
    before = time.process_time()
    transport.write(message)
    await done
    spent = time.process_time() - before
    transport.close()
    return spent


async def begun(upstream_port: int, strategy: str, environ: Mapping[str, str]) -> tuple[Gateway, int]:
    """A gateway before this model server, which reads its answers so; and its port."""
    settings = config.load(
        {
            "UPSTREAM_URL": f"http://127.0.0.1:{upstream_port}/v1",
            "GATEWAY_PORT": "0",
            "METRICS_PORT": "0",
            "STORE_URL": "memory://",
            "STRATEGY_RULES": f"bench={strategy}",
            **environ,
        }
    )
    gateway = await build(settings)
    return gateway, int(gateway.url.rpartition(":")[2].partition("/")[0])


async def _measured(strategy: str, requests: int, rounds: int, profile: str | None) -> Figures:
    loop = asyncio.get_running_loop()
    replies = {stream: _reply(stream) for stream in (False, True)}

    def asked(peer: _Peer, message: bytes) -> None:
        peer.transport.write(replies[b'"stream": true' in message or b'"stream":true' in message])

    upstream = await loop.create_server(lambda: _Peer(asked), "127.0.0.1", 0)
    upstream_port = upstream.sockets[0].getsockname()[1]
    gateway, port = await begun(upstream_port, strategy, {})
    costs = []
    for stream in (False, True):
        through, beside = _Load(port, stream), _Load(upstream_port, stream)
        for load in (through, beside):
            await load.run(requests // 4)
        least = min([await through.run(requests) for _ in range(rounds)])
        costs.append((least - min([await beside.run(requests) for _ in range(rounds)])) / requests * 1e6)
    if profile:
        with cProfile.Profile() as profiler:
            await _Load(port, profile == "stream").run(requests)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(40)
    await gateway.close()
    upstream.close()
    return Figures(request=costs[0], event=costs[1] / EVENTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=160)
    parser.add_argument("--profile", choices=["whole", "stream"])
    given = parser.parse_args()
    with open(os.devnull, "wb") as nowhere:
        writer = configure_logging(fd=nowhere.fileno())
        print(f"{'strategy':<12}{'us/request':>12}{'us/event':>12}")
        for strategy in STRATEGIES:
            figures = measure(strategy, requests=given.requests, rounds=given.rounds, profile=given.profile)
            print(f"{strategy:<12}{figures.request:>12.0f}{figures.event:>12.2f}")
        writer.close()
    structlog.reset_defaults()


if __name__ == "__main__":
    main()


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
