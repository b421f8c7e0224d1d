"""Entities that Roo's tools undo once in some values, unless the model's name says that it needs no help.

`written` makes of a text what is that text again when the tool has undone it. Older versions know fewer of these; what
is written is right for them too, as all of them undo `&amp;` last.
"""

import re

from strategies.clients.sight import ENTITIES

__all__ = ["written"]

_AMPERSAND = re.compile(f"&(?={'|'.join(entity[1:] for entity, _ in ENTITIES)})")


def written(text: str) -> str:
    """The text as it must be given."""
    return _AMPERSAND.sub("&amp;", text)
