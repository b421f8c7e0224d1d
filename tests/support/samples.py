"""Answers without a call, of the kinds that models write, for whatever must leave them alone."""

import re
from pathlib import Path

__all__ = ["BARE", "SAMPLES", "SHORT"]

_ANSWER = re.compile(r"^%%%% ([\w-]+)-\d+\n(.*?)\n%%%% end$", re.MULTILINE | re.DOTALL)
"""A kind and a number, and the answer to its last line break."""
_ANSWERS = _ANSWER.findall((Path(__file__).parents[1] / "data" / "answers.txt").read_text())


def _answers(kind: str) -> tuple[str, ...]:
    return tuple(text for named, text in _ANSWERS if named == kind)


SAMPLES = {
    kind: _answers(kind) for kind in ("english", "chinese", "markdown", "code", "jsx", "json", "diff", "thinking")
}
"""By kind, some hundred events each."""
BARE = {kind: _answers(f"bare-{kind}") for kind in ("jsx", "json", "code")}
"""Markup and data outside of any fence: each line of it may begin a call."""
SHORT = {kind: _answers(f"short-{kind}") for kind in ("code", "json")}
"""A fence with a few words around it."""
