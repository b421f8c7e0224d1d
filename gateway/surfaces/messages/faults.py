"""Errors in Anthropic's words, whose types its clients go by."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.core.errors import GatewayError, Overloaded, ThreadUnsupported, UpstreamRejected
from gateway.surfaces.too_long import Overflow, overflow_in, words_of

__all__ = ["OVERLOADED", "error_body", "error_of", "told_error"]

# https://docs.anthropic.com/en/api/errors
_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
# Anthropic's own status: https://docs.anthropic.com/en/api/errors
OVERLOADED = 529
_CODES = {
    "rate_limit_exceeded": "rate_limit_error",
    "insufficient_quota": "billing_error",
    "invalid_api_key": "authentication_error",
    "permission_denied": "permission_error",
    "no_capacity": "overloaded_error",
    "breaker_open": "overloaded_error",
    "draining": "overloaded_error",
    "overloaded": "overloaded_error",
    "request_too_large": "request_too_large",
    "invalid_request": "invalid_request_error",
}
_OWN_TYPES = frozenset({*_BY_STATUS.values(), "api_error"})


def error_of(error: GatewayError, *, status: int, request_id: str) -> tuple[int, bytes]:
    """The status and the body of an error."""
    payload = error.payload if isinstance(error, UpstreamRejected) else None
    if isinstance(error, Overloaded) or (isinstance(error, UpstreamRejected) and error.upstream_status in (503, 529)):
        # A client waits and asks again by itself at this status alone.
        return OVERLOADED, error_body("overloaded_error", _message(error, payload), request_id)
    # By other statuses, too, servers tell a request that it does not fit.
    if status in (400, 413, 422, 500) and (overflow := overflow_in(payload)) is not None:
        return 400, error_body("invalid_request_error", _too_long(overflow), request_id)
    if _is_own(payload) and payload is not None:
        return status, payload
    if isinstance(error, ThreadUnsupported):
        details = {"error_code": error.code, "unsupported": [error.param]}
        return status, error_body("invalid_request_error", error.message, request_id, details)
    kind = _BY_STATUS.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    return status, error_body(kind, _message(error, payload), request_id)


def told_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """The `error` of an event, for one that ends a chat stream."""
    message = error.get("message")
    overflow = overflow_in(msgspec.json.encode({"error": dict(error)}))
    if overflow is not None:
        return {"type": "invalid_request_error", "message": _too_long(overflow)}
    code, kind = error.get("code"), error.get("type")
    told = _CODES.get(code) if isinstance(code, str) else None
    if told is None and isinstance(kind, str) and kind in _OWN_TYPES and kind != "invalid_request_error":
        told = kind
    return {"type": told or "api_error", "message": message if isinstance(message, str) and message else "error"}


def error_body(kind: str, message: str, request_id: str, details: Mapping[str, Any] | None = None) -> bytes:
    """An error body; by its `details` an SDK knows what it can do about it."""
    error = {"type": kind, "message": message, **({} if details is None else {"details": details})}
    return msgspec.json.encode({"type": "error", "error": error, "request_id": request_id})


def _message(error: GatewayError, payload: bytes | None) -> str:
    """The server's own words, where there are any."""
    return words_of(payload)[0] or error.message


def _too_long(overflow: Overflow) -> str:
    """Claude Code reads the two numbers of this sentence, and shortens the conversation."""
    if overflow.needed is None:
        return overflow.words
    # Anthropic's words to the letter.
    told = f"prompt is too long: {overflow.needed} tokens > {overflow.allowed} maximum"
    return told if told in overflow.words else f"{told} ({overflow.words})"


def _is_own(payload: bytes | None) -> bool:
    """Whether an error body is in Anthropic's form already."""
    if payload is None:
        return False
    try:
        body = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("type") == "error" and isinstance(body.get("error"), dict)
