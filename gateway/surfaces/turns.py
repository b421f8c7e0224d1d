"""Chat's messages from a history of another wire: turns put together again, so that every server takes them.

An assistant's message holds all it said at once, its text and its calls, and the results follow it in the order of the
calls, wherever in the history they stood: DeepSeek and Anthropic refuse all else
(https://github.com/BerriAI/litellm/issues/32536). A call without a result gets one that says so, and a result without a
call becomes a user's text.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from gateway.surfaces.port import LateSystem

__all__ = ["MISSING_RESULT", "Finished", "Turns", "text_part"]

MISSING_RESULT = "No result was recorded for this call."
# The form in which Claude Code tells its models such things, so that they are not taken for a user's words.
_REMINDER = "<system-reminder>\n{}\n</system-reminder>"
_JOINT = "\n\n"
_TEXT_KEYS = {"type", "text"}
_write = msgspec.json.Encoder().encode

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
    told: "_Pushed | None" = None
    """What it came to: nothing is added to it behind that, but to a copy."""

    @property
    def is_answered(self) -> bool:
        return bool(self.calls) and len(self.results) == len({call["id"] for call in self.calls})

    def copy(self) -> "_Said":
        """The same, to which more may be added."""
        return _Said([*self.texts], [*self.thoughts], [*self.calls], {**self.results})


class _Pushed(Struct, frozen=True, eq=False):
    """The messages that an assistant's turn comes to."""

    messages: list[dict[str, Any]]
    written: list[bytes]
    images: list[Part]
    """With which a user's message behind them begins."""
    missing: int
    """Results that were not there."""
    keeps: bool
    """With what was thought, if anything was."""


class Finished(Struct, frozen=True, eq=False):
    """Messages of chat, and the text of each."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)

    def add(self, message: dict[str, Any]) -> None:
        """One more."""
        self.messages.append(message)
        self.written.append(_write(message))


class _Asked(Struct, eq=False):
    """What a user said at once."""

    parts: list[Part]
    told: tuple[dict[str, Any], bytes] | None = None
    """The message that it is by itself, and its text."""


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
    _lead: list[str | list[Part]] = field(default_factory=list)
    _system: list[str | list[Part]] = field(default_factory=list)
    _turns: list[_Said | _Asked | _Told] = field(default_factory=list)
    _waiting: dict[str, list[_Said]] = field(default_factory=dict)
    """Calls without a result, by their ids."""
    _last_question: int = -1

    def copy(self) -> "Turns":
        """The same history, to which more may be added; what leads is said anew. What is over is shared."""
        open_turns = {id(said): said for waiting in self._waiting.values() for said in waiting}
        if self._turns and isinstance(last := self._turns[-1], _Said):
            open_turns[id(last)] = last
        copies = {place: said.copy() for place, said in open_turns.items()}
        turns = [*self._turns]
        # Nearly always the last one or none.
        left = len(copies)
        for at in range(len(turns) - 1, -1, -1):
            if not left:
                break
            if (copied := copies.get(id(turns[at]))) is not None:
                turns[at] = copied
                left -= 1
        return Turns(
            late_system=self.late_system,
            keeps=self.keeps,
            mended=[*self.mended],
            _system=[*self._system],
            _turns=turns,
            _waiting={
                call_id: [copies[id(said)] for said in waiting] for call_id, waiting in self._waiting.items() if waiting
            },
            _last_question=self._last_question,
        )

    def take(self, past: "Turns") -> None:
        """Begin with what was told before; what leads stays."""
        told = past.copy()
        self.mended, self._system, self._turns = told.mended, told._system, told._turns
        self._waiting, self._last_question = told._waiting, told._last_question

    def lead(self, content: str | list[Part]) -> None:
        """System text that stands before all else, whatever comes before it."""
        if content:
            self._lead.append(content)

    def system(self, text: str) -> None:
        """System text, wherever it stands."""
        if not text:
            return
        if not self._turns or self.late_system == "first":
            self._system.append(text)
        else:
            self._turns.append(_Told(text))

    def user(self, parts: list[Part], *, is_question: bool = True) -> None:
        """What a user said: a question where it is more than results and reminders."""
        if parts:
            if is_question:
                self._last_question = len(self._turns)
            self._turns.append(_Asked(parts))

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

    def finished(self) -> Finished:
        """The messages; nobody may change one, as they may be those of the next request, too."""
        found = Finished()
        if system := [*self._lead, *self._system]:
            message = {"role": "system", "content": _system_content(system)}
            found.messages.append(message)
            found.written.append(_write(message))
        pending: list[Part] = []
        alone: _Asked | None = None
        """Nothing else waits than what was asked here."""
        for at, turn in enumerate(self._turns):
            if isinstance(turn, _Said):
                _push_user(found, pending, alone)
                alone = None
                keeps = self.keeps == "keep" or (self.keeps == "turn" and at > self._last_question)
                told = turn.told
                if told is None or (told.keeps is not keeps and turn.thoughts):
                    told = turn.told = _pushed(turn, keeps=keeps)
                found.messages.extend(told.messages)
                found.written.extend(told.written)
                pending += told.images
                self.mended += ["missing_result"] * told.missing
            elif isinstance(turn, _Asked):
                alone = None if pending else turn
                pending += turn.parts
            elif self.late_system == "inline":
                _push_user(found, pending, alone)
                found.add({"role": "system", "content": turn.text})
            else:
                alone = None
                pending.append(text_part(_REMINDER.format(turn.text)))
        _push_user(found, pending, alone)
        return found

    def _saying(self) -> _Said:
        """The assistant's turn that is under way: one whose calls all have their results is over."""
        last = self._turns[-1] if self._turns else None
        if not isinstance(last, _Said) or last.is_answered:
            last = _Said()
            self._turns.append(last)
        return last


def _pushed(said: _Said, *, keeps: bool) -> _Pushed:
    """An assistant's message and the results."""
    message: dict[str, Any] = {"role": "assistant", "content": _JOINT.join(said.texts) or None}
    if keeps and said.thoughts:
        message["reasoning_content"] = _JOINT.join(said.thoughts)
    if said.calls:
        message["tool_calls"] = said.calls
    elif message["content"] is None:
        if "reasoning_content" not in message:
            return _Pushed([], [], [], 0, keeps)
        message["content"] = ""
    messages = [message]
    images: list[Part] = []
    missing = 0
    for call_id in dict.fromkeys(call["id"] for call in said.calls):
        found = said.results.get(call_id)
        # Servers refuse a call without a result: https://github.com/BerriAI/litellm/issues/32536
        if found is None:
            missing += 1
            found = (MISSING_RESULT, [])
        messages.append({"role": "tool", "tool_call_id": call_id, "content": found[0]})
        # In chat a tool's message holds text alone: https://platform.openai.com/docs/api-reference/chat/create
        images += found[1]
    return _Pushed(messages, [_write(each) for each in messages], images, missing, keeps)


def _push_user(found: Finished, pending: list[Part], alone: _Asked | None) -> None:
    if not pending:
        return
    if alone is None:
        found.add({"role": "user", "content": _content(pending)})
    else:
        if alone.told is None:
            message = {"role": "user", "content": _content(pending)}
            alone.told = message, _write(message)
        found.messages.append(alone.told[0])
        found.written.append(alone.told[1])
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
