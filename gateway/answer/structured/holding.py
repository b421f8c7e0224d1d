"""What of a streamed structured call may go out before it is whole.

The name of the first call goes out at once, where it is one that was offered; its arguments wait until the call is
whole, or until so much of them has come, and is right so far, that nobody should wait for the rest. A call that may be
dropped, as the copy of the one before it, waits until it differs.
"""

from typing import Any, Protocol

from attrs import define, field

from gateway.answer.structured.review import Review
from gateway.wire.structured_calls import StructuredCall
from strategies.structured.judge import declared
from strategies.structured.prefix import is_right_so_far

__all__ = ["ENOUGH", "HeldCall", "Piece", "Waits"]

# By then the beginning has shown its names and types; what follows is mostly one long value, such as a file.
ENOUGH = 4096
"""Characters of arguments that are right so far, behind which the rest flows."""


class Waits(Protocol):
    """An event of a stream, which waits for the calls in it."""

    calls: int
    """How many pieces of calls in it are held."""

    @property
    def event(self) -> dict[str, Any]: ...

    def change_call(self, entry: dict[str, Any], *, name: str | None, arguments: str) -> None: ...

    def drop_call(self, entry: dict[str, Any], at: int) -> None: ...

    def drop(self) -> None: ...


@define(eq=False)
class Piece:
    """A piece of a call in an event that waits for it."""

    pending: Waits
    at: int
    """Which of the event's choices."""
    delta: dict[str, Any] | None
    """The entry of `tool_calls`; `None` where the event holds nothing else than this and no more than arguments."""

    @property
    def entry(self) -> dict[str, Any]:
        """The entry, taken from the event where it is not known."""
        if self.delta is None:
            entry: dict[str, Any] = self.pending.event["choices"][self.at]["delta"]["tool_calls"][0]
            return entry
        return self.delta


@define(eq=False)
class HeldCall:
    """One call of a stream, and what is held of it."""

    call: StructuredCall
    is_first: bool
    pieces: list[Piece] = field(factory=list)
    flows: bool = False
    """What comes of it goes out as it comes."""
    is_told: bool = False
    """The client has its name."""
    is_late: bool = False
    """Its arguments flow although nobody has seen them whole."""
    _is_looked_at: bool = False
    _is_closed: bool = False

    def hold(self, piece: Piece) -> None:
        """One more piece that waits."""
        self.pieces.append(piece)
        piece.pending.calls += 1

    def release(self) -> None:
        """All that is held goes out as it came, and what follows as it comes."""
        self.flows = True
        self._put_name()
        # What the client has cannot be dropped as a copy any more.
        self.call.before = None
        self.let_go()

    def let_go(self) -> list[Piece]:
        """Nothing of it is held any more."""
        pieces, self.pieces = self.pieces, []
        for piece in pieces:
            piece.pending.calls -= 1
        return pieces

    def look(self, review: Review) -> None:
        """See whether what has come so far may go out."""
        call = self.call
        if self.flows or call.is_dropped or self._may_be_copy(review):
            return
        if not review.mends:
            self.release()
        # A client shows which tool is being called: with all held it would show nothing for as long as the call is
        # written.
        elif not call.size:
            self._tell_name(review)
        elif call.size >= ENOUGH and not self._is_looked_at and review.knows(call):
            self._is_looked_at = True
            if is_right_so_far(call.arguments[:ENOUGH], declared(review.terms.tools.get(call.name))):  # type: ignore[arg-type]
                self.is_late = True
                self.release()

    def close(self, review: Review) -> None:
        """Another call has begun behind it: a whole and right one need not wait any longer."""
        if self._is_closed or self.flows or self.call.is_dropped:
            return
        self._is_closed = True
        if self.call.has_ended() and review.is_right(self.call):
            self.release()

    def _may_be_copy(self, review: Review) -> bool:
        """It may be the call before it once more: one that is held is compared when it is whole, or gets long."""
        call = self.call
        if call.before is None:
            return False
        return not call.differs or (review.mends and call.size < ENOUGH)

    def _tell_name(self, review: Review) -> None:
        # Only the first: a name of the second would go out before the first one's arguments.
        if self.is_first and review.knows(self.call):
            self.is_told = True
            self._put_name()
            self.let_go()

    def _put_name(self) -> None:
        """Let a name that came late stand in the first piece, where some clients look for it and nowhere else.

        https://github.com/vercel/ai/issues/14722 https://github.com/jjang-ai/vmlx/pull/244
        """
        for piece in self.pieces if self.call.is_named_late else ():
            if piece.delta is not None:
                arguments = piece.delta["function"].get("arguments") or ""
                piece.pending.change_call(piece.delta, name=self.call.name, arguments=arguments)
