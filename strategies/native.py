"""Native: tools go upstream as they are, calls come back as they are; certain wire faults are mended.

Servers of such models leak, too: a call in the family's own markup reaches the text now and then. An answer without
structured calls is looked through for that alone (`LEAKS`), and for tags of declared tools; all else is relayed.
"""

from functools import lru_cache

from attrs import evolve

from gateway.core.rules import covers_model
from gateway.wire.chat_request import ChatRequest
from strategies.asking.ask_again import asking_again
from strategies.asking.past_calls import mend
from strategies.base import Options, Prepared, Shape
from strategies.reading.active import family_of
from strategies.reading.factory import reader_factory

__all__ = ["LEAKS", "NativeStrategy", "leaks_of"]

# https://github.com/anthropics/claude-code/issues/77061 https://github.com/openai/codex/issues/13114
# https://github.com/bayesimpact/bayes-platform/issues/731
LEAKS = (
    ("claude*", ("claude_invoke", "bare_invoke")),
    ("gpt*", ("harmony", "harmony_stripped")),
    ("chatgpt*", ("harmony", "harmony_stripped")),
    ("o1*", ("harmony", "harmony_stripped")),
    ("o3*", ("harmony", "harmony_stripped")),
    ("o4*", ("harmony", "harmony_stripped")),
    ("gemini*", ("tool_code", "gemma_stripped")),
    ("mistral-large*", ("mistral", "mistral_old")),
    ("mistral-medium*", ("mistral", "mistral_old")),
    ("command-a*", ("command_r", "command_r_action")),
)
"""Globs of models, and the dialects that are their own family's markup."""
_ANYWHERE = "generic_xml"
"""Tags of declared tools, which any model may fall back to."""


@lru_cache(maxsize=1024)
def leaks_of(model: str) -> frozenset[str]:
    """The dialects in which calls may leak into the text of a model's answers."""
    own = {dialect for glob, dialects in LEAKS if covers_model(glob, model) for dialect in dialects}
    return frozenset({_ANYWHERE, *(own or family_of(model))})


@lru_cache(maxsize=64)
def _looking_through(options: Options) -> Options:
    """The same for an answer that is only looked through: one object, by which grammars are known."""
    return evolve(options, stream_arguments="buffered", undeclared_tools="text")


class NativeStrategy:
    """Relays the request and the answer, for models whose servers speak structured tool calls well."""

    name = "native"

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """The request as it came, but for a history that is certainly broken; its answer is looked through at most."""
        mended = mend(request, options)
        make_reader = None
        # Several choices in one event would have to be taken apart.
        is_single = request.body.get("n") in (None, 1) and len(request.tools) <= options.limits.max_read_tools
        if options.native_leaks and request.wants_tools and is_single:
            make_reader = reader_factory(
                tools=request.tools,
                options=_looking_through(options),
                model=request.model,
                restricted=True,
                messages=request.messages,
                only=leaks_of(request.model),
            )
        return Prepared(
            strategy=self.name,
            body=mended.body(request),
            make_reader=make_reader,
            shape=Shape(
                first_only=options.calls_per_message == "first" or request.parallel is False,
                keep_trailing=options.trailing_text == "keep",
                wait_for_finish=True,
            ),
            ask_again=asking_again(request, messages=mended.messages) if request.wants_tools else None,
            asks_for_text=False,
            warnings=mended.notes,
        )
