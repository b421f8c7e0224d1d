"""What the page can do: the functions that the commands call, with the user of the operating system as who did it."""

import time
from typing import Any

from attrs import define, field

from gateway.config.load import Settings
from gateway.core.ports import Store
from gateway.core.records import RequestRecord
from gateway.inspector.glance import by_dialect
from gateway.inspector.reader import Reader
from gateway.report.cases import case_of, fixture
from gateway.report.words import visible
from gateway.rereading.labelling import keep_label
from gateway.rereading.reading import BadTools, declared_tools, document, pieces, read, remarks, well_known_tools
from gateway.rereading.rereader import Rereader
from gateway.rollout import operating
from gateway.rollout.snapshot import snapshot
from gateway.rollout.stages import Refused
from strategies.base import Options
from strategies.dialects.rows import BY_ID

__all__ = ["Actions", "Impossible"]

_MAX_NOTE = 500
_MAX_TEXT = 4 << 20
_DECISIONS = 10


class Impossible(ValueError):
    """What was asked for cannot be done, in words for who asked; `status` is that of the answer."""

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@define
class Actions:
    """Does what the page asks for; `who` is kept with every label and decision."""

    store: Store
    writer: Store
    settings: Settings
    reader: Reader
    who: str
    _rereader: Rereader | None = field(init=False, default=None)

    async def label(self, given: dict[str, Any]) -> dict[str, Any]:
        """Keep what was said of a candidate, and show the tally of its dialect."""
        request_id, number, verdict = given.get("id"), given.get("number", 0), given.get("verdict")
        # By its exact type: `true` is a whole number to Python.
        if verdict not in ("right", "wrong") or not isinstance(request_id, str) or type(number) is not int:
            raise Impossible('say {"id", "number", "verdict": "right" or "wrong"}')
        found = await self.reader.record(request_id)
        call = next((each for each in found[1].calls if each.number == number), None) if found else None
        if found is None or call is None:
            raise Impossible("there is no such candidate", status=404, code="not_found")
        # A report may print it to a terminal.
        note = visible(str(given.get("note") or ""))[:_MAX_NOTE]
        await keep_label(
            self.writer,
            at=time.time(),
            request_id=request_id,
            number=number,
            is_right=verdict == "right",
            by=self.who,
            note=note,
        )
        self.reader.forget_labels()
        return {"dialect": call.dialect, **await self._tally(call.dialect)}

    async def _tally(self, dialect: str) -> dict[str, int]:
        """What people said of this dialect so far, as far as the latest requests tell which was which."""
        labels = await self.reader.labels()
        right = wrong = 0
        for written in await self.store.latest(
            RequestRecord, "", 2000, (f'"dialect":"{dialect}"',), by_dialect(dialect)
        ):
            for call in written.record.calls:
                said = labels.get(written.record.id, {}).get(call.number) if call.dialect == dialect else None
                right += said is True
                wrong += said is False
        return {"right": right, "wrong": wrong}

    async def fixture(self, request_id: str) -> dict[str, Any]:
        """One line for `toolgate replay`, without secrets."""
        found = await self.reader.record(request_id)
        if found is None:
            raise Impossible("there is no such request", status=404, code="not_found")
        case = case_of(found[1])
        if isinstance(case, str):
            words = {
                "no_text": "its text was not kept: AUDIT_BODIES=full keeps it",
                "no_request": "its request was not kept whole: AUDIT_BODIES=full keeps it",
                "other_calls": "it has native calls, or calls of a second answer, which text alone cannot tell",
            }
            raise Impossible(f"no fixture can be made of it: {words[case]}", status=409, code="not_kept")
        if self._rereader is None:
            self._rereader = Rereader.of(self.settings)
        return fixture(case, self._rereader.mask)

    async def request(self, request_id: str) -> dict[str, Any]:
        """The request as it came, as far as it was kept."""
        found = await self.reader.record(request_id)
        if found is None:
            raise Impossible("there is no such request", status=404, code="not_found")
        return {"body": found[1].request_body}

    def try_(self, given: dict[str, Any]) -> dict[str, Any]:
        """Read a text again, with tools, threshold and dialect changed at will; nothing is stored."""
        text, tools_given = given.get("text"), given.get("tools")
        if not isinstance(text, str) or len(text) > _MAX_TEXT:
            raise Impossible("say the text that is to be read, of 4 MiB at most")
        dialect = given.get("dialect") or None
        if dialect is not None and dialect not in BY_ID:
            raise Impossible("there is no such dialect; see `toolgate dialects`")
        threshold = given.get("min_confidence", self.settings.min_confidence / 100)
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise Impossible("min_confidence is a number from 0 to 1")
        try:
            tools = declared_tools(tools_given) if tools_given else well_known_tools()
        except BadTools as error:
            raise Impossible(f"tools: {error}") from error
        options = Options(min_confidence=round(threshold * 100), dialect=dialect)
        model = str(given.get("model") or "unknown")
        finish = str(given.get("finish") or "stop")
        reading = read(pieces(text, 1), tools=tools, options=options, model=model, prompted=dialect, finish=finish)
        is_silent = not reading.calls and not reading.rejected
        found = remarks(text, tools=tools, options=options, model=model) if is_silent else []
        return document(reading, remarks_=found)

    async def state(self) -> dict[str, Any]:
        """Where the rollout stands, with its last decisions."""
        own = self.settings.rollout_rules()
        stored = await operating.read(self.store, own, time.time())
        now = snapshot(stored.state, stored.rules, stored.evidence)
        decisions = await operating.newest_decisions(self.store, most=_DECISIONS)
        return {
            "state": now.state,
            "percent": now.percent_effective / 100,
            "reason": now.reason,
            "by": now.by,
            "since": now.since,
            "killed": now.killed,
            "slices_off": list(now.slices_off),
            "is_known": stored.is_known,
            "decisions": [
                {
                    "at": each.at,
                    "decision": each.decision,
                    "slice": each.slice,
                    "by": each.by,
                    "reason": each.reason,
                    "before": each.state_before,
                    "after": each.state_after,
                    "numbers": dict(each.numbers),
                    "examples": list(each.examples),
                }
                for each in decisions
            ],
        }

    async def rollout(self, verb: str, given: dict[str, Any]) -> dict[str, Any]:
        """Change the rollout, as `toolgate rollout` does."""
        reason = given.get("reason")
        if verb not in operating.VERBS:
            raise Impossible(f"there is no {visible(verb)[:40]!r}", status=404, code="not_found")
        if not isinstance(reason, str) or not reason.strip():
            raise Impossible("say why: a reason is kept with every decision")
        more: dict[str, Any] = {"force": given.get("force") is True}
        if verb == "slice":
            parts = [given.get("strategy"), given.get("dialect")]
            if not all(isinstance(part, str) and part for part in parts) or type(given.get("off")) is not bool:
                raise Impossible('say {"strategy", "dialect", "off": true or false, "reason"}')
            more |= {"strategy": parts[0], "dialect": parts[1], "off": given["off"]}
        decide = operating.VERBS[verb](self.who, visible(reason.strip())[:_MAX_NOTE], more)
        try:
            done = await operating.change(self.writer, self.settings.rollout_rules(), decide, time.time)
        except operating.GatesUnmet as error:
            unmet = "; ".join(f"{gate.name} is {gate.have:g}, needed {gate.need:g}" for gate in error.unmet)
            raise Impossible(f"not promoted, gates are not met: {unmet}", status=409, code="gates_unmet") from error
        except (Refused, operating.Busy) as error:
            raise Impossible(str(error), status=409, code="refused") from error
        return {"unrecorded": done.unrecorded, "now": await self.state()}
