"""What is found out about a chat request on its way, for whoever writes it down at its end, however that comes.

Each step of the way returns its part whole and frozen; `Findings` holds the part that is true now. It is the one thing
here that changes, as a request may end in any step: by its client's leaving, a fault, or a limit of time.
"""

from msgspec import Struct, field

from gateway.answer.facts import Facts
from gateway.core.records import Arm, DryVerdict, Follows
from gateway.rollout.assignment import Assignment
from gateway.wire.chat_request import ChatRequest
from strategies.base import Prepared

__all__ = ["NO_WAY", "UNREAD", "Enrolled", "Findings", "Way"]


class Enrolled(Struct, frozen=True, kw_only=True):
    """What is asked, in which conversation and in which arm: from when the body was read, and for good."""

    request: ChatRequest | None = None
    assignment: Assignment | None = None
    arm: Arm | None = None
    """Of the rollout, once the request is in one."""
    key: str = ""
    """The conversation."""


UNREAD = Enrolled()
"""Of every request whose body nobody has read yet, or that is none for an answer."""


class Way(Struct, frozen=True, kw_only=True):
    """How the model server is asked; another one takes its place where the request is prepared anew."""

    strategy: str | None = None
    selected: str | None = None
    """Why the strategy was chosen."""
    is_rewritten: bool = False
    """The model server is sent another request than came."""
    prompted_tools: int = 0
    """How many tools stand in its prompt."""

    @classmethod
    def prepared(cls, selected: str | None, request: ChatRequest, prepared: Prepared) -> "Way":
        """The way of a request that a strategy has prepared, which may have been another one than was selected."""
        return cls(
            strategy=prepared.strategy,
            selected=selected,
            # Most bodies are the very same object, and a large one is compared for nothing.
            is_rewritten=prepared.body is not request.raw and prepared.body != request.raw,
            prompted_tools=prepared.prompted_tools,
        )


NO_WAY = Way()
"""Before a strategy was chosen."""


class Findings(Struct, kw_only=True, eq=False):
    """What is known of a request's job so far; those that answer it fill it in, and nobody else."""

    enrolled: Enrolled = UNREAD
    way: Way = NO_WAY
    follows: Follows | None = None
    """What the request brings after the conversation's last answer; `None` before it has been looked at."""
    looping_tool: str | None = None
    """The tool that the conversation's last calls, all alike, were of."""
    notes: list[str] = field(default_factory=list)
    """What there is to say of the request in words, in the order in which it was seen."""
    asks_usage: bool = False
    """The gateway has asked for the stream's usage, for itself."""
    asked_again: str = ""
    """What asking the model again for a broken call came to last."""
    answer_id: str | None = None
    """What the client knows the answer by, where that is not the chat answer's own id."""
    facts: Facts | None = None
    """What was seen of the answer; they go on while it comes."""
    verdict: DryVerdict | None = None
    """What reading beside an untouched answer came to."""
    noise: bool | None = None
    prepare_s: float = 0.0
    read_s: float = 0.0
    longest_hold_s: float = 0.0

    @property
    def is_usage_unasked(self) -> bool:
        """Nobody has asked the model server what a stream took."""
        request = self.enrolled.request
        options = None if request is None else request.body.get("stream_options")
        return not self.asks_usage and not (isinstance(options, dict) and options.get("include_usage"))
