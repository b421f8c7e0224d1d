"""An operator's rules: which strategy the models of a name get, and which differences of a dry run are known."""

from datetime import date
from fnmatch import fnmatchcase
from typing import Literal

from attrs import frozen

__all__ = ["IgnoreRule", "ModelRule", "Rule", "covers_model"]


def covers_model(pattern: str, model: str) -> bool:
    """Whether a case-insensitive glob names a model, by its whole name or by the part behind the last slash."""
    glob, name = pattern.lower(), model.lower()
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
