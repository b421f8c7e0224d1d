"""How often each model writes a call as text, and what comes of it; where a live arm would ask it differently."""

from collections import Counter

from attrs import define, field

from gateway.core.records import Brief, OutcomeRecord, RequestRecord
from gateway.report.facts.candidates import MAX_NAME, UNTOUCHED, is_meant, is_sent
from gateway.report.facts.intervals import rate
from gateway.report.facts.sketches import Counts
from gateway.report.facts.tree import AskedDifferently, CutContext, Leaks, ModelLeaks

__all__ = ["AskingTally", "LeakTally"]

_MAX_CONVERSATIONS = 20_000
_PROMPTED = "xml_prompt"
_CUT = "context_cut: "
"""How the note on an answer begins whose prompt was not read whole."""


@define
class _Model:
    answers: int = 0
    native: int = 0
    leaked: int = 0
    became: int = 0
    rejected: int = 0
    dialects: Counter[str] = field(factory=Counter)


@define
class LeakTally:
    """Adds up records, in the order of their time."""

    by_model: "Counts[_Model]" = field(factory=lambda: Counts(_Model))
    all_models: _Model = field(factory=_Model)
    keys: set[str] = field(factory=set)
    more_conversations: int = 0
    """Of answers that were counted without their keys."""
    _model_of: dict[str, str] = field(factory=dict)
    """The model that a conversation asked last."""

    def add(self, record: RequestRecord) -> None:
        if not record.tools:
            return
        name = record.model[:MAX_NAME]
        self.keys.add(record.key)
        # Taken out first, so that it stands behind all others: the one that was silent longest is forgotten first.
        self._model_of.pop(record.key, None)
        self._model_of[record.key] = name
        if len(self._model_of) > _MAX_CONVERSATIONS:
            del self._model_of[next(iter(self._model_of))]
        self.count(record)

    def count(self, answer: RequestRecord | Brief, many: int = 1) -> None:
        """So many answers that are alike; whose conversations they were is not asked."""
        # A call that was asked for again had been written as text before.
        sent = any(is_sent(call) or call.decision == "repaired" for call in answer.calls)
        dialects = {
            call.dialect[:MAX_NAME]
            for call in answer.calls
            if (is_sent(call) or call.decision == "repaired" if sent else call.decision == "refused" and is_meant(call))
        }
        for model in (self.by_model.at(answer.model[:MAX_NAME]), self.all_models):
            model.answers += many
            model.native += many * (answer.native_calls > 0)
            model.leaked += many * bool(dialects)
            model.became += many * sent
            for dialect in dialects:
                model.dialects[dialect] += many

    def add_outcome(self, record: OutcomeRecord) -> None:
        if record.outcome == "rejected":
            self.all_models.rejected += 1
            if (name := self._model_of.get(record.key)) is not None:
                self.by_model.at(name).rejected += 1

    def count_rejected(self, model: str, many: int) -> None:
        """So many of the calls that this model gave last were rejected by the client."""
        self.by_model.at(model[:MAX_NAME]).rejected += many
        self.all_models.rejected += many

    def figures(self) -> Leaks:
        """The model that leaks most comes first."""
        models = [_told(name, model) for name, model in self.by_model.items()]
        whole = self.all_models
        return Leaks(
            answers=whole.answers,
            conversations=len(self.keys) + self.more_conversations,
            native=whole.native,
            leaked=rate(whole.leaked, whole.answers),
            became=rate(whole.became, whole.leaked),
            stayed_text=whole.leaked - whole.became,
            models=tuple(sorted(models, key=lambda each: (-each.leaked.hits, -each.answers, each.model))),
        )


def _told(name: str, model: _Model) -> ModelLeaks:
    return ModelLeaks(
        model=name,
        answers=model.answers,
        native=model.native,
        leaked=rate(model.leaked, model.answers),
        became=rate(model.became, model.leaked),
        rejected=model.rejected,
        dialects=dict(model.dialects.most_common(8)),
    )


@define
class _Asked:
    answers: int = 0
    native: int = 0
    as_text: int = 0


@define
class _Cut:
    answers: int = 0
    last: str = ""


@define
class AskingTally:
    """Where live answers are asked for in another way than those that were watched, and where prompts are cut."""

    asked: "Counts[_Asked]" = field(factory=lambda: Counts(_Asked))
    cuts: "Counts[_Cut]" = field(factory=lambda: Counts(_Cut))

    def add(self, record: RequestRecord) -> None:
        name = record.model[:MAX_NAME]
        for note in record.notes:
            if note.startswith(_CUT):
                cut = self.cuts.at(name)
                cut.answers, cut.last = cut.answers + 1, note.removeprefix(_CUT)
        if record.tools and record.arm in UNTOUCHED and record.strategy == _PROMPTED:
            asked = self.asked.at(name)
            asked.answers += 1
            asked.native += record.native_calls > 0
            asked.as_text += any(is_sent(call) for call in record.calls)

    def differently(self) -> tuple[AskedDifferently, ...]:
        """The model with most native calls comes first."""
        rows = [
            AskedDifferently(model=name, native=rate(one.native, one.answers), as_text=rate(one.as_text, one.answers))
            for name, one in self.asked.items()
        ]
        return tuple(sorted(rows, key=lambda row: (-row.native.hits, row.model)))

    def context_cuts(self) -> tuple[CutContext, ...]:
        """The model that is cut most often comes first."""
        rows = [CutContext(model=name, answers=cut.answers, last=cut.last) for name, cut in self.cuts.items()]
        return tuple(sorted(rows, key=lambda row: (-row.answers, row.model)))
