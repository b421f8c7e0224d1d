"""What is shown to whoever starts the gateway by hand: where it listens, what is in force, what to paste."""

import json
import sys
from collections.abc import Iterator

from gateway.config.declarations import Settings
from gateway.config.declared.values import shown_url
from gateway.config.urls import in_url
from gateway.core.version import __version__
from gateway.demo.script import MODELS

__all__ = ["WONDERING_AFTER_S", "banner", "greet", "servers_of", "still_ending"]

WONDERING_AFTER_S = 1.0
"""After so long somebody at a terminal wonders why the gateway has not ended."""

_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def greet(settings: Settings, url: str) -> None:
    """Show the banner, if it is a person who started the gateway, or may be."""
    if settings.log_format == "console" or settings.is_demo or sys.stderr.isatty():
        sys.stderr.write(banner(settings, url))
        sys.stderr.flush()


def banner(settings: Settings, url: str) -> str:
    """The lines for a terminal; no secret is in them."""
    return "\n".join(_lines(settings, url)) + "\n"


def still_ending(drain_s: float) -> str:
    """Why the gateway has not ended yet, and what can be done about it."""
    return f"Answers under way may take up to {drain_s:g} s more. Ctrl-C again ends them at once.\n"


def _lines(settings: Settings, url: str) -> Iterator[str]:
    yield f"Toolgate {__version__} listens on {url}"
    yield f"  base URL      {url}/v1"
    yield f"  model server  {servers_of(settings)}"
    yield f"  keys          {_keys(settings)}"
    yield f"  strategies    {','.join(map(str, settings.strategy_rules)) or 'built-in table'}"
    if settings.transform_mode == "off" or not settings.tool_calling_enabled:
        yield "  tool calls    off: answers are relayed untouched"
    if settings.transform_mode not in ("off", "full"):
        yield f"  rollout       {settings.transform_mode}: see `toolgate rollout status`"
    yield f"  metrics       {_metrics(settings, url)}"
    for warning in settings.warnings:
        yield f"  warning       {warning}"
    yield ""
    yield from _demo_lines(settings, url) if settings.is_demo else _first_steps(settings, url)
    yield ""
    yield "What became of each answer, side by side:  toolgate inspect"


def servers_of(settings: Settings) -> str:
    """The model servers that are asked."""
    named = [shown_url(settings.upstream_url)] if settings.upstream_url else []
    named += [f"{shown_url(each.url)} ({each.name})" for each in settings.routes.upstreams]
    return ", ".join(named) or "the embedded demo (UPSTREAM_URL is not set)"


def _metrics(settings: Settings, url: str) -> str:
    if settings.workers == 1:
        return f"{url}/metrics"
    if not settings.metrics_port:
        return "on a free port for each worker, which METRICS_SD_FILE and the log say"
    return f"http://{in_url(settings.metrics_host)}:{settings.metrics_port}/metrics and up, a port for each worker"


def _keys(settings: Settings) -> str:
    if settings.api_keys.is_open:
        return "none asked for (GATEWAY_API_KEYS is not set)"
    return f"{len(settings.api_keys)} in force"


def _demo_lines(settings: Settings, url: str) -> Iterator[str]:
    yield "Demo models:"
    for name, what in MODELS.items():
        yield f"  {name:<12}  {what}"
    yield ""
    yield "An answer written as XML arrives as a tool call:"
    yield _curl(settings, url, "demo-xml")
    yield ""
    yield "Prose stays prose:"
    yield _curl(settings, url, "demo-prose")


def _first_steps(settings: Settings, url: str) -> Iterator[str]:
    yield "Which models are there:"
    yield f"  curl -s {url}/v1/models{_key_header(settings)}"


def _curl(settings: Settings, url: str, model: str) -> str:
    question = {"role": "user", "content": "What is the weather in Paris?"}
    body = json.dumps({"model": model, "messages": [question], "tools": [_WEATHER]}, separators=(",", ":"))
    head = f"  curl -s {url}/v1/chat/completions -H 'Content-Type: application/json'{_key_header(settings)}"
    return f"{head} \\\n    -d '{body}'"


def _key_header(settings: Settings) -> str:
    return "" if settings.api_keys.is_open else ' -H "Authorization: Bearer $YOUR_KEY"'
