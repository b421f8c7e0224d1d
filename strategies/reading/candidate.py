"""One candidate: text behind a marker, read by the dialects that share the marker, one after the other.

A dialect is asked with more lenient attempts while it wants them, then the next one is. Reading again costs the text
once more, so the reader keeps a budget. In `incremental` mode a call that has begun can only end or break.
"""

import re
from collections.abc import Generator
from functools import cached_property
from sys import maxsize
from typing import Any

from attrs import evolve

from gateway.core.events import Args, Broken, Drop, End, Event, Note, Start, Text, Verdict, refused
from gateway.core.reasons import Reason
from gateway.core.tools import Tool
from gateway.wire.calm import Blanks
from strategies.grammar.confidence import ANNOUNCED, IN_PROSE, UNFIT, Judged, base, judging
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.lexicon import LEFTOVERS
from strategies.grammar.literal import says_example
from strategies.reading.left_out import REMAINS
from strategies.reading.named import is_name, named_tool
from strategies.text.cursor import CUT, Cursor, Reject, Steps
from strategies.text.dumping import dumping, dumps
from strategies.text.tape import Tape
from strategies.text.turns import Turns, half_read

__all__ = ["Candidate"]

# So that no step over a long one comes near the 10 ms that others of the process may have to wait.
_LONG = 1 << 15
"""A longer text is read again in another turn."""
_KEY = re.compile(r"[\w$.-]+")
"""A parameter's name that no sign of the markup has come into."""
# Whoever asks the model again quotes it, and a model repeats what it is shown.
_SHOWN = 1 << 16
"""How much of a refused candidate is shown to whoever wants to know what was wrong with it."""


class Gathering:
    """Takes down the text of a call in the reader's place, until something comes that may end what it stands in."""

    __slots__ = ("_awaited", "_keeps", "_pieces", "_room", "_tail")

    holds = True
    calm = None
    blanks: Blanks = "hear"

    def __init__(self, awaited: str | re.Pattern[str], keeps: int, tail: str, room: int) -> None:
        self._awaited = awaited
        self._keeps = keeps
        self._tail = tail
        """What may be the beginning of it."""
        self._room = room
        """How many characters more a call may have."""
        self._pieces: list[str] = []

    def hear(self, text: str, room: int) -> int:
        del room
        whole = self._tail + text if self._keeps else text
        awaited = self._awaited
        is_there = awaited in whole if isinstance(awaited, str) else awaited.search(whole) is not None
        if is_there or len(text) > self._room:
            return -1
        self._room -= len(text)
        self._pieces.append(text)
        if self._keeps:
            self._tail = whole[-self._keeps :]
        return len(text)

    def overlook(self, text: str) -> None:
        raise NotImplementedError("what goes on with a call is heard")

    @property
    def begun(self) -> int:
        return sum(map(len, self._pieces))

    def told(self) -> str:
        return "".join(self._pieces)


