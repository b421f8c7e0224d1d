"""Who writes a dialect: the renderers of all rows of the dialect table that can be prompted for."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

from strategies.dialects.rows import TABLE
from strategies.dialects.tool_tags.tag import GENERIC
from strategies.grammar.dialect import Renderer

__all__ = ["RENDERERS", "own_dialect", "renderer"]

RENDERERS: Mapping[str, Renderer] = MappingProxyType(
    {row.id: row.renderer for row in TABLE if row.renderer is not None}
)
"""By dialect."""


def renderer(dialect: str | None) -> Renderer:
    """The renderer of this dialect, or of the generic tags when none is named or it cannot be written."""
    return RENDERERS.get(dialect or GENERIC.id, RENDERERS[GENERIC.id])


def own_dialect(model: str) -> str | None:
    """The dialect that a model of this name writes best by training, where its tags reach a client as text.

    Special tokens do not: a server leaves them out of the text that it gives back.
    """
    name = model.lower().rsplit("/", 1)[-1]
    known = [
        (len(glob), -place, row.id)
        for place, row in enumerate(TABLE)
        if row.renderer is not None and row.level in ("B", "C")
        for glob in row.models
        if fnmatchcase(name, glob)
    ]
    return max(known)[2] if known else None
