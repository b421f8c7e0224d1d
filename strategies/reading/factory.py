"""Which dialects read an answer, and how a reader for it is made."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.core.tools import ToolSet
from strategies.base import Options
from strategies.grammar.dialect import Context
from strategies.grammar.provenance import Provenance
from strategies.reading.active import family_of, grammar_for
from strategies.reading.reader import Reader

__all__ = ["reader_factory"]


def reader_factory(
    *,
    tools: ToolSet,
    options: Options,
    model: str,
    prompted: str | None = None,
    restricted: bool = False,
    messages: Sequence[Mapping[str, Any]] = (),
    flowing: frozenset[str] | None = None,
) -> Callable[[], Reader]:
    """Readers for one request, one per choice.

    `prompted` is the dialect the model was asked to use; a call that stands verbatim in one of the client's `messages`
    is a quotation. With `incremental` arguments, `flowing` names the only tools whose calls are shown while they are
    written, and only in tags.
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
    grammar = grammar_for(context)

    def make_reader() -> Reader:
        return Reader(context, grammar)

    return make_reader
