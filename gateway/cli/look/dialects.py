"""`toolgate dialects`: every textual form of a tool call that is read, with an example each."""

import json
from typing import Any

import click

from gateway.cli.options import colour_option, json_option
from strategies.dialects.rows import TABLE
from strategies.grammar.dialect import Dialect

__all__ = ["dialects"]

_SCHEMA_VERSION = 1
_LEVELS = {
    "A": "special tokens or a vendor's own markers",
    "B": "generic tags with a strict inner grammar",
    "C": "a tag per tool, or keywords",
    "D": "bare data: JSON, Python calls",
    "E": "shell blocks and patches",
}


@click.command(short_help="List the forms of tool calls that are read.")
@click.argument("name", required=False)
@json_option
@colour_option
def dialects(name: str | None, as_json: bool) -> None:
    """List the forms of tool calls that are read, with an example each; NAME narrows the list.

    \b
    Examples:
      toolgate dialects
      toolgate dialects qwen
      toolgate dialects --json
    """
    _show(wanted=name, as_json=as_json)


def _show(*, wanted: str | None, as_json: bool) -> None:
    """Print the dialects whose id or family holds `wanted`."""
    rows = [row for row in TABLE if not wanted or wanted.lower() in f"{row.id} {row.family}".lower()]
    if as_json:
        click.echo(json.dumps({"schema_version": _SCHEMA_VERSION, "dialects": [_entry(row) for row in rows]}))
        return
    for row in rows:
        click.secho(row.id, bold=True, nl=False)
        click.echo(f"  ({row.family}; evidence {row.level}: {_LEVELS[row.level]})")
        if row.models:
            click.echo(f"  models: {', '.join(row.models)}")
        click.echo(f"  prompts: {'xml_prompt:' + row.id if row.renderer else 'read only'}")
        for line in row.example.splitlines():
            click.echo(f"    {line}")
        click.echo()
    click.echo(f"{len(rows)} dialects", err=True)


def _entry(row: Dialect) -> dict[str, Any]:
    return {
        "id": row.id,
        "family": row.family,
        "level": row.level,
        "models": list(row.models),
        "can_be_prompted": row.renderer is not None,
        "example": row.example,
    }
