"""Cases read again as the gateway would read them today, with the settings in force, and as lines of a file."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from attrs import define, frozen
from msgspec.structs import replace

from gateway.config.load import Settings
from gateway.core.client import Client
from gateway.core.errors import GatewayError
from gateway.core.records import RequestRecord
from gateway.core.sentences import why
from gateway.core.tools import ToolSet
from gateway.kinds.rows import DEFAULT_KIND
from gateway.report.cases import Call, Case, case_of, fixture, is_confirmed, is_doubted, masked
from gateway.report.facts.candidates import Labels
from gateway.rereading.reading import Reading, pieces, read, read_with
from gateway.telemetry.redaction import Redactor
from gateway.wire.chat_request import parse_request
from strategies.base import Prepared
from strategies.clients import recognise
from strategies.factory import Capability, ClientStyle, ToolExecutionFactory, load_strategies

__all__ = ["Exporter", "Reread", "Rereader"]

_SCHEMA_VERSION = 1
_ASKED = ("messages", "tools", "tool_choice", "parallel_tool_calls")
_UNTOUCHED = frozenset({"control", "dry_run"})


@frozen(kw_only=True)
class Reread:
    """A case and how it is read today; `fault` says why it could not be."""

    case: Case
    calls: tuple[Call, ...] = ()
    text: str = ""
    reasons: tuple[str, ...] = ()
    fault: str = ""
    is_same: bool = True


@frozen
class Rereader:
    """Reads cases as the gateway would with these settings."""

    _settings: Settings
    _factory: ToolExecutionFactory
    _strategies: Mapping[str, Any]
    _redactor: Redactor

    @classmethod
    def of(cls, settings: Settings) -> "Rereader":
        strategies = load_strategies().strategies
        factory = ToolExecutionFactory(strategies, rules=settings.all_rules(), auto_detect=settings.auto_detect)
        return cls(settings, factory, strategies, Redactor(settings.secrets()))

    def mask(self, text: str) -> str:
        """The text without credentials, as records hold it."""
        return self._redactor.mask(text)

    def read(self, case: Case) -> Reread:
        """The answer, in the light of the request that it answers."""
        try:
            prepared = self._prepared(case)
        except GatewayError as error:
            return Reread(case=case, fault=f"the request is refused today: {error.message}")
        # Nobody reads such an answer today, so all of it is text.
        if prepared.make_reader is None:
            return self._compared(case, (), case.answer, ())
        reading = read_with(
            prepared.make_reader(),
            # In one piece, as records hold the answer and not its cuts: what is read does not depend on them.
            pieces(case.answer, 1),
            finish=case.finish,
            min_confidence=self._settings.min_confidence,
        )
        calls = _calls(reading)
        return self._compared(case, calls[:1] if prepared.shape.first_only else calls, reading.text, _reasons(reading))

    def plain(self, case: Case, tools: ToolSet) -> Reread:
        """An answer of which nothing else is known."""
        options = self._settings.strategy_options()
        reading = read(
            pieces(case.answer, 1), tools=tools, options=options, model=case.model, prompted=None, finish=case.finish
        )
        return self._compared(case, _calls(reading), reading.text, _reasons(reading))

    def _prepared(self, case: Case) -> Prepared:
        """By the strategy that it had then, where there is one: what was learned of a model is not kept for ever."""
        body = {"model": case.model, "messages": [{"role": "user", "content": ""}], **case.request}
        request = parse_request(msgspec.json.encode(body))
        reads_tags = self._factory.auto_detect and recognise(request, Client()) is not None
        style: ClientStyle = "xml_text" if reads_tags else "native"
        selection = self._factory.decide(DEFAULT_KIND, case.model, style, request, Capability())
        then = self._strategies.get(case.strategy)
        # Its dialect is not known any more: the strategy reads all that it knows.
        if then is not None and case.strategy != selection.strategy.name:
            selection = replace(selection, strategy=then, dialect=None)
        # The model was never shown the prompt, so its answer is read as one into which calls have leaked.
        if case.arm in _UNTOUCHED:
            selection = self._factory.unprompted(selection)
        return selection.strategy.prepare(request, self._settings.strategy_options(selection.dialect))

    def _compared(self, case: Case, calls: tuple[Call, ...], text: str, reasons: tuple[str, ...]) -> Reread:
        is_same = case.expected is None or self._told(calls) == self._told(case.expected)
        return Reread(case=case, calls=calls, text=text, reasons=reasons, is_same=is_same)

    def _told(self, calls: Iterable[Call]) -> list[Any]:
        """Calls as they compare: what a record says has lost its secrets."""
        return [masked([call.name, call.arguments], self.mask) for call in calls]


def _calls(reading: Reading) -> tuple[Call, ...]:
    return tuple(Call(call.verdict.name, _decoded(call.arguments)) for call in reading.calls)


def _reasons(reading: Reading) -> tuple[str, ...]:
    return tuple(
        f"{each.verdict.name or 'no tool'}: {why(each.verdict, reading.finish).sentence}" for each in reading.rejected
    )


def _decoded(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments


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
            # Counted apart, as a setting brings them and no doubt of ours keeps them out.
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
        # Examples to learn from have to be right; one that is doubtful teaches the fault.
        if not case.expected or not record.healthy or record.end != "completed" or not is_confirmed(record, labels):
            return None
        return self._pair(record, case)

    def _pair(self, record: RequestRecord, case: Case) -> dict[str, Any]:
        calls = [
            {
                # Numbered anew: the ids of the answer were random, and would be learned.
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
                "surface": record.surface,
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
