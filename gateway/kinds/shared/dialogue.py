"""What dialogues with servers of other wires have in common: how an answer comes in, ends, fails and is remembered.

A kind's own dialogue says what an event means (`_event`), a whole answer (`_whole`) and a fault (`_fault`), and what is
worth keeping (`_kept`, under `_key`).
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from gateway.core.errors import UpstreamBadReply
from gateway.core.ports import Memory
from gateway.kinds.shared.answer import Answer, Feed, gathered, is_stream
from gateway.kinds.shared.faults import Fault, fault_of_status, refused, unreadable
from gateway.kinds.shared.memory import Place, key_of_answer
from gateway.kinds.shared.port import HttpAsk, Reply, Situation

__all__ = ["PlacedDialogue", "TranslatingDialogue"]


class TranslatingDialogue:
    """One request to a server of another wire, and its answer."""

    ask: HttpAsk
    again: HttpAsk | None = None

    def __init__(self, body: Mapping[str, Any], situation: Situation, *, ttl_s: float) -> None:
        self._body = body
        self._situation = situation
        self._ttl_s = ttl_s
        self._renew()

    def _renew(self) -> None:
        """Nothing of an answer is known."""
        self._is_complete = False
        self._answer = Answer.to(self._body, self._situation)
        self._stream: Feed | None = None

    @property
    def _feed(self) -> Feed:
        """Reads the answer as a stream; the two know each other until it ends, so there is none before it is asked."""
        if self._stream is None:
            self._stream = Feed(self._event, self._answer, max_event_bytes=self._situation.max_event_bytes)
        return self._stream

    @property
    def may_be_void(self) -> bool:
        return False

    def answered(self, status: int, headers: Mapping[str, str], body: bytes) -> HttpAsk | Reply:
        if not 200 <= status < 300:
            return refused(status, body, self._fault)
        if is_stream(body):
            return gathered(self._feed, self._answer, body, self._stop)
        try:
            self._whole(body)
        except UpstreamBadReply as error:
            return unreadable(error, body, self._fault)
        self._complete()
        return Reply(status=status, body=self._answer.body())

    def feed(self, data: bytes) -> bytes:
        return self._feed.feed(data)

    def finish(self) -> bytes:
        return self._feed.finish(self._stop)

    def remember(self, delivered: Mapping[str, Any] | None = None) -> tuple[Memory, ...]:
        value = self._kept() if self._is_complete else None
        key = None if value is None else self._key(delivered or self._answer.message())
        return () if value is None or key is None else (Memory(key=key, value=value, ttl_s=self._ttl_s),)

    def _stop(self) -> None:
        """The end of the answer; told by the stream's end alone it counts only behind a finish reason."""
        if self._answer.finish_reason is not None and not self._is_complete:
            self._complete()
            self._answer.end()

    def _complete(self) -> None:
        """All that belongs to the answer has come."""
        self._is_complete = True

    def _refuse(self, error: object) -> NoReturn:
        """Raise the fault that stands in an event."""
        raise (self._fault({"error": error}, 500) or fault_of_status(502)).error()

    def _event(self, data: bytes) -> None:
        """One event of the stream; raises `GatewayError`."""
        raise NotImplementedError

    def _whole(self, body: bytes) -> None:
        """An answer that is no stream; raises `UpstreamBadReply` where it is none at all."""
        raise NotImplementedError

    def _fault(self, value: Mapping[str, Any], status: int) -> Fault | None:
        """The fault that a body tells, if it tells one."""
        raise NotImplementedError

    def _kept(self) -> bytes | None:
        """What is to be known of a complete answer in later turns."""
        raise NotImplementedError

    def _key(self, message: Mapping[str, Any]) -> str | None:
        """The name under which that is found again, by the message that the client was given."""
        raise NotImplementedError


class PlacedDialogue(TranslatingDialogue):
    """One whose answer is found again by where it stands in the client's conversation."""

    kind: str

    def __init__(
        self, ask: HttpAsk, body: Mapping[str, Any], place: Place, situation: Situation, *, ttl_s: float
    ) -> None:
        super().__init__(body, situation, ttl_s=ttl_s)
        self.ask = ask
        self._model = self._answer.model
        self._place = place

    def _key(self, message: Mapping[str, Any]) -> str | None:
        return key_of_answer(self.kind, message, self._place, scope=self._situation.scope)
