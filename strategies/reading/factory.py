"""Which dialects read an answer, and how a reader for it is made."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.core.tools import ToolSet
from strategies.base import Options
from strategies.grammar.dialect import Context
from strategies.grammar.provenance import Provenance
from strategies.reading.active import Grammar, family_of, grammar_for
from strategies.reading.reader import Reader

__all__ = ["Readers", "reader_factory"]


class Readers(Struct):
    """Readers for one request, one per choice."""

    _context: Context
    _only: frozenset[str] | None = None
    _grammar: Grammar | None = None
    """Not made before there is an answer: while its server still thinks, nobody waits for what new tools lead to."""

    def __call__(self) -> Reader:
        grammar = self._grammar
        if grammar is None:
            grammar = self._grammar = grammar_for(self._context, self._only)
        return Reader(self._context, grammar)

    def as_written(self) -> "Readers | None":
        """Readers of what was asked again in vain: a call beyond doubt is one, whatever its tool says to it."""
        options = self._context.options
        if options.unfit_calls == "text" or self._context.retells:
            return None
        return Readers(self._context.as_written(), self._only, self._grammar)

    def is_all_text(self, whole: str) -> bool:
        """Whether an answer that holds this and no more has no marker and no fence in it: nothing then opens."""
        grammar = self._grammar
        if grammar is None:
            grammar = self._grammar = grammar_for(self._context, self._only)
        return not self._context.options.recovery_shell and not grammar.starts.stand_in(whole)


def reader_factory(
    *,
    tools: ToolSet,
    options: Options,
    model: str,
    prompted: str | None = None,
    restricted: bool = False,
    messages: Sequence[Mapping[str, Any]] = (),
    flowing: frozenset[str] | None = None,
    only: frozenset[str] | None = None,
) -> Readers:
    """Readers for one request, one per choice.

    `prompted` is the dialect the model was asked to use; a call that stands verbatim in one of the client's `messages`
    is a quotation. With `incremental` arguments, `flowing` names the only tools whose calls are shown while they are
    written, and only in tags. Of the dialects `only` these are looked for.
    """
    context = Context(
        tools=tools,
        options=options,
        model=model,
        prompted=prompted,
        restricted=restricted,
        family=family_of(model),
        provenance=Provenance(messages),
        flowing=flowing,
    )
    return Readers(context, only)
