"""A conversation made shorter: the model is asked for a summary, which travels sealed with the client.

One that comes empty or cut is a fault, never an empty seal: the client would go on without its past.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.surfaces.responses.frames import quoted
from gateway.surfaces.responses.items import COMPACTION
from gateway.surfaces.responses.telling import INCOMPLETE, ResponsesTelling, Terms
from gateway.surfaces.seals import Seals

__all__ = ["INSTRUCTION", "CompactionTelling"]

INSTRUCTION = """\
The conversation has become too long and goes on from a summary alone. Write that summary now, as text, without calling
any tool. Whoever goes on knows nothing but it, so say: what the user wants, in the user's own words where they matter;
what was decided and why; which files, commands and results count, with exact paths, names and values; what is done,
what was tried and failed, and what is to be done next. Leave out what no longer matters."""


class CompactionTelling(ResponsesTelling):
    """The answer to a request for a summary: one sealed item, and nothing else."""

    def __init__(self, terms: Terms, seals: Seals, *, is_asked_alone: bool = False) -> None:
        super().__init__(terms)
        self._sealing = seals
        self._is_asked_alone = is_asked_alone
        """By a path of its own, where the answer is another object."""
        self._said: list[bytes] = []

    def whole(self, body: bytes) -> bytes:
        final = super().whole(body)
        if not self._is_asked_alone:
            return final
        told = msgspec.json.decode(final, type=dict[str, msgspec.Raw])
        told = {name: told[name] for name in ("id", "created_at", "output", "usage")}
        return msgspec.json.encode({**told, "object": "response.compaction"})

    def text(self, body: bytes) -> None:
        self._said.append(body)

    def refusal(self, body: bytes) -> None:
        """It is no summary."""

    def reasoning(self, body: bytes) -> None:
        """Nobody is shown it."""

    def plain(self, body: bytes, reason: str, stopped_at: str | None, usage: Mapping[str, Any] | None) -> None:
        self.text(body)
        self.finish_reason(reason, stopped_at)
        if usage is not None:
            self.usage(usage)
        self.end()

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """It was told to call none."""

    def end(self) -> None:
        summary = msgspec.json.decode(quoted(b"".join(self._said)), type=str).strip()
        is_cut = self._reason in INCOMPLETE
        seal = self._sealing.seal({"summary": summary}, purpose=COMPACTION) if summary and not is_cut else None
        if seal is None:
            why = "was cut off" if is_cut else "is too long" if summary else "is empty"
            self.error({"message": f"the summary of the conversation {why}", "code": "server_error"})
            return
        self._tell_item({"id": self._new_id("compaction"), "type": "compaction", "encrypted_content": seal})
        super().end()
