"""Which client of tags sends a request, if one does: told by its system prompt and by what it calls itself."""

from gateway.core.client import Client
from gateway.wire.chat_request import ChatRequest, is_system, texts_of
from strategies.clients.cline import CLINE
from strategies.clients.profile import Profile
from strategies.clients.prompt_tools import prompt_tools
from strategies.clients.roo import KILO, ROO
from strategies.clients.text_client import TextClient, text_client
from strategies.writing.prompt import holds_section

__all__ = ["PROFILES", "recognise"]

PROFILES = (ROO, KILO, CLINE)
_WELL_KNOWN = frozenset(name for profile in PROFILES for name in profile.tools)
_MAX_PROMPT = 1 << 18
"""Prompts are remembered, so none may be larger than any client's."""
_CLINES_OWN = frozenset({"replace_in_file", "plan_mode_respond", "load_mcp_documentation", "act_mode_respond"})


def recognise(request: ChatRequest, client: Client) -> TextClient | None:
    """The client whose tools are in the request's prompt; None for every other request."""
    # Roo Code 3.37 and later, Cline 4 and Kilo Code 7 offer native tools: they read none from the text.
    if request.body.get("tools") or request.body.get("functions"):
        return None
    named = _named(client)
    prompt = _prompt(request, anyones=named is not None)
    # A prompt that this gateway has written its own section of tools into is no client's any more.
    if not prompt or len(prompt) > _MAX_PROMPT or holds_section(request.messages):
        return None
    tools = {tool.name for tool in prompt_tools(prompt)}
    if not tools & _WELL_KNOWN and not (named and _shows_tags(named, prompt)):
        return None
    profile = named or _by_prompt(prompt, tools)
    # Roo Code undoes entities for every other model:
    # https://github.com/RooCodeInc/Roo-Code/blob/cf6b3848bd85de1958a5aea92e5a041086a877d3/src/core/tools/writeToFileTool.ts
    return text_client(profile, prompt, "claude" not in request.model)


def _prompt(request: ChatRequest, *, anyones: bool) -> str:
    """The text of the first system prompt; of the first message at all where clients send it as `anyones`."""
    told = next(filter(is_system, request.messages[:2]), request.messages[0] if anyones else {})
    return "\n".join(texts_of(told.get("content")))


def _named(client: Client) -> Profile | None:
    for profile in PROFILES:
        if client.title in profile.titles or client.user_agent.startswith(profile.agents):
            return profile
    return None


def _by_prompt(prompt: str, tools: set[str]) -> Profile:
    # Kilo Code is a fork of Roo Code, and its prompts hold most of Roo's words.
    for profile in (KILO, CLINE, ROO):
        if any(phrase in prompt for phrase in profile.phrases):
            return profile
    return CLINE if tools & _CLINES_OWN else ROO


def _shows_tags(profile: Profile, prompt: str) -> bool:
    return "TOOL USE" in prompt and any(f"<{name}>" in prompt for name in profile.tools)
