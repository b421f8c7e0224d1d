"""Kinds of model servers behind one port: each turns OpenAI chat into its server's wire and back, without a socket."""

from collections.abc import Callable, Mapping

from gateway.wire.kinds.anthropic import AnthropicKind
from gateway.wire.kinds.gemini import GeminiKind
from gateway.wire.kinds.openai import OpenAiKind
from gateway.wire.kinds.port import Kind
from gateway.wire.kinds.qwen_web import QwenWebKind

__all__ = ["KINDS"]

KINDS: Mapping[str, Callable[[], Kind]] = {
    "openai": OpenAiKind,
    "anthropic": AnthropicKind,
    "gemini": GeminiKind,
    "qwen_web": QwenWebKind,
}
"""Makers of the kinds, with their defaults, by the names that settings use."""
