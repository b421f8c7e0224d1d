"""What a chat answer says, told call by call to whoever tells it on in another wire.

Texts are handed on as the bodies of the JSON strings in which they came, undecoded: whoever tells them on puts them
into strings of its own. Joined, bodies are the body of the joined text. Calls are told whole and in order, when nothing
can take them back: behind complete arguments as soon as something else begins, else at the finish; what a limit has cut
off is no call. Only the first choice is told, as other wires have no more than one.

A wire that takes calls in pieces is told the first open one as it comes, and its end when nothing can be missing of it;
what comes meanwhile waits, so that nothing is ever said inside of something else.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec
from attrs import define, field

from gateway.core.errors import UpstreamBadReply
from gateway.core.events import END_REASONS
from gateway.wire.chat_chunks import any_in, is_given
from gateway.wire.sse import DONE, EventTooLong, SseDecoder

__all__ = ["Heard", "Pieces", "Teller", "hear_whole", "string_of"]

_CONTENT = b'"content":'
_NOTHING = frozenset({b"", b"null", b'""'})
_Text = Literal["text", "refusal", "reasoning"]
_PLAIN_BODY = re.compile(rb'[^"\\\n]*+(?:\\["\\/bfnrt][^"\\\n]*+)*+')
"""A JSON string's body without escapes by number, of which some are half a character."""
_ESCAPE = re.compile(
    # Escapes in pairs are characters of their own; only one without its other half needs care.
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F][0-9a-fA-F]{2})|[^\n])"
)
"""An escape of JSON; the group is half a character without its other half."""
_MASK = rb"\ufdd0"
"""Stands in for the escape of half a character where JSON is decoded that must have none; no text has it."""
_MASKED = re.compile(rb"\\ufdd0([0-9a-f]{4})")
_LOST = rb"\ufffd"
_HIGH = (b"d8", b"d9", b"da", b"db")


class Teller(Protocol):
    """Who tells the answer on."""

    def text(self, body: bytes) -> None: ...

    def refusal(self, body: bytes) -> None: ...

    def reasoning(self, body: bytes) -> None: ...

    def call(self, call_id: str, name: str, arguments: str) -> None: ...

    def finish_reason(self, reason: str, stopped_at: str | None = None) -> None:
        """Why it ends, and at which sequence, where the server says so."""
        ...

    def usage(self, told: Mapping[str, Any]) -> None: ...

    def plain(self, body: bytes, reason: str, stopped_at: str | None, usage: Mapping[str, Any] | None) -> None:
        """A whole answer that is one text and nothing else: the same as each of these told by itself, and its end."""
        ...

    def error(self, error: Mapping[str, Any]) -> None:
        """The answer ends by this fault; nothing is told behind it."""
        ...

    def end(self) -> None:
        """The answer is complete."""
        ...


class Pieces(Protocol):
    """Who tells calls on while they come, in the place of `Teller.call`."""

    def call_begins(self, call_id: str, name: str) -> None: ...

    def call_piece(self, body: bytes) -> None:
        """More of its arguments: the body of a JSON string."""
        ...

    def call_ends(self, *, is_whole: bool) -> None:
        """Nothing more comes; whether it is a call, or was cut, or has arguments that are none."""
        ...


class _Function(msgspec.Struct):
    name: Any = None
    arguments: msgspec.Raw = msgspec.Raw()


class _Call(msgspec.Struct):
    index: Any = None
    id: Any = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    """A delta, or a whole message."""

    content: msgspec.Raw = msgspec.Raw()
    refusal: msgspec.Raw = msgspec.Raw()
    reasoning_content: msgspec.Raw = msgspec.Raw()
    reasoning: msgspec.Raw = msgspec.Raw()
    thinking: msgspec.Raw = msgspec.Raw()
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: Any = 0
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: Any = None
    # Where vLLM and SGLang name the sequence that an answer stopped at.
    stop_reason: Any = None
    matched_stop: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_CHUNK = msgspec.json.Decoder(_Chunk)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


