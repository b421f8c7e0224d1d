"""An answer that comes whole: the same reading as a stream's, put into the message."""

from collections.abc import Generator, Mapping
from typing import Any

from gateway.answer.choice import MakeId, Voice, broken_call, hold_of
from gateway.answer.facts import Facts
from gateway.answer.second_answer import Repair, SecondCall, read_again, unusable_attempt
from gateway.core.errors import UpstreamBadReply
from gateway.core.events import End, Event, Said, Start, Text
from gateway.core.limits import Limits
from gateway.wire.chat_chunks import (
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
from strategies.mapping.answers import translation_of
from strategies.reading.reader import CUT_REASONS
from strategies.schema.structured import arguments_of, function_of

__all__ = ["BodyExchange"]

_STEP = 1 << 14
"""Characters that are read in one step."""


class BodyExchange:
    """An answer that comes whole."""

    def __init__(
        self, prepared: Prepared, *, make_id: MakeId, limits: Limits, repairs: int = 0, keep_text: bool = False
    ) -> None:
        self.facts = Facts(read=prepared.make_reader is not None)
        del limits
        self._prepared = prepared
        self._make_id = make_id
        self._keep_text = keep_text
        self._repairs = repairs if prepared.repair is not None else 0
        self._body = b""
        self._answer: dict[str, Any] = {}
        self._voice: Voice | None = None
        """The choice that waits for a second answer."""
        self._read: list[Event] = []
        """What came of it before the attempt."""
        self._attempts: list[BrokenCall] = []

    def transform(self, body: bytes) -> bytes:
        """The client's body; the upstream's own bytes where nothing in it is recognised or mended."""
        steps = self.steps(body)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return bytes(done.value)

    def steps(self, body: bytes) -> Generator[None, None, bytes]:
        """The same in steps of bounded work, so that a long answer does not keep others waiting."""
        try:
            answer = decode_object(body)
        except BadChunk as error:
            if holds_half_a_character(body):
                return body
            raise UpstreamBadReply("the model server's answer is not a JSON object") from error
        self._body, self._answer = body, answer
        self.facts.usage = token_counts(answer.get("usage"))
        self.facts.completion_id = answer["id"] if isinstance(answer.get("id"), str) else None
        choices = answer.get("choices")
        changed = False
        for index, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
                changed = (yield from self._choice(index, choice, choice["message"])) or changed
        return self._encoded(changed=changed)

    @property
    def repair(self) -> Repair | None:
        """What is to be asked again."""
        if self._voice is None or self._prepared.repair is None:
            return None
        return Repair.of(self._prepared.repair, self._attempts)

    def repaired(self, body: bytes) -> bytes:
        """The client's body with the calls of a second answer; one without any is an attempt more."""
        voice = self._voice
        if voice is None:
            return self._body
        second = read_again(body, self._prepared, self._attempts)
        self._repairs -= 1
        self.facts.add_usage(second.usage)
        if not second.calls:
            if self._repairs and second.attempt is not None:
                self._attempts.append(second.attempt)
                return self._body
            return self.unrepaired()
        self._voice = None
        self.facts.repaired = True
        if not voice.native.count:  # those that were mended are counted
            self.facts.unusable_calls += sum(map(_is_unusable, self._attempts[0].calls))
        choice = self._answer["choices"][0]
        message = choice["message"]
        if voice.hold is not None:
            events = [*self._read, *voice.replace_attempt()]
            for event in events:
                voice.note(event)
            message["content"] = "".join(event.raw for event in events if isinstance(event, Text)) or None
        message["tool_calls"] = [self._second_call(voice, call) for call in second.calls]
        choice["finish_reason"] = self.facts.finish_reasons[0] = "tool_calls"
        if isinstance(self._answer.get("usage"), dict):
            self._answer["usage"] = summed_usage(self._answer["usage"], second.usage)
        return self._encoded(changed=True)

    def unrepaired(self) -> bytes:
        """Nothing came of asking again: the first answer."""
        voice, self._voice = self._voice, None
        if voice is None:
            return self._body
        choice = self._answer["choices"][0]
        message = choice["message"]
        if message.get("tool_calls"):
            return self._encoded(changed=self._told(voice, choice, message))
        return self._encoded(changed=self._deliver(voice, choice, message, [*self._read, *voice.give_back()]))

    def _encoded(self, *, changed: bool) -> bytes:
        return encode_object(self._answer)[len(b"data: ") : -2] if changed else self._body

    def _second_call(self, voice: Voice, call: SecondCall) -> dict[str, Any]:
        voice.begin_call(Start("", call.name, call.dialect, call.part))
        self.facts.take_over(call)
        return {
            "id": voice.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }

    def _choice(self, index: int, choice: dict[str, Any], message: dict[str, Any]) -> Generator[None, None, bool]:
        asks = self._prepared.repair if self._repairs and len(self._answer["choices"]) == 1 else None
        hold = hold_of(self._prepared) if asks is not None else None
        voice = Voice(index, self._prepared, self._make_id, self.facts, hold, keep_text=self._keep_text)
        reason = choice.get("finish_reason")
        finish = reason if isinstance(reason, str) and reason else "stop"
        self.facts.finish_reasons[index] = finish
        content = message.get("content")
        if has_reasoning(message):
            voice.reasoned()
        structured = bool(message.get("tool_calls")) or voice.native.is_legacy(message.get("function_call"))
        if structured and voice.listens and not self._prepared.shape.wait_for_finish and isinstance(content, str):
            voice.hold = None
            events = yield from _events(voice, content, finish)
            if any(isinstance(event, Start | Said) for event in events):
                return self._beside(voice, choice, message, events)
        if structured and not message.get("tool_calls"):
            return self._told(voice, choice, message)
        if structured:
            may_ask = asks is not None and finish not in CUT_REASONS
            attempt = unusable_attempt(message, asks) if asks is not None and may_ask else None
            if attempt is None and may_ask:
                attempt = self._refused(voice, choice, message)
            if attempt is None:
                return self._told(voice, choice, message)
            voice.hold = None
            return self._wait(voice, attempt, [])
        if not voice.listens or not isinstance(content, str | None):
            return False
        events = yield from _events(voice, content or "", finish)
        if voice.attempt is not None and isinstance(reason, str):
            return self._wait(voice, voice.attempt, events)
        return self._deliver(voice, choice, message, [*events, *voice.give_back()])

    def _beside(self, voice: Voice, choice: dict[str, Any], message: dict[str, Any], events: list[Event]) -> bool:
        """Calls of the text, and behind them the structured ones that are others."""
        self._told(voice, choice, message)
        structured = message.pop("tool_calls", None) or []
        self._deliver(voice, choice, message, events)
        given = voice.given
        kept = [call for call in structured if _key_of(call) not in given]
        if kept or message.get("tool_calls"):
            message["tool_calls"] = [*(message.get("tool_calls") or []), *kept]
        self.facts.mended["call_repeated"] += len(structured) - len(kept)
        self._drop_legacy(voice, choice, message)
        self.facts.mended = +self.facts.mended
        return True

    def _drop_legacy(self, voice: Voice, choice: dict[str, Any], message: dict[str, Any]) -> bool:
        """Leave out the call in the older form where it is one of the others."""
        if self._prepared.make_reader is None or "function_call" not in message:
            return False
        if voice.native.settle_legacy(voice.given):
            return False
        del message["function_call"]
        self.facts.mended["call_repeated"] += 1
        return True

    def _wait(self, voice: Voice, attempt: BrokenCall, events: list[Event]) -> bool:
        self.facts.attempts += not attempt.calls
        self._voice, self._read, self._attempts = voice, events, [attempt]
        return False

    def _deliver(self, voice: Voice, choice: dict[str, Any], message: dict[str, Any], events: list[Event]) -> bool:
        """Put what was read into the message; True if anything in it is another."""
        calls: list[dict[str, Any]] = []
        texts: list[str] = []
        is_said = False
        for event in events:
            voice.note(event)
            if isinstance(event, Text):
                texts.append(event.raw)
            elif isinstance(event, Said):
                texts.append(event.text)
                is_said = True
            elif isinstance(event, Start):
                voice.begin_call(event)
                calls.append({"id": voice.call_id, "type": "function", "function": {"name": event.name}})
            elif isinstance(event, End):
                calls[-1]["function"]["arguments"] = event.arguments
        self.facts.undelivered += voice.shaper.undelivered
        if is_said:
            message["content"] = "".join(texts)
        if not calls:
            return is_said
        if any("arguments" not in call["function"] for call in calls):
            raise broken_call(self.facts.broken[-1])
        message["content"] = "".join(texts) or None
        message["tool_calls"] = calls
        choice["finish_reason"] = voice.final_reason(self.facts.finish_reasons[voice.index])
        self.facts.finish_reasons[voice.index] = choice["finish_reason"]
        return True

    def _refused(self, voice: Voice, choice: dict[str, Any], message: dict[str, Any]) -> BrokenCall | None:
        """The attempt that structured calls are which cannot be translated into the client's."""
        if self._prepared.mapping is None:
            return None
        self._mend(voice, choice, message)
        content = message.get("content")
        translation = translation_of(self._prepared.mapping, voice.native.calls)
        return translation.attempt(content if isinstance(content, str) else "")

    def _told(self, voice: Voice, choice: dict[str, Any], message: dict[str, Any]) -> bool:
        """The structured calls as the client gets them: mended, and of its own tools."""
        changed = not voice.native.count and self._mend(voice, choice, message)
        if self._prepared.mapping is None or not voice.native.calls:
            return self._drop_legacy(voice, choice, message) or changed
        translation = translation_of(self._prepared.mapping, voice.native.calls)
        self.facts.note_mapped(translation)
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in translation.calls
        ]
        return True

    def _mend(self, voice: Voice, choice: dict[str, Any], message: dict[str, Any]) -> bool:
        if not self._prepared.mend_native:
            return False
        changed = voice.native.take_legacy(message.get("function_call"))
        changed = voice.native.mend_message(message.get("tool_calls")) or changed
        self.facts.native_calls += voice.native.count
        self.facts.unusable_calls += voice.native.unusable
        reason = voice.native.finish_reason(choice.get("finish_reason"))
        if reason is not None:
            reason = voice.final_reason(reason)
        if reason != choice.get("finish_reason"):
            choice["finish_reason"] = self.facts.finish_reasons[voice.index] = reason or "tool_calls"
            changed = True
        self.facts.mended.update(voice.native.mended)
        return changed


def _events(voice: Voice, content: str, finish: str) -> Generator[None, None, list[Event]]:
    """What a text comes to, read in steps."""
    events: list[Event] = []
    for at in range(0, len(content), _STEP):
        if at:
            yield
        events += voice.feed(content[at : at + _STEP])
        while voice.busy:
            yield
            events += voice.go_on()
    voice.read_end(finish)
    while voice.busy:
        yield
        voice.go_on()
    return [*events, *voice.finish(finish)]


def _key_of(call: object) -> CallKey | None:
    """What a structured call has in common with one of the text that is the same."""
    function = function_of(call)
    name, arguments = function.get("name"), function.get("arguments")
    return key_of(name, arguments) if isinstance(name, str) and isinstance(arguments, str) else None


def _is_unusable(call: Mapping[str, Any]) -> bool:
    """Whether a structured call's arguments are no JSON object."""
    return arguments_of(function_of(call).get("arguments")) is None
