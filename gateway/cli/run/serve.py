"""`toolgate serve`: the gateway, until it is told to stop."""

import os
import sys

import click

from gateway.app import run
from gateway.cli.look.check import checked
from gateway.config.load import Settings, load
from gateway.core.errors import ConfigError
from gateway.front.listening import cannot_listen
from gateway.process.alone import LonePost
from gateway.process.exits import EXIT_FAILED, EXIT_SETTINGS

__all__ = ["serve"]


@click.command()
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
    try:
        settings = load(os.environ, default_log_format="console" if sys.stderr.isatty() else "json")
        context.exit(_run(settings))
    except ConfigError as error:
        for fault in _all_faults(error.faults):
            click.echo(f"fault: {fault}", err=True)
        context.exit(EXIT_SETTINGS)
    except OSError as error:
        reason = cannot_listen(error, "GATEWAY", settings.host, settings.port)
        if reason is None:
            raise
        click.echo(reason, err=True)
        context.exit(EXIT_FAILED)


def _run(settings: Settings) -> int:
    """In as many processes as the settings say, until a signal ends it; gives the exit code."""
    if settings.workers > 1:
        from gateway.process.supervisor import supervise  # here: a lone process needs none

        return supervise(settings, os.environ)
    return run(settings, os.environ, LonePost.of(settings, os.environ))


def _all_faults(found: list[str]) -> dict[str, None]:
    """With those that the strategies find, so that nobody mends one fault only to be told of the next."""
    return dict.fromkeys((*found, *checked(os.environ).faults))
