"""One tree of errors: each class carries the status, type and code that a client sees.

Malformed model output is not in it: that is text, plus a counter.
"""

from typing import Any, ClassVar

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
    "NoCapacity",
    "NotFound",
    "NotJson",
    "Overloaded",
    "TooManyTools",
    "Unauthenticated",
    "UnknownModel",
    "UpstreamBadReply",
    "UpstreamDisconnected",
    "UpstreamError",
    "UpstreamRefused",
    "UpstreamRejected",
    "UpstreamTimeout",
    "UpstreamTruncated",
    "WrongHost",
]


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
    code = "invalid_request"


class InvalidToolResults(ClientError):
    code = "invalid_tool_results"


class TooManyTools(ClientError):
    code = "too_many_tools"


class Unauthenticated(ClientError):
    status = 401
    type = "authentication_error"
    code = "unauthenticated"


class WrongHost(ClientError):
    status = 421
    code = "wrong_host"


class ForeignOrigin(ClientError):
    status = 403
    type = "permission_error"
    code = "foreign_origin"


class NotJson(ClientError):
    status = 415
    code = "not_json"


class UnknownModel(ClientError):
    status = 404
    code = "unknown_model"


class NotFound(ClientError):
    status = 404
    code = "not_found"


class BodyTooLarge(ClientError):
    status = 413
    code = "body_too_large"


class UpstreamError(GatewayError):
    """The model server is at fault."""

    status = 502
    type = "upstream_error"


class UpstreamRefused(UpstreamError):
    code = "upstream_refused"


class UpstreamBadReply(UpstreamError):
    code = "upstream_bad_reply"


class UpstreamDisconnected(UpstreamError):
    code = "upstream_disconnected"


class UpstreamTruncated(UpstreamError):
    code = "upstream_truncated"


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"


class UpstreamRejected(UpstreamError):
    """The model server answered with an error status of its own, which is kept where `reliability` allows it."""

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


class Overloaded(GatewayError):
    """We are at fault for want of room."""

    status = 503
    type = "overloaded_error"


class NoCapacity(Overloaded):
    code = "no_capacity"


class BreakerOpen(Overloaded):
    code = "breaker_open"


class Draining(Overloaded):
    code = "draining"


class InternalError(GatewayError):
    """A fault of ours: fixed text and the request id, never the exception's own words."""


class ConfigError(Exception):
    """Settings that cannot be used; `faults` lists every one of them."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
