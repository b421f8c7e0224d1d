"""Options that several commands have."""

import math
from typing import Any

import click

__all__ = ["Amount", "colour_option", "json_option"]


class Amount(click.FloatRange):
    """A number within bounds; `nan`, which every comparison lets through, is none."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        amount = super().convert(value, param, context)
        if math.isnan(amount):
            self.fail(f"{value!r} is not a number", param, context)
        return amount


def _colours(context: click.Context, _: click.Parameter, wanted: bool | None) -> None:
    context.color = context.color if wanted is None else wanted


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
colour_option = click.option(
    "--color/--no-color",
    default=None,
    expose_value=False,
    callback=_colours,
    help="Use colours; by default on a terminal.",
)
