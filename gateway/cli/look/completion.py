"""`toolgate completion`: what a shell needs to complete commands and options."""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

__all__ = ["completion"]

_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(short_help="Print what a shell needs to complete commands and options.")
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what a shell needs to complete commands and options.

    \b
    Examples:
      toolgate completion bash >> ~/.bashrc
      toolgate completion zsh >> ~/.zshrc
      toolgate completion fish > ~/.config/fish/completions/toolgate.fish
    """
    made = _SHELLS[shell]
    click.echo(made(context.find_root().command, {}, "toolgate", "_TOOLGATE_COMPLETE").source())
