"""Structured tool calls as servers really send them, brought to what clients can read.

Only certain faults are mended: an empty or missing id, one that two calls have, a type, id or name that is null or
repeated in later pieces, a missing index or a gap before it, all parallel calls at index 0, arguments as an object,
`finish_reason: "stop"` beside calls, usage in chunks that carry a call, a name that certainly means a declared tool, a
call more than the request allows, an exact copy of the call before it. What needs no mending is left as it is.

A call that the same answer brings in two forms - as text, in `tool_calls`, in the older `function_call` - is one call.
Those that may turn out to be one again are held until the answer's end, when it can be told.
"""

from collections.abc import Callable, Collection, Container
from typing import Any

import msgspec
from attrs import define, field

from gateway.core.events import END_REASONS
from gateway.wire.json_scan import JsonScanner

__all__ = ["CallKey", "NativeCalls", "StructuredCall", "key_of"]

CallKey = tuple[str, str]
"""A call's name and its arguments, however they are written."""

Rename = Callable[[str], str | None]
"""The tool that a name which nobody declared certainly means."""
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""Tells whether a text is an object without making all that it holds: a deep one of a megabyte took 100 ms."""
_ANY_DEPTH = 1 << 62
"""The scanner only counts, so how deep arguments nest is for whoever decodes them."""


@define(eq=False)
class StructuredCall:
    """One call of the model server, as far as it has come."""

    index: int
    id: str
    name: str
    given_id: str = ""
    given_name: str = ""
    """Id and name as the server wrote them."""
    pieces: list[str] = field(factory=list)
    size: int = 0
    """How many characters of arguments have come."""
    is_function: bool = True
    """It is of the only kind that has arguments of its own."""
    is_named_late: bool = False
    """Its name, or the rest of it, stands in a later piece than its id."""
    is_dropped: bool = False
    before: "StructuredCall | None" = None
    """The call in front of it, where this one may be a copy of that."""
    differs: bool = False
    """It is not written as that one is."""
    _scanner: JsonScanner = field(factory=lambda: JsonScanner(_ANY_DEPTH))
    _scanned: int = 0
    """How many pieces the scanner has seen."""
    _joined: tuple[int, str] = (0, "")
    """As many pieces as one text."""

    def add(self, piece: str) -> None:
        """The next piece of its arguments."""
        self.pieces.append(piece)
        if self.before is not None and not self.differs:
            # Compared as it comes: once it differs nobody has to wait for its end.
            self.differs = not self.before.arguments.startswith(piece, self.size)
        self.size += len(piece)

    @property
    def arguments(self) -> str:
        """Its arguments so far."""
        if self._joined[0] != len(self.pieces):
            self._joined = len(self.pieces), "".join(self.pieces)
        return self._joined[1]

    def replace(self, arguments: str) -> None:
        """Its arguments are these, from now on."""
        self.pieces = [arguments]
        self._joined = 0, ""
        self.size = len(arguments)

    def has_ended(self) -> bool:
        """A whole value has come; each piece is looked at once, however often this is asked."""
        # Without the blanks in front the scanner would take them for the value's first character.
        text = "".join(self.pieces[self._scanned :]).lstrip()
        self._scanned = len(self.pieces)
        return self._scanner.feed(text) >= 0 or self._scanner.is_scalar

    @property
    def key(self) -> CallKey:
        """What its copies have in common with it."""
        return key_of(self.name, self.arguments)

    def is_usable(self) -> bool:
        """The arguments are an object, or nothing at all."""
        arguments = self.arguments.strip()
        return not arguments or _is_object(arguments)


class NativeCalls:
    """The structured calls of one choice; `mended` names what has been mended."""

    def __init__(
        self,
        make_id: Callable[[str], str],
        rename: Rename | None = None,
        *,
        one_only: bool = False,
        drops_copies: Callable[[str], bool] | None = None,
        reads_copies: bool = False,
        taken_ids: Container[str] = (),
        next_id: Callable[[str, str, int], str] | None = None,
    ) -> None:
        self._make_id = make_id
        self._rename = rename
        self._one_only = one_only
        self._drops_copies = drops_copies
        """Whether a copy of the call before is dropped, for a tool of this name."""
        self._reads_copies = reads_copies
        """A copy may be written otherwise, with other white space; else it is the same to the letter."""
        self._taken_ids = taken_ids
        self._next_id = next_id
        self._calls: list[StructuredCall] = []
        self._at: dict[int, StructuredCall] = {}
        self._ids: set[str] = set()
        """Those that the client gets."""
        self._by_id: dict[str, StructuredCall] = {}
        """By the ids that the server gave."""
        self.touched: list[tuple[dict[str, Any], StructuredCall]] = []
        """The entries that were mended last, with the calls that they belong to."""
        self.mended: list[str] = []
        self.first = 0
        """The index of the first of them: how many other calls the client has been given before."""
        self.is_holding = False
        """Calls that begin now are held."""
        self._held: dict[int, StructuredCall] = {}
        self._dropped = 0
        self._size = 0
        self._unusable = (0, 0), 0
        """How many calls and characters there were when they were last looked at, and what that came to."""
        self._last_live: StructuredCall | None = None
        self.undelivered = 0
        """How many were dropped as more than the request allows."""
        self.copies = 0
        """How many were dropped as copies."""
        self._names: set[str] = set()
        self.legacy: StructuredCall | None = None
        """The call in the older form, of which there is one at most."""

    @property
    def count(self) -> int:
        """How many there are, delivered or not."""
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
    def every(self) -> list[StructuredCall]:
        """All of them in their order, dropped ones too, the older form last."""
        return [*self._calls, *((self.legacy,) if self.legacy is not None else ())]

    @property
    def live(self) -> list[StructuredCall]:
        """Those that are not dropped, the older form apart."""
        return [call for call in self._calls if not call.is_dropped]

    @property
    def last(self) -> StructuredCall | None:
        """The one that began last."""
        return self._calls[-1] if self._calls else None

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """Id, name and arguments of each that is not dropped, as far as they have come."""
        return [(call.id, call.name, call.arguments) for call in self.live]

    @property
    def size(self) -> int:
        """How many characters of arguments have come, all in all."""
        return self._size

    @property
    def unusable(self) -> int:
        """How many calls have arguments that are no JSON object; all are looked at again only when more has come."""
        seen = len(self._calls), self._size
        if self._unusable[0] != seen:
            self._unusable = seen, sum(not call.is_usable() for call in self._calls)
        return self._unusable[1]

    def mend_deltas(self, deltas: Any) -> bool:
        """Mend the `tool_calls` of one delta in place; True if anything changed."""
        before = len(self.mended)
        self.touched = []
        if isinstance(deltas, list):
            dropped = [delta for delta in deltas if isinstance(delta, dict) and not self._mend_delta(delta)]
            if dropped:
                # By identity: two pieces may be equal and only one of them dropped.
                gone = set(map(id, dropped))
                deltas[:] = [delta for delta in deltas if id(delta) not in gone]
        return len(self.mended) > before

    def mend_message(self, calls: Any) -> bool:
        """Mend the `tool_calls` of a whole message in place; True if anything changed."""
        before = len(self.mended)
        self.touched = []
        if isinstance(calls, list):
            begun = [(call, self._mend_whole(call) if isinstance(call, dict) else None) for call in calls]
            self.close_last()
            calls[:] = [call for call, each in begun if each is None or not each.is_dropped]
            self.touched = [(call, each) for call, each in begun if each is not None and not each.is_dropped]
        return len(self.mended) > before

    def close_last(self) -> StructuredCall | None:
        """No more comes of the last call; it is returned if it is a copy of the one before it, and dropped."""
        call = self._calls[-1] if self._calls else None
        before = call.before if call is not None else None
        if call is None or before is None or call.is_dropped:
            return None
        # Where calls are held anyway the values can be compared; else only the bytes have been seen.
        is_copy = call.key == before.key if self._reads_copies else call.arguments == before.arguments
        if not is_copy:
            return None
        call.is_dropped, call.before = True, None
        self._last_live = before
        self._dropped += 1
        self.copies += 1
        self.mended.append("call_copied")
        return call

    def take_legacy(self, function_call: Any) -> bool:
        """A `function_call`, or the next piece of one; True if its name was mended, all else stays as it is."""
        if not self.is_legacy(function_call):
            return False
        before = len(self.mended)
        # `function_call` came before `tool_calls` and knows one call:
        # https://platform.openai.com/docs/guides/function-calling
        if self.legacy is None:
            self.legacy = StructuredCall(index=-1, id="", name="")
        if not self.legacy.name:
            self.legacy.given_name = _text(function_call.get("name"))
            self._repair_name(function_call)
        self.legacy.name = self.legacy.name or _text(function_call.get("name"))
        self.legacy.add(_text(function_call.get("arguments")))
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
        # Clients count calls from nought without a gap, so what is dropped must not leave one.
        free = self.first + self.numbered
        held, self._held = self._held, {}
        moved: dict[int, int | None] = {}
        for index, call in held.items():
            if given and call.key in given:
                call.is_dropped, moved[index] = True, None
                self._dropped += 1
                self.mended.append("call_repeated")
            elif self.first or self._dropped:
                call.index = moved[index] = free
                free += 1
        if None in moved.values():
            self._last_live = next((call for call in reversed(self._calls) if not call.is_dropped), None)
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
        """The reason to give at the end: a stop beside calls, in whatever words, is `tool_calls`."""
        # Agents go by this word: with `stop` they take the call for a finished answer.
        # https://github.com/openvinotoolkit/model_server/issues/3927
        # https://github.com/sgl-project/sglang/issues/2877
        if self._calls and isinstance(reason, str) and reason not in ("", "tool_calls") and reason in END_REASONS:
            self.mended.append("finish_reason")
            return "tool_calls"
        return reason

    def _mend_delta(self, delta: dict[str, Any]) -> bool:
        """Mend one piece; false where it belongs to a call that is dropped."""
        function = delta.get("function")
        if not isinstance(function, dict):
            # A client that adds pieces up takes the index for a number:
            # https://github.com/openai/openai-python/issues/2806
            if delta.get("index") is None:
                self._set_index(delta, self._calls[-1].index if self._calls else self.first)
            return True
        self._arguments(function)
        call = self._known(delta, function)
        if call is None:
            call = self._begin(delta, function)
        elif not call.is_dropped:
            self._go_on(call, delta, function)
        self.touched.append((delta, call))
        return not call.is_dropped

    def _known(self, delta: dict[str, Any], function: dict[str, Any]) -> StructuredCall | None:
        """The call that a delta goes on with; None when it begins one."""
        index, call_id, name = delta.get("index"), delta.get("id"), function.get("name")
        if isinstance(index, int):
            call = self._at.get(index)
        # Without an index the id tells, if there is one; a piece with neither goes on with the last call.
        elif call_id:
            call = self._by_id.get(call_id) if isinstance(call_id, str) else None
        else:
            call = None if name or not self._calls else self._calls[-1]
        # Gemini's own endpoint puts parallel calls into pieces of their own without an index, others all at 0; whether
        # one of them begins a call is then told by its id and name. https://github.com/brainlid/langchain/pull/620
        if call is None or not name or not isinstance(name, str):
            return call
        is_other = bool(call_id) and call_id not in (call.id, call.given_id)
        return None if self._begins(call, name, function, is_other=is_other) else call

    def _begins(self, call: StructuredCall, name: str, function: dict[str, Any], *, is_other: bool) -> bool:
        """Whether a piece that has a name begins a call behind this one, whose index it has."""
        renamed = bool(call.given_name) and name != call.given_name
        # One without arguments has no end that could be seen; nothing of it has another id and another name, too.
        if is_other:
            return renamed or call.has_ended()
        if not call.has_ended():
            return False
        # Ids may be missing: https://github.com/huggingface/smolagents/pull/1958
        # What brings the same arguments once more, or the first behind an empty object, goes on with the call; and so
        # does what has its id, as nobody can tell whether the first arguments were meant.
        before, piece = call.arguments.strip(), _text(function.get("arguments")).strip()
        is_next = not call.given_id and before != "{}" and _is_object(piece)
        return renamed or (is_next and key_of("", piece) != key_of("", before))

    def _begin(self, delta: dict[str, Any], function: dict[str, Any]) -> StructuredCall:
        self.close_last()
        live = len(self._calls) - self._dropped
        number = self.first + live
        index = delta.get("index")
        if not isinstance(index, int):
            self._set_index(delta, number)
        elif index != number:
            # Clients that keep calls in a list begin a new one with each piece behind a gap:
            # https://github.com/openai/openai-python/blob/main/src/openai/lib/streaming/_deltas.py
            self._set_index(delta, number, "index_repeated" if index in self._at or self.first else "index_jumped")
        call = self._begun(delta, function, number)
        self._at[index if isinstance(index, int) else number] = call
        return call

    def _go_on(self, call: StructuredCall, delta: dict[str, Any], function: dict[str, Any]) -> None:
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
                call.given_name = function["name"]
                self._repair_name(function)
                call.name = function["name"]
                call.is_named_late = bool(call.name)
                self._names.add(call.name)
            elif self._is_rest_of_name(call, function["name"]):
                call.name = call.given_name = call.name + function["name"]
                call.is_named_late = True
                self._names.add(call.name)
            else:
                del function["name"]
                self.mended.append("name_repeated")
        if call is not self._calls[-1]:  # two calls that come in turns are looked at when all is there
            self._calls[-1].before = None
        self._add(call, function)

    def _is_rest_of_name(self, call: StructuredCall, piece: object) -> bool:
        """Whether a name goes on in a later piece, as Gemini's endpoints tell long ones; clients join them.

        https://github.com/continuedev/continue/pull/5849
        """
        if call.size or self._rename is None or not isinstance(piece, str) or not piece or call.is_dropped:
            return False
        # One that is a tool's already is whole, and so is one that comes again, from its beginning on.
        return self._rename(call.name) != call.name and self._rename(piece) is None and not piece.startswith(call.name)

    def _add(self, call: StructuredCall, function: dict[str, Any]) -> None:
        piece = _text(function.get("arguments"))
        self._size += len(piece)
        call.add(piece)

    def _mend_whole(self, call: dict[str, Any]) -> StructuredCall:
        self.close_last()
        given = call.get("function")
        function = given if isinstance(given, dict) else {}
        # SDKs that check a whole answer refuse all of it where a call has none:
        # https://github.com/vercel/ai/blob/main/packages/openai-compatible/src/chat/openai-compatible-chat-language-model.ts
        if function and "arguments" not in function:
            function["arguments"] = None
        self._arguments(function)
        begun = self._begun(call, function, len(self._calls) - self._dropped)
        begun.is_function = isinstance(given, dict)
        return begun

    def _begun(self, given: dict[str, Any], function: dict[str, Any], index: int) -> StructuredCall:
        """One more call, with what the first words of it must hold."""
        # Streams of vLLM and LM Studio came without: https://github.com/vllm-project/vllm/issues/18412,
        # https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/830
        told = given.get("id")
        if not isinstance(told, str) or not told:
            given["id"] = self._make_id("native")
            self.mended.append("id_missing")
        elif self._is_taken(told) or told in self._by_id:
            # Results find their calls by them. https://github.com/HKUDS/nanobot/issues/4059
            given["id"] = self._other_id(told, _text(function.get("name")))
            self.mended.append("id_doubled")
        # The SDKs' types have one for each call; some servers leave out what can be but one word.
        if given.get("type") in (None, ""):
            given["type"] = "function"
            self.mended.append("type_missing")
        name = _text(function.get("name"))
        self._repair_name(function)
        call = StructuredCall(
            index=index, id=given["id"], given_id=_text(told), name=_text(function.get("name")), given_name=name
        )
        last = self._last_live
        if last is not None and self._one_only:
            call.is_dropped = True
            self._dropped += 1
            self.undelivered += 1
            self.mended.append("call_too_many")
        elif last is not None and last.name == call.name and self._drops_copies and self._drops_copies(call.name):
            call.before = last
        self._add(call, function)
        if not call.is_dropped:
            self._last_live = call
        self._calls.append(call)
        self._by_id.setdefault(call.given_id or call.id, call)
        self._ids.add(call.id)
        self._names.add(call.name)
        if self.is_holding and not call.is_dropped:
            self._held[index] = call
        return call

    def _other_id(self, told: str, name: str) -> str:
        """An id for a call whose own another one has; the form that its model's family asks for, if it does."""
        made = self._next_id(told, name, len(self._calls)) if self._next_id is not None and name else ""
        return made if made and not self._is_taken(made) else self._make_id("native")

    def _is_taken(self, call_id: str) -> bool:
        """Another call has this id for the client."""
        return call_id in self._ids or call_id in self._taken_ids

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
    # No arguments and empty ones are the same call.
    text = arguments.strip() or "{}"
    try:
        return name, msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()
    except (ValueError, RecursionError):
        return name, text


def _is_object(text: str) -> bool:
    try:
        return _OBJECT.decode(text) is not None
    except (ValueError, RecursionError):
        return False


def _text(value: object) -> str:
    """A name or a piece of arguments; what is no text is passed on, and is none of any."""
    return value if isinstance(value, str) else ""
