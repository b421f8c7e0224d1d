"""Which dialects read an answer, and how a reader for it is made."""

from collections.abc import Callable

from gateway.core.tools import ToolSet
from strategies.base import AnswerReader, Options
from strategies.dialect import Context
from strategies.grammar import family_of, grammar_for
from strategies.reader import Reader

__all__ = ["reader_factory"]


def reader_factory(
    *, tools: ToolSet, options: Options, model: str, prompted: str | None = None, restricted: bool = False
) -> Callable[[], AnswerReader]:
    """Readers for one request, one per choice; `prompted` is the dialect the model was asked to use."""
    context = Context(
        tools=tools,
        options=options,
        model=model,
        prompted=prompted,
        restricted=restricted,
        family=family_of(model),
    )
    grammar = grammar_for(context)

    def make_reader() -> AnswerReader:
        return Reader(context, grammar)

    return make_reader
