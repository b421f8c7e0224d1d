"""Structured tool calls as servers really send them, brought to what clients can read.

Only certain faults are mended: an empty or missing id, a type, id or name that is null or repeated in later pieces,
a missing index, all parallel calls at index 0, arguments as an object, `finish_reason: "stop"` beside calls, usage in
chunks that carry a call, a name that certainly means a declared tool. What needs no mending is left as it is.

A call that the same answer brings in two forms - as text, in `tool_calls`, in the older `function_call` - is one call.
Those that may turn out to be one again are held until the answer's end, when it can be told.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec
from attrs import define, field

from gateway.wire.json_scan import JsonScanner

__all__ = ["CallKey", "NativeCalls", "key_of"]

CallKey = tuple[str, str]
"""A call's name and its arguments, however they are written."""

Rename = Callable[[str], str | None]
"""The tool that a name which nobody declared certainly means."""
_ANY_DEPTH = 1 << 62
"""The scanner only counts, so how deep arguments nest is for whoever decodes them."""


@define
class _Call:
    index: int
    id: str
    name: str
    pieces: list[str] = field(factory=list)
    is_dropped: bool = False
    _scanner: JsonScanner = field(factory=lambda: JsonScanner(_ANY_DEPTH))
    _scanned: int = 0
    """How many pieces the scanner has seen."""

    def has_ended(self) -> bool:
        """A whole value has come; each piece is looked at once, however often this is asked."""
        text = "".join(self.pieces[self._scanned :]).lstrip()
        self._scanned = len(self.pieces)
        return self._scanner.feed(text) >= 0 or self._scanner.is_scalar

    @property
    def key(self) -> CallKey:
        return key_of(self.name, "".join(self.pieces))

    def is_usable(self) -> bool:
        """The arguments are an object, or nothing at all."""
        arguments = "".join(self.pieces).strip()
        try:
            return not arguments or isinstance(msgspec.json.decode(arguments), dict)
        except (ValueError, RecursionError):
            return False


