"""How many bytes of a request a token is, by what answers say of their requests.

For counting what nobody counted, and for seeing a server that does not read all of a prompt: one whose context is
shorter than the request drops the beginning without a word, the tools with it. https://docs.ollama.com/context-length
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from math import ceil, isfinite
from statistics import median

from attrs import define, field, frozen

__all__ = ["BYTES_PER_TOKEN", "IMAGE_TOKENS", "ContextCut", "ContextCuts", "TokenRatios"]

BYTES_PER_TOKEN = 3.6
"""Before any answer has told: English, code and JSON schemas come to some four."""
# About what the largest picture takes that Anthropic does not scale down:
# https://docs.anthropic.com/en/docs/build-with-claude/vision#evaluate-image-size
IMAGE_TOKENS = 1600
MARGIN = 1.05
"""By a count that is too low a client shortens its conversation too late:
https://github.com/ericc-ch/copilot-api/issues/210."""
# Few enough to follow a model that is exchanged under its name.
SAMPLES = 32
MAX_PAIRS = 1024
_LEAST_RATIO, _MOST_RATIO = 0.25, 64.0
"""Bytes per token beyond these are no tokenizer's."""

WINDOW = 20
"""Answers among which the same round figure is looked for."""
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

Pair = tuple[str, str]


@define
class _Told:
    """What the answers of one model have told."""

    ratios: deque[float] = field(factory=lambda: deque(maxlen=SAMPLES))
    answers: int = 0
    """How many there were, of which the last few are kept."""
    middle: float = 0.0
    """The median of those, 0 where it has to be looked for."""


@define
class TokenRatios:
    """The last ratios of each model at its upstream."""

    _ratios: OrderedDict[Pair, _Told] = field(factory=OrderedDict)

    def knows(self, upstream: str, model: str) -> bool:
        """Whether anything was asked or told of the pair."""
        return (upstream, model) in self._ratios

    def load(self, upstream: str, model: str, ratios: Iterable[object]) -> None:
        """Begin with what another process has learned, or with nothing."""
        told = self._of(upstream, model)
        kept, told.middle = told.ratios, 0.0
        for ratio in ratios:
            if isinstance(ratio, int | float) and isfinite(ratio) and _LEAST_RATIO <= ratio <= _MOST_RATIO:
                kept.append(float(ratio))

    def observe(self, upstream: str, model: str, size: int, tokens: int) -> int:
        """A request of so many bytes took so many tokens. The number of this answer among those that have told of the
        pair in this process; 0 where it tells nothing."""
        told = self._of(upstream, model)
        if tokens <= 0 or not _LEAST_RATIO <= size / tokens <= _MOST_RATIO:
            return 0
        told.ratios.append(size / tokens)
        told.answers += 1
        told.middle = 0.0
        return told.answers

    def known(self, upstream: str, model: str) -> list[float]:
        """All that is known of the pair."""
        told = self._ratios.get((upstream, model))
        return list(told.ratios) if told is not None else []

    def tokens(self, upstream: str, model: str, size: int, images: int = 0) -> tuple[int, bool]:
        """What a request takes, rather too much than too little; whether that was learned."""
        told = self._ratios.get((upstream, model))
        if told is None or not told.ratios:
            return ceil(size / BYTES_PER_TOKEN * MARGIN) + images * IMAGE_TOKENS, False
        ratio = told.middle = told.middle or median(told.ratios)
        return ceil(size / ratio * MARGIN) + images * IMAGE_TOKENS, True

    def _of(self, upstream: str, model: str) -> _Told:
        told = self._ratios.get((upstream, model))
        if told is None:
            told = self._ratios[upstream, model] = _Told()
            if len(self._ratios) > MAX_PAIRS:
                self._ratios.popitem(last=False)
        self._ratios.move_to_end((upstream, model))
        return told


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
        seen = self._seen.get((upstream, model))
        if seen is None:
            seen = self._seen[upstream, model] = _Seen()
        self._seen.move_to_end((upstream, model))
        if len(self._seen) > MAX_PAIRS:
            self._seen.popitem(last=False)
        seen.figures.append(tokens)
        cut = None if tokens < _LEAST else _below(seen, size, tokens) or _round(seen, size, tokens)
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
    # A cache may be left out of the figure, but a tokenizer is not twice as good from one request to the next.
    if len(seen.ratios) < NEEDED or size / tokens <= max(seen.ratios):
        return None
    meant = int(size / median(seen.ratios))
    return ContextCut(at=tokens, sent=meant) if tokens < meant * FAR_BELOW else None


def _round(seen: _Seen, size: int, tokens: int) -> ContextCut | None:
    """The same round figure again and again, for requests of different sizes."""
    # Contexts are set in whole kibitokens, and servers keep a few for themselves.
    if -tokens % _ROUND > _SLACK:
        return None
    same = seen.figures.count(tokens)
    meant = int(size / median(seen.ratios)) if len(seen.ratios) >= NEEDED else 0
    return ContextCut(at=tokens, sent=meant) if same >= SAME else None
