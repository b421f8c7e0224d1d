"""How many bytes of a request a token is, by what answers say of their requests: for counting what nobody counted."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from math import ceil, isfinite
from statistics import median

from attrs import define, field

__all__ = ["BYTES_PER_TOKEN", "IMAGE_TOKENS", "TokenRatios"]

BYTES_PER_TOKEN = 3.6
"""Before any answer has told: English, code and JSON schemas come to some four."""
IMAGE_TOKENS = 1600
MARGIN = 1.05
"""By a count that is too low a client shortens its conversation too late:
https://github.com/ericc-ch/copilot-api/issues/210."""
SAMPLES = 32
MAX_PAIRS = 1024
_LEAST, _MOST = 0.25, 64.0
"""Bytes per token beyond these are no tokenizer's."""

Pair = tuple[str, str]


@define
class TokenRatios:
    """The last ratios of each model at its upstream."""

    _ratios: OrderedDict[Pair, deque[float]] = field(factory=OrderedDict)

    def knows(self, upstream: str, model: str) -> bool:
        """Whether anything was asked or told of the pair."""
        return (upstream, model) in self._ratios

    def load(self, upstream: str, model: str, ratios: Iterable[object]) -> None:
        """Begin with what another process has learned, or with nothing."""
        kept = self._of(upstream, model)
        for ratio in ratios:
            if isinstance(ratio, int | float) and isfinite(ratio) and _LEAST <= ratio <= _MOST:
                kept.append(float(ratio))

    def observe(self, upstream: str, model: str, size: int, tokens: int) -> list[float]:
        """A request of so many bytes took so many tokens; all that is known of the pair."""
        kept = self._of(upstream, model)
        if tokens > 0 and _LEAST <= size / tokens <= _MOST:
            kept.append(size / tokens)
        return list(kept)

    def tokens(self, upstream: str, model: str, size: int, images: int = 0) -> tuple[int, bool]:
        """What a request takes, rather too much than too little; whether that was learned."""
        kept = self._ratios.get((upstream, model))
        ratio = median(kept) if kept else BYTES_PER_TOKEN
        return ceil(size / ratio * MARGIN) + images * IMAGE_TOKENS, bool(kept)

    def _of(self, upstream: str, model: str) -> deque[float]:
        kept = self._ratios.setdefault((upstream, model), deque(maxlen=SAMPLES))
        self._ratios.move_to_end((upstream, model))
        if len(self._ratios) > MAX_PAIRS:
            self._ratios.popitem(last=False)
        return kept
