"""The look at the model servers right after the start: whoever waits for the first answer learns what is amiss."""

import sys

import structlog

from gateway.app import Gateway
from gateway.request.servers import Upstream
from gateway.upstream.look import Look, look_at

__all__ = ["look_around"]

log = structlog.get_logger("toolgate")


async def look_around(gateway: Gateway) -> None:
    """Ask each model server once for its models; nothing waits for it, and nothing follows from it but words."""
    settings = gateway.settings
    if settings.is_demo:
        return
    tells = settings.log_format == "json" and sys.stderr.isatty()  # as lines for a person the log says it itself
    for upstream in gateway.shared.configuration.upstreams.values():
        try:
            seen = await look_at(upstream)
        except Exception:
            log.exception("model_server_look_failed", upstream=upstream.name)
            continue
        _log(upstream, seen)
        if tells:
            advice = f"                -> {seen.advice}\n" if seen.advice else ""
            sys.stderr.write(f"  model server  {seen.message}\n{advice}")
            sys.stderr.flush()


def _log(upstream: Upstream, seen: Look) -> None:
    say = {"ok": log.info, "warning": log.warning, "fault": log.error}[seen.level]
    told = {"models": seen.models, "advice": seen.advice or None}
    say("model_server_seen", upstream=upstream.name, message=seen.message, **{k: v for k, v in told.items() if v})
