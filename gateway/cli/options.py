"""Options that several commands have."""

import math
from typing import Any, BinaryIO

import click

from gateway.core.tools import ToolSet

__all__ = ["Amount", "colour_option", "json_option", "tools_of"]

# A device or an endless pipe that is given as a file must not fill the memory.
_MAX_TOOLS_BYTES = 64 << 20


class Amount(click.FloatRange):
    """A number within bounds; `nan`, which every comparison lets through, is none."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        amount = super().convert(value, param, context)
        if math.isnan(amount):
            self.fail(f"{value!r} is not a number", param, context)
        return amount


def _colours(context: click.Context, _: click.Parameter, wanted: bool | None) -> None:
    # Kept in the context: `click.echo` asks there, so nothing that prints has to be told.
    context.color = context.color if wanted is None else wanted


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
colour_option = click.option(
    "--color/--no-color",
    default=None,
    expose_value=False,
    callback=_colours,
    help="Use colours; by default on a terminal.",
)


def tools_of(file: BinaryIO) -> ToolSet:
    """The tools of a file that was given as an option."""
    from gateway.rereading.reading import BadTools, tools_in  # here: the dialects are slow to import

    try:
        return tools_in(file.read(_MAX_TOOLS_BYTES))
    except BadTools as error:
        raise click.BadParameter(str(error), param_hint="--tools") from error
