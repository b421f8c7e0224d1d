"""The table of surfaces: under which path a client of each wire asks, and what it is counted as.

A new surface is a room with a `Surface`, and a row here.
"""

from collections.abc import Mapping

from gateway.surfaces.chat import CHAT
from gateway.surfaces.messages.surface import MESSAGES
from gateway.surfaces.port import Surface

__all__ = ["SURFACES"]

SURFACES: Mapping[str, Surface] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
}
"""By the paths to which requests for an answer are posted."""
