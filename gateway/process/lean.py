"""Imported first, it loads the log's library without what that would draw tracebacks with.

Our lines are written by a renderer of our own. What structlog would load beside it, where it is installed, takes 3 MiB
and 30 ms of each process: https://github.com/hynek/structlog/blob/main/src/structlog/dev.py
"""

import gc
import sys

__all__ = ["load_quietly"]

LOADING = (5_000, 1_000, 1_000)
"""Nearly all that is loaded stays: to look at it again and again takes an eighth of a start. Not to look at the young
either would take 3 MiB."""


def load_quietly() -> None:
    """Garbage is looked for as suits a process that loads, until it has begun (`gateway.app`)."""
    gc.set_threshold(*LOADING)


if not {"rich", "structlog"} & sys.modules.keys():
    # Where a module is None, importing it fails as if it were not installed.
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
