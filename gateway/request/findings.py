"""What is found out about a chat request on its way, for whoever writes it down at its end, however that comes."""

from attrs import define, field

from gateway.answer.facts import Facts
from gateway.core.records import Arm, DryVerdict, Follows
from gateway.rollout.assignment import Assignment
from gateway.wire.chat_request import ChatRequest

__all__ = ["Findings"]


@define(kw_only=True)
class Findings:
    """What is known of a request's job so far; those that answer it fill it in, and nobody else."""

    request: ChatRequest | None = None
    assignment: Assignment | None = None
    arm: Arm | None = None
    """Of the rollout, once the request is in one."""
    key: str = ""
    """The conversation."""
    follows: Follows | None = None
    """What the request brings after the conversation's last answer; `None` before it has been looked at."""
    strategy: str | None = None
    selected: str | None = None
    """Why the strategy was chosen."""
    notes: list[str] = field(factory=list)
    """What the strategy has to say of the request."""
    is_rewritten: bool = False
    """The model server is sent another request than came."""
    prompted_tools: int = 0
    """How many tools stand in its prompt."""
    asked_again: str = ""
    """What asking the model again for a broken call came to last."""
    answer_id: str | None = None
    """What the client knows the answer by, where that is not the chat answer's own id."""
    facts: Facts | None = None
    """What was seen of the answer."""
    looping_tool: str | None = None
    """The tool that the conversation's last calls, all alike, were of."""
    asks_usage: bool = False
    """The gateway has asked for the stream's usage, for itself."""
    verdict: DryVerdict | None = None
    """What reading beside an untouched answer came to."""
    noise: bool | None = None
    prepare_s: float = 0.0
    read_s: float = 0.0
    longest_hold_s: float = 0.0

    @property
    def is_usage_unasked(self) -> bool:
        """Nobody has asked the model server what a stream took."""
        options = None if self.request is None else self.request.body.get("stream_options")
        return not self.asks_usage and not (isinstance(options, dict) and options.get("include_usage"))
