"""How the turns fared that a model server's own parser swallowed: whether to ask once more, and what is learned of it.

Each is asked once more, until five in a row of one kind at one model have not been cured by that: then one in twenty
is, for ten minutes. A model of whose last twenty answers three were swallowed, and cured by telling it of its tools in
the prompt, is told so at once from then on.
"""

from collections import OrderedDict, deque
from typing import Any

from attrs import define, field

from gateway.traffic.lesson_rules import MAX_PAIRS

__all__ = ["Rescues"]

Pair = tuple[str, str]

UNCURED = 5
PAUSE_S = 600.0
ONE_IN = 20
WINDOW = 20
CURED = 3


@define
class _Face:
    """One way in which turns of one model are swallowed."""

    uncured: int = 0
    """In a row."""
    paused_until: float = 0.0
    left_out: int = 0


@define
class Rescues:
    """What this process knows of rescues, of at most `MAX_PAIRS` models."""

    _faces: OrderedDict[tuple[str, str, str], _Face] = field(factory=OrderedDict)
    _answers: OrderedDict[Pair, deque[bool]] = field(factory=OrderedDict)
    """Of each model's last answers, whether the prompt cured them."""
    _simpler: OrderedDict[Pair, float] = field(factory=OrderedDict)
    """Models whose server made no grammar of the tools, until when they are told simpler ones."""
    _tells_usage: dict[str, bool] = field(factory=dict)
    """Upstreams of which it is known whether they tell the usage of a stream unasked."""
    _refuses_usage: set[str] = field(factory=set)

    def may_ask(self, upstream: str, model: str, face: str, now: float) -> bool:
        """Whether a turn that was swallowed in this way is worth another question."""
        known = self._faces.get((upstream, model, face))
        if known is None or now >= known.paused_until:
            return True
        known.left_out += 1
        # Now and then one is tried: the server may have been mended meanwhile.
        return known.left_out % ONE_IN == 0

    def asked(self, upstream: str, model: str, face: str, now: float, *, is_cured: bool) -> None:
        """What came of it."""
        key = (upstream, model, face)
        known = self._faces.setdefault(key, _Face())
        _bound(self._faces, key)
        if is_cured:
            known.uncured, known.paused_until = 0, 0.0
            return
        known.uncured += 1
        if known.uncured >= UNCURED and now >= known.paused_until:
            known.paused_until, known.left_out = now + PAUSE_S, 0

    def answered(self, upstream: str, model: str, *, is_cured: bool = False) -> bool:
        """An answer to native tools has ended; True when so many were cured that the model is better prompted."""
        pair = (upstream, model)
        answers = self._answers.setdefault(pair, deque(maxlen=WINDOW))
        _bound(self._answers, pair)
        answers.append(is_cured)
        # One or two may be chance.
        if sum(answers) < CURED:
            return False
        # Counted anew from here: the same three must not teach it twice.
        del self._answers[pair]
        return True

    def learn_simpler(self, upstream: str, model: str, until: float) -> None:
        """The server took the tools' schemas only after they were told without what it cannot compile."""
        self._simpler[upstream, model] = until
        _bound(self._simpler, (upstream, model))

    def wants_simpler(self, upstream: str, model: str, now: float) -> bool:
        """Whether that is known of it."""
        return now < self._simpler.get((upstream, model), 0.0)

    def saw_usage(self, upstream: str, *, is_told: bool) -> None:
        """A stream has ended whose usage nobody had asked for."""
        self._tells_usage[upstream] = is_told or self._tells_usage.get(upstream, False)

    def refused_usage(self, upstream: str) -> None:
        """A request that asked for the usage of a stream was refused for it."""
        self._refuses_usage.add(upstream)

    def may_ask_usage(self, upstream: str) -> bool:
        """Whether it is to be asked: only where a client would never see usage that it has not asked for.

        Of whom it is not known yet, the first stream tells: what a server says unasked is the client's to have.
        """
        return self._tells_usage.get(upstream) is False and upstream not in self._refuses_usage


def _bound(kept: OrderedDict[Any, Any], key: object) -> None:
    kept.move_to_end(key)
    if len(kept) > MAX_PAIRS:
        kept.popitem(last=False)
