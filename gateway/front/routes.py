"""The table of routes under `/v1`: who answers, what it is counted as, and in which wire's words it is refused.

A new wire of clients is a room in `surfaces`, and its rows here.
"""

from attrs import frozen

from gateway.chat.handler import chat
from gateway.chat.tokens import count_tokens
from gateway.front.middleware import Handler
from gateway.pages.feedback import feedback
from gateway.pages.kept import PREFIX as KEPT_PREFIX
from gateway.pages.kept import kept, no_socket
from gateway.pages.models import list_models, one_model
from gateway.pages.relay import relay, relay_messages
from gateway.surfaces.chat import CHAT
from gateway.surfaces.messages.surface import MESSAGES
from gateway.surfaces.port import Surface
from gateway.surfaces.responses.surface import COMPACT, RESPONSES

__all__ = ["ROWS", "Row", "row_of"]


@frozen
class Row:
    """Who answers the requests of a route."""

    handler: Handler
    name: str
    """What metrics and the log call it."""
    surface: Surface = CHAT


ROWS: dict[tuple[str, str], Row] = {
    ("POST", "/v1/chat/completions"): Row(chat, "chat"),
    ("POST", "/v1/messages"): Row(chat, "messages", MESSAGES),
    ("POST", "/v1/messages/count_tokens"): Row(count_tokens, "count_tokens", MESSAGES),
    ("POST", "/v1/responses"): Row(chat, "responses", RESPONSES),
    ("GET", "/v1/responses"): Row(no_socket, "responses", RESPONSES),
    ("POST", "/v1/responses/compact"): Row(chat, "compact", COMPACT),
    ("GET", "/v1/models"): Row(list_models, "models"),
    ("POST", "/v1/feedback"): Row(feedback, "feedback"),
}
_MODEL = Row(one_model, "models")
_KEPT = Row(kept, "responses", RESPONSES)
_MESSAGES_REST = Row(relay_messages, "relay", MESSAGES)
_REST = Row(relay, "relay")


def row_of(method: str, path: str) -> Row:
    """The route of a request whose path begins with `/v1/`; what is none of ours is relayed."""
    row = ROWS.get((method, path))
    if row is not None:
        return row
    if path.startswith(KEPT_PREFIX):
        return _KEPT
    if path.startswith("/v1/messages/"):
        return _MESSAGES_REST
    return _MODEL if method == "GET" and path.startswith("/v1/models/") else _REST
