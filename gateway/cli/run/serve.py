"""`toolgate serve`: the gateway, until it is told to stop."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from gateway.config.load import Settings, load, with_options
from gateway.core.errors import ConfigError
from gateway.process.exits import EXIT_FAILED, EXIT_SETTINGS

__all__ = ["serve"]

_ENDING_S = 5.0
_OPTIONS = (
    ("--upstream", "UPSTREAM_URL", "URL", "Address of the model server, /v1 included."),
    ("--upstream-key-file", "UPSTREAM_API_KEY_FILE", "FILE", "File that holds the key for the model server."),
    ("--upstream-kind", "UPSTREAM_KIND", "KIND", "What the model server speaks: openai, anthropic, gemini, ..."),
    ("--host", "GATEWAY_HOST", "ADDRESS", "Address to listen on."),
    ("--port", "GATEWAY_PORT", "N", "Port to listen on; 0 takes any free one."),
    ("--workers", "GATEWAY_WORKERS", "N", "How many processes answer."),
    ("--keys-file", "GATEWAY_API_KEYS_FILE", "FILE", "File of the keys that open the gateway."),
    ("--mode", "TRANSFORM_MODE", "MODE", "off, dry_run, canary or full."),
    ("--rules", "STRATEGY_RULES", "RULES", "Which strategy a model gets: 'qwen*=xml_prompt,*=recovery'."),
    ("--store", "STORE_URL", "URL", "Where records are kept: sqlite:///FILE, redis://..., memory://."),
    ("--config", "GATEWAY_CONFIG", "FILE", "TOML file with several model servers and rules for models."),
    ("--env-file", "GATEWAY_ENV_FILE", "FILE", "File of KEY=value lines that a reload reads again."),
    ("--log-format", "LOG_FORMAT", "FORMAT", "json, or console for a person."),
    ("--log-level", "LOG_LEVEL", "LEVEL", "debug, info, warning or error."),
)
"""Those that somebody at a terminal reaches for; the readers of the settings say what is wrong with a value."""


def _with_settings(command: click.Command) -> click.Command:
    command.params += [
        click.Option([option, name.lower()], metavar=metavar, help=f"{help} [{name}]")
        for option, name, metavar, help in _OPTIONS
    ]
    return command


@_with_settings
@click.command(short_help="Run the gateway until it is told to stop.")
@click.option("--open-inspector", is_flag=True, help="Show in a browser what becomes of each answer, too.")
@click.pass_context
def serve(context: click.Context, /, open_inspector: bool, **options: str | None) -> None:
    """Run the gateway until it is told to stop.

    Without a model server, and on loopback, scripted demo models answer. Options win over the environment and over
    files, at a reload too; every other setting is a variable of the environment: see `toolgate settings`.

    SIGTERM and Ctrl-C let open streams finish; SIGHUP reads GATEWAY_ENV_FILE, GATEWAY_CONFIG and key files anew; with
    several workers SIGUSR2 also replaces them, one after the other (see `toolgate reload`).

    \b
    Examples:
      toolgate serve
      toolgate serve --upstream http://127.0.0.1:11434/v1 --open-inspector
      toolgate serve --upstream https://models.example/v1 --upstream-key-file key --port 9000 --mode dry_run
      GATEWAY_ENV_FILE=/etc/toolgate/env toolgate serve
    """
    # As a variable: workers are started with it, and a reload reads it once more.
    environ = with_options(os.environ, _given(options))
    try:
        settings = load(environ, default_log_format="console" if sys.stderr.isatty() else "json")
        with _inspecting(options) if open_inspector else nullcontext():
            code = _run(settings, environ)
        context.exit(code)
    except ConfigError as error:
        for fault in _all_faults(error.faults, environ):
            click.echo(f"fault: {fault}", err=True)
        context.exit(EXIT_SETTINGS)
    except OSError as error:
        from gateway.front.listening import cannot_listen  # here: only a fault needs it

        reason = cannot_listen(error, "GATEWAY", settings.host, settings.port)
        if reason is None:
            raise
        click.echo(reason, err=True)
        context.exit(EXIT_FAILED)


def _given(options: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The settings that were given as options, with the option of each."""
    return {name: (option, value) for option, name, _, _ in _OPTIONS if (value := options[name.lower()]) is not None}


@contextmanager
def _inspecting(options: Mapping[str, Any]) -> Iterator[None]:
    """The inspector beside the gateway, a process of its own, which ends with it."""
    given = {name: value for name, (_, value) in _given(options).items()}
    command = [sys.executable, "-m", "gateway", "inspect"]
    inspector = subprocess.Popen(command, env={**os.environ, **given})  # noqa: S603 - our own program
    try:
        yield
    finally:
        # Ctrl-C at a terminal reaches both processes, `kill` only this one.
        inspector.terminate()
        try:
            inspector.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            inspector.kill()
            inspector.wait()


def _run(settings: Settings, environ: Mapping[str, str]) -> int:
    """In as many processes as the settings say, until a signal ends it; gives the exit code."""
    from gateway.process.lean import load_quietly  # before anything loads the log's library

    load_quietly()
    if settings.workers > 1:
        # Here: a supervisor needs nothing of what serves, which is half of its start and of its memory.
        from gateway.process.supervisor import supervise

        return supervise(settings, environ)
    from gateway.app import run
    from gateway.process.alone import LonePost

    return run(settings, environ, LonePost.of(settings, environ))


def _all_faults(found: list[str], environ: Mapping[str, str]) -> dict[str, None]:
    """With those that the strategies find, so that nobody mends one fault only to be told of the next."""
    from gateway.cli.look.check import checked

    return dict.fromkeys((*found, *checked(environ).faults))
