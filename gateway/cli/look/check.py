"""`toolgate check` and `toolgate settings`: what is in force, and what could be set."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import click
from attrs import frozen

from gateway.cli.options import colour_option, json_option
from gateway.config.declared.values import shown, shown_url
from gateway.config.load import DECLARED, Settings, describe, inspect
from gateway.config.reference import settings_schema, settings_table_markdown, settings_toml
from gateway.config.urls import listening_url
from gateway.process.banner import servers_of
from gateway.process.exits import EXIT_SETTINGS
from strategies.factory import ToolExecutionFactory, load_strategies

__all__ = ["Checked", "check", "checked", "report", "settings", "show_reference"]

_SCHEMA_VERSION = 1
_SECRETS = frozenset({"api_key", "cookies"})
_NARROW = 72
"""Below so many columns there is no room for three beside each other."""


@frozen(kw_only=True)
class Checked:
    """The effective settings, every fault, and what is merely odd."""

    settings: Settings
    faults: tuple[str, ...]
    warnings: tuple[str, ...]


@click.command(short_help="Print the settings in force, and every fault in them.")
@click.option("--all", "shows_all", is_flag=True, help="Print the settings that have their defaults, too.")
@json_option
@colour_option
@click.pass_context
def check(context: click.Context, shows_all: bool, as_json: bool) -> None:
    """Print what was set, secrets masked, and every fault in the settings.

    Nothing is started and nothing is connected to: `toolgate doctor` does that. Exits with 78 if there is a fault.

    \b
    Examples:
      toolgate check
      toolgate check --all
      GATEWAY_ENV_FILE=/etc/toolgate/env toolgate check --json
    """
    found = checked(os.environ)
    report(found, shows_all=shows_all, as_json=as_json, colour=context.color)
    context.exit(EXIT_SETTINGS if found.faults else 0)


@click.command()
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown tables.")
@click.option("--toml", "form", flag_value="toml", help="Print a TOML file to begin from.")
@click.option("--json-schema", "form", flag_value="schema", help="Print a JSON schema of the TOML file, for editors.")
@colour_option
@click.pass_context
def settings(context: click.Context, form: str | None) -> None:
    """Print every setting with its default and its meaning.

    \b
    Examples:
      toolgate settings
      toolgate settings | grep TIMEOUT
      toolgate settings --toml > toolgate.toml
      toolgate settings --json-schema > toolgate.schema.json
    """
    show_reference(form, colour=context.color)


def checked(environ: Mapping[str, str]) -> Checked:
    """Read the settings as a start would, and see that the strategies they name exist."""
    settings, faults = inspect(environ)
    loaded = load_strategies()
    factory = ToolExecutionFactory(loaded.strategies, rules=settings.all_rules())
    return Checked(
        settings=settings,
        faults=(*faults, *(f"STRATEGY_RULES: {fault}" for fault in factory.faults())),
        warnings=(*settings.warnings, *loaded.faults),
    )


def report(found: Checked, *, shows_all: bool, as_json: bool, colour: bool | None) -> None:
    """Print what was found: the settings to stdout, faults and warnings to stderr unless all is one JSON document."""
    rows = [*describe(found.settings), *_routes(found.settings)]
    if not shows_all and not as_json:
        rows = [*_places(found.settings), *(row for row in rows if row[2] != "default")]
    if as_json:
        document = {
            "schema_version": _SCHEMA_VERSION,
            "ok": not found.faults,
            "faults": found.faults,
            "warnings": found.warnings,
            "settings": [{"name": name, "value": value, "source": source} for name, value, source in rows],
        }
        click.echo(json.dumps(document, indent=2))
        return
    _table(("setting", "value", "from"), rows, colour=colour)
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    for fault in found.faults:
        click.echo(f"fault: {fault}", err=True)
    if not found.faults:
        click.echo("No faults.", err=True)


def _places(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Where it would listen, and whom it would ask: what people look for first."""
    yield "base URL", f"{listening_url(settings)}/v1", ""
    yield "model server", servers_of(settings), ""


def _routes(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """The tables of the TOML file as rows like those of settings."""
    source = f"file {settings.config_file}"
    for upstream in settings.routes.upstreams:
        name = f"upstreams.{upstream.name}"
        yield name, " ".join((shown_url(upstream.url), *_set_in(upstream, "name", "url", "options"))), source
        if upstream.options is not None:
            yield f"{name}.{upstream.kind}", " ".join(_set_in(upstream.options, defaults=True)), source
    for rule in settings.routes.models:
        yield f"models.{rule.match}", " ".join(_set_in(rule, "match")), source


_SHOWN_ALWAYS = frozenset({"kind", "intent"})
"""They are asked for first, whether a file names them or not."""


def _set_in(table: Any, *left_out: str, defaults: bool = False) -> Iterator[str]:
    """What a table says; of a secret no more than that it is set, of fields and their values the fields."""
    for each in attrs.fields(type(table)):
        name, value = each.name, getattr(table, each.name)
        is_as_ever = value == each.default and not defaults and name not in _SHOWN_ALWAYS
        if name in left_out or value in (None, (), {}) or is_as_ever:
            continue
        if name in _SECRETS:
            yield f"{name}=********"
        elif isinstance(value, Mapping | frozenset):
            yield f"{name}={','.join(sorted(value))}"
        else:
            yield f"{name}={shown(value)}"


_FORMS: dict[str, Callable[[], str]] = {
    "markdown": settings_table_markdown,
    "toml": settings_toml,
    "schema": lambda: json.dumps(settings_schema(), indent=2),
}


def show_reference(form: str | None = None, *, colour: bool | None) -> None:
    """Print every setting with its default and meaning."""
    if form is not None:
        click.echo(_FORMS[form]())
        return
    rows = [(entry.name, entry.default_text, entry.help) for entry in DECLARED]
    _table(("setting", "default", "meaning"), rows, colour=colour)


def _table(head: Sequence[str], rows: Iterable[tuple[str, str, str]], *, colour: bool | None) -> None:
    """A table on a terminal, a list on a narrow one, one line of tab-separated fields per row elsewhere."""
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(row))
        return
    from rich.console import Console  # here: only a terminal needs it, and it is slow to import
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    # `None` leaves it to rich, which heeds NO_COLOR itself.
    console = Console(no_color=colour is False or None)
    if console.width < _NARROW:
        for name, *cells in rows:
            console.print(Text(name, style="bold"))
            for title, cell in zip(head[1:], cells, strict=True):
                if cell:
                    console.print(Padding(Text(f"{title}: {cell}", overflow="fold"), (0, 0, 0, 2)))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in head:
        table.add_column(title, overflow="fold", no_wrap=title == "setting")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
