"""Many servers behind one address: each conversation has one of its own, told by a header that goes all the way."""

from collections.abc import Mapping

from attrs import define

from tests.support.wire_server import Answered, WireServer, wire_error

__all__ = ["HEADER", "ManyServers"]

HEADER = "X-Conversation"


@define
class ManyServers:
    """Hands each request to the server of its conversation."""

    servers: Mapping[str, WireServer]

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        server = self.servers.get(headers.get(HEADER.lower(), ""))
        if server is None:
            return wire_error(404, {"error": {"message": "no such conversation"}})
        return server.respond(method, target, headers, body)
