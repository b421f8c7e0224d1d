"""The OpenAI chat wire: requests in, answers and chunks through. Unknown fields are kept and passed on."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.core.errors import InvalidRequest
from gateway.core.tools import Tool, ToolSet
from gateway.wire.conversations import LONG, begun, converse
from gateway.wire.json_scan import JsonScanner
from gateway.wire.known_texts import known_at, known_value, made_of

__all__ = [
    "INSTRUCTING",
    "TOOL_FIELDS",
    "ChatRequest",
    "declared_tool",
    "decoded_body",
    "is_system",
    "parse_request",
    "renamed",
    "request_of",
    "texts_of",
]

TOOL_FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")
"""The fields of a request that offer tools."""
READ_FIELDS = frozenset({"model", "messages", "stream", "stream_options", "n", "user", *TOOL_FIELDS})
"""The fields that decide what becomes of a request here."""
_CONVERSATIONS = frozenset({"messages", "input"})
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BLANKS = rb"[ \t\n\r]*+"
_NAME = re.compile(_BLANKS + rb"[{,]" + _BLANKS + rb'"([^"\\]*+)"' + _BLANKS + rb":" + _BLANKS)
_END = re.compile(_BLANKS + rb"\}" + _BLANKS)
_NO_MESSAGES = b'"messages":[]'
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HALF = re.compile("[\ud800-\udfff]")
_NO_TOOLS = ToolSet(())
_MAX_DEPTH = 500
"""Of a text with half a character: how deep Python's own parser goes differs from version to version."""


class ChatRequest(Struct, frozen=True, kw_only=True):
    """One chat completion request; `raw` is what the client sent, `body` the same decoded.

    Half a character, as a text that was cut leaves it, is U+FFFD in `body` and stays what it is in `raw`.
    """

    raw: bytes
    body: dict[str, Any]
    model: str
    stream: bool
    messages: list[dict[str, Any]]
    tools: ToolSet
    tool_choice: Any = None
    parallel: bool | None = None
    wants_tools: bool
    """Tools are declared and not switched off by `tool_choice`."""

    @property
    def has_pictures(self) -> bool:
        """It may hold some; what they take is another matter than what texts take."""
        for message in self.messages:
            content = message.get("content")
            if isinstance(content, list):
                for part in content:
                    if isinstance(part, dict) and "image_url" in part:
                        return True
        return False

    @property
    def choices(self) -> int:
        """How many answers are asked for."""
        asked = self.body.get("n")
        return asked if isinstance(asked, int) and asked > 1 else 1

    def replace(self, **fields: Any) -> bytes:
        """The request with these top-level fields changed; `None` removes one."""
        body = {**self.body, **fields}
        for name, value in fields.items():
            if value is None:
                del body[name]
        return _encoded(body)

    def with_messages(self, messages: list[dict[str, Any]]) -> "ChatRequest":
        """The request as if the client had sent these messages."""
        body = {**self.body, "messages": messages}
        return structs.replace(self, raw=_encoded(body), body=body, messages=messages)

    def with_tools(
        self, tools: ToolSet, tool_choice: Any, /, messages: list[dict[str, Any]], **fields: Any
    ) -> "ChatRequest":
        """The request as if the client had sent these; raises `RecursionError` for what cannot be written."""
        body = {**self.body, **fields, "messages": messages}
        return structs.replace(
            self,
            raw=msgspec.json.encode(body),
            body=body,
            messages=messages,
            tools=tools,
            tool_choice=tool_choice,
            wants_tools=bool(tools.names) and tool_choice != "none",
        )

    def renamed(self, model: str) -> "ChatRequest":
        """The request as if the client had asked for this model."""
        body = {**self.body, "model": _model(model)}
        return structs.replace(self, raw=_encoded(body), body=body, model=model)


def parse_request(raw: bytes) -> ChatRequest:
    """Decode and check what the gateway itself relies on; everything else is the upstream's to judge."""
    return _checked(raw, decoded_body(raw))


def request_of(body: dict[str, Any], written: list[bytes] | None = None) -> ChatRequest:
    """The request that a body is, which was put together here; `written` are the texts of its messages."""
    if written is None:
        return _checked(_encoded(body), body)
    # Nothing stands before it but the model, in which a quotation mark has a backslash.
    head, place, tail = _encoded({**body, "messages": []}).partition(_NO_MESSAGES)
    return _checked(b"".join((head, place[:-1], b",".join(written), place[-1:], tail)), body)


def renamed(raw: bytes, model: str) -> bytes:
    """The body with another model; every other byte is as it came."""
    members = _each_once(raw)
    if members is not None and "model" in members:
        start, text = members["model"]
        return raw[:start] + msgspec.json.encode(model) + raw[start + len(text) :]
    body: dict[str, Any] = msgspec.json.decode(raw)
    return msgspec.json.encode({**body, "model": model})


