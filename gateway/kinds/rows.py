"""The table of kinds: all that the rest of the gateway asks of a kind before it speaks to a server of it.

A new kind is a room with a dialogue, and a row here.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from gateway.kinds.anthropic.ask import AnthropicOptions
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.anthropic.dialogue import hear_plain as hear_plain_message
from gateway.kinds.gemini.ask import GeminiOptions
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.openai import OpenAiKind
from gateway.kinds.qwen_web.dialogue import QwenWebKind, QwenWebOptions
from gateway.kinds.responses.ask import ResponsesOptions
from gateway.kinds.responses.dialogue import ResponsesKind
from gateway.kinds.responses.dialogue import hear_plain as hear_plain_response
from gateway.kinds.shared.answer import Plain
from gateway.kinds.shared.port import Dialogue, Kind, Situation

__all__ = ["DEFAULT_KIND", "KINDS", "KindOptions", "KindRow"]

KindOptions = AnthropicOptions | GeminiOptions | QwenWebOptions | ResponsesOptions
"""What may differ between servers of one kind."""
DEFAULT_KIND = "openai"


@frozen(kw_only=True)
class KindRow:
    """What is known of every server of a kind."""

    make: Callable[..., Kind]
    """Takes the options, where there are some; without them they are the defaults."""
    options: type[KindOptions] | None = None
    is_translated: bool = True
    """Its wire is another than OpenAI's chat."""
    takes_tools: bool = True
    """Its wire has a place for tools."""
    strategy: str | None = None
    """What requests with tools get, where nothing else says it; None: what their model gets."""
    takes_effort: bool = False
    """A reasoning effort is brought into its server's own words, and left out where the model takes none."""
    knows_messages: bool = False
    """What only clients of Messages say means something to it: marks for the cache, how to think, who pays."""
    wire: str = "chat"
    """What it speaks, by the name of the surface that speaks it to clients."""
    hears: Callable[[Mapping[str, Any], Situation], Dialogue] | None = None
    """Begins a dialogue that only hears an answer in its wire, to a request of which chat would say this much."""
    hears_plain: Callable[[bytes, str, Situation], Plain | None] | None = None
    """Hears a whole answer that is nothing but one text, to a request for this model; gives None for any other."""
    url_end: str = ""
    """How the address of such a server ends as a rule."""

    def made(self, options: KindOptions | None) -> Kind:
        """The kind with these options."""
        return self.make() if options is None else self.make(options)


KINDS: Mapping[str, KindRow] = {
    DEFAULT_KIND: KindRow(make=OpenAiKind, is_translated=False, url_end="/v1"),
    "responses": KindRow(
        make=ResponsesKind,
        options=ResponsesOptions,
        wire="responses",
        hears=ResponsesKind().hear,
        hears_plain=hear_plain_response,
        url_end="/v1",
    ),
    "anthropic": KindRow(
        make=AnthropicKind,
        options=AnthropicOptions,
        strategy="native",
        takes_effort=True,
        knows_messages=True,
        wire="messages",
        hears=AnthropicKind().hear,
        hears_plain=hear_plain_message,
    ),
    "gemini": KindRow(make=GeminiKind, options=GeminiOptions, strategy="native", takes_effort=True, wire="gemini"),
    "qwen_web": KindRow(
        make=QwenWebKind, options=QwenWebOptions, strategy="xml_prompt", takes_tools=False, wire="qwen_web"
    ),
}
"""By the names that settings use."""
