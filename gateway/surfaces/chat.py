"""OpenAI chat: the wire in the middle, and so the surface that changes nothing."""

from collections.abc import Mapping

import msgspec
from attrs import field, frozen

from gateway.core.errors import GatewayError, UpstreamRejected
from gateway.core.ports import Memory
from gateway.surfaces.port import Asked, Situation
from gateway.wire.chat_request import parse_request

__all__ = ["CHAT", "KEEP_ALIVE", "ChatSurface", "ChatTelling"]

# A comment, which SDKs pass over:
# https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
KEEP_ALIVE = b": keep-alive\n\n"


@frozen
class ChatTelling:
    """Every byte as it is."""

    is_identity: bool = True
    answer_id: str | None = None
    dropped: Mapping[str, int] = field(factory=dict)
    mended: Mapping[str, int] = field(factory=dict)

    def begin(self, input_tokens: int | None = None) -> bytes:
        del input_tokens
        return b""

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""

    def whole(self, body: bytes) -> bytes:
        return body

    @property
    def overhears(self) -> bool:
        return False

    def overhear(self, data: bytes) -> None:
        """Comments say nothing of the answer."""

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def remember(self) -> tuple[Memory, ...]:
        return ()


_TELLING = ChatTelling()


@frozen
class ChatSurface:
    """`POST /v1/chat/completions`."""

    name: str = "chat"
    path: str = "chat/completions"
    is_identity: bool = True

    def accept(self, raw: bytes, situation: Situation, known: Mapping[str, bytes]) -> Asked:
        del situation, known
        return Asked(request=parse_request(raw), tell=telling)

    def error(self, error: GatewayError, *, status: int, request_id: str) -> tuple[int, bytes]:
        """The upstream's own body where it had a usable one."""
        del request_id
        if isinstance(error, UpstreamRejected) and error.payload is not None:
            return status, error.payload
        return status, msgspec.json.encode(error.body())

    def head(self, request_id: str) -> Mapping[str, str]:
        del request_id
        return _NO_HEADERS


def telling() -> ChatTelling:
    """The telling of every chat answer: it has no state."""
    return _TELLING


_NO_HEADERS: Mapping[str, str] = {}
CHAT = ChatSurface()
