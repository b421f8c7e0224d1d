"""The interval of a share after Wilson: honest for few cases and for shares near 0 or 1."""

import math

__all__ = ["wilson"]

_Z = 1.959963984540054


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share; without cases it is everything."""
    if of <= 0:
        return 0.0, 1.0
    # https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Wilson_score_interval
    share, square = min(hits / of, 1.0), _Z * _Z
    middle = share + square / (2 * of)
    reach = _Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    scale = 1 + square / of
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)
