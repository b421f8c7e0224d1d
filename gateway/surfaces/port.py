"""The port of surfaces: what the rest of the gateway asks of the wire that a client speaks.

One request is one `Asked` and, for each model server that is tried, one `Telling`:

1. `Surface.accept` gives the chat request. Where `Asked.recall` names keys, the session store is asked for them and the
   request is accepted again with what it holds, until nothing is missing.
2. What comes back is chat, read and mended as for every client. Streamed, it goes through `begin`, `feed` and `finish`
   of a `Telling` in pieces cut anywhere; whole, through `whole`. `keep_alive` is what a silent stream says.
3. When the answer is complete, `remember` names what the session store shall keep.

Nothing here raises anything but `GatewayError`, and only `accept` and `whole` raise at all: a stream tells its faults.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from gateway.core.errors import GatewayError
from gateway.core.ports import Memory
from gateway.wire.calm import Calm
from gateway.wire.chat_request import ChatRequest

__all__ = ["Asked", "Carrier", "LateSystem", "Server", "Situation", "Surface", "Telling"]

LateSystem = Literal["user", "inline", "first"]
"""Where system text goes that comes behind the first message: into a user's message, where it stood, to the front."""


class Server(Struct, frozen=True, kw_only=True):
    """What a surface may know of the model server that a request goes to, by its settings and its model's rule."""

    knows_messages: bool = False
    """What only clients of Messages say means something to it."""
    late_system: LateSystem = "user"
    max_output_tokens: int | None = None
    """More than this is never asked for."""
    keeps_cache_control: bool = False
    """Marks for a prompt cache are sent on."""
    history_reasoning: Literal["turn", "keep", "drop"] = "turn"
    """Which reasoning of earlier answers goes back: since the last user's text, all, none."""
    takes_effort: bool | None = None
    """Whether a reasoning effort is sent on; None: what the model's name says."""
    takes_verbosity: bool = False
    thinking: Literal["drop", "chat_template_kwargs"] = "drop"
    """How a wish to think, or not to, is told."""

    @property
    def history_terms(self) -> tuple[bool, LateSystem, bool, Literal["turn", "keep", "drop"]]:
        """What of this the history is told by."""
        return self.knows_messages, self.late_system, self.keeps_cache_control, self.history_reasoning


def _unknown(model: str) -> Server:
    del model
    return Server()


class Situation(Struct, frozen=True, kw_only=True):
    """What a surface needs from outside: the time, ids, whose request it is, and where it goes."""

    now: float
    """Seconds since the epoch."""
    request_id: str
    unique: str
    """24 letters and digits that no other answer has, for ids of its own."""
    secret: bytes
    """What is handed out and taken back is sealed with this."""
    scope: str
    """Whose request it is, as a hash of the credential: no client reads another's."""
    server: Callable[[str], Server] = _unknown
    """What is known of the server that answers for a model; raises `UnknownModel`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The client's own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings that one surface alone goes by, by their names."""

    def __repr__(self) -> str:
        return f"<{self.request_id}>"  # what clients show who they are with stands in here, and the secret


class Telling(Protocol):
    """One answer on its way to the client."""

    @property
    def is_identity(self) -> bool:
        """Whatever it is fed it gives back: a caller in a hurry need not ask."""
        ...

    @property
    def answer_id(self) -> str | None:
        """The id that the client gets to see, where it is not the chat answer's own."""
        ...

    @property
    def dropped(self) -> Mapping[str, int]:
        """What the answer held that the client is not told, each by one word of a fixed list."""
        ...

    @property
    def mended(self) -> Mapping[str, int]:
        """What was put right as it was told, likewise."""
        ...

    def begin(self, input_tokens: int | None = None) -> bytes:
        """What can be said once the model server has accepted; with an estimate of what the request takes."""
        ...

    def feed(self, data: bytes) -> bytes:
        """The client's bytes, as far as these bytes of the chat stream make them known."""
        ...

    def finish(self) -> bytes:
        """The rest, when no more of the chat stream will come; an end that is too early is told as a fault."""
        ...

    def whole(self, body: bytes) -> bytes:
        """The client's answer for a whole chat answer; raises `UpstreamBadReply` for what is none."""
        ...

    @property
    def overhears(self) -> bool:
        """What it says in an answer that goes on in its server's own words depends on those."""
        ...

    def overhear(self, data: bytes) -> None:
        """These bytes of an answer in its server's own words go to the client: what is said in it goes by them."""
        ...

    def keep_alive(self) -> bytes:
        """What a client that waits is told between two events; empty where nothing can be said now."""
        ...

    def remember(self) -> tuple[Memory, ...]:
        """What to keep, once, after a complete answer; it is asked for before the last events are sent."""
        ...


class Asked(Struct, frozen=True, kw_only=True):
    """A request as the rest of the gateway sees it, and how its answer is told."""

    request: ChatRequest
    tell: Callable[[], Telling]
    """A new telling of an answer."""
    refusal: GatewayError | None = None
    """Why it cannot be had in chat, though perhaps as it is: raised where it comes to that."""
    is_bound: bool = False
    """It goes on from what this gateway alone can read, so no server would understand it as it came."""
    recall: tuple[str, ...] = ()
    """Keys that the session store must be asked for before this can be accepted."""
    conversation: str | None = None
    """What the client itself names its conversation by."""
    dropped: tuple[str, ...] = ()
    """What was left out of the request, each by one word of a fixed list, in its order, as often as it happened."""
    mended: tuple[str, ...] = ()
    """What was put right in it, likewise."""
    left_out: tuple[str, ...] = ()
    """Tools that the model is not shown, by the names that the client gave them: it is told so."""
    carry: "Callable[[], Carrier] | None" = None
    """What answers of servers that speak its own wire are read through; None where they are not."""


class Carrier(Protocol):
    """Brings answers of a wire through chat and back: each event becomes a chunk, and stays itself where that does."""

    @property
    def answer_id(self) -> str | None: ...

    @property
    def is_still(self) -> bool: ...

    def unheard(self) -> bytes: ...

    @property
    def head(self) -> bytes: ...

    def passes(
        self, data: bytes, hear: Callable[[bytes], bytes | None], word: Callable[[bytes], bool] | None
    ) -> bytes | None: ...

    def calm(self, chat: Calm | None) -> Calm | None: ...

    def overlook(self, texts: list[bytes], last: bytes) -> None: ...

    def wrap(self, data: bytes) -> bytes: ...

    def wrap_rest(self) -> bytes: ...

    def unwrap(self, chat: bytes) -> bytes: ...

    def whole(self, raw: bytes, chat: bytes) -> bytes:
        """A whole answer with what was made of it in chat."""
        ...


class Surface(Protocol):
    """A wire that clients speak."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str:
        """Where servers that speak it take such requests, below their address."""
        ...

    @property
    def is_identity(self) -> bool:
        """Requests and answers are chat as it is: no situation is looked at."""
        ...

    def accept(self, raw: bytes, situation: Situation, known: Mapping[str, bytes]) -> Asked:
        """The chat request that a body is; `known` is what the session store holds of `Asked.recall`."""
        ...

    def error(self, error: GatewayError, *, status: int, request_id: str) -> tuple[int, bytes]:
        """The status and body of an answer that is an error; `status` is what a chat client would get."""
        ...

    def head(self, request_id: str) -> Mapping[str, str]:
        """Headers that every answer on this wire has."""
        ...
