"""Who writes a dialect: the renderers of all rows of the dialect table that can be prompted for."""

from collections.abc import Mapping
from types import MappingProxyType

from strategies.dialects.rows import TABLE
from strategies.dialects.tool_tags.tag import GENERIC
from strategies.grammar.dialect import Renderer

__all__ = ["RENDERERS", "renderer"]

RENDERERS: Mapping[str, Renderer] = MappingProxyType(
    {row.id: row.renderer for row in TABLE if row.renderer is not None}
)
"""By dialect."""


def renderer(dialect: str | None) -> Renderer:
    """The renderer of this dialect, or of the generic tags when none is named or it cannot be written."""
    return RENDERERS.get(dialect or GENERIC.id, RENDERERS[GENERIC.id])
