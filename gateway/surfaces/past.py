"""The history of a conversation told from where the last request's was told to, as far as both begin alike."""

from collections.abc import Hashable
from typing import Any, Protocol

from msgspec import Struct

from gateway.surfaces.port import Server
from gateway.surfaces.seals import Seals
from gateway.surfaces.toolnames import ToolNames
from gateway.surfaces.turns import Turns
from gateway.wire.conversations import is_remembered, keep_beginning, made_of_beginning

__all__ = ["History", "tell_all"]

# Claude Code, Cline and OpenCode mark where a server's cache may end, in the last four messages at most, and each turn
# takes the marks off those of the turn before:
# https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
_CHANGING = 4
"""Items at the end that may not be the same in the next turn."""


class History(Protocol):
    """Turns that are put together from a wire's items."""

    turns: Turns
    names: ToolNames
    seals: Seals
    dropped: list[str]

    def add(self, item: object, where: str) -> None:
        """One more item; `where` it stands in the request."""
        ...


class _Past(Struct, frozen=True, eq=False):
    """What the first items of a conversation came to."""

    turns: Turns
    names: ToolNames
    dropped: list[str]
    has_met_seal: bool


def tell_all(history: History, items: list[Any], where: str, server: Server) -> None:
    """Tell the history all items of a request."""
    count, last = 0, -1
    terms: Hashable = None
    dropped = len(history.dropped)
    if is_remembered(items):
        # All that the telling depends on beside the items and the names.
        terms = where, server.history_terms, history.seals.key, history.seals.credential
        told, past = made_of_beginning(items, terms)
        if past is not None and history.names.is_like(past.names):
            count = told
            history.turns.take(past.turns)
            history.dropped += past.dropped
            if past.has_met_seal:
                history.seals.has_met_one = True
        last = len(items) - _CHANGING
    for index in range(count, len(items)):
        if index == last:
            past = _Past(history.turns.copy(), history.names, history.dropped[dropped:], history.seals.has_met_one)
            keep_beginning(items, terms, index, past)
        history.add(items[index], f"{where}[{index}]")