class NativeCalls:
    """The structured calls of one choice; `mended` names what has been mended."""

    def __init__(self, make_id: Callable[[str], str], rename: Rename | None = None) -> None:
        self._make_id = make_id
        self._rename = rename
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}
        self.mended: list[str] = []
        self.first = 0
        """The index of the first of them: how many other calls the client has been given before."""
        self.is_holding = False
        """Calls that begin now are held."""
        self._held: dict[int, _Call] = {}
        self._dropped = 0
        self._top = 0
        """What comes behind every index so far."""
        self._names: set[str] = set()
        self.legacy: _Call | None = None
        """The call in the older form, of which there is one at most."""

    @property
    def count(self) -> int:
        return len(self._calls) + (self.legacy is not None)

    @property
    def numbered(self) -> int:
        """How many of the client's indexes are taken."""
        return len(self._calls) - self._dropped - len(self._held)

    @property
    def keys(self) -> set[CallKey]:
        """The calls that have gone out to the client, the older form apart."""
        held = set(map(id, self._held.values()))
        return {call.key for call in self._calls if not call.is_dropped and id(call) not in held}

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """Id, name and arguments of each, as far as they have come."""
        return [(call.id, call.name, "".join(call.pieces)) for call in self._calls]

    @property
    def unusable(self) -> int:
        """How many calls have arguments that are no JSON object."""
        return sum(not call.is_usable() for call in self._calls)

    def mend_deltas(self, deltas: Any) -> bool:
        """Mend the `tool_calls` of one delta in place; True if anything changed."""
        before = len(self.mended)
        if isinstance(deltas, list):
            for delta in deltas:
                if isinstance(delta, dict):
                    self._mend_delta(delta)
        return len(self.mended) > before

    def mend_message(self, calls: Any) -> bool:
        """Mend the `tool_calls` of a whole message in place; True if anything changed."""
        before = len(self.mended)
        if isinstance(calls, list):
            for call in calls:
                if isinstance(call, dict):
                    self._mend_whole(call)
        return len(self.mended) > before

    def take_legacy(self, function_call: Any) -> bool:
        """A `function_call`, or the next piece of one; True if its name was mended, all else stays as it is."""
        if not self.is_legacy(function_call):
            return False
        before = len(self.mended)
        if self.legacy is None:
            self.legacy = _Call(index=-1, id="", name="")
        if not self.legacy.name:
            self._repair_name(function_call)
        self.legacy.name = self.legacy.name or _text(function_call.get("name"))
        self.legacy.pieces.append(_text(function_call.get("arguments")))
        return len(self.mended) > before

    def is_legacy(self, function_call: Any) -> bool:
        """Whether this is a call, or a piece of one; some servers put an empty one into every answer."""
        return isinstance(function_call, dict) and bool(function_call.get("name") or self.legacy is not None)

    def holds(self, delta: Any) -> bool:
        """Whether a piece, once mended, belongs to a call that is held."""
        index = delta.get("index") if isinstance(delta, dict) else None
        return isinstance(index, int) and index in self._held

    def may_name(self, name: str) -> bool:
        """Whether a call has begun that is of this name, or began without any."""
        return name in self._names or "" in self._names

    def finish_calls(self, given: Collection[CallKey]) -> dict[int, int | None]:
        """All that is held goes out, but for what has been given in another form.

        Returns what becomes of the indexes of those that were held; None where the call is dropped.
        """
        free = self.first + self.numbered
        held, self._held = self._held, {}
        moved: dict[int, int | None] = {}
        for index, call in held.items():
            if call.key in given:
                call.is_dropped, moved[index] = True, None
                self._dropped += 1
                self.mended.append("call_repeated")
            elif self.first or self._dropped:
                call.index = moved[index] = free
                free += 1
        return moved

    def finish_legacy(self, given: Collection[CallKey]) -> bool:
        """The same of the call in the older form: False if it is dropped, for one of these or of the others."""
        call = self.legacy
        if call is None or (call.key not in given and call.key not in self.keys):
            return True
        call.is_dropped = True
        self.mended.append("call_repeated")
        return False

    def finish_reason(self, reason: str | None) -> str | None:
        """The reason to give at the end: a stop beside calls is `tool_calls`."""
        # Agents go by this word: with `stop` they take the call for a finished answer.
        # https://github.com/openvinotoolkit/model_server/issues/3927
        if reason == "stop" and self._calls:
            self.mended.append("finish_reason")
            return "tool_calls"
        return reason

    def _mend_delta(self, delta: dict[str, Any]) -> None:
        function = delta.get("function")
        if not isinstance(function, dict):
            # A client that adds pieces up takes the index for a number:
            # https://github.com/openai/openai-python/issues/2806
            if delta.get("index") is None:
                self._set_index(delta, self._calls[-1].index if self._calls else self.first)
            return
        self._arguments(function)
        call = self._known(delta, function)
        if call is None:
            self._begin(delta, function)
        else:
            self._go_on(call, delta, function)

    def _known(self, delta: dict[str, Any], function: dict[str, Any]) -> _Call | None:
        """The call that a delta goes on with; None when it begins one."""
        index, call_id, name = delta.get("index"), delta.get("id"), function.get("name")
        if isinstance(index, int):
            call = self._at.get(index)
        elif call_id:
            call = next((known for known in self._calls if known.id == call_id), None)
        else:
            call = None if name or not self._calls else self._calls[-1]
        # Gemini's own endpoint puts parallel calls into pieces of their own without an index, others all at 0; whether
        # a
        # piece begins a call is then told by its id and name. https://github.com/brainlid/langchain/pull/620
        if call is None or not call_id or call_id == call.id or not name:
            return call
        return None if call.has_ended() else call

    def _begin(self, delta: dict[str, Any], function: dict[str, Any]) -> None:
        number = max(self.first + len(self._calls), self._top)
        index = delta.get("index")
        if not isinstance(index, int):
            self._set_index(delta, number)
        elif index in self._at or self.first:
            self._set_index(delta, number, "index_repeated")
        call = self._begun(delta, function, delta["index"])
        self._at[index if isinstance(index, int) else call.index] = call

    def _go_on(self, call: _Call, delta: dict[str, Any], function: dict[str, Any]) -> None:
        if delta.get("index") != call.index:
            self._set_index(delta, call.index, "index_missing" if delta.get("index") is None else "index_repeated")
        # Clients join what comes again: an id in every piece becomes one long id, and `null` where text was is a fault.
        # https://github.com/BerriAI/litellm/issues/20480
        for key in ("id", "type"):
            if key in delta and (delta[key] is None or delta[key] == "" or key == "id"):
                del delta[key]
                self.mended.append(f"{key}_repeated")
        if "name" in function:
            # llama.cpp once told the name in every piece, which clients join to `readreadread`.
            # https://github.com/ggml-org/llama.cpp/pull/13800
            if not call.name and isinstance(function["name"], str):
                self._repair_name(function)
                call.name = function["name"]
                self._names.add(call.name)
            else:
                del function["name"]
                self.mended.append("name_repeated")
        call.pieces.append(_text(function.get("arguments")))

    def _mend_whole(self, call: dict[str, Any]) -> None:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        self._arguments(function)
        self._begun(call, function, len(self._calls))

    def _begun(self, given: dict[str, Any], function: dict[str, Any], index: int) -> _Call:
        """One more call, with what the first words of it must hold."""
        # Streams of vLLM and LM Studio came without: https://github.com/vllm-project/vllm/issues/18412,
        # https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/830
        if not isinstance(given.get("id"), str) or not given["id"]:
            given["id"] = self._make_id("native")
            self.mended.append("id_missing")
        if given.get("type") is None:
            given["type"] = "function"
            self.mended.append("type_missing")
        self._repair_name(function)
        call = _Call(index=index, id=given["id"], name=_text(function.get("name")))
        call.pieces.append(_text(function.get("arguments")))
        self._calls.append(call)
        self._top = max(self._top, index + 1)
        self._names.add(call.name)
        if self.is_holding:
            self._held[index] = call
        return call

    def _repair_name(self, function: dict[str, Any]) -> None:
        name = function.get("name")
        meant = self._rename(name) if self._rename is not None and isinstance(name, str) and name else None
        if meant is not None and meant != name:
            function["name"] = meant
            self.mended.append("name_repaired")

    def _arguments(self, function: dict[str, Any]) -> None:
        arguments = function.get("arguments")
        # Ollama's own form is an object, and llama.cpp sent one to everybody for a while.
        # https://github.com/ggml-org/llama.cpp/issues/20198
        if isinstance(arguments, dict | list):
            function["arguments"] = msgspec.json.encode(arguments).decode()
            self.mended.append("arguments_object")
        elif arguments is None and "arguments" in function:
            function["arguments"] = ""
            self.mended.append("arguments_null")

    def _set_index(self, delta: dict[str, Any], index: int, fault: str = "index_missing") -> None:
        delta["index"] = index
        self.mended.append(fault)


def key_of(name: str, arguments: str) -> CallKey:
    """What two calls have in common that are the same."""
    text = arguments.strip() or "{}"
    try:
        return name, msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()
    except (ValueError, RecursionError):
        return name, text


def _text(value: object) -> str:
    """A name or a piece of arguments; what is no text is passed on, and is none of any."""
    return value if isinstance(value, str) else ""
