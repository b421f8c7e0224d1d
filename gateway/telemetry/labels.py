"""The guard that keeps label values few: names that clients and models choose never make series without bound."""

import re
from collections.abc import Callable, Iterable, Mapping

__all__ = ["OTHER", "LabelGuard", "cleaned"]

OTHER = "other"

_MAX_CHARS = 64
_UNSAFE = re.compile("[^A-Za-z0-9_.:/-]")
# Each value is a series that Prometheus keeps: https://prometheus.io/docs/practices/naming/#labels
_EARNED = frozenset({"model", "tool"})
_OWN_VALUES_CAP = 128


def cleaned(raw: str) -> str:
    """At most 64 characters, none outside `A-Za-z0-9_.:/-`."""
    return _UNSAFE.sub("_", raw[:_MAX_CHARS])


class LabelGuard:
    """Admits label values: configured ones always, names from outside once they have earned it, the rest is `other`.

    `model` and `tool` come from request bodies: such a value is admitted only through `admit`, which is called after
    the upstream answered well, and only up to `cap`. Every other label has a vocabulary of our own, which a plug-in
    may widen: first come, first served, up to a fixed number.
    """

    __slots__ = ("_cap", "_configured", "_known", "_on_overflow", "_owned")

    def __init__(
        self,
        configured: Mapping[str, Iterable[str]],
        *,
        cap: int,
        on_overflow: Callable[[str], None],
    ) -> None:
        self._configured = {label: frozenset(map(cleaned, values)) for label, values in configured.items()}
        self._known: dict[str, set[str]] = {}
        self._owned: dict[tuple[str, str], int] = {}
        """How many values of a label a client has brought."""
        self._cap = cap
        self._on_overflow = on_overflow

    def bounded(self, label: str, raw: str) -> str:
        """The value that may stand in a series."""
        value = cleaned(raw)
        if not value or value == OTHER:
            return OTHER if label in _EARNED else value
        if value in self._configured.get(label, ()) or value in self._known.get(label, ()):
            return value
        if label not in _EARNED and self._learn(label, value, _OWN_VALUES_CAP):
            return value
        self._on_overflow(label if label in _EARNED else "own")
        return OTHER

    def admit(self, label: str, raw: str, who: str = "") -> str:
        """Like `bounded`, for a value that has earned a series of its own; of one client `who` half of them at most."""
        value = cleaned(raw)
        known = self._known.get(label, ())
        if value and value != OTHER and value not in self._configured.get(label, ()) and value not in known:
            # One client that makes up names must not take all of the places.
            mine = self._owned.get((label, who), 0)
            if not (who and 2 * (mine + 1) > self._cap) and self._learn(label, value, self._cap):
                self._owned[label, who] = mine + 1
        return self.bounded(label, raw)

    def _learn(self, label: str, value: str, cap: int) -> bool:
        known = self._known.setdefault(label, set())
        if value not in known and len(known) >= cap:
            return False
        known.add(value)
        return True
