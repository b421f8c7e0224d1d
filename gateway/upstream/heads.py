"""The head of a request to a model server as bytes: a line is made once for each header that clients send again.

Of what a client sends hardly anything changes from one request to the next. Whatever could end a line is found where a
line is made: https://cwe.mitre.org/data/definitions/93.html
"""

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from gateway.request.headers import CLIENT_WIRE, CREDENTIALS, NOT_UPSTREAM, lines_of, may_pass, named_by_connection
from gateway.request.state import RequestState

__all__ = ["chat_head", "same_wire_head"]

MOST_KNOWN = 1024
LARGEST_KNOWN = 256
"""Bytes of a header that is remembered."""
_UNKNOWN = frozenset({"traceparent", "tracestate", "idempotency-key", "x-client-request-id"}) | CREDENTIALS
"""Of which the next request has another value, and those that are nobody's to keep."""
_NO_NAMES: frozenset[str] = frozenset()
_OWN = frozenset({"accept", "content-type"})
_ASKS = (
    b"Content-Type: application/json\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n",
    # Compressed streams come in blocks: nothing is saved on one machine, and every event waits for its block.
    b"Content-Type: application/json\r\nAccept: text/event-stream\r\nAccept-Encoding: identity\r\n",
)

_AS_CAME = b"Content-Type: application/json\r\nAccept-Encoding: identity\r\n"
_VERSION = "anthropic-version"

Raw = Sequence[tuple[bytes, bytes]]


@define
class _Passing:
    """What becomes of clients' headers, for one way in which their requests go up."""

    dropped: frozenset[str]
    prefixes: tuple[str, ...]
    known: dict[tuple[bytes, bytes], bytes] = field(factory=dict)
    """Of a header the line that goes up; empty where none does."""

    def learn(self, raw: Raw, lines: list[Any]) -> None:
        """Fill in the lines that are not known."""
        named: frozenset[str] = frozenset()
        for at, line in enumerate(lines):
            if line is None:
                name, value = raw[at]
                word = name.decode("utf-8", "surrogateescape").lower()
                if word == "connection":
                    named |= named_by_connection(value.decode("utf-8", "surrogateescape"))
                lines[at] = self._line(word, name, value)
        if not named <= self.dropped:
            words = (name.decode("utf-8", "surrogateescape").lower() for name, _ in raw)
            lines[:] = [b"" if word in named else line for word, line in zip(words, lines, strict=True)]

    def _line(self, word: str, name: bytes, value: bytes) -> bytes:
        text = value.decode("utf-8", "surrogateescape")
        goes = word not in self.dropped and not word.startswith(self.prefixes) and may_pass(word, text)
        line = b"%b: %b\r\n" % (name, value) if goes else b""
        if word in _UNKNOWN or len(name) + len(value) > LARGEST_KNOWN:
            return line
        # What it names has to go from each request: it is not known.
        if word == "connection" and not named_by_connection(text) <= self.dropped:
            return line
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        self.known[name, value] = line
        return line


_passing: dict[tuple[bool, bool, frozenset[str]], _Passing] = {}
_passing_as_came: dict[frozenset[str], _Passing] = {}


def chat_head(state: RequestState, *, stream: bool) -> bytes:
    """The lines of a chat request that goes upstream for this client."""
    upstream, is_chat = state.upstream, state.surface.is_identity
    forwards, proof, names = upstream.forwards_credentials, upstream.own_lines, upstream.own_names
    if forwards and (upstream.row.is_translated or not is_chat):
        # Another kind of server wants the client's own key under another name.
        forwards = False
        own = upstream.kind.credentials(state.bearer if is_chat else state.credential, upstream.cookies)
        proof, names = (lines_of(own), frozenset(name.lower() for name, _ in own)) if own else (b"", _NO_NAMES)
    passing = _passing.get((forwards, is_chat, names))
    if passing is None:
        dropped = (NOT_UPSTREAM - CREDENTIALS if forwards else NOT_UPSTREAM) | _OWN | names
        passing = _passing[forwards, is_chat, names] = _Passing(dropped, () if is_chat else CLIENT_WIRE)
    return _head(state, passing, proof, _ASKS[stream])


def same_wire_head(state: RequestState) -> bytes:
    """The lines of a request that goes upstream as this client has sent it, in a wire that is not chat."""
    upstream = state.upstream
    proof, names = upstream.own_lines, upstream.own_names
    if upstream.forwards_credentials or (_VERSION in names and _VERSION in state.http.headers):
        key = state.credential if upstream.forwards_credentials else upstream.api_key
        pairs = upstream.kind.credentials(key, upstream.cookies)
        # The client's own version counts, where it names one.
        own = [pair for pair in pairs if pair[0].lower() != _VERSION or _VERSION not in state.http.headers]
        proof, names = lines_of(own), frozenset(name.lower() for name, _ in own)
    passing = _passing_as_came.get(names)
    if passing is None:
        passing = _passing_as_came[names] = _Passing(NOT_UPSTREAM | {"content-type"} | names, ())
    return _head(state, passing, proof, _AS_CAME)


def _head(state: RequestState, passing: _Passing, proof: bytes, asks: bytes) -> bytes:
    raw = state.http.raw_headers
    lines: list[Any] = list(map(passing.known.get, raw))
    if None in lines:
        passing.learn(raw, lines)
    return b"%bX-Request-Id: %b\r\n%b%b" % (b"".join(lines), state.id.encode(), proof, asks)
