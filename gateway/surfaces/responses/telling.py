"""A chat answer told as events of the Responses API, or as one response object; both are told by the same calls.

An item opens when its first character is certain and closes before the next one opens; a call is told whole, as clients
run it when its item is done, whatever becomes of the stream behind it. The `output` of the last event is made of the
very bytes with which the items were closed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from gateway.core.errors import UpstreamBadReply, UpstreamTruncated
from gateway.core.ports import Memory
from gateway.surfaces.carrier import named_event
from gateway.surfaces.heard import Heard, hear_whole
from gateway.surfaces.responses.calls import call_item, cut_text, is_mended
from gateway.surfaces.responses.errors import told_fault
from gateway.surfaces.responses.frames import Frames, encoded, object_of, quoted
from gateway.surfaces.responses.relayed import Relayed
from gateway.surfaces.seals import Seals
from gateway.surfaces.toolnames import ToolNames

__all__ = ["INCOMPLETE", "REASONING", "ResponsesTelling", "Terms", "input_id", "item_letters"]

REASONING = "reasoning"
"""What the seal of a thought is made for."""
_NULL = b"null"
_MESSAGE = b'{"id":"%b","type":"message","role":"assistant","status":"%b","phase":null,"content":%b}'
"""An item of text: its id, its status and its parts."""
_COMMENT = b": keep-alive\n\n"
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ITEM_CHARS = 4
"""Of the letters of an item's id those that number it; the others are the response's."""
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "tool_search_call": "tsc",
    "local_shell_call": "lsh",
    "shell_call": "sh",
    "apply_patch_call": "apc",
    "compaction": "cmp",
}
_WRITTEN = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}
"""Calls that bring a text: in which field, and by which events it is told."""
# https://platform.openai.com/docs/api-reference/responses/object
INCOMPLETE = {"length": b"max_output_tokens", "content_filter": b"content_filter"}

Status = Literal["in_progress", "completed", "incomplete", "failed"]


def item_letters(unique: str) -> str:
    """What all items of a response have in their ids: by it they are found again."""
    return unique[:-_ITEM_CHARS]


def input_id(unique: str, number: int) -> str:
    """The id of an item of the request's input that has none."""
    # The upper half of the numbers: items of the answer count from below.
    # Found again by the letters of its response, so a number from both ends keeps them apart.
    return _item_id("msg", unique, len(_LETTERS) ** _ITEM_CHARS // 2 + number)


def _item_id(prefix: str, unique: str, number: int) -> str:
    letters = ""
    for _ in range(_ITEM_CHARS):
        number, letter = divmod(number, len(_LETTERS))
        letters = _LETTERS[letter] + letters
    return f"{prefix}_{unique[:-_ITEM_CHARS]}{letters}"


class Terms(Struct, frozen=True, kw_only=True):
    """What is known of an answer before it comes."""

    unique: str
    """24 letters that no other answer has."""
    created: int
    shared: bytes
    """What all of its objects say of the request: members of a JSON object, each with a comma before it."""
    names: ToolNames
    seals: Seals | None = None
    """Seals the thoughts, where the client asked for it."""
    keep: "Callable[[ResponsesTelling], tuple[Memory, ...]] | None" = None
    """What is kept of a complete answer; of one that is too large nothing, and it says so."""


class _Open(Struct, kw_only=True, eq=False):
    """A message or a thought that is being told."""

    kind: Literal["message", "reasoning"]
    id: bytes
    part: str
    """The type of the part that is open."""
    template: bytes
    parts: list[bytes] = field(default_factory=list)
    """Of a message those that are closed."""
    pieces: list[bytes] = field(default_factory=list)
    """Bodies of JSON strings; together they are one."""


class ResponsesTelling:
    """One answer."""

    is_identity = False
    overhears = True

    def __init__(self, terms: Terms, *, max_event_bytes: int = 4 << 20) -> None:
        self._terms = terms
        self._frames = Frames()
        self._heard: Heard | None = None
        """Hears the stream; the two know each other until it ends, so there is none before it begins."""
        self._max_event_bytes = max_event_bytes
        self._relayed: Relayed | None = None
        self._items: list[bytes] = []
        self._open: _Open | None = None
        self._number = 0
        self._usage = _NULL
        self._reason: str | None = None
        self._is_begun = False
        self._is_over = False
        self._stores = terms.keep is not None
        self._memories: tuple[Memory, ...] = ()
        """What is to be kept of it."""
        self.status: Status = "in_progress"
        self.fault: dict[str, str] = {}
        """What it failed by."""
        self.dropped: dict[str, int] = {}
        self.mended: dict[str, int] = {}
        self.final = b""
        """The response object, once it is complete."""

    @property
    def answer_id(self) -> str:
        return f"resp_{self._terms.unique}"

    def begin(self, input_tokens: int | None = None) -> bytes:
        del input_tokens
        if not self._is_begun:
            self._is_begun = True
            self._frames.say("response.created", response=self._object())
            # The API tells both: the second is what is repeated where a client has to be kept waiting.
            self._frames.say("response.in_progress", response=self._object())
        return self._frames.take()

    def feed(self, data: bytes) -> bytes:
        opened = self._open
        heard = self._heard
        if heard is None:
            heard = self._heard = Heard(self, max_event_bytes=self._max_event_bytes)
        # The way of nearly every event: a word into the text that is open, with nothing decoded.
        if opened is not None and opened.part == "output_text" and (body := heard.word(data)) is not None:
            opened.pieces.append(body)
            return self._frames.next_piece(opened.template, body)
        if not self._is_over:
            heard.feed(data)
        return self._frames.take()

    def finish(self) -> bytes:
        heard, self._heard = self._heard, None
        if heard is not None and not self._is_over:
            heard.finish()
        if not self._is_over:
            self.error(UpstreamTruncated("connection lost: the model server's answer ended too early").body()["error"])
        return self._frames.take()

    def whole(self, body: bytes) -> bytes:
        # Nobody reads its events: only what they add up to is wanted.
        self._frames.is_silent = True
        hear_whole(body, self)
        # A whole answer can still be an error of its own; a stream could only end by one.
        if self.status == "failed" or not self._is_over:
            raise UpstreamBadReply(
                self.fault.get("message", "connection lost: the model server's answer ended too early")
            )
        return self.final

    def overhear(self, data: bytes) -> None:
        if self._relayed is None:
            self._relayed = Relayed(max_event_bytes=self._max_event_bytes)
        self._relayed.feed(data)

    def keep_alive(self) -> bytes:
        # Comments do not reset the clock by which Codex gives up, events of the answer do.
        if not self._is_begun:
            return self._say_relayed("response.in_progress") or _COMMENT
        if not self._is_over:
            self._frames.say("response.in_progress", response=self._object())
        return self._frames.take()

    def go_on(self, number: int, items: list[bytes]) -> None:
        """Tell items behind these, from this number on, in an answer that is told otherwise than here."""
        self._frames = Frames(first=number)
        self._items, self._is_begun = items, True

    def close_items(self) -> tuple[bytes, int]:
        """The events of the items that were told, all of them done, and the number of the next."""
        self._close()
        return self._frames.take(), self._frames.count

    def remember(self) -> tuple[Memory, ...]:
        memories, self._memories = self._memories, ()
        return memories

    def text(self, body: bytes) -> None:
        """More text: the body of a JSON string."""
        self._piece("message", "output_text", body)

    def refusal(self, body: bytes) -> None:
        """More of a refusal."""
        self._piece("message", "refusal", body)

    def reasoning(self, body: bytes) -> None:
        """More of a thought."""
        self._piece("reasoning", "reasoning_text", body)

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """A call, whole."""
        # A call of a tool whose input is free text, cut in the middle: it is told as the text it is.
        text = cut_text(self._terms.names, name, arguments)
        if text is not None:
            self.text(encoded(text)[1:-1])
            return
        own = self._new_id("call")
        item = call_item(self._terms.names, name, call_id or own, arguments)
        if is_mended(item, arguments):
            self.mended["custom_input"] = self.mended.get("custom_input", 0) + 1
        self._tell_item({"id": own.replace("call", _PREFIXES[item["type"]], 1), **item})

    def finish_reason(self, reason: str, stopped_at: str | None = None) -> None:
        """Why it ended."""
        del stopped_at
        self._reason = reason

    def usage(self, told: Mapping[str, Any]) -> None:
        """What it took."""
        usage = _usage(told)
        self._usage = _NULL if usage is None else encoded(usage)

    def plain(self, body: bytes, reason: str, stopped_at: str | None, usage: Mapping[str, Any] | None) -> None:
        """A whole answer of nothing but this text."""
        del stopped_at
        if usage is not None:
            self.usage(usage)
        self._reason = reason
        own, status = self._new_id("message").encode(), b"incomplete" if reason in INCOMPLETE else b"completed"
        self._items.append(_MESSAGE % (own, status, b"[%b]" % _part("output_text", body)))
        self.end()

    def error(self, error: Mapping[str, Any]) -> None:
        """It ends here, by a fault; what is open stays so, and so is not done."""
        if self._is_over:
            return
        self._is_over = True
        self.status = "failed"
        self.fault = told_fault(error)
        if failed := self._say_relayed("response.failed", status="failed", error=self.fault):
            self._frames.take_in(failed)
            return
        self._frames.say("response.failed", response=self._object(error=encoded(self.fault)))

    def _say_relayed(self, kind: str, **changes: Any) -> bytes:
        """An event of an answer that goes on in the server's own words; nothing where that has not begun."""
        relayed = self._relayed
        if relayed is None or relayed.response is None:
            return b""
        told = {"sequence_number": relayed.next_number(), "response": {**relayed.response, **changes}}
        return named_event(kind, told)

    def end(self) -> None:
        """It is complete."""
        if self._is_over:
            return
        # Clients that show an answer look for a message in it.
        if self._open is None and not self._items:
            self._piece("message", "output_text", b"")
        reason = INCOMPLETE.get(self._reason or "")
        self._close("completed" if reason is None else "incomplete")
        self._is_over = True
        self.status = "completed" if reason is None else "incomplete"
        details = _NULL if reason is None else object_of({"reason": quoted(reason)})
        self.final = self._object(details=details)
        # Told only behind the end: the next request may come with this one's id as soon as the client has it.
        if self._terms.keep is not None:
            self._memories = self._terms.keep(self)
            if not self._memories:
                self._stores = False
                # Made anew, as it says of itself whether it is kept.
                self.final = self._object(details=details)
        self._frames.say(f"response.{self.status}", response=self.final)

    def _piece(self, kind: Literal["message", "reasoning"], part: str, body: bytes) -> None:
        opened = self._open
        if opened is None or opened.kind != kind:
            self._close()
            opened = self._begin_item(kind, part)
        elif opened.part != part:
            self._close_part(opened)
            self._begin_part(opened, part)
        if body:
            opened.pieces.append(body)
            self._frames.piece(opened.template, body)

    def _begin_item(self, kind: Literal["message", "reasoning"], part: str) -> _Open:
        own = self._new_id(kind).encode()
        self._open = opened = _Open(kind=kind, id=own, part=part, template=b"")
        self._frames.say(
            "response.output_item.added",
            output_index=b"%d" % len(self._items),
            item=self._item_of(opened, b"in_progress"),
        )
        self._begin_part(opened, part)
        return opened

    def _begin_part(self, opened: _Open, part: str) -> None:
        opened.part = part
        place = self._place(opened)
        self._frames.say("response.content_part.added", **place, part=_part(part, b""))
        more = {"logprobs": b"[]"} if part == "output_text" else {}
        opened.template = self._frames.template(f"response.{part}.delta", **place, **more)

    def _close_part(self, opened: _Open) -> None:
        place = self._place(opened)
        body = b"".join(opened.pieces)
        opened.pieces.clear()
        text = {"refusal" if opened.part == "refusal" else "text": quoted(body)}
        more = {"logprobs": b"[]"} if opened.part == "output_text" else {}
        self._frames.say(f"response.{opened.part}.done", **place, **text, **more)
        part = _part(opened.part, body)
        self._frames.say("response.content_part.done", **place, part=part)
        opened.parts.append(part)

    def _close(self, status: Status = "completed") -> None:
        """Close what is open: nothing more belongs to it."""
        opened = self._open
        if opened is None:
            return
        self._close_part(opened)
        self._open = None
        self._done(self._item_of(opened, status.encode()))

    def _item_of(self, opened: _Open, status: bytes) -> bytes:
        content = b"[%b]" % b",".join(opened.parts)
        if opened.kind == "message":
            return _MESSAGE % (opened.id, status, content)
        # Once it is complete: a seal of half a thought would be sent back as the whole.
        seal = self._sealed(content) if opened.parts else _NULL
        return b'{"id":"%b","type":"reasoning","summary":[],"content":%b,"encrypted_content":%b,"status":"%b"}' % (
            opened.id,
            content,
            seal,
            status,
        )

    def _sealed(self, content: bytes) -> bytes:
        """The thought as the client may send it back, where it asked for that."""
        if self._terms.seals is None:
            return _NULL
        text = "".join(part["text"] for part in msgspec.json.decode(content))
        seal = self._terms.seals.seal({"text": text}, purpose=REASONING)
        return _NULL if seal is None else encoded(seal)

    def _tell_item(self, item: dict[str, Any]) -> None:
        """Tell an item that is known whole."""
        # Items are told one behind the other here: chat has no way to say two at a time.
        self._close()
        written = _WRITTEN.get(item["type"])
        if written is None:
            # A call that brings no text of its own is told whole with its beginning.
            opened = encoded({**item, "status": "in_progress"})
            self._frames.say("response.output_item.added", output_index=b"%d" % len(self._items), item=opened)
        else:
            self._written(item, *written)
        self._done(encoded({**item, "status": "completed"}))

    def _written(self, item: dict[str, Any], field: str, kind: str) -> None:
        """Tell the text that a call brings."""
        own, text, place = encoded(item["id"]), encoded(item[field]), b"%d" % len(self._items)
        opened = encoded({**item, field: "", "status": "in_progress"})
        self._frames.say("response.output_item.added", output_index=place, item=opened)
        told = {"item_id": own, "output_index": place}
        if text != b'""':
            self._frames.say(f"{kind}.delta", **told, delta=text)
        # The API tells the name again with the arguments of a function, and not with the input of a custom tool.
        named = {"name": encoded(item["name"])} if field == "arguments" else {}
        self._frames.say(f"{kind}.done", **told, **{field: text}, **named)

    def _done(self, item: bytes) -> None:
        self._frames.say("response.output_item.done", output_index=b"%d" % len(self._items), item=item)
        self._items.append(item)

    def _place(self, opened: _Open) -> dict[str, bytes]:
        return {
            "item_id": quoted(opened.id),
            "output_index": b"%d" % len(self._items),
            "content_index": b"%d" % len(opened.parts),
        }

    def _new_id(self, kind: str) -> str:
        self._number += 1
        return _item_id(_PREFIXES.get(kind, kind), self._terms.unique, self._number)

    def _object(self, *, details: bytes = _NULL, error: bytes = _NULL) -> bytes:
        """The response as it stands."""
        done = b"%d" % self._terms.created if self.status == "completed" else _NULL
        return (
            b'{"id":"resp_%b","object":"response","created_at":%d,"status":"%b","completed_at":%b,"error":%b,'
            b'"incomplete_details":%b,"output":[%b],"usage":%b,"store":%b%b}'
        ) % (
            self._terms.unique.encode(),
            self._terms.created,
            self.status.encode(),
            done,
            error,
            details,
            b",".join(self._items),
            self._usage if self.status != "in_progress" else _NULL,
            b"true" if self._stores else b"false",
            self._terms.shared,
        )


def _part(kind: str, body: bytes) -> bytes:
    if kind == "output_text":
        return b'{"type":"output_text","text":"%b","annotations":[],"logprobs":[]}' % body
    if kind == "refusal":
        return b'{"type":"refusal","refusal":"%b"}' % body
    return b'{"type":"reasoning_text","text":"%b"}' % body


def _usage(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """The usage; None where the whole is not known, as clients shorten their conversations by it."""
    prompt, completion, total = told.get("prompt_tokens"), told.get("completion_tokens"), told.get("total_tokens")
    if type(prompt) is not int or type(completion) is not int or prompt < 0 or completion < 0:
        return None
    # Counted where the server does not: clients hold it against the size of the context.
    total = total if type(total) is int and total >= 0 else prompt + completion
    read, given = told.get("prompt_tokens_details"), told.get("completion_tokens_details")
    return {
        "input_tokens": prompt,
        # These are numbers or the whole is unreadable to clients; a server that does not name them has none to name.
        "input_tokens_details": {
            "cached_tokens": _count(read, "cached_tokens") if read else 0,
            "cache_write_tokens": _count(read, "cache_write_tokens") if read else 0,
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": _count(given, "reasoning_tokens") if given else 0},
        "total_tokens": total,
    }


def _count(told: object, name: str) -> int:
    value = told.get(name) if isinstance(told, dict) else None
    return value if type(value) is int and value >= 0 else 0
