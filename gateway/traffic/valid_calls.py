"""How the structured calls of each model stand to what was declared, as its server sent them: bounded, in memory."""

from collections import Counter, OrderedDict
from collections.abc import Mapping

from attrs import define, field

from gateway.core.call_class import CallClass

__all__ = ["CLEAN_CALLS", "ValidCalls"]

CLEAN_CALLS = 500
"""So many calls in a row without a fault, and a model's calls need not be held any more."""
_MAX_PAIRS = 1024
"""Upstreams and models that something is kept of; a client chooses the model's name."""


@define
class _Model:
    classes: Counter[CallClass] = field(factory=Counter)
    clean: int = 0
    """How many have been valid since the last that was not."""


@define
class ValidCalls:
    """The structured calls of every model at its upstream, by their classes."""

    _models: OrderedDict[tuple[str, str], _Model] = field(factory=OrderedDict)

    def observe(self, upstream: str, model: str, classes: Mapping[CallClass, int]) -> None:
        """Take down the calls of one answer."""
        if not classes:
            return
        pair = (upstream, model)
        known = self._models.setdefault(pair, _Model())
        self._models.move_to_end(pair)
        if len(self._models) > _MAX_PAIRS:
            self._models.popitem(last=False)
        known.classes.update(classes)
        is_clean = set(classes) <= {CallClass.VALID}
        known.clean = known.clean + classes[CallClass.VALID] if is_clean else 0

    def is_clean(self, upstream: str, model: str) -> bool:
        """There was no fault in the last `CLEAN_CALLS` calls, and there have been so many."""
        known = self._models.get((upstream, model))
        return known is not None and known.clean >= CLEAN_CALLS

    def of(self, upstream: str, model: str) -> Mapping[CallClass, int]:
        """How many calls of each class this process has seen of a model."""
        known = self._models.get((upstream, model))
        return known.classes if known is not None else {}
