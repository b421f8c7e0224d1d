"""How next turns fared, as little of each as a line of the list needs: a store tells them by time alone, and a list
that was filtered asks for those of answers that lie days apart."""

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence

from attrs import define, field

from gateway.core.ports import Store
from gateway.core.records import OutcomeRecord
from gateway.inspector.rows import Head, Told, next_of
from gateway.state.sqlite_briefs import checksum

__all__ = ["Outcomes"]

_NEVER = float("-inf")
_LATER_S = 3600.0
"""How long after an answer its conversation is looked at for what became of it."""
_LATE_S = 30.0
"""Several workers write: what is that much older than the newest may still come."""


@define
class Outcomes:
    """All that the store has, read once and then only what is new."""

    store: Store
    _at: "array[float]" = field(init=False, factory=lambda: array("d"))
    _keys: "array[int]" = field(init=False, factory=lambda: array("I"))
    _reporters: "array[int]" = field(init=False, factory=lambda: array("I"))
    _words: "array[int]" = field(init=False, factory=lambda: array("I"))
    _known: dict[tuple[str, str], int] = field(init=False, factory=dict)
    _newest: float = field(init=False, default=_NEVER)

    async def refresh(self) -> None:
        """Read what has been written since."""
        known, since = self._late(), self._newest - _LATE_S
        async for record in self.store.scan(OutcomeRecord, since=since):
            word = self._known.setdefault((record.outcome, record.reason), len(self._known))
            entry = (record.at, checksum(record.key), checksum(record.reported_by), word)
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

    async def of(self, heads: Sequence[Head], *, are_close: bool) -> Mapping[str, Sequence[Told]]:
        """Those of the conversations of these answers; of some that lie close together the store is asked itself."""
        if not heads:
            return {}
        if are_close:
            return await self._around(heads)
        await self.refresh()
        wanted = {checksum(head.key): head.key for head in heads}
        words, found = list(self._known), defaultdict[str, list[Told]](list)
        for place, key in enumerate(self._keys):
            if key in wanted:
                told = Told(self._at[place], *words[self._words[place]], self._reporters[place])
                found[wanted[key]].append(told)
        return found

    async def _around(self, heads: Sequence[Head]) -> Mapping[str, Sequence[Told]]:
        keys, found = {head.key for head in heads}, defaultdict[str, list[Told]](list)
        times = [head.at for head in heads]
        async for each in self.store.scan(OutcomeRecord, since=min(times), until=max(times) + _LATER_S):
            if each.key in keys:
                found[each.key].append(Told(each.at, each.outcome, each.reason, checksum(each.reported_by)))
        return found

    def words(self) -> Mapping[int, frozenset[str]]:
        """What may be said of the answers of a conversation, by the checksum of its key."""
        said = [next_of(float("-inf"), [Told(0.0, *word, 0)]).word for word in self._known]
        found: dict[int, frozenset[str]] = {}
        sets: dict[tuple[frozenset[str], str], frozenset[str]] = {}
        unknown = frozenset({""})
        for key, word in zip(self._keys, self._words, strict=True):
            before = found.get(key, unknown)
            if said[word] not in before:
                found[key] = sets.setdefault((before, said[word]), before | {said[word]})
        return found
