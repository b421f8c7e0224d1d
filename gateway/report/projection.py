"""What a canary of some share would mean: faults per day, and how long the judge would need to see a doubling."""

import math

from gateway.rollout.judge import MIN_REQUESTS, RATIOS

__all__ = ["hours_until_seen"]


def hours_until_seen(
    share: float, *, base: float, requests_per_hour: float, risk_ratio: float, evidence: float
) -> float | None:
    """Expected hours until the arm test fires when the live arm's bad share is twice the base; `None` for never.

    Each bad request falls into the live arm with a probability that its risk decides, and brings on average as much
    evidence as the best of the alternatives gets from it.
    """
    if not 0 < share < 1 or base <= 0 or requests_per_hour <= 0:
        return None
    gain = max(_gain(share, risk_ratio, ratio) for ratio in RATIOS)
    if gain <= 0:
        return None
    bad = (math.log(evidence) + math.log(len(RATIOS))) / gain
    bad_per_request = min(1.0, base * (2 * share + (1 - share)))
    requests = max(bad / bad_per_request, MIN_REQUESTS / share, MIN_REQUESTS / (1 - share))
    return round(requests / requests_per_hour, 2)


def _gain(share: float, risk_ratio: float, ratio: float) -> float:
    """The mean log likelihood ratio of one bad request if the true risk ratio is 2."""
    true, null, other = (_live_share(share, risk) for risk in (2.0, risk_ratio, risk_ratio * ratio))
    return true * math.log(other / null) + (1 - true) * math.log((1 - other) / (1 - null))


def _live_share(share: float, risk: float) -> float:
    return risk * share / (risk * share + 1 - share)