def decoded_body(raw: bytes, *, once: frozenset[str] = READ_FIELDS) -> dict[str, Any]:
    """The object that a request's body is; none of the fields in `once` stands there twice."""
    found = _partly_known(raw)
    if found is not None:
        return found
    members = _each_once(raw)
    if members is not None:
        try:
            body: dict[str, Any] = {}
            for name, (start, text) in members.items():
                if name == "tools":
                    body[name] = known_value(text, start, len(raw) - start - len(text))
                elif len(text) > LONG and name in _CONVERSATIONS:
                    body[name] = converse(name, raw, start, text, None)
                else:
                    body[name] = _decoded(text)
            return body
        except (msgspec.DecodeError, ValueError, RecursionError):
            pass  # what is wrong with it is said below
    body = _decode(raw)
    # RFC 8259 leaves it open which of two members counts: https://www.rfc-editor.org/rfc/rfc8259#section-4
    if members is None:
        _refuse_doubled(raw, once)
    return body


def _partly_known(raw: bytes) -> dict[str, Any] | None:
    """The same where the tools are known, or the beginning of the conversation, as in most turns of one: the rest of
    the body is decoded with something short in their place, which is no JSON where that was no value."""
    tools = known_at(raw)
    beginning = begun(raw) if len(raw) > LONG else None
    if tools is None and beginning is None:
        return None
    cuts: list[_Cut] = []
    if tools is not None:
        cuts.append((tools[0], tools[1], "tools", b"null"))
    if beginning is not None:
        cuts.append((beginning.start, beginning.end, beginning.name, b"[0"))
    cuts.sort()
    rest = _without(raw, cuts)
    try:
        members = _MEMBERS.decode(rest)
        places = _places(rest, members)
        if places is None or not _stand(cuts, places):
            return None
        body: dict[str, Any] = {}
        for name, value in members.items():
            if tools is not None and name == "tools":
                body[name] = tools[2]
            elif beginning is not None and name == beginning.name:
                body[name] = converse(name, raw, beginning.start, bytes(value), beginning)
            elif name == "tools" or (beginning is None and name in _CONVERSATIONS):
                # The other one is cut out, before it or behind it.
                text, place = bytes(value), places[name]
                start = place if place < cuts[0][0] else place + len(raw) - len(rest)
                if name == "tools":
                    body[name] = known_value(text, start, len(raw) - start - len(text))
                else:
                    body[name] = converse(name, raw, start, text, None) if len(text) > LONG else _decoded(text)
            else:
                body[name] = _decoded(value)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return body


_Cut = tuple[int, int, str, bytes]
"""From where to where something is cut out, of which member, and what stands in its place."""


def _without(raw: bytes, cuts: list[_Cut]) -> bytes:
    pieces: list[bytes] = []
    behind = 0
    for start, end, _, short in cuts:
        pieces += raw[behind:start], short
        behind = end
    return b"".join([*pieces, raw[behind:]])


def _stand(cuts: list[_Cut], places: Mapping[str, int]) -> bool:
    """Whether all that was cut out are the values of their members."""
    cut = 0
    for start, end, name, short in cuts:
        if places.get(name) != start - cut:
            return False
        cut += end - start - len(short)
    return True


def _places(raw: bytes, members: Mapping[str, msgspec.Raw]) -> dict[str, int] | None:
    """Where the members' values stand in an object that is these and nothing else, which it is if they give its very
    text; None where it is something else, or has names with escapes."""
    places: dict[str, int] = {}
    place = len(b"{")
    for name, value in members.items():
        place += len(name) + len(b'"":')
        places[name] = place
        place += memoryview(value).nbytes + len(b",")
    # Nothing stands between them: with blanks, with an escape in a name or with a member more it would be longer.
    if place == len(raw):
        return places
    each_once = _each_once(raw)
    return None if each_once is None else {name: start for name, (start, _) in each_once.items()}


_decoded = msgspec.json.Decoder().decode


def _encoded(body: Mapping[str, Any]) -> bytes:
    """The text of a body; of tools that are known it is there already."""
    tools = body.get("tools")
    if tools:
        body = {**body, "tools": made_of(tools, "written", lambda: msgspec.Raw(msgspec.json.encode(tools)))}
    return msgspec.json.encode(body)


