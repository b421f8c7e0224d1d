"""Kinds of model servers behind one port: each turns OpenAI chat into its server's wire and back, without a socket."""

from collections.abc import Callable, Mapping

from gateway.kinds.anthropic.ask import AnthropicOptions
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.gemini.ask import GeminiOptions
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.openai import OpenAiKind
from gateway.kinds.qwen_web.dialogue import QwenWebKind, QwenWebOptions
from gateway.kinds.shared.port import Kind

__all__ = ["KINDS", "KindOptions"]

KindOptions = AnthropicOptions | GeminiOptions | QwenWebOptions
"""What may differ between servers of one kind."""

KINDS: Mapping[str, Callable[..., Kind]] = {
    "openai": OpenAiKind,
    "anthropic": AnthropicKind,
    "gemini": GeminiKind,
    "qwen_web": QwenWebKind,
}
"""Makers of the kinds by the names that settings use; each but `openai` takes its options, or has its defaults."""
