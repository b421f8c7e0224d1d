"""How next turns fared, as little of each as a line of the list needs.

A store that finds them by their conversations is asked for those of the lines; of another one all are read once, and
then what is new.
"""

import time
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field

from gateway.core.ports import Store
from gateway.core.records import OutcomeRecord
from gateway.inspector.rows import Head, Told

__all__ = ["Outcomes"]

_NEVER = float("-inf")
_RECENT_S = 3600.0
"""Behind answers that are no older few outcomes can have been written."""
_LATE_S = 30.0
"""Several workers write: what is that much older than the newest may still come."""


@define
class Outcomes:
    """Those of a store."""

    store: Store
    # Columns of numbers: as objects all outcomes of a store would take many times the room.
    _at: "array[float]" = field(init=False, factory=lambda: array("d"))
    _keys: "array[int]" = field(init=False, factory=lambda: array("q"))
    _reporters: "array[int]" = field(init=False, factory=lambda: array("q"))
    _words: "array[int]" = field(init=False, factory=lambda: array("I"))
    _known: dict[tuple[str, str], int] = field(init=False, factory=dict)
    _newest: float = field(init=False, default=_NEVER)

    async def of(self, heads: Sequence[Head]) -> Mapping[str, Sequence[Told]]:
        """Those of the conversations of these answers."""
        keys = {head.key for head in heads}
        if not keys:
            return {}
        found = await self.store.fared(keys)
        if found is not None:
            return _by_key(found)
        oldest = min(head.at for head in heads)
        if oldest > time.time() - _RECENT_S:
            return _by_key([each async for each in self.store.scan(OutcomeRecord, since=oldest) if each.key in keys])
        await self._refresh()
        return self._of_all(keys)

    def _of_all(self, keys: Iterable[str]) -> Mapping[str, Sequence[Told]]:
        wanted = {hash(key): key for key in keys}
        words, found = list(self._known), defaultdict[str, list[Told]](list)
        for place, key in enumerate(self._keys):
            if key in wanted:
                told = Told(self._at[place], *words[self._words[place]], self._reporters[place])
                found[wanted[key]].append(told)
        return found

    async def _refresh(self) -> None:
        """Read what has been written since."""
        known, since = self._late(), self._newest - _LATE_S
        async for record in self.store.scan(OutcomeRecord, since=since):
            word = self._known.setdefault((record.outcome, record.reason), len(self._known))
            entry = (record.at, hash(record.key), hash(record.reported_by), word)
            if entry in known:
                continue
            self._newest = max(self._newest, record.at)
            self._at.append(record.at)
            self._keys.append(entry[1])
            self._reporters.append(entry[2])
            self._words.append(word)

    def _late(self) -> set[tuple[float, int, int, int]]:
        """Those that will be read once more."""
        columns = zip(self._at, self._keys, self._reporters, self._words, strict=True)
        return {entry for entry in columns if entry[0] >= self._newest - _LATE_S}


def _by_key(outcomes: Iterable[OutcomeRecord]) -> Mapping[str, Sequence[Told]]:
    found = defaultdict[str, list[Told]](list)
    for each in outcomes:
        found[each.key].append(Told(each.at, each.outcome, each.reason, hash(each.reported_by)))
    return found
