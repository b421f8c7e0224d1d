"""The real coding agents, headless, in a home of the test's own; nothing but the test's gateway is reached."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from attrs import define, field

from strategies.asking.renderers import renderer
from tests.support.turns import Call, Turn
from tests.support.wire_server import Answered, WireServer

__all__ = ["DONE", "READ_TEXT", "RUN_TEXT", "WRITTEN_TEXT", "Script", "Step", "said_by"]


async def said_by(command: tuple[str, ...], folder: Path, home: Path, **environ: str) -> list[dict[str, Any]]:
    """What the program says, event by event, working in a folder; it must end well and in time."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            # It must find nobody else.
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1",
            **environ,
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(120):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, (out[-2000:], err[-2000:])
    return [json.loads(line) for line in out.splitlines()]


# --- A model that reads, edits and runs, whatever wire its server speaks and in whatever form it writes its calls.
# What it does next is told by what stands in the request: no counting, as agents ask for other things beside.


READ_TEXT = "alpha-7731"

"""Stands in the file that is read, and nowhere else before."""

WRITTEN_TEXT = "beta-4402"

RUN_TEXT = "gamma-9913"

DONE = "All three steps are done: omega-5521."


@define
class Step:
    """A call, and the text in a request by which it is known to have been made."""

    name: str
    arguments: dict[str, Any]
    mark: str
    is_known_by_name: bool = True
    """No other step calls this tool: a result with its name says that it was made."""


@define
class Script:
    """A server that answers as the script says, through `server`, which speaks the wire."""

    server: Any
    steps: list[Step]
    task: str
    """A text of the task's own: requests without it are others than the agent's work."""
    dialect: str | None = None
    """The form in which calls are written into the text; None: structured."""
    seen: list[tuple[str, dict[str, str], bytes]] = field(factory=list)
    """What was asked: targets, headers and bodies."""
    _made: int = 0

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        """The answer to one HTTP request."""
        self.seen.append((target, headers, body))
        if method == "POST" and body:
            self.server.turns = [self._turn(body.decode())]
        wire: WireServer = self.server
        return wire.respond(method, target, headers, body)

    def _turn(self, text: str) -> Turn:
        told = json.loads(text) if text else {}
        text = json.dumps(told, ensure_ascii=False)
        done = next((number for number in range(len(self.steps), 0, -1) if self._is_done(number - 1, text)), 0)
        if not done and self.task not in text:
            return Turn(text="Fine.")
        if done == len(self.steps):
            return Turn(text=DONE)
        step = self.steps[done]
        self._made += 1
        said = f"Step {done + 1}. "
        if self.dialect is None:
            return Turn(text=said, calls=(Call(f"call_{self._made}_{done}", step.name, step.arguments),))
        written = renderer(self.dialect)
        return Turn(text=said + "\n\n" + written.calls([written.call(step.name, step.arguments, None)]))

    def _is_done(self, number: int, text: str) -> bool:
        step = self.steps[number]
        # A server that keeps the conversation itself is sent the results alone.
        return step.mark in text or (step.is_known_by_name and f"Tool Result: {step.name}]" in text)
