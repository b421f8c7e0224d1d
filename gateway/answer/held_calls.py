"""The structured calls of a stream: mended, held while one of the text may be the same, given out or translated."""

from collections.abc import Mapping
from typing import Any

from gateway.answer.choice import Choice
from gateway.answer.facts import Facts
from gateway.answer.queue import Pending, Queue
from gateway.core.events import Start
from gateway.wire.chat_chunks import args_chunk, encode_object
from gateway.wire.structured_calls import key_of
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
        """Structured calls of one choice: mend what is certain, and hold what may be a call that was given."""
        if not self._prepared.mend_native:
            return
        event = pending.event
        native = choice.native
        before = len(native.mended)
        delta = event["choices"][at]["delta"]
        deltas = delta.get("tool_calls")
        native.is_holding = self._prepared.make_reader is not None and choice.may_repeat
        native.mend_deltas(deltas)
        native.take_legacy(delta.get("function_call"))
        choice.called()
        if event.get("usage"):
            self.withheld_usage = event.pop("usage")
            native.mended.append("usage_in_call_chunk")
        self._facts.native_calls = sum(known.native.count for known in self._choices.values())
        if len(native.mended) > before:
            self._facts.mended.update(native.mended[before:])
            pending.replace(encode_object(event))
        if self._prepared.mapping is not None and deltas:
            pending.withhold_calls()  # they are the client's calls only when they are complete and translated
        elif self._prepared.make_reader is not None:
            self._hold(choice, pending)

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
            if key_of(call.name, call.arguments) in given:
                self._facts.mended["call_repeated"] += 1
                continue
            pending.chunk(choice.begin(Start("", call.name, "native"), pending.event, call.id))
            pending.chunk(args_chunk(choice.args_template, call.arguments))