@define
class _Pending:
    """A call that is not whole yet."""

    id: str
    name: str = ""
    pieces: list[bytes] = field(factory=list)
    """Bodies of JSON strings."""
    # Decoding the arguments after each piece would cost the square of their length.
    is_looked_at: bool = False
    """Nothing has come since its arguments were found to be incomplete."""
    is_begun: bool = False
    """It is being told, in pieces."""
    told: int = 0
    """How many pieces were told."""
    half: bytes = b""
    """Half a character at the end of the last piece that was told."""

    @property
    def arguments(self) -> str:
        return string_of(b"".join(self.pieces))

    def may_go_on(self) -> bool:
        """Whether its arguments are not complete."""
        if not self.is_looked_at:
            self.is_looked_at = not (self.name and _is_object(self.arguments))
        return self.is_looked_at


class Heard:
    """A chat stream, cut anywhere."""

    __slots__ = (
        "_behind",
        "_calls",
        "_current",
        "_decoder",
        "_half",
        "_has_halves",
        "_head",
        "_is_between",
        "_is_over",
        "_pieces",
        "_quotes",
        "_reason",
        "_tail",
        "_teller",
    )

    def __init__(self, teller: Teller, *, max_event_bytes: int, pieces: Pieces | None = None) -> None:
        self._teller = teller
        self._pieces = pieces
        self._behind: list[tuple[_Text, bytes]] = []
        """What was said while a call was being told in pieces."""
        self._head = self._tail = b""
        """What stands around the content of the last event that was nothing but content."""
        self._quotes = 0
        """How many quotes those two have."""
        self._decoder = SseDecoder(max_event_bytes)
        self._is_between = True
        """What comes next begins an event."""
        self._calls: list[_Pending] = []
        self._current: dict[object, _Pending] = {}
        """By the number that the server gave it."""
        self._half: tuple[_Text, bytes] | None = None
        self._has_halves = False
        self._reason: str | None = None
        self._is_over = False

    def feed(self, data: bytes) -> None:
        """More of the stream."""
        if self._is_over or self._run(data):
            return
        try:
            events = self._decoder.feed(data)
        except EventTooLong:
            self._fail(UpstreamBadReply("an event of the model server's answer is too long").body()["error"])
            return
        self._is_between = not self._decoder.pending
        for _, event in events:
            if event is not None and not self._is_over:
                self._event(event)

    def finish(self) -> None:
        """No more of it will come: behind a finish reason that is its end, else it is told to nobody."""
        for _, event in () if self._is_over else self._decoder.finish():
            if event is not None and not self._is_over:
                self._event(event)
        if self._reason is not None:
            self._end()

    def word(self, data: bytes) -> bytes | None:
        """The text of one event of nothing but that, alike the last but for it; it is for the caller to tell it on.

        None for all else, which is to be fed.
        """
        head, tail = self._head, self._tail
        start, end = len(head), len(data) - len(tail)
        if not start or start >= end or not self._is_between or not data.startswith(head) or not data.endswith(tail):
            return None
        body = data[start:end]
        if (b"\\" in body or b'"' in body or b"\n" in body) and not _PLAIN_BODY.fullmatch(body):
            return None
        return body if body.isascii() or _is_text(body) else None

    def _run(self, data: bytes) -> bool:
        """Events of nothing but content, alike but for it, told without taking any apart; whether they were."""
        head, tail = self._head, self._tail
        if not (head and data.startswith(head) and data.endswith(tail) and self._is_between):
            return False
        if len(data) < len(head) + len(tail):
            return False
        # All events of a server look alike but for the words: what stands around them is looked for as a whole.
        bodies = data[len(head) : len(data) - len(tail)].split(tail + head)
        # Each is the body of one string if there is no quote, and no end of a line, beside those of head and tail.
        count = len(bodies)
        if data.count(b'"') != count * self._quotes or data.count(b"\n") != count * 2 or b'\\"' in data:
            return False
        body = b"".join(bodies)
        # Half a character is for the slow way, and so are bytes that are no text.
        if b"\\ud" in body or b"\\uD" in body or not _is_text(body):
            return False
        if body:
            self._told("text", body)
        return True

    def _cast(self, data: bytes, chunk: _Chunk) -> None:
        """Take an event of nothing but content for the mould of those to come."""
        choice = chunk.choices[0] if chunk.choices and len(chunk.choices) == 1 else None
        delta = choice.delta if choice is not None else None
        if choice is None or delta is None or choice.finish_reason or choice.index not in (0, None):
            return
        others = (delta.reasoning_content, delta.reasoning, delta.thinking, delta.refusal)
        if any(len(bytes(each)) > 2 and is_given(each) for each in others) or delta.tool_calls or self._calls:
            return
        content = bytes(delta.content)
        at = data.find(_CONTENT) + len(_CONTENT)
        at = data.find(b'"', at) if at >= len(_CONTENT) else -1
        is_alone = not is_given(chunk.usage) and not is_given(chunk.error) and self._half is None
        if len(content) <= 2 or at < 0 or data[at : at + len(content)] != content or not is_alone or b"\n" in data:
            return
        self._head, self._tail = b"data: " + data[: at + 1], data[at + len(content) - 1 :] + b"\n\n"
        self._quotes = (self._head + self._tail).count(b'"')

    def _event(self, data: bytes) -> None:
        if data == DONE:
            self._end()
            return
        chunk = _decoded(data)
        self._has_halves = chunk is None
        # The fast decoder refuses half a character; a client of this wire must get it, or what stands for it.
        chunk = chunk or _decoded(_masked(data))
        if chunk is None:
            return  # what chat clients pass over
        error = any_in(chunk.error) if is_given(chunk.error) else None
        if error is not None:
            self._fail(error if isinstance(error, dict) else {"message": str(error)})
            return
        for choice in chunk.choices or ():
            # More than one choice has no form in the other wires.
            if choice.index in (0, None):
                self._hear(choice)
        self._tell_usage(chunk)
        # An event that was read takes the mould away; only one of nothing but content makes another.
        self._head = b""
        if not self._has_halves:
            self._cast(data, chunk)

    def _tell_usage(self, chunk: _Chunk) -> None:
        usage = any_in(chunk.usage) if is_given(chunk.usage) else None
        if isinstance(usage, dict):
            self._teller.usage(usage)

    def _say(self, kind: _Text, raw: msgspec.Raw) -> None:
        """Tell on what a field says; half a character waits for its other half."""
        for body in _bodies(raw):
            self._tell_whole_calls()
            half = self._half
            if half is not None and half[0] == kind and self._has_halves:
                body, self._half = half[1] + body, None
            self._tell_half()
            if self._has_halves:
                body, rest = _whole_characters(body)
                self._half = (kind, rest) if rest else None
            if body:
                self._told(kind, body)

    def _told(self, kind: _Text, body: bytes) -> None:
        # A block that is open must end before another begins: the other wires have no words inside of a call.
        if self._calls and self._calls[0].is_begun:
            self._behind.append((kind, body))
            return
        match kind:
            case "text":
                self._teller.text(body)
            case "refusal":
                self._teller.refusal(body)
            case "reasoning":
                self._teller.reasoning(body)

    def _tell_half(self) -> None:
        """The other half of a character will not come."""
        half, self._half = self._half, None
        if half is not None:
            self._told(half[0], _LOST)

    def _hear(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta is not None:
            thought = (delta.reasoning_content, delta.reasoning, delta.thinking)  # some servers say it in two fields
            self._say("reasoning", next((each for each in thought if len(bytes(each)) > len(b'""')), delta.reasoning))
            self._say("text", delta.content)
            self._say("refusal", delta.refusal)
            for call in delta.tool_calls or ():
                self._call(call)
        if isinstance(choice.finish_reason, str) and choice.finish_reason:
            self._tell_half()
            self._reason = choice.finish_reason
            told = (choice.stop_reason, choice.matched_stop)
            self._tell_calls()
            self._teller.finish_reason(
                choice.finish_reason, next((each for each in told if isinstance(each, str)), None)
            )

    def _call(self, call: _Call) -> None:
        self._tell_half()
        call_id = call.id if isinstance(call.id, str) else ""
        name = call.function.name if call.function is not None else None
        name = name if isinstance(name, str) else ""
        pending = self._meant(call.index, call_id, name)
        pending.name = pending.name or name
        if call.function is not None:
            raw = bytes(call.function.arguments)
            # Some servers send the object itself: https://github.com/ollama/ollama/blob/main/docs/api.md
            if raw[:1] == b'"':
                body = _unmasked(raw[1:-1])
            else:
                body = msgspec.json.encode(raw.decode())[1:-1] if raw[:1] == b"{" else b""
            if body:
                pending.pieces.append(body)
                pending.is_looked_at = False
        self._flow()

    def _meant(self, index: object, call_id: str, name: str) -> _Pending:
        """The call that a piece belongs to; a new one where it says so, whatever its number."""
        numbered = isinstance(index, int)
        pending = self._current.get(index) if numbered else self._calls[-1] if self._calls else None
        # Parallel calls that all come at index 0: https://github.com/brainlid/langchain/issues/620
        if pending is None or (name and call_id and pending.id and call_id != pending.id):
            self._tell_whole_calls()
            pending = self._current[index] = _Pending(call_id)
            self._calls.append(pending)
        # Some servers tell it with a later piece only.
        pending.id = pending.id or call_id
        return pending

    def _tell_whole_calls(self) -> None:
        """Something else begins: the calls before it are told, up to the first whose arguments may go on."""
        while self._calls and not self._calls[0].may_go_on():
            self._tell_first(is_whole=True)
        self._flow()

    def _tell_calls(self) -> None:
        # What was cut off may look whole: `{"path":"a"}` of a call that had more to say.
        is_cut = self._reason not in END_REASONS
        while self._calls:
            pending = self._calls[0]
            is_open = pending.may_go_on()
            if self._pieces is not None:
                self._tell_first(is_whole=not is_open or (not is_cut and not pending.arguments.strip()))
            elif pending.name and not (is_cut and is_open):
                self._tell_first(is_whole=True)
            else:
                self._calls.pop(0)

    def _tell_first(self, *, is_whole: bool) -> None:
        """Tell the first call, or what is left of it, and what waits for its end."""
        pending = self._calls[0]
        if self._pieces is None:
            self._teller.call(pending.id, pending.name, pending.arguments)
        else:
            self._flow()
            if pending.is_begun:
                self._pieces.call_ends(is_whole=is_whole)
        self._calls.pop(0)
        behind, self._behind = self._behind, []
        for kind, body in behind:
            self._told(kind, body)

    def _flow(self) -> None:
        """Tell what has come of the first call, where calls are told in pieces."""
        pending = self._calls[0] if self._calls and self._pieces is not None else None
        if pending is None or self._pieces is None or not pending.name:
            return
        if not pending.is_begun:
            pending.is_begun = True
            self._pieces.call_begins(pending.id, pending.name)
        if pending.told == len(pending.pieces):
            return
        body = pending.half + b"".join(pending.pieces[pending.told :])
        pending.told, pending.half = len(pending.pieces), b""
        if b"\\ud" in body or b"\\uD" in body:
            body, pending.half = _whole_characters(body)
        if body:
            self._pieces.call_piece(body)

    def hear_message(self, choice: _Choice, answer: _Chunk) -> None:
        """A whole answer."""
        calls = (choice.message.tool_calls if choice.message is not None else None) or []
        for number, call in enumerate(calls):
            # Whole answers mostly have none: https://github.com/openai/openai-python/issues/2806
            call.index = number
        given = choice.finish_reason
        reason = given if isinstance(given, str) and given else "tool_calls" if calls else "stop"
        told = _Choice(delta=choice.message, finish_reason=reason)
        told.stop_reason, told.matched_stop = choice.stop_reason, choice.matched_stop
        self._hear(told)
        self._tell_usage(answer)
        self._end()

    def _fail(self, error: Mapping[str, Any]) -> None:
        self._tell_whole_calls()
        self._is_over, self._head = True, b""
        self._teller.error(error)

    def _end(self) -> None:
        if not self._is_over and self._reason is not None:
            self._is_over, self._head = True, b""
            self._tell_calls()  # those behind the finish
            self._teller.end()


def hear_whole(body: bytes, teller: Teller, *, pieces: Pieces | None = None) -> None:
    """Tell a whole chat answer; raises `UpstreamBadReply` for what is none."""
    chunk = _decoded(body)
    has_halves = chunk is None
    chunk = chunk or _decoded(_masked(body))
    choice = None
    for each in (chunk.choices if chunk is not None else None) or ():
        if each.index in (0, None):
            choice = each
            break
    if chunk is None or choice is None or choice.message is None:
        raise UpstreamBadReply("the model server's answer is not what its wire promises")
    if not has_halves and _tell_plain(choice, choice.message, chunk, teller):
        return
    heard = Heard(teller, max_event_bytes=0, pieces=pieces)
    heard._has_halves = has_halves
    heard.hear_message(choice, chunk)


def _tell_plain(choice: _Choice, message: _Message, answer: _Chunk, teller: Teller) -> bool:
    """Tell an answer that is nothing but one text, as most are that come whole; whether it is one."""
    content = bytes(message.content)
    others = (message.refusal, message.reasoning_content, message.reasoning, message.thinking)
    if message.tool_calls or len(content) <= 2 or content[:1] != b'"' or not _NOTHING.issuperset(map(bytes, others)):
        return False
    given, told = choice.finish_reason, choice.stop_reason
    told = told if isinstance(told, str) else choice.matched_stop
    reason = given if isinstance(given, str) and given else "stop"
    usage = any_in(answer.usage) if is_given(answer.usage) else None
    teller.plain(
        content[1:-1],
        reason,
        told if isinstance(told, str) else None,
        usage if isinstance(usage, dict) else None,
    )
    return True


def _is_text(body: bytes) -> bool:
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(data: bytes) -> _Chunk | None:
    if not data.isascii():
        # One byte that is no UTF-8 would have the decoder refuse all of the event.
        data = data.decode("utf-8", "replace").encode()
    try:
        return _CHUNK.decode(data)
    except (ValueError, RecursionError):
        return None


def _masked(data: bytes) -> bytes:
    """The JSON with the escapes of half characters masked: servers cut a text wherever a token ends."""
    return _ESCAPE.sub(lambda found: _MASK + found[1].lower() if found[1] else found[0], data)


def _whole_characters(body: bytes) -> tuple[bytes, bytes]:
    """The body with its half characters replaced, and the half at its end that may yet become one."""
    rest = b""

    def whole(found: re.Match[bytes]) -> bytes:
        nonlocal rest
        if not found[1]:
            return found[0]
        if found.end() == len(body) and found[1][:2].lower() in _HIGH:
            rest = found[0]
            return b""
        return _LOST

    return _ESCAPE.sub(whole, body), rest


def string_of(body: bytes) -> str:
    """The text of a JSON string's body; half a character is replaced, as no text could hold it."""
    told = b'"' + body + b'"'
    try:
        return msgspec.json.decode(told, type=str)
    except ValueError:
        pass
    try:
        # Half a character, which msgspec refuses and Python's own reader takes.
        return str(json.loads(told)).encode("utf-8", "replace").decode()
    except ValueError:
        return ""


def _bodies(*fields: msgspec.Raw) -> list[bytes]:
    """The bodies of those fields that are strings and say something; of a list of parts those of its texts."""
    found = []
    for each in fields:
        raw = bytes(each)
        if raw[:1] == b'"':
            if len(raw) > 2:
                found.append(_unmasked(raw[1:-1]))
        # Mistral's servers give reasoning models' content in parts: https://docs.mistral.ai/capabilities/reasoning/
        elif raw[:1] == b"[":
            found += [msgspec.json.encode(text)[1:-1] for text in _texts(raw) if text]
    return found


def _unmasked(body: bytes) -> bytes:
    return _MASKED.sub(rb"\\u\1", body) if _MASK in body else body


def _texts(raw: bytes) -> list[str]:
    try:
        parts = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _is_object(arguments: str) -> bool:
    try:
        _OBJECT.decode(arguments)
    except (ValueError, RecursionError):
        pass
    else:
        return True
    try:
        # Half a character, which msgspec refuses and every client's own reader takes.
        return isinstance(json.loads(arguments, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(word: str) -> None:
    raise ValueError(word)
