"""What a marker that has only begun may still come to: where none of those it could become counts, it is text now.

Asked only in an answer that has made no call yet: results and left-over tokens mean something behind a call alone.
"""

import re
from collections.abc import Container, Iterable, Mapping

from attrs import frozen

from strategies.grammar.dialect import Context, Dialect, Opening
from strategies.grammar.lexicon import Lexicon
from strategies.grammar.literal import is_quoted

__all__ = ["GLUED", "Foresight", "may_become"]

GLUED = re.compile(r"[ \t]*+(json|tool_call|tool_code|)[ \t]*+(?=[{\[])", re.IGNORECASE)
"""Data on the line that opens its fence."""


@frozen
class Foresight:
    """The markers of one kind, and what each of them opens."""

    context: Context
    lexicon: Lexicon
    rows: Mapping[str, tuple[Dialect, ...]]

    def may_open(self, text: str, at: int, before: str, levels: Container[str]) -> bool:
        """Whether a marker that stands or begins at `at` may open a call of one of these levels, behind `before`."""
        standing = self.lexicon.at(text, at)
        begun = self.lexicon.begun(text, at)
        quoted: dict[tuple[str, bool], bool] = {}
        place = Opening(marker="", before=before)
        for marker in (standing, *begun) if standing else begun:
            for row in self.rows.get(marker, ()):
                kind = (row.level, row.inline)
                if kind not in quoted:
                    quoted[kind] = row.level not in levels or is_quoted(place, row.level, inline=row.inline)
                if not quoted[kind] and row.may_open(self.context, Opening(marker=marker, before=before)):
                    return True
        return False


def may_become(info: str, carriers: Iterable[str]) -> bool:
    """Whether the line of a fence that has come as far as `info` may still name one of the carriers."""
    if not info.strip() or GLUED.match(info):
        return True
    word = info.split(None, 1)[0].lower()
    is_whole = info[-1].isspace() or len(info.split(None, 1)) > 1
    return any(word == carrier if is_whole else carrier.startswith(word) for carrier in carriers)
