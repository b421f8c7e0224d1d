"""The port of upstream kinds: the rest of the gateway speaks OpenAI chat, a kind speaks its server's own wire.

One request is one `Dialogue`:

1. `Kind.keys` names what the session store may know of the conversation; what it holds goes into `Kind.begin`.
2. `Dialogue.ask` is sent. Where `ask.streams` and the answer is a 2xx event stream, its bytes go through `feed` and
   `finish`, which give an OpenAI stream; any other answer is read whole and given to `answered`, whatever its status.
3. `answered` gives the next `HttpAsk` (a chat had to be made first), or the `Reply` for the client's side.
   After a `feed` or `finish`, `again` may hold an ask too: the answer so far is void, none of it had been given out.
4. When the answer is complete, `remember` names what the session store shall keep.

Paths are relative to the upstream's URL and percent-encoded. No dialogue raises anything but `GatewayError`, and only
`begin` raises at all; what a server sends, however broken, becomes an error body or an error event.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import frozen
from msgspec import Struct

from gateway.core.ports import Memory

__all__ = ["Dialogue", "Headers", "HttpAsk", "Kind", "Reply", "Situation", "json_ask"]

Headers = tuple[tuple[str, str], ...]


@frozen(kw_only=True)
class HttpAsk:
    """One HTTP request to the upstream; the headers that prove who asks come from `Kind.credentials`."""

    method: str = "POST"
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Headers = ()
    body: bytes = b""
    streams: bool = False
    """Its answer, if 2xx, should be an event stream."""


def json_ask(path: str, body: bytes, *, streams: bool) -> HttpAsk:
    """A request in JSON that says in which form it wants its answer."""
    accepted = "text/event-stream" if streams else "application/json"
    headers = (("Content-Type", "application/json"), ("Accept", accepted))
    return HttpAsk(path=path, headers=headers, body=body, streams=streams)


@frozen(kw_only=True)
class Reply:
    """What an answer that was read whole comes to: an OpenAI body, or an OpenAI error body with its status."""

    status: int
    body: bytes
    retry_after_s: float | None = None
    """How long the body itself said to wait."""


class Situation(Struct, frozen=True, kw_only=True):
    """What a kind needs from outside: the time, ids, and whose conversation this is."""

    now: float
    """Seconds since the epoch."""
    make_id: Callable[[str], str]
    """Makes an id for a call that came without one."""
    answer_id: str = "chatcmpl-0"
    """The id of an answer that comes without one."""
    scope: str = ""
    """Whose sessions these are, as a hash: no client reads another's."""
    max_event_bytes: int = 4 << 20


class Dialogue(Protocol):
    """One request to an upstream and its answer, without a socket."""

    @property
    def ask(self) -> HttpAsk:
        """What to send first."""
        ...

    @property
    def again(self) -> HttpAsk | None:
        """What to send instead, when what was fed turned out void; None otherwise."""
        ...

    @property
    def may_be_void(self) -> bool:
        """The first event may yet say that what is fed is void: see `again`."""
        ...

    def answered(self, status: int, headers: Mapping[str, str], body: bytes) -> HttpAsk | Reply:
        """An answer that was read whole: what to send next, or what it comes to."""
        ...

    def feed(self, data: bytes) -> bytes:
        """The OpenAI stream, as far as these bytes of the upstream's stream make it known."""
        ...

    def finish(self) -> bytes:
        """The rest, at the clean end of the upstream's stream; without `[DONE]` when that was too early."""
        ...

    def remember(self, delivered: Mapping[str, Any] | None = None) -> tuple[Memory, ...]:
        """What to keep, after a complete answer; `delivered` is the message that the client got, where it differs."""
        ...


class Kind(Protocol):
    """A kind of upstream."""

    @property
    def name(self) -> str: ...

    def credentials(self, key: str | None, cookies: str | None = None) -> Headers:
        """The headers that prove who asks; they hold secrets."""
        ...

    def keys(self, body: Mapping[str, Any], *, scope: str = "") -> tuple[str, ...]:
        """What to look up in the session store before `begin`."""
        ...

    def begin(
        self,
        body: Mapping[str, Any],
        raw: bytes,
        *,
        situation: Situation,
        known: Mapping[str, bytes],
        original: Mapping[str, Any] | None = None,
    ) -> Dialogue:
        """The dialogue for an OpenAI request, decoded and as it stands; raises `GatewayError` if it cannot be had.

        `original` is the client's own request where `body` is a rendering of it: conversations are told by that one.
        """
        ...

    def can_say(self, parameters: Mapping[str, Any]) -> bool:
        """Whether a server of this kind can be told all of a tool's schema; without tools nothing is lost."""
        ...

    def models_ask(self) -> HttpAsk:
        """Asks for the list of models."""
        ...

    def models(self, body: bytes) -> bytes:
        """The list of models in OpenAI's form; raises `UpstreamBadReply` when it is no list."""
        ...
