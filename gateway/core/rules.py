"""An operator's rule: which strategy, and in which dialect, the models of a name get."""

from attrs import frozen

__all__ = ["Rule"]


@frozen(kw_only=True)
class Rule:
    """`pattern` is a case-insensitive glob over model names; `dialect` is the form the strategy writes, if named."""

    pattern: str
    strategy: str
    dialect: str | None = None

    def __str__(self) -> str:
        return f"{self.pattern}={self.strategy}" + (f":{self.dialect}" if self.dialect else "")
