"""Which paths a model server was found not to have: it is not asked for them again for an hour, as servers change."""

from collections import OrderedDict

from attrs import define, field

__all__ = ["ABSENT_S", "ABSENT_STATUSES", "AbsentPaths"]

ABSENT_S = 3600.0
# Most say 404; one that has the path for other methods 405, one that names it and has not built it 501.
ABSENT_STATUSES = frozenset({404, 405, 501})
"""With these a server says that it has no such path."""
MAX_PATHS = 1024


@define
class AbsentPaths:
    """Those that this process has found."""

    _until: OrderedDict[tuple[str, str], float] = field(factory=OrderedDict)

    def note(self, upstream: str, path: str, now: float) -> None:
        """It has none, from now on for an hour."""
        self._until[upstream, path] = now + ABSENT_S
        self._until.move_to_end((upstream, path))
        if len(self._until) > MAX_PATHS:
            self._until.popitem(last=False)

    def has(self, upstream: str, path: str, now: float) -> bool:
        """Whether it is known to be missing."""
        return now < self._until.get((upstream, path), 0.0)