def _checked(raw: bytes, body: dict[str, Any]) -> ChatRequest:
    model = body.get("model")
    # It goes into headers, labels and logs.
    if not isinstance(model, str) or not model.strip() or _CONTROL.search(model):
        model = _model(model)
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        # A truthy word here would be answered in a form that its sender does not read.
        raise InvalidRequest("stream must be true or false", param="stream")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages must be a non-empty list", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidRequest("each message must be an object with a role", param=f"messages[{index}]")
    parallel = body.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        raise InvalidRequest("parallel_tool_calls must be true or false", param="parallel_tool_calls")
    declared, choice = body.get("tools"), body.get("tool_choice")
    # A tool that is the same object as before is one whose schema is known.
    tools = _NO_TOOLS if declared is None else made_of(declared, "tool_set", partial(_tool_set, declared))
    if choice is not None and not isinstance(choice, str | dict):
        raise InvalidRequest("tool_choice must be a string or an object", param="tool_choice")
    return ChatRequest(
        raw=raw,
        body=body,
        model=model,
        stream=stream is True,
        messages=messages,
        tools=tools,
        tool_choice=choice,
        parallel=parallel,
        wants_tools=bool(tools.names) and choice != "none",
    )


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(raw)
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        body = _decode_halves(raw)
        if body is None:
            raise InvalidRequest("the body is not valid JSON") from error
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object")
    return body


def _refuse_doubled(raw: bytes, once: frozenset[str]) -> None:
    """A model server may go by the first of two fields with one name, where we go by the last."""
    outermost: list[tuple[str, Any]] = []

    def ended(pairs: list[tuple[str, Any]]) -> None:
        """Called for each object when it ends, for the outermost one last."""
        nonlocal outermost
        outermost = pairs

    try:
        # Numbers stay texts: to read one costs Python the square of its length
        # (https://cwe.mitre.org/data/definitions/407.html).
        json.loads(raw, object_pairs_hook=ended, parse_int=str, parse_float=str, strict=False)
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    names = [name for name, _ in outermost]
    for name in once.intersection(names):
        if names.count(name) > 1:
            raise InvalidRequest(f"{name} is there more than once", param=name)


def _each_once(raw: bytes) -> dict[str, tuple[int, bytes]] | None:
    """The members of which, and of nothing else, the text is made, each where it stands; None too where a name has
    escapes."""
    try:
        members = _MEMBERS.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    texts: dict[str, tuple[int, bytes]] = {}
    place = len(b"{")
    for name, value in members.items():
        text = bytes(value)
        begin = place + len(name) + len(b'"":')
        texts[name] = begin, text
        place = begin + len(text) + len(b",")
    # As in `_places`.
    if texts and place == len(raw):
        return texts
    texts.clear()
    place = 0
    for name, value in members.items():
        before = _NAME.match(raw, place)
        if before is None:
            return None
        text, begin = bytes(value), before.end()
        if before[1] != name.encode() or not raw.startswith(text, begin):
            return None
        texts[name] = begin, text
        place = begin + len(text)
    return texts if not texts or _END.fullmatch(raw, place) is not None else None


def _decode_halves(raw: bytes) -> Any:
    """The value of a text with escapes of half a character and no other fault, else `None`."""
    try:
        JsonScanner(_MAX_DEPTH).feed(raw.decode().lstrip())
        text = json.dumps(json.loads(raw), ensure_ascii=False)
        return msgspec.json.decode(_HALF.sub("\ufffd", text)) if _HALF.search(text) else None
    except (ValueError, RecursionError):
        return None


def _model(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest("model must be a non-empty string", param="model")
    if _CONTROL.search(value):
        raise InvalidRequest("model must not hold control characters", param="model")
    return value


def _tool_set(value: Any) -> ToolSet:
    return ToolSet(_tools(value))


def _tools(value: Any) -> list[Tool]:
    if not isinstance(value, list):
        raise InvalidRequest("tools must be a list", param="tools")
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise InvalidRequest("each tool must be an object", param=f"tools[{index}]")
    return [tool for tool in map(declared_tool, value) if tool is not None]


def declared_tool(entry: object) -> Tool | None:
    """The function that an entry of `tools` declares; None for one without a name."""
    function = entry.get("function") if isinstance(entry, dict) else None
    # Tools of other types (`web_search`, `custom`) are the server's own business.
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        return None
    parameters, description = function.get("parameters"), function.get("description")
    return Tool(
        name=function["name"],
        description=description if isinstance(description, str) else "",
        parameters=parameters if isinstance(parameters, dict) else {},
        only_reads=_is_read_only(function) or _is_read_only(entry),
    )


def _is_read_only(declared: object) -> bool:
    """Whether a declaration says that its tool changes nothing."""
    annotations = declared.get("annotations") if isinstance(declared, dict) else None
    # https://modelcontextprotocol.io/specification/2025-06-18/schema#toolannotations
    return isinstance(annotations, dict) and annotations.get("readOnlyHint") is True


def texts_of(content: object) -> Iterator[str]:
    """The texts of a message's content, whether it is one or comes in parts."""
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text


INSTRUCTING = ("system", "developer")
"""The roles of messages that instruct."""


def is_system(message: Mapping[str, Any]) -> bool:
    """Whether a message instructs."""
    return message.get("role") in INSTRUCTING
