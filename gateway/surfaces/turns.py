"""Chat's messages from a history of another wire: turns put together again, so that every server takes them.

An assistant's message holds all it said at once, its text and its calls, and the results follow it in the order of the
calls, wherever in the history they stood: DeepSeek and Anthropic refuse all else
(https://github.com/BerriAI/litellm/issues/32536). A call without a result gets one that says so, and a result without a
call becomes a user's text.
"""

from typing import Any, Literal

from msgspec import Struct, field

from gateway.surfaces.port import LateSystem

__all__ = ["MISSING_RESULT", "Turns", "text_part"]

MISSING_RESULT = "No result was recorded for this call."
# The form in which Claude Code tells its models such things, so that they are not taken for a user's words.
_REMINDER = "<system-reminder>\n{}\n</system-reminder>"
_JOINT = "\n\n"
_TEXT_KEYS = {"type", "text"}

Part = dict[str, Any]


def text_part(text: str) -> Part:
    """A part of text."""
    return {"type": "text", "text": text}


class _Said(Struct, eq=False):
    """What an assistant said at once."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, tuple[str | list[Part], list[Part]]] = field(default_factory=dict)
    """By the ids of the calls: the result, and its pictures."""

    @property
    def is_answered(self) -> bool:
        return bool(self.calls) and len(self.results) == len({call["id"] for call in self.calls})


class _Asked(Struct, eq=False):
    """What a user said at once."""

    parts: list[Part]
    is_question: bool
    """It is more than results and reminders."""


class _Told(Struct, eq=False):
    """System text in the middle."""

    text: str


class Turns(Struct, kw_only=True, eq=False):
    """The messages of one request, as they come."""

    late_system: LateSystem = "user"
    keeps: Literal["turn", "keep", "drop"] = "turn"
    """Which reasoning goes back."""
    mended: list[str] = field(default_factory=list)
    """What was put right, a word for each time."""
    _system: list[str | list[Part]] = field(default_factory=list)
    _turns: list[_Said | _Asked | _Told] = field(default_factory=list)
    _waiting: dict[str, list[_Said]] = field(default_factory=dict)
    """Calls without a result, by their ids."""

    def lead(self, content: str | list[Part]) -> None:
        """System text that stands before all else, whatever comes before it."""
        if content:
            self._system.append(content)

    def system(self, text: str) -> None:
        """System text, wherever it stands."""
        if not text:
            return
        if not self._turns or self.late_system == "first":
            self._system.append(text)
        else:
            self._turns.append(_Told(text))

    def user(self, parts: list[Part], *, is_question: bool = True) -> None:
        """What a user said."""
        if parts:
            self._turns.append(_Asked(parts, is_question))

    def text(self, text: str) -> None:
        """What the assistant said."""
        if text:
            self._saying().texts.append(text)

    def reasoning(self, text: str) -> None:
        """What it thought."""
        if text:
            self._saying().thoughts.append(text)

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """What it called; the arguments as they stand in chat."""
        said = self._saying()
        function = {"name": name, "arguments": arguments}
        said.calls.append({"id": call_id, "type": "function", "function": function})
        self._waiting.setdefault(call_id, []).append(said)

    def result(self, call_id: str, content: str | list[Part], images: list[Part] | None = None) -> None:
        """What came of a call; pictures stand in a user's message behind all results of the turn."""
        waiting = self._waiting.get(call_id)
        if not waiting:
            text = content if isinstance(content, str) else _joined(content)
            self.mended.append("orphan_result")
            self.user([text_part(f"[Tool Result: {text}]"), *(images or ())], is_question=False)
            return
        waiting.pop().results[call_id] = (content, images or [])

    def finished(self) -> list[dict[str, Any]]:
        """The messages."""
        messages: list[dict[str, Any]] = []
        if self._system:
            messages.append({"role": "system", "content": _system_content(self._system)})
        last_question = -1
        for at, turn in enumerate(self._turns):
            if isinstance(turn, _Asked) and turn.is_question:
                last_question = at
        pending: list[Part] = []
        for at, turn in enumerate(self._turns):
            if isinstance(turn, _Asked):
                pending += turn.parts
            elif isinstance(turn, _Told):
                if self.late_system == "inline":
                    _push_user(messages, pending)
                    messages.append({"role": "system", "content": turn.text})
                else:
                    pending.append(text_part(_REMINDER.format(turn.text)))
            else:
                _push_user(messages, pending)
                pending = self._push(messages, turn, keeps=self._keeps(at, last_question))
        _push_user(messages, pending)
        return messages

    def _keeps(self, at: int, last_question: int) -> bool:
        return self.keeps == "keep" or (self.keeps == "turn" and at > last_question)

    def _saying(self) -> _Said:
        """The assistant's turn that is under way: one whose calls all have their results is over."""
        last = self._turns[-1] if self._turns else None
        if not isinstance(last, _Said) or last.is_answered:
            last = _Said()
            self._turns.append(last)
        return last

    def _push(self, messages: list[dict[str, Any]], said: _Said, *, keeps: bool) -> list[Part]:
        """An assistant's message and the results; what a user's message behind them begins with."""
        message: dict[str, Any] = {"role": "assistant", "content": _JOINT.join(said.texts) or None}
        if keeps and said.thoughts:
            message["reasoning_content"] = _JOINT.join(said.thoughts)
        if said.calls:
            message["tool_calls"] = said.calls
        elif message["content"] is None:
            if "reasoning_content" not in message:
                return []
            message["content"] = ""
        messages.append(message)
        images: list[Part] = []
        for call_id in dict.fromkeys(call["id"] for call in said.calls):
            found = said.results.get(call_id)
            # Servers refuse a call without a result: https://github.com/BerriAI/litellm/issues/32536
            if found is None:
                self.mended.append("missing_result")
                found = (MISSING_RESULT, [])
            messages.append({"role": "tool", "tool_call_id": call_id, "content": found[0]})
            # In chat a tool's message holds text alone: https://platform.openai.com/docs/api-reference/chat/create
            images += found[1]
        return images


def _push_user(messages: list[dict[str, Any]], pending: list[Part]) -> None:
    if pending:
        messages.append({"role": "user", "content": _content(pending)})
        pending.clear()


def _content(parts: list[Part]) -> str | list[Part]:
    """Text alone is one text: many a chat template takes nothing else."""
    if len(parts) == 1 and parts[0].keys() == _TEXT_KEYS:
        text: str = parts[0]["text"]
        return text
    return _joined(parts) if all(part.keys() == _TEXT_KEYS for part in parts) else list(parts)


def _system_content(told: list[str | list[Part]]) -> str | list[Part]:
    if len(told) == 1 and isinstance(told[0], str):
        return told[0]
    parts = [part for each in told for part in ([text_part(each)] if isinstance(each, str) else each)]
    return _content(parts)


def _joined(parts: list[Part]) -> str:
    return _JOINT.join(part["text"] for part in parts if isinstance(part.get("text"), str))
