"""The command line: `toolgate serve`, `check`, `doctor`, `reload`, `rollout`, `report`, `replay`, `export` and more."""

import os
import platform
import sys
from importlib import import_module
from typing import BinaryIO, cast

import click

from gateway import __version__
from gateway.cli.options import colour_option, json_option
from gateway.process.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_SETTINGS

# What else a command needs it imports itself: help is there at once, and `main` catches Ctrl-C during an import.
__all__ = ["cli", "main"]

_MODULES = {name: f"gateway.cli_{name}" for name in ("doctor", "export", "reload", "replay", "report", "rollout")}
_MAX_ANSWER_BYTES = 64 << 20


class _Commands(click.Group):
    """The commands here, and those that have a module of their own, which is loaded when it is asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*super().list_commands(context), *_MODULES])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _MODULES:
            return super().get_command(context, name)
        command = getattr(import_module(_MODULES[name]), name)
        return cast("click.Command", command)


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="toolgate", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Make every tool call of a model arrive as a correct one, or leave its answer as it was.

    Toolgate stands between coding agents and an OpenAI-compatible model server. It is set up by environment
    variables: see `toolgate settings`.

    \b
    Examples:
      toolgate serve                                      the embedded demo, on 127.0.0.1:8080
      UPSTREAM_URL=http://127.0.0.1:8000/v1 toolgate serve
      toolgate check                                      are the settings right?
      toolgate try answer.txt                             what would be made of this answer?
      toolgate dialects                                   which forms of calls are read?
      toolgate rollout status                             who is live, and how does it fare?
      toolgate report --days 7                            what would have been done, and was it right?

    Exit codes: 0 done, 1 failed, 2 wrong use, 3 a gate of --fail-on or of the rollout is not met, 4 not enough data,
    5 the gateway or its store cannot be reached, 78 a fault in the settings, 130 interrupted.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@click.pass_context
def serve(context: click.Context) -> None:
    """Run the gateway until it is told to stop.

    Without UPSTREAM_URL, and on loopback, scripted demo models answer. SIGTERM and Ctrl-C let open streams finish;
    SIGHUP reads GATEWAY_ENV_FILE, GATEWAY_CONFIG and key files anew; with several workers SIGUSR2 also replaces them,
    one after the other (see `toolgate reload`).

    \b
    Examples:
      toolgate serve
      UPSTREAM_URL=http://127.0.0.1:11434/v1 GATEWAY_PORT=9000 toolgate serve
      GATEWAY_ENV_FILE=/etc/toolgate/env toolgate serve
    """
    from gateway.config.load import load
    from gateway.core.errors import ConfigError

    try:
        settings = load(os.environ, default_log_format="console" if sys.stderr.isatty() else "json")
        from gateway.app import serve as run

        context.exit(run(settings))
    except ConfigError as error:
        for fault in _all_faults(error.faults):
            click.echo(f"fault: {fault}", err=True)
        context.exit(EXIT_SETTINGS)
    except OSError as error:
        from gateway.process.listening import cannot_listen

        reason = cannot_listen(error, "GATEWAY", settings.host, settings.port)
        if reason is None:
            raise
        click.echo(reason, err=True)
        context.exit(EXIT_FAILED)


@cli.command(short_help="Print the settings in force, and every fault in them.")
@json_option
@colour_option
@click.pass_context
def check(context: click.Context, as_json: bool) -> None:
    """Print the effective settings, secrets masked, and every fault in them.

    Nothing is started and nothing is connected to. Exits with 78 if there is a fault.

    \b
    Examples:
      toolgate check
      GATEWAY_ENV_FILE=/etc/toolgate/env toolgate check --json
    """
    from gateway.cli.look.check import check as checked
    from gateway.cli.look.check import report

    found = checked(os.environ)
    report(found, as_json=as_json, colour=context.color)
    context.exit(EXIT_SETTINGS if found.faults else 0)


@cli.command()
@click.option("--markdown", is_flag=True, help="Print Markdown tables.")
@colour_option
@click.pass_context
def settings(context: click.Context, markdown: bool) -> None:
    """Print every setting with its default and its meaning.

    \b
    Examples:
      toolgate settings
      toolgate settings | grep TIMEOUT
    """
    from gateway.cli.look.check import show_reference

    show_reference(markdown=markdown, colour=context.color)


@cli.command(name="try", short_help="Show the calls in a model's answer, with scores and reasons.")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--tools", "tools_file", type=click.File("rb"), help="JSON file with the request's tools.")
@click.option("--model", default="unknown", show_default=True, help="Model that wrote the answer.")
@click.option("--dialect", help="Dialect that the model was asked to write.")
@click.option("--chunks", type=click.IntRange(1), default=1, show_default=True, help="Read it in this many pieces.")
@click.option("--min-confidence", default="0.90", show_default=True, help="Score below which a candidate is text.")
@click.option("--finish", default="stop", show_default=True, help="Finish reason of the answer, such as length.")
@json_option
@colour_option
def try_(
    file: BinaryIO,
    tools_file: BinaryIO | None,
    model: str,
    dialect: str | None,
    chunks: int,
    min_confidence: str,
    finish: str,
    as_json: bool,
) -> None:
    """Read a model's answer from FILE (or - for stdin) and show the calls in it, with scores and reasons.

    Without --tools the well-known tools of coding agents count as declared.

    \b
    Examples:
      toolgate try answer.txt
      pbpaste | toolgate try --tools tools.json --min-confidence 0.85
      toolgate try answer.txt --model qwen3 --dialect hermes --chunks 50 --json
    """
    from gateway.cli.look.try_ import declared_tools, pieces, read, show, well_known_tools
    from gateway.config.values import hundredths
    from strategies.base import Options
    from strategies.dialects.rows import TABLE

    if dialect is not None and dialect not in {row.id for row in TABLE}:
        raise click.BadParameter(f"there is no {dialect!r}; see `toolgate dialects`", param_hint="--dialect")
    try:
        threshold = hundredths(min_confidence)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--min-confidence") from error
    tools = declared_tools(tools_file.read(_MAX_ANSWER_BYTES)) if tools_file else well_known_tools()
    reading = read(
        pieces(_answer_text(file), chunks),
        tools=tools,
        options=Options(min_confidence=threshold, dialect=dialect),
        model=model,
        prompted=dialect,
        finish=finish,
    )
    show(reading, as_json=as_json)


@cli.command(short_help="List the forms of tool calls that are read.")
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
    from gateway.cli.look.dialects import show_dialects

    show_dialects(wanted=name, as_json=as_json)


@cli.command()
def version() -> None:
    """Print the version.

    \b
    Example:
      toolgate version
    """
    click.echo(f"toolgate {__version__} (Python {platform.python_version()})")


def main() -> None:
    """Run the command line; the exit code says how it went."""
    try:
        code = cli.main(prog_name="toolgate", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough: there is nobody to tell, and the interpreter must not try to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_FAILED
    sys.exit(code or 0)


def _answer_text(file: BinaryIO) -> str:
    data = file.read(_MAX_ANSWER_BYTES + 1)
    if len(data) > _MAX_ANSWER_BYTES:
        raise click.ClickException("the answer is larger than 64 MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.ClickException("the answer is not UTF-8 text") from error


def _all_faults(found: list[str]) -> dict[str, None]:
    """With those that the strategies find, so that nobody mends one fault only to be told of the next."""
    from gateway.cli.look.check import check

    return dict.fromkeys((*found, *check(os.environ).faults))


if __name__ == "__main__":
    main()
