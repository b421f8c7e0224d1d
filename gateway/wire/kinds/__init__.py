"""Kinds of model servers behind one port: each turns OpenAI chat into its server's wire and back, without a socket."""

from collections.abc import Callable, Mapping

from gateway.wire.kinds.anthropic import AnthropicKind
from gateway.wire.kinds.anthropic_request import AnthropicOptions
from gateway.wire.kinds.gemini import GeminiKind
from gateway.wire.kinds.gemini_request import GeminiOptions
from gateway.wire.kinds.openai import OpenAiKind
from gateway.wire.kinds.port import Kind
from gateway.wire.kinds.qwen_web import QwenWebKind, QwenWebOptions

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