class Candidate:
    """Reads one candidate; `events` fill up while it does, and when it is over `rest` goes back to the reader."""

    def __init__(
        self, rows: tuple[Dialect, ...], opening: Opening, context: Context, tape: Tape, start: int, *, live: bool
    ) -> None:
        self.events: list[Event] = []
        self.rest = ""
        self.blind = 0
        """How many characters of `rest` may not begin a candidate again."""
        self.work = 0
        """Characters read in vain."""
        self.accounted = 0
        """Characters that events account for."""
        self.made: list[Any] = []
        """Large values that were made while it was read."""
        self.in_words = False
        """A call in it is text because words go on behind it."""
        self._rows = rows
        self._row = 0
        self._opening = opening
        self._context = context
        self._live = live
        self._limit = context.options.limits.max_call_bytes
        self._refusals: list[Note] = []
        self._is_data = False
        """A dialect found that the answer ends inside a value."""
        self._least_blind = 1
        """Up to where nothing begins a candidate again, at least."""
        self._remains = ("", 0)
        """The family whose markup it is without being a call, and the offset up to which it is."""
        self._drafts = 0
        self._has_call = False
        """One of them became a call."""
        self._tape = tape
        self._start_at = start
        """Where it begins, on the tape."""
        self._size = 0
        self._later = ""
        """Text that has come while it rested, beyond what one call may hold."""
        self._rests = False
        """The text is about to be read again."""
        self._start()

    @property
    def held(self) -> int:
        return self._size

    @property
    def paused(self) -> bool:
        """It is not over and waits for no text: it has only done as much as one turn allows."""
        return self._rests or self._finishing is not None or self._cursor.paused

    def gathering(self) -> Gathering | None:
        """What takes down text for it while that is only handed on; None while it looks at what comes."""
        cur = self._cursor
        if cur.awaits is None or self._live or self._later or self.paused:
            return None
        awaited, keeps = cur.awaits
        return Gathering(awaited, keeps, cur.text[cur.pos :], self._limit - self._size - self._used)

    @property
    def cut(self) -> bool:
        """The answer was cut inside what was plainly meant as a call."""
        return self._is_data and self._cursor.cut

    @cached_property
    def is_example(self) -> bool:
        """The words before it say outright that it is an example, or it goes on with one."""
        return self._opening.behind_example or says_example(self._opening.lead)

    @property
    def showed(self) -> bool:
        """It held a call that is an example."""
        return self._drafts > 0 and self.is_example

    def feed(self, text: str, *, eof: bool, cut: bool) -> bool:
        """Read on; True when the candidate is over."""
        text, self._later = self._later + text, ""
        self._rests = False
        while True:
            part, text = self._admit(text)
            if part:
                self._cursor.push(part)
            # What is left over is still to come: a dialect must not take the bound for the end of the answer.
            self._cursor.eof = eof and not text
            self._cursor.cut = cut
            over = self._run()
            if over:
                self.rest += text
                return True
            if self.paused:
                self._later = text
                return False
            # Checked behind the dialect's turn, so that a call of exactly the bound still is one.
            if self._size + self._used > self._limit:
                self._give_up(Reason.TOO_LARGE, blind=maxsize)
                self.rest += text
                return True
            if not text:
                return False

    def close(self) -> None:
        """It is over, and what it was given leads to it no more: else it would live until the collector comes."""
        self._steps.close()
        self._cursor.source = None
        self._arguments = Arguments(None)

    def _admit(self, text: str) -> tuple[str, str]:
        # One character more than may be held, or the bound could never be seen to be exceeded.
        room = self._limit + 1 - self._size - self._used
        part, text = text[:room], text[room:]
        self._size += len(part)
        return part, text

    def _text(self, end: int | None = None) -> str:
        """What of it no event accounts for, or the first characters of that."""
        start = self._start_at + self.accounted
        return self._tape.between(start, start + (self._size if end is None else end))

    def _between(self, start: int, end: int) -> str:
        return self._tape.between(self._start_at + start, self._start_at + end)

    def _start(self) -> None:
        """Hand the candidate to the dialect whose turn it is."""
        self._cursor = Cursor(source=self._between, made=self.made)
        self._arguments = Arguments(self._emit_live if self._live else None)
        self._emitted: list[str] = []
        self._begin_call()
        self._began = ""
        self._shown = False
        self._ended = False
        self._finishing: Turns[None] | None = None
        """What is still done for a call that is complete."""
        self._steps: Generator[Draft | None, None, None] = self._parsing()

    def _begin_call(self) -> None:
        self._call_at = self._start_at + self.accounted
        """Where on the tape the call under way begins, of which events may account for a part already."""
        self._used = 0
        """How many bytes that part has."""
        if self._live:
            self._tape.held = self._call_at

    def _parsing(self) -> Generator[Draft | None, None, None]:
        marker = self._opening.marker
        if marker.startswith("<"):
            yield from _notice_breaks(self._cursor, marker)
        parse = self._rows[self._row].parse
        yield from parse(self._cursor, self._context, self._opening, self._arguments)
        if self._cursor.literal_breaks:
            yield from _read_leftovers(self._cursor)

    def _run(self) -> bool:
        while True:
            try:
                if self._finishing is not None and not self._is_finished(self._finishing):
                    return False
                # A generator's own for-loop resumes it where it stood; it ends when the dialect has said all, and may
                # raise.
                for draft in self._steps:
                    if draft is None:
                        if not self._cursor.paused:
                            self._flow()
                        return False
                    self._finishing = self._finish_call(draft)
                    if not self._is_finished(self._finishing):
                        return False
                self._end()
                return True
            except Reject as refusal:
                if self._size > _LONG:
                    self.made += half_read(refusal)
                if self._refused(refusal):
                    return True
                if self._size > _LONG:
                    self._rests = True
                    return False

    def _is_finished(self, finishing: Turns[None]) -> bool:
        """Go on with what is done for a call that is complete; whether all of it is done."""
        for _ in finishing:
            return False
        self._finishing = None
        return True

    def _finish_call(self, draft: Draft) -> Turns[None]:
        """A call is complete: judge it, then pass it on or give its text back."""
        is_large = self._size > _LONG
        if is_large:
            self.made.append(draft)
            yield
        dialect = self._rows[self._row]
        # Raised into our own handler: the next dialect of the marker may read the same text as a call of a known tool.
        if draft.tool is None and not self._may_be_undeclared(dialect):
            raise Reject("unknown_tool", name=draft.name, blind=True)
        draft = self._in_its_place(draft, dialect)
        judged = yield from judging(draft, self._context, dialect.id)
        verdict = judged.verdict
        self.in_words = self.in_words or (draft.form == IN_PROSE and verdict.refusal is Reason.LOW_CONFIDENCE)
        if self._passes_unfit(dialect, judged, draft.tool):
            verdict = evolve(verdict, accepted=True, refusal=None, reasons=(*verdict.reasons, UNFIT))
        if self._began:
            self._close_live(draft, judged.arguments)
        raw = self._consume(draft.end)
        whole = self._tape.between(self._call_at, self._start_at + self.accounted) if self._used else raw
        if verdict.accepted and (yield from self._context.quoting(whole, verdict.name, judged.arguments)):
            verdict = refused(verdict, Reason.PROVENANCE)
        told = (yield from dumping(judged.arguments)) if is_large else dumps(judged.arguments)
        if is_large:
            yield
        # The bound is one of bytes. Reading counts characters, which are never more, so only here it is exact.
        is_long = self._used + len(raw.encode("utf-8", "surrogatepass")) > self._limit
        if verdict.accepted and is_long:
            verdict = refused(verdict, Reason.TOO_LARGE)
        self._begin_call()
        self._drafts += 1
        self._has_call = self._has_call or verdict.accepted
        self._ended = draft.end is not None
        end = End(raw, verdict.name, told, verdict, draft.call_id)
        if self._began:
            # The client has the beginning of this call already: it cannot become text any more.
            self.events.append(end if verdict.accepted else Broken(raw, verdict.reasons[-1]))
        elif verdict.accepted:
            start = Start("", verdict.name, dialect.id, is_declared=draft.tool is not None)
            self.events += (start, Args("", end.arguments), end)
        else:
            self.events += (self._shown_note(verdict, raw), Text(raw))
        self._began, self._shown = "", False
        self._arguments.restart()

    def _in_its_place(self, draft: Draft, dialect: Dialect) -> Draft:
        """The call as what stands before it makes it."""
        if dialect.level != "A" and self.is_example:
            draft = evolve(draft, mends=(*draft.mends, ANNOUNCED))
        # Those before it are text for the words behind them, and half of a set would be worse than none of it.
        if dialect.level == "D" and self._opening.behind_shown:
            draft = evolve(draft, form=IN_PROSE)
        return draft

    def _end(self) -> None:
        """The dialect is through: what it used beyond its calls is markup, if there are any."""
        used = "" if self._ended else self._consume()
        if used:
            self.events.append(Drop(used, "markup") if self._has_call else Text(used))
        self.rest = self._text()

    def _refused(self, refusal: Reject) -> bool:
        """The dialect says no: ask again, ask the next one, or give up (True)."""
        self.work += self._cursor.offset
        is_meant = refusal.attempted or self._calls_unknown(refusal)
        self._refusals.append(self._note(refusal.reason, refusal.refusal, meant=is_meant, name=refusal.name))
        # An answer that was cut in the middle of a call tells the user so by its finish reason; the rest is no new
        # candidate.
        is_cut = self._cursor.eof and self._cursor.cut and refusal.attempted
        self._is_data = self._is_data or refusal.inside or is_cut
        if refusal.blind:
            self._least_blind = max(self._least_blind, self._cursor.offset)
        if refusal.remains:
            self._remains = (self._rows[self._row].family, refusal.remains)
        if self._began:
            self._break(refusal.reason)
            self.rest = self._text()
            return True
        if refusal.reason == CUT:
            self._give_up(None, blind=self._size)
            return True
        # Once a call of it has gone out, reading the same text again could give that call twice.
        if refusal.again and not self._drafts:
            self._opening = self._opening.again(refusal.hint)
        elif self._row + 1 < len(self._rows) and not self._drafts:
            self._row += 1
            self._opening = self._opening.again(None)
        elif self._remains[1] and not self._drafts:
            family, end = self._remains
            self.events.append(Drop(self._consume(end), REMAINS, family))
            self.rest = self._text()
            return True
        else:
            self._give_up(None, blind=self._size if self._is_data else 0 if self._drafts else self._least_blind)
            return True
        eof, cut = self._cursor.eof, self._cursor.cut
        self._start()
        self._cursor.push(self._text())
        self._cursor.eof, self._cursor.cut = eof, cut
        return False

    def _give_up(self, refusal: Reason | None, *, blind: int) -> None:
        if self._began:
            self._break(refusal or "")
        else:
            self.events += self._refusals
            if refusal is not None:
                self.events.append(self._note(refusal, refusal, meant=True))
            self.blind = blind
        self.rest = self._text()

    def _calls_unknown(self, refusal: Reject) -> bool:
        """Whether it is a call in everything but its tool, which the request did not offer."""
        is_named = refusal.refusal is Reason.UNKNOWN_TOOL and is_name(refusal.name)
        level = self._rows[self._row].level
        is_plain = level in "AB" or (level == "C" and self._opening.starts_line)
        return is_named and is_plain and not self.is_example

    def _note(self, reason: str, refusal: Reason, *, meant: bool, name: str = "") -> Note:
        raw = self._text() if meant else ""
        verdict = Verdict(
            dialect=self._rows[self._row].id,
            name=(name if is_name(name) else named_tool(raw, self._opening.marker, self._context)) if meant else "",
            score=0,
            accepted=False,
            reasons=(str(reason),),
            refusal=refusal,
            meant=meant,
            offered=self._context.tools.names if refusal is Reason.UNKNOWN_TOOL else (),
        )
        # Behind a refusal the cursor may stand beyond what is still ours: calls before it were consumed.
        reach = min(self._cursor.offset, len(raw))
        return self._shown_note(verdict, raw, reach) if meant else Note(verdict)

    def _shown_note(self, verdict: Verdict, raw: str, reach: int = 0) -> Note:
        """A note that shows its candidate, unless it is an example, or in a code fence may just as well be one."""
        is_shown = self._opening.fence is None and not self.is_example
        return Note(verdict, seen=raw[:_SHOWN] if is_shown else "", size=len(raw), reach=reach or len(raw))

    @property
    def consumed(self) -> int:
        """How far the dialect had read, beyond what events account for."""
        return self._size - self._cursor.pending

    def _consume(self, end: int | None = None) -> str:
        """The text the dialect has used since the last event, up to the offset `end`."""
        behind = self._cursor.pending + (0 if end is None else self._cursor.final - end)
        used = self._text(self._size - behind)
        self._size -= len(used)
        self.accounted += len(used)
        return used

    # Incremental

    def _may_be_undeclared(self, dialect: Dialect) -> bool:
        """Whether a call of a tool that was not offered is one all the same."""
        if self._context.options.undeclared_tools == "text":
            return False
        # Nobody but a model that means a call writes special tokens, or the very form it was told to write.
        return dialect.level == "A" or self._context.prompted == dialect.id

    def _passes_unfit(self, dialect: Dialect, judged: Judged, tool: Tool | None) -> bool:
        """Whether a call passes that its tool does not take: only in tokens that say nothing else, and unmended."""
        if not self._context.takes_unfit or judged.verdict.refusal is not Reason.SCHEMA_INVALID or tool is None:
            return False
        given = judged.arguments
        if dialect.level != "A" or not judged.is_as_written or not all(map(_KEY.fullmatch, given)):
            return False
        # A parameter that is missing and yet named stands in the value before it, whose end was lost.
        told = dumps(given)
        schema = self._context.schema(tool)
        # So may any, in a text where the tool takes none.
        texts = [value for key, value in given.items() if isinstance(value, str) and not schema.prop(key).is_string]
        return not any(
            name in told if name in schema.required else any(name in text for text in texts)
            for name in (*schema.required, *schema.properties)
            if name not in given
        )

    def _emit_live(self, name: str, json: str | None) -> bool:
        if json is not None:
            self._emitted.append(json)
            return True
        dialect = self._rows[self._row]
        if dialect.level != "A" and self.is_example:
            return False
        if self._context.find(name) is None and self._context.options.undeclared_tools == "text":
            return False
        # Before the arguments are there only the form counts: what has begun cannot be taken back.
        score = base("tag", self._context, dialect.id, [])
        if score < self._context.options.min_confidence or not self._context.may_recover(name):
            return False
        if not self._context.flows(dialect.id, name) or dialect.id in self._context.options.dialects_off:
            return False
        self._began = name
        tool = self._context.find(name)
        schema = self._context.schema(tool) if tool else None
        if schema is not None:
            self._arguments.takes = schema.takes
        return True

    def _flow(self) -> None:
        """Pass on what the dialect has emitted so far."""
        if not self._began or (self._shown and not self._emitted):
            return
        raw = self._consume()
        self._used += len(raw.encode("utf-8", "surrogatepass"))
        if not self._shown:
            is_declared = self._context.find(self._began) is not None
            self.events.append(Start(raw, self._began, self._rows[self._row].id, is_declared=is_declared))
            self._shown, raw = True, ""
        if self._emitted:
            self.events.append(Args(raw, "".join(self._emitted)))
            self._emitted.clear()

    def _break(self, reason: str) -> None:
        """The call that has begun is none: all that was read of it is shown, then the failure."""
        self._flow()
        self.events.append(Broken(self._consume(), reason))
        # The client was given a beginning of arguments: another call in the same text would be one too many.
        self.blind = maxsize

    def _close_live(self, draft: Draft, arguments: dict[str, object]) -> None:
        for key, value in arguments.items():
            # Defaults and names that were repaired at the end; what the dialect wrote itself has flowed already.
            if key not in draft.arguments:
                self._arguments.key(key)
                self._arguments.piece(dumps(value))
        self._arguments.close()
        self._flow()


def _notice_breaks(cur: Cursor, marker: str) -> Steps:
    r"""Whether a literal `\n` stands between the opener and what follows it."""
    size = len(marker)
    # Markers such as `<tool` end before their attributes do.
    if not marker.endswith(">"):
        if (yield from cur.peek(size + 1))[size:] != ">":
            return
        size += 1
    if (yield from cur.peek(size + 1))[size:] == "\\":
        cur.literal_breaks = (yield from cur.peek(size + 3))[size:] in ("\\n<", "\\n{")


def _read_leftovers(cur: Cursor) -> Steps:
    """What closes a wrapper behind such a call."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    if not (yield from cur.lits(LEFTOVERS)):
        cur.back(start)
    cur.anchor = None
