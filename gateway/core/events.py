"""What one reading of an answer consists of.

The reader turns text, cut anywhere, into these; the raw text of all events, joined, is the input. A call that is
complete comes as `Start`, `Args`, `End` in one go (`buffered`) or spread over the stream (`incremental`).
"""

from attrs import Factory, evolve, field, frozen

from gateway.core.reasons import Reason

__all__ = [
    "END_REASONS",
    "IN_REASONING",
    "NONE_MARKUP",
    "Args",
    "Broken",
    "Drop",
    "End",
    "Event",
    "Note",
    "Said",
    "Start",
    "Text",
    "Verdict",
    "refused",
]

IN_REASONING = "in_reasoning"
"""Among the reasons of a call: it stood in a field of reasoning, and was all of its answer."""
NONE_MARKUP = "none_markup"
"""The same of one in an answer to a request that forbids calls; and why its markup is left out."""

# Servers have words of their own, for ends as for what cut an answer off: DeepSeek's `insufficient_system_resource`,
# Mistral's `model_length` and `error`, SGLang's `abort`; Together's `eos`, TGI's `eos_token`, Cohere's `COMPLETE`.
# https://api-docs.deepseek.com/api/create-chat-completion, https://docs.mistral.ai/api/,
# https://docs.together.ai/reference/chat-completions-1, https://docs.cohere.com/reference/chat
_ENDS = (
    *("stop", "tool_calls", "function_call", "tool_call", "function_calls", "tool_use", "end_turn", "end_of_turn"),
    *("stop_sequence", "stop_token", "eos", "eos_token", "end", "complete", "completed", "done", "finished", "normal"),
)
END_REASONS: frozenset[str | None] = frozenset({None, "", *_ENDS, *map(str.upper, _ENDS)})
"""The finish reasons with which a model has ended by itself: with whatever other word, something has cut it off."""


@frozen
class Text:
    """Text that is content, exactly as it came."""

    raw: str
    firm: bool = False
    """White space at its end stays even if a call comes next: it indents a line of code."""


@frozen
class Drop:
    """Markup that belongs to a call but to no single one (a wrapper, a separator, a leftover token)."""

    raw: str
    reason: str
    family: str = ""
    """The dialects that it is markup of, where it stands without a call."""


@frozen(kw_only=True)
class Verdict:
    """Why a candidate became a call, or did not: score in hundredths and the reasons that led to it."""

    dialect: str
    name: str
    """The tool's, as far as it was read; never a piece of markup."""
    score: int
    accepted: bool
    reasons: tuple[str, ...] = ()
    """What counted for and against it, in the order in which it was found; for people."""
    refusal: Reason | None = None
    """Why it stayed text; a reader that leaves it open says no more than how far it came."""
    meant: bool = field(default=Factory(lambda self: bool(self.name), takes_self=True))
    """It was plainly meant as a call; else it was prose with a marker in it."""
    threshold: int = 0
    """The score that it had to have, where it was judged."""
    about: str = ""
    """The parameter that what was found concerns, where it concerns one."""
    offered: tuple[str, ...] = ()
    """The tools of the request, where it named none of them."""


def refused(verdict: Verdict, refusal: Reason, words: str = "") -> Verdict:
    """The same candidate, refused after all; `words` say more of it than the reason does."""
    return evolve(verdict, accepted=False, refusal=refusal, reasons=(*verdict.reasons, words or refusal.value))


@frozen
class Start:
    """A call has begun: from here on it can only end or break."""

    raw: str
    name: str
    dialect: str = "text"
    part: tuple[int, int] = (1, 1)
    """Which of how many calls it is that one call of the model became."""
    is_declared: bool = True
    """The request offered this tool, or one that is well known under its name."""


@frozen
class Args:
    """The next piece of the call's argument JSON."""

    raw: str
    json: str


@frozen
class End:
    """The call is complete and right; `arguments` is the whole JSON, equal to the joined pieces."""

    raw: str
    name: str
    arguments: str
    verdict: Verdict
    call_id: str | None = None


@frozen
class Said:
    """A call that is told in words of the client's own: `text` goes out in the place of `raw`."""

    raw: str
    text: str
    arguments: str
    verdict: Verdict


@frozen
class Broken:
    """A call that had begun (`incremental`) turned out wrong: a visible failure, never a completed wrong call."""

    raw: str
    reason: str


@frozen
class Note:
    """A candidate that stayed text: no raw text of its own, only what is to be recorded."""

    verdict: Verdict
    raw: str = ""
    seen: str = ""
    """The candidate, as far as it is shown; `size` is its whole length."""
    size: int = 0
    reach: int = 0
    """How far its dialect had read it; 0 where that is not known."""


Event = Text | Drop | Start | Args | End | Said | Broken | Note
