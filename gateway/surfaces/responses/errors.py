"""Faults in the words of the Responses API, before an answer and in the middle of one.

Codex goes by the codes: with some it asks again, with one it shortens the conversation, and how long to wait it reads
in the message (https://github.com/openai/codex/blob/main/codex-rs/codex-api/src/sse/responses.rs).
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.core.errors import GatewayError, Overloaded, UpstreamRejected
from gateway.surfaces.too_long import overflow_in

__all__ = ["error_of", "told_fault"]

_OVERLOADED = "server_is_overloaded"
_TOO_LONG = "context_length_exceeded"
_KEPT = frozenset({_TOO_LONG, "insufficient_quota", "rate_limit_exceeded", _OVERLOADED, "invalid_prompt"})
_BY_CODE = {
    "overloaded": _OVERLOADED,
    "overloaded_error": _OVERLOADED,
    "no_capacity": _OVERLOADED,
    "breaker_open": _OVERLOADED,
    "draining": _OVERLOADED,
    "rate_limit_error": "rate_limit_exceeded",
    "rate_limited": "rate_limit_exceeded",
    "invalid_request_error": "invalid_prompt",
    "invalid_request": "invalid_prompt",
}
_WAIT = re.compile(r"try again in\s*[0-9.]+\s*(?:m?s|seconds?)", re.IGNORECASE)
_WAIT_S = 5
"""How long to wait where the server does not say: without a number Codex goes by a backoff of fractions of a second."""
_MAX_MESSAGE = 4096


def told_fault(error: Mapping[str, Any], *, retry_after_s: float | None = None) -> dict[str, str]:
    """What `response.failed` says of an error in chat's form."""
    message = error.get("message")
    message = message[:_MAX_MESSAGE] if isinstance(message, str) and message else "the model server has failed"
    named = [value for name in ("code", "type") if isinstance(value := error.get(name), str)]
    code = next((_BY_CODE.get(name, name) for name in named if name in _KEPT or name in _BY_CODE), "server_error")
    if code in ("server_error", "invalid_prompt") and overflow_in(msgspec.json.encode({"error": {"message": message}})):
        code = _TOO_LONG
    if code == "rate_limit_exceeded" and not _WAIT.search(message):
        wait_s = _WAIT_S if retry_after_s is None else math.ceil(retry_after_s)
        # Codex looks for these words.
        message = f"{message} Please try again in {wait_s}s."
    return {"code": code, "message": message}


def error_of(error: GatewayError, *, status: int) -> tuple[int, bytes]:
    """The status and the body of an answer that is an error."""
    if isinstance(error, UpstreamRejected) and error.payload is not None:
        return _rejected(error.payload, status)
    body = error.body()
    if isinstance(error, Overloaded) or (isinstance(error, UpstreamRejected) and error.upstream_status in (503, 529)):
        body["error"]["code"] = _OVERLOADED
    return status, msgspec.json.encode(body)


def _rejected(payload: bytes, status: int) -> tuple[int, bytes]:
    """The server's own words, with the code that clients know a request by that is too long."""
    overflow = overflow_in(payload) if 400 <= status < 500 and status not in (401, 403, 429) else None
    if overflow is None:
        return status, payload
    told = {"message": overflow.words, "type": "invalid_request_error", "param": "input", "code": _TOO_LONG}
    return 400, msgspec.json.encode({"error": told})
