"""The command line: `toolgate serve`, `check`, `doctor`, `reload`, `rollout`, `report`, `replay`, `export` and more."""

import gc
import os
import platform
import sys
from importlib import import_module
from typing import cast

import click

from gateway.core.version import __version__
from gateway.process.exits import EXIT_FAILED, EXIT_INTERRUPTED

__all__ = ["cli", "main"]

_LONGEST_HELP = 100
_COMMANDS = {
    "check": ("look.check", "Print the settings in force, and every fault in them."),
    "completion": ("look.completion", "Print what a shell needs to complete commands and options."),
    "demo": ("run.demo", "Show what models write beside what an agent gets, without any model."),
    "dialects": ("look.dialects", "List the forms of tool calls that are read."),
    "doctor": ("run.doctor", "See whether everything that the gateway needs is there."),
    "export": ("change.export", "Write recorded answers as training pairs or as fixtures."),
    "inspect": ("run.inspect", "Show in a browser what became of each answer."),
    "probe": ("run.probe", "Ask a model server what it can, and which rule fits it."),
    "reload": ("run.reload", "Have the running gateway read its settings anew."),
    "replay": ("look.replay", "Read answers again, and show what is read differently."),
    "report": ("look.report", "Say what the records show: is the next step safe?"),
    "rollout": ("change.rollout", "See and change who gets transformed answers."),
    "serve": ("run.serve", "Run the gateway until it is told to stop."),
    "settings": ("look.check", "Print every setting with its default and its meaning."),
    "try": ("look.try_", "Show the calls in a model's answer, with scores and reasons."),
}
"""Each command, its module and its help in short: modules are loaded when they are asked for, so help is there at once,
and Ctrl-C is caught."""


class _Commands(click.Group):
    """The commands by name; each stands in a module of its own."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*super().list_commands(context), *_COMMANDS])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return super().get_command(context, name)
        # Nearly all that is loaded stays: to look at it again and again would take an eighth of the time.
        usual = gc.get_threshold()
        gc.set_threshold(5_000, 1_000, 1_000)
        try:
            module = import_module(f"gateway.cli.{_COMMANDS[name][0]}")
        finally:
            gc.set_threshold(*usual)
        return cast("click.Command", getattr(module, "try_" if name == "try" else name))

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        own = {name: command.get_short_help_str(_LONGEST_HELP) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**own, **{name: words for name, (_, words) in _COMMANDS.items()}}.items()))


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="toolgate", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Make every tool call of a model arrive as a correct one, or leave its answer as it was.

    Toolgate stands between coding agents and an OpenAI-compatible model server. It is set up by environment
    variables: see `toolgate settings`.

    \b
    Examples:
      toolgate demo                                       what models write, what an agent gets
      toolgate serve                                      the embedded demo, on 127.0.0.1:8080
      toolgate serve --upstream http://127.0.0.1:8000/v1
      toolgate check                                      are the settings right?
      toolgate probe                                      what can this model server, and which rule fits?
      toolgate try answer.txt                             what would be made of this answer?
      toolgate dialects                                   which forms of calls are read?
      toolgate inspect                                    what became of each answer, in a browser
      toolgate rollout status                             who is live, and how does it fare?
      toolgate report --days 7                            what would have been done, and was it right?

    Exit codes: 0 done, 1 failed, 2 wrong use, 3 a gate of --fail-on or of the rollout is not met, 4 not enough data,
    5 the gateway or its store cannot be reached, 78 a fault in the settings, 130 interrupted.
    """
    # What many programs heed: https://github.com/jcs/no_color/blob/222a026065cff5fd66a381cbc423c63b28a50aff/index.md
    if os.environ.get("NO_COLOR"):
        context.color = False
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


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
        # By itself click ends an abort with 1, which is a failure here: the codes are our own.
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
