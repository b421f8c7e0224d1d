"""Whether a server reads all of a prompt: what its answers say they took, held against what was sent.

A server whose context is shorter than the request drops the beginning without a word, the tools with it.
https://docs.ollama.com/context-length
"""

from collections import OrderedDict, deque
from statistics import median

from attrs import define, field, frozen

__all__ = ["ContextCut", "ContextCuts"]

WINDOW = 20
NEEDED = 20
"""Answers from which a model's ratio of bytes to tokens is known."""
FAR_BELOW = 0.5
"""Of the tokens that the bytes can mean at the least."""
SAME = 3
"""So often the same round figure is no chance."""
_ROUND = 1024
_LEAST = 1024
_SLACK = 16
"""Tokens that servers leave for themselves at a limit."""
MAX_PAIRS = 1024
Pair = tuple[str, str]


@frozen(kw_only=True)
class ContextCut:
    """A model's context is shorter than what it is sent."""

    at: int
    """The tokens that it read."""
    sent: int
    """What the request should have taken; 0 where that is not known."""


@define
class _Seen:
    ratios: deque[float] = field(factory=lambda: deque(maxlen=64))
    figures: deque[int] = field(factory=lambda: deque(maxlen=WINDOW))
    found: ContextCut | None = None


@define
class ContextCuts:
    """What this process has seen, of at most `MAX_PAIRS` models."""

    _seen: OrderedDict[Pair, _Seen] = field(factory=OrderedDict)

    def observe(self, upstream: str, model: str, *, size: int, tokens: int) -> ContextCut | None:
        """An answer says that a request of so many bytes took so many tokens; the cut, if it was one."""
        if tokens <= 0 or size <= 0:
            return None
        seen = self._seen.setdefault((upstream, model), _Seen())
        self._seen.move_to_end((upstream, model))
        if len(self._seen) > MAX_PAIRS:
            self._seen.popitem(last=False)
        seen.figures.append(tokens)
        cut = _below(seen, size, tokens) or _round(seen, size, tokens)
        if cut is None:
            seen.ratios.append(size / tokens)
        else:
            seen.found = cut
        return cut

    def of(self, upstream: str, model: str) -> ContextCut | None:
        """The last one that was found."""
        seen = self._seen.get((upstream, model))
        return seen.found if seen is not None else None


def _below(seen: _Seen, size: int, tokens: int) -> ContextCut | None:
    """Far fewer tokens than the bytes can mean."""
    if len(seen.ratios) < NEEDED or tokens < _LEAST:
        return None
    meant = int(size / median(seen.ratios))
    # A cache may be left out of the figure, but a tokenizer is not twice as good from one request to the next.
    is_cut = tokens < meant * FAR_BELOW and size / tokens > max(seen.ratios)
    return ContextCut(at=tokens, sent=meant) if is_cut else None


def _round(seen: _Seen, size: int, tokens: int) -> ContextCut | None:
    """The same round figure again and again, for requests of different sizes."""
    if tokens < _LEAST or -tokens % _ROUND > _SLACK:
        return None
    same = seen.figures.count(tokens)
    meant = int(size / median(seen.ratios)) if len(seen.ratios) >= NEEDED else 0
    return ContextCut(at=tokens, sent=meant) if same >= SAME else None
