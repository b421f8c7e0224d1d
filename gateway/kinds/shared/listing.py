"""Lists of models of other wires in OpenAI's form."""

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.core.errors import UpstreamBadReply
from gateway.kinds.shared.decoding import read_json

__all__ = ["listing"]


def listing(body: bytes, field: str, read: Callable[[dict[str, Any]], tuple[str, str]]) -> bytes:
    """The list; `read` gives the id and the owner of an entry, and an empty id for what is to be left out."""
    value = read_json(body)
    entries = value.get(field) if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise UpstreamBadReply("the model server's list of models is no list")
    models = []
    for entry in entries:
        if isinstance(entry, dict):
            model_id, owner = read(entry)
            if model_id:
                models.append({"id": model_id, "object": "model", "created": 0, "owned_by": owner})
    return msgspec.json.encode({"object": "list", "data": models})
