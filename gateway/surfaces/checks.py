"""What holds for every request that is no chat: bounds of its lists, and what a model's name says of its server."""

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from gateway.core.errors import InvalidRequest
from gateway.surfaces.port import Server

__all__ = ["MAX_ITEMS", "MAX_PARTS", "MAX_TOOLS", "bounded", "effort_for", "limit_field", "token_limit"]

MAX_ITEMS = 8192
"""Messages, or items of an input."""
MAX_PARTS = 1024
"""Of one message."""
MAX_TOOLS = 1024
# https://platform.openai.com/docs/guides/reasoning and the pages of the other makers.
_EFFORTFUL = ("o1*", "o3*", "o4*", "gpt-5*", "gpt-oss*", "codex-*", "grok-3-mini*", "grok-4*", "deepseek-v4*")
# A 400 with `max_tokens`: https://platform.openai.com/docs/guides/reasoning
_NEW_LIMIT = ("o1*", "o3*", "o4*", "gpt-5*", "codex-*")
"""Models that refuse `max_tokens` for the newer name."""


def bounded(value: object, most: int, name: str) -> list[Any]:
    """The list that a field holds, empty where it is missing."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequest(f"{name} must be a list", param=name)
    if len(value) > most:
        raise InvalidRequest(f"{name} holds more than {most} entries", param=name)
    return value


def effort_for(effort: object, model: str, server: Server) -> str | None:
    """The reasoning effort to ask for, where the model takes one."""
    if not isinstance(effort, str) or not effort:
        return None
    takes = server.takes_effort
    if takes is None:
        takes = _is_one_of(model, _EFFORTFUL)
    return effort if takes else None


def limit_field(model: str) -> str:
    """The field in which the model takes a limit of its answer."""
    return "max_completion_tokens" if _is_one_of(model, _NEW_LIMIT) else "max_tokens"


def token_limit(wanted: object, server: Server, name: str) -> int | None:
    """How long the answer may be, as the client wants it and the server can."""
    if wanted is not None and (type(wanted) is not int or wanted < 1):
        raise InvalidRequest(f"{name} must be a whole number above 0", param=name)
    most = server.max_output_tokens
    return wanted if most is None or not isinstance(wanted, int) else min(wanted, most)


@lru_cache(maxsize=256)
def _is_one_of(model: str, globs: tuple[str, ...]) -> bool:
    name = model.lower()
    # Hosts of many put the maker's name in front: `openai/gpt-5`.
    return any(fnmatchcase(name, glob) or fnmatchcase(name.rpartition("/")[2], glob) for glob in globs)
