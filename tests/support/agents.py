"""The real coding agents, headless, in a home of the test's own; nothing but the test's gateway is reached."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["said_by"]


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
