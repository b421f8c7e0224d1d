"""Answers without a call, of the kinds that models write, for whatever must leave them alone."""

from pathlib import Path

__all__ = ["BARE", "SAMPLES", "SHORT"]

_ANSWERS = Path(__file__).parents[1] / "data" / "answers"


def _answers(kind: str) -> tuple[str, ...]:
    return tuple(path.read_text() for path in sorted(_ANSWERS.glob(f"{kind}-*.md")))


SAMPLES = {
    kind: _answers(kind) for kind in ("english", "chinese", "markdown", "code", "jsx", "json", "diff", "thinking")
}
"""By kind, some hundred events each."""
BARE = {kind: _answers(f"bare-{kind}") for kind in ("jsx", "json", "code")}
"""Markup and data outside of any fence: each line of it may begin a call."""
SHORT = {kind: _answers(f"short-{kind}") for kind in ("code", "json")}
"""A fence with a few words around it."""
