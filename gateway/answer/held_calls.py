"""The structured calls of a stream: mended, held while one of the text may be the same, given out or translated."""

from collections.abc import Collection, Mapping
from typing import Any

from gateway.answer.choice import Choice
from gateway.answer.facts import Facts
from gateway.answer.queue import Pending, Queue
from gateway.answer.second_answer import SecondCall
from gateway.answer.structured.holding import HeldCall, Piece
from gateway.core.events import END_REASONS, Event, Start
from gateway.wire.chat_chunks import args_chunk, args_template, encode_object
from gateway.wire.structured_calls import StructuredCall, key_of
from strategies.base import Prepared
from strategies.mapping.answers import Translation

__all__ = ["HeldCalls"]


class HeldCalls:
    """The structured calls of all choices of one streamed answer."""

    __slots__ = ("_choices", "_facts", "_prepared", "_queue", "withheld_usage")

    def __init__(self, prepared: Prepared, facts: Facts, queue: Queue, choices: Mapping[int, Choice]) -> None:
        self._prepared = prepared
        self._facts = facts
        self._queue = queue
        self._choices = choices
        self.withheld_usage: Any = None
        """What a chunk with calls said of the cost; it is told by a chunk of its own."""

    def take(self, choice: Choice, pending: Pending, at: int) -> None:
        """Structured calls of one choice: mend what is certain, and hold what may be another or no call."""
        event = pending.event
        native = choice.native
        before, known = len(native.mended), native.count
        delta = event["choices"][at]["delta"]
        deltas = delta.get("tool_calls")
        if not self._prepared.mend_native:  # they are looked at, and go out as they came
            native.mend_deltas(deltas)
            native.take_legacy(delta.get("function_call"))
            return
        native.is_holding = self._prepared.make_reader is not None and choice.may_repeat
        native.mend_deltas(deltas)
        native.take_legacy(delta.get("function_call"))
        choice.called()
        if event.get("usage"):
            self.withheld_usage = event.pop("usage")
            native.mended.append("usage_in_call_chunk")
        self._facts.native_calls += native.count - known
        if len(native.mended) > before:
            self._facts.mended.update(native.mended[before:])
            pending.replace(encode_object(event))
        if self._prepared.mapping is not None:
            if deltas:
                pending.withhold_calls()  # they are the client's calls only when they are complete and translated
            return
        is_bare = self._weigh(choice, pending, at, is_mended=len(native.mended) > before)
        if self._prepared.make_reader is not None:
            self._hold(choice, pending)
        # A long call has thousands of such events, and decoded each takes many times its bytes.
        if is_bare and not pending.waits:
            pending.forget_event()

    def _weigh(self, choice: Choice, pending: Pending, at: int, *, is_mended: bool) -> bool:
        """Hold those pieces whose calls are not to go out yet, and leave out those of calls that are dropped.

        True where the event is held and says nothing but arguments of one call, so that it need not be kept decoded.
        """
        native = choice.native
        known = len(choice.held_structured)
        for delta, call in native.touched:
            held = choice.held_structured.get(id(call))
            if held is None:
                self._close_last(choice)
                held = HeldCall(call, is_first=not choice.held_structured and not native.first)
                choice.held_structured[id(call)] = held
            if call.is_dropped:
                pending.drop_call(delta, at)
            elif not held.flows and not native.holds(delta):
                has_begun = len(choice.held_structured) > known
                is_bare = not (is_mended or has_begun) and len(native.touched) == 1 and _is_bare(pending.event)
                held.hold(Piece(pending, at, None if is_bare else delta))
                held.look(choice.review)
                if is_bare and pending.calls:
                    return True
        return False

    def _close_last(self, choice: Choice) -> None:
        """A call has begun: what is held of the one before it is that of a copy, or need not wait, or waits."""
        last = next(reversed(choice.held_structured.values()), None)
        if last is None:
            return
        if last.call.is_dropped:
            _drop(last)
        else:
            last.close(choice.review)

    def _hold(self, choice: Choice, pending: Pending) -> None:
        """Keep an event back whose calls may be some that were given; those in `tool_calls` by themselves."""
        event = pending.event
        delta = event["choices"][0]["delta"]
        deltas = delta.get("tool_calls")
        held = [each for each in deltas if choice.native.holds(each)] if isinstance(deltas, list) else []
        is_legacy = choice.native.is_legacy(delta.get("function_call"))
        if is_legacy:
            pending.waits = True
            choice.held_calls.append(pending)
        # What is surely new must not wait for what may be a copy: each goes in an event of its own.
        if held and (is_legacy or len(held) < len(deltas)):
            alone = {**event["choices"][0], "delta": {"tool_calls": held}, "finish_reason": None}
            raw = encode_object({**event, "choices": [alone]})
            delta["tool_calls"] = [each for each in deltas if not choice.native.holds(each)]
            pending.replace(encode_object(event))
            pending = Pending(raw, raw[len(b"data: ") : -2], choice)
            self._queue.add(pending)
        if held:
            pending.waits = pending.moves = True
            choice.held_calls.append(pending)

    def review(self, choice: Choice, events: list[Event], reason: str, last: Pending) -> list[Event]:
        """No more comes of a choice's structured calls: those that do not fit are mended, as far as that is certain.

        Returns the events of its text, without those calls that told what a structured one meant.
        """
        # Whether the last call is a copy shows only at its end.
        if choice.native.close_last() is not None:
            self._close_last(choice)
            self._facts.mended["call_copied"] += 1
        if self._prepared.mapping is not None:
            choice.mend_mapped(is_cut=reason not in END_REASONS)
            return events
        found = choice.review.finish(is_cut=reason not in END_REASONS)
        flowing = {key for key, held in choice.held_structured.items() if held.flows}
        wrong = [each for each in found if id(each.call) in choice.held_structured]
        broken = [each for each in wrong if each.is_broken and id(each.call) not in flowing]
        events, supplied = choice.supplied(broken, events)
        for each in wrong:
            arguments = supplied.get(each.call.id, each.arguments)
            if id(each.call) in flowing:
                choice.review.tell(each, "late")
            elif arguments is not None:
                self._change(choice, each.call, arguments, last)
                choice.review.tell(each, "supplied" if each.call.id in supplied else "mended")
            else:
                choice.broken_structured.append(each)
        self._let_go(choice, besides={id(each.call) for each in choice.broken_structured})
        return events

    def replace(self, choice: Choice, calls: Mapping[str, SecondCall], last: Pending) -> None:
        """Tell the calls of a second answer in the place of those that were asked for; the others as they came."""
        broken, choice.broken_structured = choice.broken_structured, []
        for each in broken:
            second = calls.get(each.call.id)
            if second is not None:
                self._change(choice, each.call, second.arguments, last, second.name)
            choice.review.tell(each, "untouched" if second is None else "asked")
        self._let_go(choice)

    def flow(self, choice: Choice) -> None:
        """Too much is held: what has come of the structured calls goes out as it came, and so does the rest."""
        for held in choice.held_structured.values():
            if not held.flows:
                held.is_late = True
                held.release()

    def release(self, choice: Choice) -> None:
        """Everything that is held of a choice's structured calls goes out as it came."""
        choice.review.count(is_cut=True)
        broken, choice.broken_structured = choice.broken_structured, []
        for each in broken:
            choice.review.tell(each, "untouched")
        self._let_go(choice)

    def _let_go(self, choice: Choice, besides: Collection[int] = ()) -> None:
        for key, held in choice.held_structured.items():
            if key not in besides and not held.flows:
                held.release()

    def _change(
        self, choice: Choice, call: StructuredCall, arguments: str, last: Pending, name: str | None = None
    ) -> None:
        """Give a held call other arguments; its first piece that has any tells them all."""
        pieces = choice.held_structured[id(call)].let_go()
        name = call.name if name is None and call.is_named_late else name
        # Where arguments were, they go on to be: clients that show calls as they grow see them in the same place.
        teller = next((piece for piece in pieces if piece.entry["function"].get("arguments")), None)
        teller = teller or (pieces[0] if pieces else None)
        if teller is None:
            last.chunk(args_chunk(args_template(last.event, choice.index, call.index), arguments))
        for piece in pieces:
            if piece is teller or "id" in piece.entry or "name" in piece.entry["function"]:
                piece.pending.change_call(piece.entry, name=name, arguments=arguments if piece is teller else "")
            elif piece.delta is None:
                piece.pending.drop()
            else:
                piece.pending.drop_call(piece.delta, piece.at)

    def finish(self, choice: Choice, last: Pending | None) -> None:
        """Of each call that came as text and structured, one stays."""
        native = choice.native
        before = len(native.mended)
        self._queue.place(choice, choice.finish_calls(), last)
        given = choice.given if choice.held_calls else set()
        moved = native.finish_calls(given)
        keeps_legacy = native.finish_legacy(given) if choice.held_calls else True
        held, choice.held_calls = choice.held_calls, []
        for pending in held:
            native.mended += ["index_repeated"] * pending.finish_calls(moved, keeps_legacy=keeps_legacy)
            pending.waits = False
        if moved:  # calls go out in the order of their numbers
            self._queue.move([pending for pending in held if pending.moves and pending is not last], last)
        self._facts.mended.update(native.mended[before:])

    def tell_mapped(self, choice: Choice, pending: Pending, translation: Translation | None) -> None:
        """Give the client its calls; one that could not be translated is left for the client to refuse."""
        if translation is None:
            return
        self._facts.note_mapped(translation)
        given = choice.given
        for call in translation.calls:
            # The client has it from the text already, and would carry it out twice.
            if key_of(call.name, call.arguments) in given:
                self._facts.mended["call_repeated"] += 1
                continue
            pending.chunk(choice.begin(Start("", call.name, "native"), pending.event, call.id))
            pending.chunk(args_chunk(choice.args_template, call.arguments))


def _drop(held: HeldCall) -> None:
    """Leave out all that is held of a call."""
    for piece in held.let_go():
        if piece.delta is None:
            piece.pending.drop()
        else:
            piece.pending.drop_call(piece.delta, piece.at)


def _is_bare(event: Mapping[str, Any]) -> bool:
    """Whether the event says nothing but the arguments of a call that was begun before."""
    (choice,) = event["choices"] if len(event["choices"]) == 1 else ({},)
    delta = choice.get("delta") or {}
    said = {key for key, value in delta.items() if value is not None and value != ""}
    if choice.get("finish_reason") or event.get("usage") or said != {"tool_calls"} or len(delta["tool_calls"]) != 1:
        return False
    entry = delta["tool_calls"][0]
    return {"index", "function", "type"}.issuperset(entry) and set(entry.get("function") or ()) == {"arguments"}
