"""One tree of errors: each class carries the status, type and code that a client sees, and says what it means.

Classes without others below them are what a client can see; the page of settings lists them, each with its docstring.
Malformed model output is not among them: that is text, plus a counter.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

__all__ = [
    "BodyTooLarge",
    "BreakerOpen",
    "ClientError",
    "ConfigError",
    "Draining",
    "ForeignOrigin",
    "GatewayError",
    "InternalError",
    "InvalidRequest",
    "InvalidToolResults",
    "ItemNotFound",
    "NoCapacity",
    "NoWebSocket",
    "NotFound",
    "NotJson",
    "Overloaded",
    "PreviousResponseNotFound",
    "RateLimited",
    "ThreadUnsupported",
    "TooManyTools",
    "Unauthenticated",
    "UnknownEncoding",
    "UnknownModel",
    "UnsupportedParameter",
    "UpstreamBadReply",
    "UpstreamDisconnected",
    "UpstreamError",
    "UpstreamRefused",
    "UpstreamRejected",
    "UpstreamTimeout",
    "UpstreamTruncated",
    "WrongHost",
    "leaves",
    "meaning",
]


Cause = Literal["refused", "no_such_host", "tls", "timeout", "disconnected", "not_found"]
"""Why a model server could not answer, as far as the connection tells; for the log, the record and the operator."""


class GatewayError(Exception):
    """What a client may be told: `{"error": {"message", "type", "param", "code"}}` with `status`."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class ClientError(GatewayError):
    """The request is at fault."""

    status = 400
    type = "invalid_request_error"


class InvalidRequest(ClientError):
    """The request is malformed; `param` says where."""

    code = "invalid_request"


class InvalidToolResults(ClientError):
    """Tool results without id, content or call; the message names every one."""

    code = "invalid_tool_results"


class UnsupportedParameter(ClientError):
    """A field that asks for what only the vendor's own server has; `param` names it."""

    code = "unsupported_parameter"


# Clients of Anthropic's SDK send a conversation's first request so by themselves, and go on without a thread at this
# word; left unread, the field would cost all that stands in front of the last message:
# https://github.com/anthropics/anthropic-sdk-python/blob/main/src/anthropic/lib/threads/_thread_state.py
class ThreadUnsupported(ClientError):
    """A `thread` of Messages: only the vendor's own server keeps one, so each request has to hold all messages."""

    code = "thread_unsupported_request"


class PreviousResponseNotFound(ClientError):
    """`previous_response_id` names an answer that was never kept, has been forgotten, or is another client's."""

    code = "previous_response_not_found"


class ItemNotFound(ClientError):
    """An `item_reference` names an item that is not there."""

    code = "item_not_found"


# Codex asks for a web socket first, and takes this status as the word to go on over HTTP:
# https://github.com/openai/codex/pull/10824
class NoWebSocket(ClientError):
    """A web socket is wanted; answers are streamed over HTTP alone."""

    status = 426
    code = "no_websocket"


class UnknownEncoding(ClientError):
    """The body's `Content-Encoding` is none that is read here: gzip and deflate are."""

    status = 415
    code = "unknown_encoding"


class TooManyTools(ClientError):
    """More tools than `TOOL_CALLING_MAX_TOOLS`, for `xml_prompt`."""

    code = "too_many_tools"


class Unauthenticated(ClientError):
    """None of `GATEWAY_API_KEYS`."""

    status = 401
    type = "authentication_error"
    code = "unauthenticated"


class WrongHost(ClientError):
    """Asked, without keys, under a name that it does not know; `GATEWAY_ALLOWED_HOSTS` adds it."""

    # The status for a request that is sent to the wrong server: https://www.rfc-editor.org/rfc/rfc9110#section-15.5.20
    status = 421
    code = "wrong_host"


class ForeignOrigin(ClientError):
    """A page that may not ask; `GATEWAY_ALLOWED_ORIGINS` lets it."""

    status = 403
    type = "permission_error"
    code = "foreign_origin"


class NotJson(ClientError):
    """A page's body that is not declared as JSON."""

    status = 415
    code = "not_json"


class UnknownModel(ClientError):
    """No such model."""

    status = 404
    code = "unknown_model"


class NotFound(ClientError):
    """No such path."""

    status = 404
    code = "not_found"


class BodyTooLarge(ClientError):
    """More than `GATEWAY_MAX_BODY_BYTES`."""

    status = 413
    code = "body_too_large"


class RateLimited(ClientError):
    """The key has used up what it may in a minute, or all of its streams."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limited"

    def __init__(self, message: str, *, retry_after_s: float, headers: Mapping[str, str]) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.headers = headers
        """How the key stands."""


class UpstreamError(GatewayError):
    """The model server is at fault."""

    status = 502
    # Not a type of our own: OpenCode asks again by such words, and ends its work at any it does not know.
    type = "server_error"
    cause: Cause | None = None


class UpstreamRefused(UpstreamError):
    """The model server cannot be reached."""

    code = "upstream_refused"

    def __init__(self, message: str, *, cause: Cause = "refused") -> None:
        super().__init__(message)
        self.cause = cause


class UpstreamBadReply(UpstreamError):
    """The answer is none, or larger than `UPSTREAM_MAX_REPLY_BYTES`."""

    code = "upstream_bad_reply"


class UpstreamDisconnected(UpstreamError):
    """The connection to the model server broke."""

    code = "upstream_disconnected"
    cause = "disconnected"


class UpstreamTruncated(UpstreamError):
    """The answer ended before its end."""

    code = "upstream_truncated"


class UpstreamTimeout(UpstreamError):
    """No connection, no beginning, silence or no end within the `UPSTREAM_*_TIMEOUT_S`."""

    status = 504
    code = "upstream_timeout"
    cause = "timeout"


class UpstreamRejected(UpstreamError):
    """The model server refused with a status that is not passed on."""

    code = "upstream_rejected"

    def __init__(
        self,
        message: str,
        *,
        status: int,
        payload: bytes | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.upstream_status = status
        self.payload = payload
        # An address without its `/v1` is the commonest fault of a configuration.
        self.cause = "not_found" if status == 404 else None


class Overloaded(GatewayError):
    """We are at fault for want of room."""

    # For a while, with a word on when to come back: https://www.rfc-editor.org/rfc/rfc9110#section-15.6.4
    status = 503
    type = "overloaded_error"


class NoCapacity(Overloaded):
    """`GATEWAY_MAX_CONCURRENCY` requests are being answered."""

    code = "no_capacity"


class BreakerOpen(Overloaded):
    """The model server failed again and again and is left alone for a while."""

    code = "breaker_open"

    def __init__(self, message: str, *, retry_after_s: float | None = None, cause: Cause | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.cause = cause
        """Of the last failure."""


class Draining(Overloaded):
    """The gateway is being stopped."""

    code = "draining"


class InternalError(GatewayError):
    """A fault of the gateway's own; the message has only the request id."""


class ConfigError(Exception):
    """Settings that cannot be used; `faults` lists every one of them."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def leaves() -> list[type[GatewayError]]:
    """What a client can see: of the classes that are offered here those that have no others below them."""
    offered = [each for name in __all__ if isinstance(each := globals()[name], type) and issubclass(each, GatewayError)]
    above = {base for each in offered for base in each.__mro__[1:]}
    return [each for each in offered if each not in above]


def meaning(error: type[GatewayError]) -> str:
    """What it says of itself, as a part of a sentence."""
    said = (error.__doc__ or "").partition("\n")[0].removesuffix(".")
    return f"{said[:1].lower()}{said[1:]}"
