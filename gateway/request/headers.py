"""Which headers cross the gateway, in both directions, and in what shape."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from multidict import CIMultiDict, CIMultiDictProxy

from gateway.core.client import Client
from gateway.request.unguessed import Unguessed

__all__ = [
    "CLIENT_WIRE",
    "CREDENTIALS",
    "NOT_UPSTREAM",
    "add_told",
    "bearer_token",
    "client_of",
    "headers_of",
    "lines_of",
    "may_pass",
    "named_by_connection",
    "new_id",
    "request_headers",
    "request_id",
    "response_headers",
    "trace_id",
    "without_client_wire",
]

Headers = CIMultiDict[str] | CIMultiDictProxy[str]

# https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Of OpenAI, Anthropic, Azure and Gemini.
CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
BETWEEN_PAGE_AND_GATEWAY = frozenset(
    {
        "access-control-request-headers",
        "access-control-request-method",
        "access-control-request-private-network",
        "origin",
        "sec-fetch-dest",
        "sec-fetch-mode",
        "sec-fetch-site",
        "sec-fetch-user",
    }
)
"""A model server is asked by the gateway, not by the page: some refuse origins that they do not know
(https://github.com/ollama/ollama/blob/main/docs/faq.md, OLLAMA_ORIGINS)."""
NOT_UPSTREAM = (
    HOP_BY_HOP
    | CREDENTIALS
    | BETWEEN_PAGE_AND_GATEWAY
    | {
        # What is compressed could not be read, and what is read could not be compressed as the client wants.
        "accept-encoding",
        "content-encoding",
        "content-length",
        "cookie",
        # It was answered here: https://www.rfc-editor.org/rfc/rfc9110#section-10.1.1
        "expect",
        "forwarded",
        "host",
        # The client's address is none of the model server's business.
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-real-ip",
        "x-request-id",
    }
)
NOT_CLIENT = HOP_BY_HOP | {
    # Who may read an answer is for the gateway to say: many servers let everybody.
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-allow-private-network",
    "access-control-expose-headers",
    "access-control-max-age",
    # These bind a browser to the host it has asked, which is the gateway and not the model server.
    "alt-svc",
    "cache-control",
    "content-length",
    "date",
    "server",
    "set-cookie",
    "strict-transport-security",
    # The gateway says itself that nginx is not to hold an answer back.
    "x-accel-buffering",
    "x-request-id",
    "x-toolgate-arm",
    "x-toolgate-strategy",
}
CLIENT_WIRE = ("anthropic-", "x-stainless-", "x-codex-", "x-claude-", "session-id", "thread-id")
"""How the names of headers begin that belong to another wire than chat."""
# It goes into logs, headers and file names of those who collect them.
ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
MAX_ID_CHARS = 64
_ID_BYTES = 12
HEX = frozenset("0123456789abcdef")


new_id = Unguessed(_ID_BYTES, bytes.hex, prefix="req_")
"""The id of a request that came with none; nobody guesses it."""


def request_id(headers: Headers) -> str:
    """The client's own id when it is a safe one, else a new one."""
    given = headers.get("X-Request-Id", "")
    # A client's own id joins its log with ours; an unsafe one is replaced, not repaired, as two could become one.
    if 0 < len(given) <= MAX_ID_CHARS and ID_CHARACTERS.issuperset(given):
        return given
    return new_id()


def trace_id(headers: Headers) -> str | None:
    """The trace that a well-formed `traceparent` names."""
    # https://www.w3.org/TR/trace-context/#traceparent-header
    parts = headers.get("traceparent", "").split("-")
    # A later version may have more parts, and an id of zeros is none.
    if len(parts) < 4 or len(parts[1]) != 32 or not HEX.issuperset(parts[1]) or not parts[1].strip("0"):
        return None
    return parts[1]


def client_of(headers: Headers) -> Client:
    """What the client calls itself."""
    return Client(user_agent=headers.get("User-Agent", ""), title=headers.get("X-Title", ""))


def bearer_token(headers: Headers) -> str | None:
    """The token of `Authorization: Bearer`, if there is one."""
    # Schemes have no case: https://www.rfc-editor.org/rfc/rfc9110#section-11.1
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def request_headers(
    client: Headers, *, id: str, credentials: Iterable[tuple[str, str]], forward_credentials: bool
) -> CIMultiDict[str]:
    """What goes upstream: the client's end-to-end headers, without what is the gateway's own business."""
    dropped = NOT_UPSTREAM | named_by_connection(client["Connection"]) if "Connection" in client else NOT_UPSTREAM
    # Only where the operator has said that keys are the clients' own.
    if forward_credentials:
        dropped -= CREDENTIALS
    sent: CIMultiDict[str] = CIMultiDict()
    for name, value in client.items():
        if name.lower() not in dropped and value.isprintable() and name.isascii():
            sent.add(name, value)
    sent["X-Request-Id"] = id
    sent.update(credentials)
    return sent


def response_headers(
    upstream: Headers, *, also_dropped: frozenset[str] = frozenset(), behind: CIMultiDict[str] | None = None
) -> CIMultiDict[str]:
    """What comes back to the client: the upstream's end-to-end headers with values that can be sent, `behind` others
    if there are some."""
    dropped = _dropped_with(also_dropped)
    if "Connection" in upstream:
        dropped |= named_by_connection(upstream["Connection"])
    passed: CIMultiDict[str] = CIMultiDict() if behind is None else behind
    # A value with control characters or undecodable bytes would fail, or split the message, when it is written.
    for name, value in upstream.items():
        if name.lower() not in dropped and value.isprintable() and name.isascii():
            passed.add(name, value)
    return passed


@lru_cache(maxsize=8)
def _dropped_with(others: frozenset[str]) -> frozenset[str]:
    return NOT_CLIENT | others


def without_client_wire(headers: Headers) -> CIMultiDict[str]:
    """The same without what the client says of its own wire, which the model server speaks not."""
    kept = ((name, value) for name, value in headers.items() if not name.lower().startswith(CLIENT_WIRE))
    return CIMultiDict(kept)


def add_told(headers: CIMultiDict[str], told: Mapping[str, str]) -> None:
    """Add what an answer says to a browser; `Vary` beside what the model server's own says."""
    for name, value in told.items():
        # Two rows of it count as one, and a cache has to heed both.
        if name == "Vary":
            headers.add(name, value)
        else:
            headers[name] = value


def lines_of(headers: Iterable[tuple[str, str]]) -> bytes:
    """The lines of a head that these are; raises `ValueError` for one that would end its line."""
    lines = "".join(map("%s: %s\r\n".__mod__, headers := list(headers)))
    # Header values come from clients: https://cwe.mitre.org/data/definitions/93.html
    # Each has one end: counted, as any other would be a stranger's.
    if lines.count("\r") != len(headers) or lines.count("\n") != len(headers) or "\0" in lines:
        raise ValueError("a header that would split the request")
    return lines.encode()


def headers_of(lines: bytes) -> CIMultiDict[str]:
    """The headers that are told in these lines."""
    pairs = (line.partition(": ") for line in lines.decode().split("\r\n")[:-1])
    return CIMultiDict((name, value) for name, _, value in pairs)


def may_pass(name: str, value: str) -> bool:
    """A value with control characters or undecodable bytes would fail, or split the message, when it is written."""
    return value.isprintable() and name.isascii()


def named_by_connection(value: str) -> frozenset[str]:
    """What a client or server names in `Connection`, and means for the next hop alone."""
    # https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
    return frozenset(word.strip().lower() for word in value.split(","))
