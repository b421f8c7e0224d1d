"""Running the gateway: as one process, or under the supervisor."""

import os
from collections.abc import Mapping

from gateway.app import run
from gateway.config.load import Settings
from gateway.process.alone import LonePost

__all__ = ["serve"]


def serve(settings: Settings, *, environ: Mapping[str, str] | None = None) -> int:
    """Run until a signal ends it, in as many processes as the settings say; returns the exit code."""
    given = os.environ if environ is None else environ
    if settings.workers > 1:
        from gateway.process.supervisor import supervise  # here: a lone process needs none

        return supervise(settings, given)
    return run(settings, given, LonePost.of(settings, given))
