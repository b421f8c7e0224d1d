"""An answer that comes whole: the same reading as a stream's, put into the message."""

from collections.abc import Generator, Mapping
from typing import Any

from gateway.answer.choice import Choice, MakeId, broken_off
from gateway.answer.facts import Facts
from gateway.answer.second_answer import SecondAnswer, SecondCall, SecondRequest, SecondRound, unusable_calls
from gateway.answer.stages.transcript import Transcript
from gateway.core.errors import UpstreamBadReply
from gateway.core.events import END_REASONS, Drop, End, Event, Said, Start, Text
from gateway.core.limits import Limits
from gateway.wire.chat_chunks import (
    REASONING_FIELDS,
    BadChunk,
    decode_object,
    encode_object,
    has_reasoning,
    holds_half_a_character,
    token_counts,
)
from gateway.wire.structured_calls import CallKey, key_of
from gateway.wire.usage import summed_usage
from strategies.base import BrokenCall, Prepared
from strategies.reading.factory import Readers
from strategies.schema.structured import arguments_of, function_of
from strategies.text.turns import LONG, Turns, whole

__all__ = ["BodyExchange"]

_STEP = 1 << 14
"""Characters that are read in one step."""


class BodyExchange:
    """An answer that comes whole."""

    def __init__(
        self, prepared: Prepared, *, make_id: MakeId, limits: Limits, asks: int = 0, keep_text: bool = False
    ) -> None:
        self.facts = Facts(read=prepared.make_reader is not None)
        self._max_choices = limits.max_choices
        self._prepared = prepared
        self._make_id = make_id
        self._keep_text = keep_text
        self._round = SecondRound(prepared, self.facts, asks)
        self._body = b""
        self._answer: dict[str, Any] = {}
        self._is_changed = False
        """Something of the answer is another already, while a second one is waited for."""
        self._read: list[Event] = []
        """What came before the broken call, of the choice that waits for a second answer."""

    def transform(self, body: bytes) -> bytes:
        """The client's body; the upstream's own bytes where nothing in it is recognised or mended."""
        steps = self.steps(body)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return bytes(done.value)

    def steps(self, body: bytes, decoded: object = None) -> Generator[None, None, bytes]:
        """The same in steps of bounded work, so that a long answer does not keep others waiting.

        `decoded` is what the body says, where somebody knows it already; nobody else may use it any more.
        """
        try:
            answer = decoded if isinstance(decoded, dict) else decode_object(body)
        except BadChunk as error:
            # Clients that speak UTF-16 read it; passed on unread, as whoever writes it anew could not.
            if holds_half_a_character(body):
                return body
            raise UpstreamBadReply("the model server's answer is not a JSON object") from error
        self._body, self._answer = body, answer
        self.facts.usage = token_counts(answer.get("usage"))
        self.facts.completion_id = answer["id"] if isinstance(answer.get("id"), str) else None
        choices = answer.get("choices")
        # Each is read by a reader of its own: what nobody asked for must not cost that.
        if isinstance(choices, list) and len(choices) > self._max_choices:
            raise UpstreamBadReply("the model server sent more choices than were asked for")
        changed = False
        for index, entry in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(entry, dict) and isinstance(entry.get("message"), dict):
                changed = (yield from self._read_choice(index, entry, entry["message"])) or changed
        # Not an equal document but the server's own bytes: its spacing, the order of its keys, its long numbers.
        return self._encoded(changed=True) if changed else body

    @property
    def ask_again(self) -> SecondRequest | None:
        """What is to be asked again."""
        return None if self._round.choice is None else self._round.wanted

    def second_answer(self, body: bytes) -> bytes:
        """The client's body with the calls of a second answer; one without any is one broken call more."""
        return whole(self.second_steps(body))

    def second_steps(self, body: bytes) -> Turns[bytes]:
        """The same in steps of bounded work."""
        choice = self._round.choice
        second = (yield from self._round.reading(body)) if choice is not None else None
        if second is None or choice is None:
            return self._body
        if not second.calls:
            return (yield from self.no_second_steps())
        self._round.end()
        if choice.broken_structured:
            return self._replaced(choice, second)
        if not choice.native.count:  # those that were mended are counted
            self.facts.unusable_calls += sum(map(_is_unusable, self._round.unusable))
        entry = self._answer["choices"][0]
        message = entry["message"]
        if choice.holds:
            events = [*self._read, *choice.replace_broken_call()]
            for event in events:
                choice.note(event)
            message["content"] = "".join(event.raw for event in events if isinstance(event, Text)) or None
        message["tool_calls"] = [self._second_call(choice, call) for call in second.calls]
        entry["finish_reason"] = self.facts.finish_reasons[0] = "tool_calls"
        # Two generations ran, so the cost that is told is that of both.
        if isinstance(self._answer.get("usage"), dict):
            self._answer["usage"] = summed_usage(self._answer["usage"], second.usage)
        return self._encoded(changed=True)

    def _replaced(self, choice: Choice, second: SecondAnswer) -> bytes:
        """Each structured call that was asked for again as the second answer has it, or as it came."""
        calls = {call.get("id"): call for call in self._answer["choices"][0]["message"]["tool_calls"]}
        for each in choice.broken_structured:
            told = second.replaced.get(each.call.id)
            if told is not None:
                calls[each.call.id]["function"].update(name=told.name, arguments=told.arguments)
            choice.review.tell(each, "untouched" if told is None else "asked")
        if isinstance(self._answer.get("usage"), dict):
            self._answer["usage"] = summed_usage(self._answer["usage"], second.usage)
        return self._encoded(changed=True)

    def no_second_answer(self) -> bytes:
        """Nothing came of asking again: the first answer."""
        return whole(self.no_second_steps())

    def no_second_steps(self) -> Turns[bytes]:
        """The same in steps of bounded work."""
        choice = self._round.end()
        if choice is None:
            return self._body
        entry = self._answer["choices"][0]
        message = entry["message"]
        if message.get("tool_calls"):
            for each in choice.broken_structured:
                choice.review.tell(each, "untouched")
            return self._encoded(changed=self._told(choice, entry, message) or self._is_changed)
        return self._encoded(
            changed=self._deliver(choice, entry, message, [*self._read, *(yield from choice.as_written())])
        )

    def _encoded(self, *, changed: bool) -> bytes:
        # What is encoded is an event of a stream; a whole body has neither its prefix nor its blank line.
        return encode_object(self._answer)[len(b"data: ") : -2] if changed else self._body

    def _second_call(self, choice: Choice, call: SecondCall) -> dict[str, Any]:
        choice.begin_call(Start("", call.name, call.dialect, call.part))
        self.facts.take_over(call)
        return {
            "id": choice.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }

    @property
    def _may_ask(self) -> bool:
        """The only choice may be asked for again."""
        # A second answer does not say which of several choices it stands for.
        return self._round.may_ask and len(self._answer["choices"]) == 1

    def _read_choice(self, index: int, entry: dict[str, Any], message: dict[str, Any]) -> Generator[None, None, bool]:
        reason = entry.get("finish_reason")
        finish = reason if isinstance(reason, str) and reason else "stop"
        self.facts.finish_reasons[index] = finish
        if self._is_all_text(index, message, finish):
            return False
        choice = Choice(
            index, self._prepared, self._make_id, self.facts, may_ask=self._may_ask, keep_text=self._keep_text
        )
        content = message.get("content")
        choice.ended = reason if isinstance(reason, str) else None
        choice.hear_message(message)
        # It has a field of its own, so nothing in the text is a draft of it.
        if has_reasoning(message):
            choice.reasoned()
        if message.get("tool_calls") or choice.native.is_legacy(message.get("function_call")):
            return (yield from self._read_structured(choice, entry, message, finish))
        if not choice.listens or not isinstance(content, str | None):
            return False
        events = yield from _events(choice, content or "", finish)
        if choice.broken_call is not None and isinstance(reason, str):
            return self._wait(choice, choice.broken_call, events)
        return self._deliver(choice, entry, message, [*events, *choice.give_back()])

    def _is_all_text(self, index: int, message: dict[str, Any], finish: str) -> bool:
        """Whether a choice is nothing but text, or nobody reads it: told without reading, and then it has been read."""
        content, prepared = message.get("content"), self._prepared
        readers, ask = prepared.make_reader, prepared.ask_again
        if message.get("tool_calls") or message.get("function_call") or not isinstance(content, str | None):
            return False
        for name in REASONING_FIELDS:
            if message.get(name) and isinstance(message[name], str):  # it may end in a call
                return False
        if readers is None:
            return True
        if not isinstance(readers, Readers) or not readers.is_all_text(content or ""):
            return False
        # Where a call is demanded, an answer without one is asked for again.
        if ask is not None and ask.required and self._may_ask:
            return False
        if self._keep_text:
            self.facts.transcripts[index] = transcript = Transcript()
            transcript.add(content or "", finish)
        return True

    def _read_structured(
        self, choice: Choice, entry: dict[str, Any], message: dict[str, Any], finish: str
    ) -> Generator[None, None, bool]:
        """A choice with structured calls; those of its text stand beside them."""
        content = message.get("content")
        choice.review.count_message(message, is_cut=finish not in END_REASONS)
        if choice.listens and not self._prepared.shape.wait_for_finish and isinstance(content, str):
            choice.release_hold()
            events = yield from _events(choice, content, finish)
            if any(isinstance(event, Start | Said) for event in events):
                return self._beside(choice, entry, message, events)
        # Calls of tools that stand for the client's are held to their schemas before they are translated (`_mend`).
        if choice.review.mends and self._prepared.mapping is None:
            return (yield from self._review(choice, entry, message, finish))
        broken_call = self._broken_call(choice, entry, message, finish) if message.get("tool_calls") else None
        if broken_call is None:
            return self._told(choice, entry, message)
        choice.release_hold()
        return self._wait(choice, broken_call, [])

    def _review(
        self, choice: Choice, entry: dict[str, Any], message: dict[str, Any], finish: str
    ) -> Generator[None, None, bool]:
        """A choice whose structured calls are held to their schemas: each mended, asked for again, or left alone."""
        changed = self._told(choice, entry, message)
        entries = {id(call): given for given, call in choice.native.touched}
        # Long arguments are parsed in turns, so that nobody else waits; short ones are done before a turn would be
        # over.
        if choice.native.size > LONG:
            yield from choice.review.work()
        found = choice.review.finish(is_cut=finish not in END_REASONS)
        content = message.get("content")
        supplied: Mapping[str, str] = {}
        if content and isinstance(content, str) and choice.awaits_end and any(each.is_broken for each in found):
            choice.release_hold()
            events = yield from _events(choice, content, finish)
            events, supplied = choice.supplied([each for each in found if each.is_broken], events)
            if supplied:
                message["content"] = "".join(event.raw for event in events if isinstance(event, Text)).strip() or None
        for each in found:
            arguments = supplied.get(each.call.id, each.arguments)
            if arguments is None:
                choice.broken_structured.append(each)
            else:
                entries[id(each.call)]["function"]["arguments"] = arguments
                choice.review.tell(each, "supplied" if each.call.id in supplied else "mended")
                changed = True
        broken_call = choice.broken_structured_call(content if isinstance(content, str) else "")
        # What was cut would be cut again: asking once more would cost a generation and bring nothing.
        if broken_call is not None and self._may_ask and finish in END_REASONS:
            self._is_changed = changed
            choice.release_hold()
            return self._wait(choice, broken_call, [])
        for each in choice.broken_structured:
            choice.review.tell(each, "untouched")
        return changed

    def _broken_call(
        self, choice: Choice, entry: dict[str, Any], message: dict[str, Any], finish: str
    ) -> BrokenCall | None:
        """The broken call that structured calls are, where it may be asked for again."""
        ask = self._prepared.ask_again if self._may_ask else None
        if ask is None or finish not in END_REASONS:
            return None
        return unusable_calls(message, ask) or self._refused(choice, entry, message)

    def _beside(self, choice: Choice, entry: dict[str, Any], message: dict[str, Any], events: list[Event]) -> bool:
        """Calls of the text, and behind them the structured ones that are others."""
        self._told(choice, entry, message)
        # In a whole message all calls are there: the text's own come first, as their ids say how they were made, and of
        # two that are one the structured one goes. In a stream, where the first that came is out, it is the other way
        # (`Repeats`).
        structured = message.pop("tool_calls", None) or []
        self._deliver(choice, entry, message, events)
        given = choice.given
        kept = [call for call in structured if _key_of(call) not in given]
        if kept or message.get("tool_calls"):
            message["tool_calls"] = [*(message.get("tool_calls") or []), *kept]
        self.facts.mended["call_repeated"] += len(structured) - len(kept)
        self._drop_legacy(choice, entry, message)
        # The plus takes out what was counted zero times, which would become a series of nothing.
        self.facts.mended = +self.facts.mended
        return True

    def _drop_legacy(self, choice: Choice, entry: dict[str, Any], message: dict[str, Any]) -> bool:
        """Leave out the call in the older form where it is one of the others."""
        if self._prepared.make_reader is None or "function_call" not in message:
            return False
        # The older form stands behind all others, so it is the one that goes.
        if choice.native.finish_legacy(choice.given):
            return False
        del message["function_call"]
        self.facts.mended["call_repeated"] += 1
        return True

    def _wait(self, choice: Choice, broken_call: BrokenCall, events: list[Event]) -> bool:
        self._read = events
        self._round.wait(choice, broken_call)
        return False

    def _deliver(self, choice: Choice, entry: dict[str, Any], message: dict[str, Any], events: list[Event]) -> bool:
        """Put what was read into the message; True if anything in it is another."""
        calls: list[dict[str, Any]] = []
        texts: list[str] = []
        is_other = False
        for event in events:
            choice.note(event)
            if isinstance(event, Text):
                texts.append(event.raw)
            elif isinstance(event, Said):
                texts.append(event.text)
                is_other = True
            elif isinstance(event, Drop):
                is_other = is_other or bool(event.family)
            elif isinstance(event, Start):
                choice.begin_call(event)
                calls.append({"id": choice.call_id, "type": "function", "function": {"name": event.name}})
            elif isinstance(event, End):
                calls[-1]["function"]["arguments"] = event.arguments
        self.facts.undelivered += choice.undelivered
        if is_other:
            message["content"] = "".join(texts)
        if not calls:
            return is_other
        # Half of a call must never be run: an error is seen, and the request can be sent again.
        if any("arguments" not in call["function"] for call in calls):
            raise broken_off(self.facts.broken[-1])
        # OpenAI's own answers with calls have `null` for no words.
        message["content"] = "".join(texts) or None
        message["tool_calls"] = calls
        entry["finish_reason"] = choice.final_reason(self.facts.finish_reasons[choice.index])
        self.facts.finish_reasons[choice.index] = entry["finish_reason"]
        return True

    def _refused(self, choice: Choice, entry: dict[str, Any], message: dict[str, Any]) -> BrokenCall | None:
        """The broken call that structured calls are which cannot be translated into the client's."""
        if self._prepared.mapping is None:
            return None
        self._mend(choice, entry, message)
        content = message.get("content")
        translation = choice.translation()
        return translation.broken_call(content if isinstance(content, str) else "") if translation is not None else None

    def _told(self, choice: Choice, entry: dict[str, Any], message: dict[str, Any]) -> bool:
        """The structured calls as the client gets them: mended, and of its own tools."""
        changed = not choice.native.count and self._mend(choice, entry, message)
        translation = choice.translation()
        if translation is None:
            return self._drop_legacy(choice, entry, message) or changed
        self.facts.note_mapped(translation)
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in translation.calls
        ]
        return True

    def _mend(self, choice: Choice, entry: dict[str, Any], message: dict[str, Any]) -> bool:
        if not self._prepared.mend_native:
            return False
        changed = choice.native.take_legacy(message.get("function_call"))
        changed = choice.native.mend_message(message.get("tool_calls")) or changed
        self.facts.structured.copies += choice.native.copies
        self.facts.undelivered += choice.native.undelivered
        if self._prepared.mapping is not None:
            choice.mend_mapped(is_cut=entry.get("finish_reason") not in END_REASONS)
        self.facts.native_calls += choice.native.count
        self.facts.unusable_calls += choice.native.unusable
        reason = choice.native.finish_reason(entry.get("finish_reason"))
        if reason is not None:
            reason = choice.final_reason(reason)
        if reason != entry.get("finish_reason"):
            entry["finish_reason"] = self.facts.finish_reasons[choice.index] = reason or "tool_calls"
            changed = True
        self.facts.mended.update(choice.native.mended)
        return changed


def _events(choice: Choice, content: str, finish: str) -> Generator[None, None, list[Event]]:
    """What a text comes to, read in steps."""
    events: list[Event] = []
    # As if it came in pieces: each choice has one way of reading.
    for at in range(0, len(content), _STEP):
        if at:
            yield
        events += choice.feed(content[at : at + _STEP])
        while choice.busy:
            yield
            events += choice.go_on()
    choice.read_end(finish)
    while choice.busy:
        yield
        choice.go_on()
    return [*events, *choice.finish(finish)]


def _key_of(call: object) -> CallKey | None:
    """What a structured call has in common with one of the text that is the same."""
    function = function_of(call)
    name, arguments = function.get("name"), function.get("arguments")
    return key_of(name, arguments) if isinstance(name, str) and isinstance(arguments, str) else None


def _is_unusable(call: object) -> bool:
    """Whether a structured call's arguments are no JSON object."""
    return arguments_of(function_of(call).get("arguments")) is None
