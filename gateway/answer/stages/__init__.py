"""The stages that one choice of an answer goes through, each a list of events in and a list of events out.

Text enters at the reader (`guard`), which makes events of it; then come, in this order and each only where it has
something to do, the shape of the calls (`shaper`), what is held to ask again (`hold`), and calls of the text that may
be structured ones again (`repeats`). Every event's raw text leaves the last stage in some event, in its order. `port`
says what a stage is. Each choice keeps the list, so that what is added to it holds for streams and whole answers alike.

Rights: pure.
"""

from gateway.answer.stages.guard import GuardedReader
from gateway.answer.stages.hold import Hold
from gateway.answer.stages.port import Stage
from gateway.answer.stages.repeats import Repeats
from gateway.answer.stages.shaper import Shaper

__all__ = ["GuardedReader", "Hold", "Repeats", "Shaper", "Stage"]
