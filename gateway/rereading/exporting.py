"""Records as lines of a file: training pairs, or fixtures for `toolgate replay`."""

from typing import Any

import msgspec
from attrs import define

from gateway.core.records import RequestRecord
from gateway.report.cases import Case, case_of, fixture, is_confirmed, is_doubted, masked
from gateway.report.tallies import Labels
from gateway.rereading.rereader import Rereader

__all__ = ["Exporter"]

_SCHEMA_VERSION = 1
_ASKED = ("messages", "tools", "tool_choice", "parallel_tool_calls")


@define
class Exporter:
    """Chooses records and makes lines of them."""

    rereader: Rereader
    kind: str
    written: int = 0
    without_bodies: int = 0
    left_out: int = 0

    def line(self, record: RequestRecord, labels: Labels) -> bytes | None:
        """One line, or nothing for a record that is left out."""
        if not record.calls:
            return None
        case = case_of(record)
        if isinstance(case, str):
            self.without_bodies += 1
            return None
        document = self._document(record, case, labels)
        if document is None:
            self.left_out += 1
            return None
        self.written += 1
        return msgspec.json.encode(document) + b"\n"

    def _document(self, record: RequestRecord, case: Case, labels: Labels) -> dict[str, Any] | None:
        if is_doubted(record, labels):
            return None
        if self.kind == "fixtures":
            return fixture(case, self.rereader.mask)
        if not case.expected or not record.healthy or record.end != "completed" or not is_confirmed(record, labels):
            return None
        return self._pair(record, case)

    def _pair(self, record: RequestRecord, case: Case) -> dict[str, Any]:
        calls = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()},
            }
            for number, call in enumerate(case.expected or ())
        ]
        answer = {"role": "assistant", "content": self._content(case), "tool_calls": calls}
        asked = {name: case.request[name] for name in _ASKED if name in case.request}
        pair: dict[str, Any] = masked(
            {
                "schema_version": _SCHEMA_VERSION,
                "id": record.id,
                "model": record.model,
                **asked,
                "messages": [*asked.get("messages", ()), answer],
            },
            self.rereader.mask,
        )
        return pair

    def _content(self, case: Case) -> str | None:
        """The text beside the calls, where today's reading agrees on what is call and what is text."""
        again = self.rereader.read(case)
        return (again.text.strip() or None) if again.is_same and not again.fault else None

    def summary(self) -> str:
        words = f"{self.written} {self.kind} written, {self.left_out} left out for what speaks against them"
        if self.without_bodies:
            words += f"; {self.without_bodies} records hold no bodies (AUDIT_BODIES=full keeps them)"
        return f"{words}."
