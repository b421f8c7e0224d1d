"""Which setting a name was meant to be: typing mistakes in settings are refused, never ignored."""

import re
from collections.abc import Iterable

__all__ = ["OWN_PREFIXES", "distance_within", "is_injected", "nearest"]

OWN_PREFIXES = (
    "GATEWAY_",
    "UPSTREAM_",
    "TOOL_",
    "TRANSFORM_",
    "CANARY_",
    "RECOVERY_",
    "CONFIDENCE_",
    "ROLLBACK_",
    "ROLLOUT_",
    "DRY_RUN_",
    "METRICS_",
    "STORE_",
    "AUDIT_",
)
"""Names that begin so are ours: an unknown one is a mistake, however far it is from a setting."""

# Kubernetes describes every Service of the namespace to every pod in names of this form.
_INJECTED = re.compile(
    r"[A-Z0-9_]+_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_\w+)?)"
)


def is_injected(name: str, value: str) -> bool:
    """The variable is a Kubernetes service link, not somebody's setting."""
    return bool(_INJECTED.fullmatch(name)) or (
        name.endswith("_PORT") and value.startswith(("tcp://", "udp://", "sctp://"))
    )


def nearest(name: str, known: Iterable[str], *, within: int) -> str | None:
    """The known name closest to `name`, if it is at most `within` edits away."""
    best: tuple[int, str] | None = None
    for candidate in known:
        edits = distance_within(name, candidate, within)
        if edits is not None and (best is None or (edits, candidate) < best):
            best = edits, candidate
    return best[1] if best else None


def distance_within(left: str, right: str, limit: int) -> int | None:
    """The Damerau-Levenshtein distance (a swap of neighbours is one edit), or `None` above `limit`."""
    # An edit takes one letter out of use at most, and brings one into it: nearly all names are told apart by that.
    if abs(len(left) - len(right)) > limit or len({*left} ^ {*right}) > 2 * limit:
        return None
    before: list[int] = []
    previous = list(range(len(right) + 1))
    for row, char in enumerate(left, start=1):
        current = [row]
        for column, other in enumerate(right, start=1):
            cost = min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (char != other))
            if row > 1 and column > 1 and char == right[column - 2] and left[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        # Both rows: a swap of neighbours reaches back over one.
        if min(current) > limit and min(previous) > limit:
            return None
        before, previous = previous, current
    return previous[-1] if previous[-1] <= limit else None
