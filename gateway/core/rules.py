"""An operator's rules: the strategies of models, the known differences of a dry run, what a key may use."""

from collections.abc import Mapping
from datetime import date
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from attrs import frozen

from gateway.core.errors import RateLimited

__all__ = [
    "LEASE_S",
    "WINDOW_S",
    "IgnoreRule",
    "ModelRule",
    "Quota",
    "Rule",
    "Standing",
    "covers_model",
    "refusal",
    "told",
]

WINDOW_S = 60.0
"""Over which a key's requests and tokens are counted."""
LEASE_S = 60.0
"""A stream whose process has not said for so long that it goes on has ended."""

_KEPT_CHARS = 256


def covers_model(pattern: str, model: str) -> bool:
    """Whether a case-insensitive glob names a model, by its whole name or by the part behind the last slash."""
    # Asked of every request: only names of a usual length are remembered.
    return (_covers if len(model) <= _KEPT_CHARS else _covers.__wrapped__)(pattern, model)


@lru_cache(maxsize=1024)
def _covers(pattern: str, model: str) -> bool:
    glob, name = pattern.lower(), model.lower()
    # Routers and vLLM put the maker in front (`Qwen/Qwen3-32B`), Ollama and LM Studio often do not.
    return fnmatchcase(name, glob) or fnmatchcase(name.rpartition("/")[2], glob)


@frozen(kw_only=True)
class Rule:
    """`pattern` is a case-insensitive glob over model names; `dialect` is the form the strategy writes, if named."""

    pattern: str
    strategy: str
    dialect: str | None = None

    def __str__(self) -> str:
        return f"{self.pattern}={self.strategy}" + (f":{self.dialect}" if self.dialect else "")


@frozen(kw_only=True)
class IgnoreRule:
    """Calls of these dialects and tools (globs) are a known difference until that day; then they count again."""

    dialect: str
    tool: str
    until: date

    def covers(self, dialect: str, tool: str, today: date) -> bool:
        """Whether a call that would be made is known today."""
        return today < self.until and fnmatchcase(dialect, self.dialect) and fnmatchcase(tool, self.tool)

    def __str__(self) -> str:
        return f"{self.dialect}:{self.tool}={self.until.isoformat()}"


@frozen(kw_only=True)
class ModelRule:
    """What holds for the models of a name; the first rule that matches counts."""

    match: str
    upstream: str | None = None
    fallback: str | None = None
    """Asked instead where the upstream cannot be had, as long as nothing has been sent to the client."""
    send_as: str | None = None
    """The model's name at the upstream."""
    strategy: str | None = None
    """As on the right of `STRATEGY_RULES`: a strategy, or strategy:dialect."""
    tool_map: str | None = None
    intent: Literal["count", "deliver"] = "count"
    """What becomes of calls in answers to requests that offered no tools."""
    history_reasoning: Literal["turn", "keep", "drop"] = "turn"
    """Which reasoning of earlier answers goes back to the model: since the last user's text, all, none."""
    reasoning_effort: bool | None = None
    """Whether the model takes a reasoning effort; None: what its name says."""
    verbosity: bool = False
    """Whether the model takes a verbosity."""
    thinking: Literal["drop", "chat_template_kwargs"] = "drop"
    """How a client's wish to have the model think, or not, is told to the server."""
    first_byte_timeout_s: float | None = None
    idle_timeout_s: float | None = None
    total_timeout_s: float | None = None


@frozen(kw_only=True)
class Quota:
    """What one key may use; None for what is not limited."""

    requests: int | None = None
    """In any sixty seconds."""
    tokens: int | None = None
    """Likewise, as model servers count them: a request is admitted while the sum is below."""
    streams: int | None = None
    """At a time."""


@frozen(kw_only=True)
class Standing:
    """What a key has used of one of its limits, and in how many seconds some, and all, of that is free again."""

    limit: int
    used: int
    reset_s: float = 0.0
    """Until nothing of it counts any more."""
    wait_s: float = 0.0
    """Until something can be admitted again; nothing while something can."""

    @property
    def remaining(self) -> int:
        """What is left."""
        return max(0, self.limit - self.used)


def told(standings: Mapping[str, Standing]) -> dict[str, str]:
    """The headers that say how a key stands, in the names that SDKs read.

    https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers
    """
    headers: dict[str, str] = {}
    for what, standing in standings.items():
        if what == "streams":
            continue  # no SDK has a name for it
        headers[f"x-ratelimit-limit-{what}"] = str(standing.limit)
        headers[f"x-ratelimit-remaining-{what}"] = str(standing.remaining)
        # OpenAI writes durations in this form, and not seconds.
        headers[f"x-ratelimit-reset-{what}"] = f"{standing.reset_s:.3f}s"
    return headers


def refusal(what: str, standings: Mapping[str, Standing]) -> RateLimited:
    """What a client is told whose key has used up one of its limits."""
    standing = standings[what]
    words = f"{standing.limit} streams at a time" if what == "streams" else f"{standing.limit} {what} a minute"
    # SDKs wait for as long as they are told and take a zero for no word at all.
    return RateLimited(f"this key may have {words}", retry_after_s=max(1.0, standing.wait_s), headers=told(standings))
