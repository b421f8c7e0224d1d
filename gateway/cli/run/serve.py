"""`toolgate serve`: the gateway, until it is told to stop."""

import os
import sys

import click

from gateway.cli.look.check import checked
from gateway.config.load import load
from gateway.core.errors import ConfigError
from gateway.front.listening import cannot_listen
from gateway.process.exits import EXIT_FAILED, EXIT_SETTINGS
from gateway.process.serving import serve as run

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
        context.exit(run(settings))
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


def _all_faults(found: list[str]) -> dict[str, None]:
    """With those that the strategies find, so that nobody mends one fault only to be told of the next."""
    return dict.fromkeys((*found, *checked(os.environ).faults))
