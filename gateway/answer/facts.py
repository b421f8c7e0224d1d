"""What one answer leaves behind for the log and the metrics."""

from collections import Counter
from functools import partial
from itertools import repeat
from typing import Any

from attrs import frozen
from msgspec import Struct, field

from gateway.answer.second_answer import SecondCall
from gateway.answer.stages.transcript import Transcript
from gateway.answer.structured.review import CallFacts
from gateway.core.events import Verdict
from gateway.core.sentences import furthest
from gateway.wire.chat_chunks import token_counts
from strategies.mapping.answers import Translation

__all__ = ["NO_CALLS", "Delivered", "Facts", "delivered"]

SHELL = "shell"


@frozen(kw_only=True)
class Delivered:
    """A call that was read from text and given to the client."""

    verdict: Verdict
    size: int
    command: str = ""
    """The arguments, of a command that was recovered from a shell block: each one is audited."""
    arguments: str = ""


def delivered(verdict: Verdict, arguments: str) -> Delivered:
    command = arguments if verdict.dialect == SHELL else ""
    return Delivered(verdict=verdict, size=len(arguments), command=command, arguments=arguments)


NO_CALLS = CallFacts()
"""Of answers that nobody has looked through for any; nothing is ever added to it."""


class Facts(Struct):
    """What one answer leaves behind for the log and the metrics."""

    calls: list[Delivered] = field(default_factory=list)
    undelivered: int = 0
    refused: list[Verdict] = field(default_factory=list)
    """Candidates that stayed text, of several readings of the same characters the one that came furthest."""
    intents: list[Verdict] = field(default_factory=list)
    """Calls that were read beside the answer and are not given to the client."""
    broken: list[str] = field(default_factory=list)
    # What `Counter()` does beside, costs.
    dropped: Counter[str] = field(default_factory=partial(Counter.__new__, Counter))
    mended: Counter[str] = field(default_factory=partial(Counter.__new__, Counter))
    native_calls: int = 0
    unusable_calls: int = 0
    """Structured calls whose arguments are no JSON object."""
    structured: CallFacts = field(default_factory=repeat(NO_CALLS).__next__)
    """Its structured calls, as they stand to what was declared."""
    broken_calls: int = 0
    """Calls that were plainly meant, stayed text, and were the answer's only ones."""
    has_second_answer: bool = False
    """The calls of this answer are those of a second one."""
    completion_id: str | None = None
    held_bytes_max: int = 0
    late_events: int = 0
    """Events of a stream that left only after two or more later ones had been read."""
    finish_reasons: dict[int, str] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)
    read: bool = False
    """A reader looked at the answer."""
    failure: str | None = None
    """The code of the error that ended the answer."""
    transcripts: dict[int, Transcript] = field(default_factory=dict)
    """Each choice's text and candidates, where they are kept."""

    translated: int = 0
    """Structured calls that became calls of the client's own tools."""
    untranslated: int = 0
    """Those that could not."""

    def refuse(self, verdict: Verdict, *, again: bool) -> None:
        """A candidate stayed text; `again` says that the one before it was another reading of the same characters."""
        if again and self.refused:
            self.refused[-1] = furthest([self.refused[-1], verdict])
        else:
            self.refused.append(verdict)

    def note_mapped(self, translation: Translation) -> None:
        """Structured calls were translated, as far as they could be."""
        self.untranslated += len(translation.refusals)
        self.translated += len(translation.calls) - len(translation.refusals)

    def add_usage(self, usage: Any) -> None:
        """Count what a further answer cost."""
        self.usage = dict(Counter(self.usage) + Counter(token_counts(usage)))

    def take_over(self, call: SecondCall) -> None:
        """A call of a second answer was given to the client."""
        if call.verdict is None:
            self.native_calls += 1
        else:
            self.calls.append(delivered(call.verdict, call.arguments))
