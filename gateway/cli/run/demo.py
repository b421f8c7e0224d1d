"""`toolgate demo`: what scripted models write, beside what an agent gets of it, streamed, with nothing else needed."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import click
import structlog
from attrs import define

from gateway.app import build
from gateway.cli.options import colour_option
from gateway.config.load import load
from gateway.demo.script import MODELS
from gateway.demo.server import Pace, start_demo

__all__ = ["demo"]

_QUESTION = "What is the weather in Paris?"
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
_PAUSE_S = 2.0
_INDENT = "    "


@click.command(short_help="Show what models write beside what an agent gets, without any model.")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--question", default=_QUESTION, show_default=True, help="What the models are asked.")
@click.option("--fast", is_flag=True, help="Let the models write at once.")
@colour_option
@click.pass_context
def demo(context: click.Context, models: tuple[str, ...], question: str, fast: bool) -> None:
    """Show what scripted models write beside what an agent gets of it.

    A gateway and its embedded demo models are started for as long as this takes; nothing else is needed, and nothing is
    kept.

    \b
    Examples:
      toolgate demo
      toolgate demo demo-xml demo-broken --fast
    """
    unknown = [name for name in models if name not in MODELS]
    if unknown:
        raise click.UsageError(f"{unknown[0]!r} is none of the demo models: {', '.join(MODELS)}")
    # What the gateway logs of itself would stand between the two.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    pace = Pace(tokens_per_s=0, pause_s=0) if fast else Pace(pause_s=_PAUSE_S)
    asyncio.run(_shown(models or tuple(MODELS), question, pace))


async def _shown(models: tuple[str, ...], question: str, pace: Pace) -> None:
    async with _served(pace) as (direct, through), aiohttp.ClientSession() as session:
        for number, model in enumerate(models):
            click.echo(("\n" if number else "") + click.style(model, bold=True) + f": {MODELS[model]}")
            body = {
                "model": model,
                "stream": True,
                "messages": [{"role": "user", "content": question}],
                "tools": _TOOLS,
            }
            for title, url in (("the model writes", direct), ("the agent gets", through)):
                click.echo(f"  {title}")
                await _Told().tell(_deltas(session, url, body))


@asynccontextmanager
async def _served(pace: Pace) -> AsyncIterator[tuple[str, str]]:
    """The demo's own address, and that of a gateway in front of it."""
    models = await start_demo(pace)
    try:
        # Free ports and a store of its own: a gateway that runs here already is not to be met.
        environ = {"UPSTREAM_URL": models.url, "GATEWAY_PORT": "0", "METRICS_PORT": "0", "STORE_URL": "memory://"}
        gateway = await build(load(environ))
        try:
            yield models.url, f"{gateway.url}/v1"
        finally:
            await gateway.close()
    finally:
        await models.close()


async def _deltas(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """What the answer's chunks add, as they come."""
    async with session.post(f"{url}/chat/completions", json=body) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[len(b"data: ") :]).get("choices", ()):
                    yield choice["delta"]


@define
class _Told:
    """One answer on its way to the terminal: its text as it comes, then its calls."""

    _column: int = 0

    async def tell(self, deltas: AsyncIterator[dict[str, Any]]) -> None:
        async for delta in deltas:
            if text := delta.get("content"):
                self._write(text)
            for call in delta.get("tool_calls") or ():
                self._call(call["function"])
        self._end_line()

    def _call(self, function: dict[str, Any]) -> None:
        if name := function.get("name"):
            self._end_line()
            click.echo(f"{_INDENT}{click.style('tool call', fg='green')} {name} ", nl=False)
            self._column = 1
        click.echo(function.get("arguments") or "", nl=False)

    def _write(self, text: str) -> None:
        for number, line in enumerate(text.split("\n")):
            if number:
                click.echo()
                self._column = 0
            if line:
                click.echo(("" if self._column else _INDENT) + line, nl=False)
                self._column = 1

    def _end_line(self) -> None:
        if self._column:
            click.echo()
        self._column = 0
