"""Which samples keep their text: the first of every kind in a day, then ever fewer, so that rare ones are not lost."""

from collections import OrderedDict

from attrs import define, field

__all__ = ["Samples"]

_DAY_S = 86_400
_MAX_KINDS = 4096

Kind = tuple[str, str, str]


@define
class Samples:
    """Counts the samples of each tool, dialect and verdict."""

    _seen: OrderedDict[Kind, int] = field(factory=OrderedDict)
    _day: int = 0

    def wants(self, kind: Kind, now: float, *, most: int) -> bool:
        """Whether this one keeps its text: each of the first `most` of a day, then those at 2, 4, 8 ... times that."""
        day = int(now // _DAY_S)
        if day != self._day:
            self._day = day
            # By day, so that a form which comes back after a server's upgrade has fresh samples.
            self._seen.clear()
        seen = self._seen.get(kind, 0) + 1
        self._seen[kind] = seen
        self._seen.move_to_end(kind)
        if len(self._seen) > _MAX_KINDS:
            self._seen.popitem(last=False)
        if seen <= most:
            return True
        times, rest = divmod(seen, most) if most else (0, 1)
        return rest == 0 and times & (times - 1) == 0
