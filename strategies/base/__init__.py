"""What a strategy is: all that one of a third party needs, beside `gateway.core` and `gateway.wire`.

In: a request. Out: what is sent upstream, and how the answer is read. `strategy` is the protocol, `translation` what
calls become where a client has other tools.

Rights: pure.
"""

from strategies.base.strategy import (
    AnswerReader,
    AsksAgain,
    BrokenCall,
    CallTerms,
    FinishReason,
    HearsReasoning,
    InTurns,
    KeepsText,
    Kept,
    Listener,
    Options,
    PassesText,
    Prepared,
    Shape,
    ToolExecutionStrategy,
    Translates,
)
from strategies.base.translation import PART_ID, CallBack, Refusal, base_id, part_id

__all__ = [
    "PART_ID",
    "AnswerReader",
    "AsksAgain",
    "BrokenCall",
    "CallBack",
    "CallTerms",
    "FinishReason",
    "HearsReasoning",
    "InTurns",
    "KeepsText",
    "Kept",
    "Listener",
    "Options",
    "PassesText",
    "Prepared",
    "Refusal",
    "Shape",
    "ToolExecutionStrategy",
    "Translates",
    "base_id",
    "part_id",
]
