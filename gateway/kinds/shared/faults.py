"""Errors of other wires in OpenAI's form: agents read the codes, so what they know keeps its code."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from attrs import frozen

from gateway.core.errors import UpstreamError, UpstreamRejected
from gateway.kinds.shared.decoding import read_json
from gateway.kinds.shared.port import Reply

__all__ = [
    "Fault",
    "fault_of_status",
    "is_too_long",
    "refused",
    "reply_of",
    "unreadable",
    "waiting_time",
]

# In the words of Anthropic, OpenAI's kin and Gemini; agents shorten their conversation by the code for it.
_TOO_LONG = re.compile(
    r"prompt is too long|exceeds? the maximum number of (?:input )?tokens|context (?:length|window|limit)"
    r"|input token count .{0,40} exceeds",
    re.IGNORECASE,
)
_MESSAGE_CHARS = 4096
_BY_STATUS = {
    400: ("invalid_request_error", "invalid_request"),
    401: ("authentication_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("permission_error", "permission_denied"),
    404: ("invalid_request_error", "not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("server_error", "overloaded"),
    504: ("server_error", "upstream_timeout"),
    529: ("server_error", "overloaded"),
}


@frozen(kw_only=True)
class Fault:
    """A fault that a server told."""

    status: int
    message: str
    type: str
    code: str
    retry_after_s: float | None = None

    def body(self) -> dict[str, Any]:
        """The error body."""
        return {"error": {"message": self.message, "type": self.type, "param": None, "code": self.code}}

    def reply(self) -> Reply:
        return Reply(status=self.status, body=msgspec.json.encode(self.body()), retry_after_s=self.retry_after_s)

    def error(self) -> UpstreamRejected:
        """The fault, for a stream that has begun."""
        return _Told(self)


class _Told(UpstreamRejected):
    """A fault within a stream: its own words go on."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message, status=fault.status, retry_after_s=fault.retry_after_s)
        self._fault = fault

    def body(self) -> dict[str, Any]:
        return self._fault.body()


def is_too_long(message: str) -> bool:
    """Whether a message says that the conversation does not fit the model."""
    return _TOO_LONG.search(message[:_MESSAGE_CHARS]) is not None


def fault_of_status(status: int, message: str = "") -> Fault:
    """The fault that a status alone tells."""
    kind, code = _BY_STATUS.get(status, ("server_error", "server_error") if status >= 500 else _BY_STATUS[400])
    # Agents compact their conversation by this code and give up at any other 400.
    if status in (400, 413) and is_too_long(message):
        code = "context_length_exceeded"
    message = message or f"the model server answered with status {status}"
    return Fault(status=status, message=message, type=kind, code=code)


def waiting_time(headers: Mapping[str, str], now: float) -> float | None:
    """How long `Retry-After` says to wait, in seconds or as a date."""
    # https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
    told = headers.get("Retry-After", "").strip()
    if told.isascii() and told.isdigit():
        return float(told[:9])
    try:
        moment = parsedate_to_datetime(told)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def refused(status: int, body: bytes, read: Callable[[Mapping[str, Any], int], Fault | None]) -> Reply:
    """The reply for an answer other than 2xx; `read` knows the server's own form of it."""
    value = read_json(body)
    # Google wraps its error in a list: https://github.com/vybestack/llxprt-code/issues/194
    value = value[0] if isinstance(value, list) and value else value
    # A redirect is not followed, as the key would go along, and is no answer either.
    status = status if status >= 400 else 502  # whatever else it says, it is no answer
    fault = read(value, status) if isinstance(value, dict) else None
    return (fault or fault_of_status(status)).reply()


def reply_of(error: UpstreamError) -> Reply:
    """The reply for a fault of ours with what a server sent."""
    return Reply(status=error.status, body=msgspec.json.encode(error.body()))


def unreadable(error: UpstreamError, body: bytes, read: Callable[[Mapping[str, Any], int], Fault | None]) -> Reply:
    """The reply for an answer of 2xx that is none: the error that it tells after all, else the fault itself."""
    value = read_json(body)
    fault = read(value, 500) if isinstance(value, dict) else None
    return fault.reply() if fault is not None else reply_of(error)
