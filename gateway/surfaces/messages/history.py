"""The messages of a Messages request as turns of chat: blocks of all kinds, each in its place."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from gateway.core.errors import InvalidRequest
from gateway.surfaces.checks import MAX_PARTS, bounded
from gateway.surfaces.messages.telling import THINKING
from gateway.surfaces.port import Server
from gateway.surfaces.seals import Seals
from gateway.surfaces.toolnames import ToolNames
from gateway.surfaces.turns import Turns, text_part

__all__ = ["History", "loaded_tools", "system_of"]

_BILLING = "x-anthropic-billing-header:"
_JOINT = "\n\n"
_ERROR_CHARS = 48
"""How early a text that tells of an error says so."""
_DROPPED = frozenset({"server_tool_use", "container_upload"})
# Claude Code puts these into the user's turn by itself: behind results they are no new question.
_REMINDER = "<system-reminder>"

Block = dict[str, Any]
Part = dict[str, Any]


def loaded_tools(messages: list[Any]) -> list[str]:
    """The tools that results refer to: from then on they are declared to the model."""
    return [
        block["tool_name"]
        for message in messages
        if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), list)
        for result in message["content"]
        if isinstance(result, dict) and result.get("type") == "tool_result" and isinstance(result.get("content"), list)
        for block in result["content"]
        if isinstance(block, dict) and block.get("type") == "tool_reference" and isinstance(block.get("tool_name"), str)
    ]


def system_of(body: Mapping[str, Any], server: Server, dropped: list[str]) -> str | list[Part]:
    """The system text that leads."""
    system = body.get("system")
    if isinstance(system, str):
        return system
    parts: list[Part] = []
    for block in bounded(system, MAX_PARTS, "system"):
        text = block.get("text") if isinstance(block, dict) else None
        if not isinstance(text, str) or not text:
            continue
        # It is another one in each request, and would cost the server all that it keeps of the last prompt:
        # https://github.com/vllm-project/vllm/issues/36829, https://github.com/sgl-project/sglang/issues/21064
        if text.startswith(_BILLING) and not server.knows_messages:
            dropped.append("billing_header")
            continue
        parts.append(_marked(text_part(text), block, server))
    # Parts only where their marks are of use: many templates take the system prompt as text and as nothing else.
    if server.keeps_cache_control and any("cache_control" in part for part in parts):
        return parts
    return parts[0]["text"] if len(parts) == 1 else _JOINT.join([part["text"] for part in parts])


class History(Struct, kw_only=True, eq=False):
    """The messages, as they are turned one after the other."""

    turns: Turns
    names: ToolNames
    server: Server
    seals: Seals
    dropped: list[str] = field(default_factory=list)

    def add(self, message: object, where: str) -> None:
        """One more message."""
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(message, dict) or role not in ("user", "assistant", "system"):
            raise InvalidRequest("each message must be an object with a role: user, assistant or system", param=where)
        content = message.get("content")
        if role == "user" and isinstance(content, str):
            if content:
                is_question = not content.startswith(_REMINDER)
                self.turns.user([{"type": "text", "text": content}], is_question=is_question)
            return
        if isinstance(content, str):
            blocks: list[Block] = [{"type": "text", "text": content}] if content else []
        else:
            # Bounded before it is looked at: blocks are cheap to send and dear to turn into chat.
            blocks = [block for block in bounded(content, MAX_PARTS, where + ".content") if isinstance(block, dict)]
        if role == "system":
            self.turns.system(_JOINT.join(_texts(blocks)))
        elif role == "user":
            self._user(blocks)
        else:
            self._assistant(blocks)

    def _user(self, blocks: list[Block]) -> None:
        parts: list[Part] = []
        has_result = False
        for block in blocks:
            if block.get("type") == "tool_result":
                has_result = True
                self._result(block)
            else:
                parts += self._parts(block)
        # A new question ends the turn before it, and with that what was thought in it.
        self.turns.user(parts, is_question=not has_result and _asks(parts))

    def _assistant(self, blocks: list[Block]) -> None:
        text: list[str] = []
        for block in blocks:
            match block.get("type"):
                case "text" if isinstance(block.get("text"), str):
                    text.append(block["text"])
                case "thinking":
                    self._thought(block)
                case "tool_use" if isinstance(block.get("name"), str) and block["name"]:
                    # In front of the call, in the order in which it was said.
                    self.turns.text("".join(text))
                    text = []
                    given = block.get("input")
                    arguments = msgspec.json.encode(given if given is not None else {}).decode()
                    call_id = block.get("id")
                    name = self.names.flat(block["name"])
                    self.turns.call(call_id if isinstance(call_id, str) else "", name, arguments)
                case "redacted_thinking":
                    self.dropped.append("redacted_thinking")
                case _:
                    self.dropped.append(_word(block))
        self.turns.text("".join(text))

    def _thought(self, block: Block) -> None:
        """What was thought: as the client shows it, or as the seal has it that stands for it."""
        text = block.get("thinking")
        self.seals.meet(block.get("signature"))
        # Shown to the user, it comes back whole, and no seal has to be opened.
        if isinstance(text, str) and text:
            self.turns.reasoning(text)
            return
        sealed = self.seals.open(block.get("signature"), purpose=THINKING)
        told = sealed.get("text") if sealed is not None else None
        if isinstance(told, str):
            self.turns.reasoning(told)
        else:
            self.dropped.append("foreign_seal")

    def _result(self, block: Block) -> None:
        content = block.get("content")
        inner: list[Part] = []
        loaded: list[str] = []
        if isinstance(content, str):
            inner = [text_part(content)] if content else []
        else:
            for each in bounded(content, MAX_PARTS, "tool_result.content"):
                if not isinstance(each, dict):
                    continue
                if each.get("type") == "tool_reference":
                    loaded.append(str(each.get("tool_name")))
                else:
                    inner += self._parts(each)
        if loaded:
            inner.append(text_part(f"Loaded: {', '.join(loaded)}"))
        # A result of chat is text: pictures follow it in a message of their own.
        texts = [part for part in inner if part.get("type") == "text"]
        others = [part for part in inner if part.get("type") != "text"]
        text = "\n".join(part["text"] for part in texts)
        # Chat has no flag for it, and a model that takes a complaint for a result goes on with it.
        if block.get("is_error") is True and "error" not in text[:_ERROR_CHARS].lower():
            text = f"[error] {text}"
        call_id = block.get("tool_use_id")
        told: str | list[Part] = text
        if self.server.keeps_cache_control and isinstance(block.get("cache_control"), dict) and text:
            told = [{**text_part(text), "cache_control": block["cache_control"]}]
        self.turns.result(call_id if isinstance(call_id, str) else "", told, others)

    def _parts(self, block: Block) -> list[Part]:
        """What a block is in chat; nothing where it has no place there."""
        part: Part | None = None
        match block.get("type"):
            case "text" if isinstance(block.get("text"), str):
                part = text_part(block["text"]) if block["text"] else None
                if part is None:
                    return []
            case "image":
                part = _image(block)
            case "document":
                part = _document(block)
            case "search_result":
                part = _search_result(block)
        if part is None:
            self.dropped.append(_word(block))
            return []
        return [_marked(part, block, self.server) if self.server.keeps_cache_control else part]


def _asks(parts: list[Part]) -> bool:
    """Whether they say more than reminders do."""
    for part in parts:
        text = part.get("text")
        if not isinstance(text, str) or not text.startswith(_REMINDER):
            return True
    return False


def _marked(part: Part, block: Mapping[str, Any], server: Server) -> Part:
    mark = block.get("cache_control")
    return {**part, "cache_control": mark} if server.keeps_cache_control and isinstance(mark, dict) else part


def _source(block: Mapping[str, Any]) -> Mapping[str, Any]:
    source = block.get("source")
    return source if isinstance(source, dict) else {}


def _image(block: Mapping[str, Any]) -> Part | None:
    url = _url(_source(block))
    return {"type": "image_url", "image_url": {"url": url}} if url else None


def _url(source: Mapping[str, Any]) -> str | None:
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return str(source["url"])
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        media = source.get("media_type")
        return f"data:{media if isinstance(media, str) else 'image/png'};base64,{source['data']}"
    return None


def _document(block: Mapping[str, Any]) -> Part | None:
    """Text stands in the message itself, with its title; all else is a file."""
    source, title = _source(block), block.get("title")
    heading = f"{title}\n\n" if isinstance(title, str) and title else ""
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        return text_part(f"{heading}{source['data']}")
    if source.get("type") == "content":
        content = source.get("content")
        texts = [content] if isinstance(content, str) else list(_texts(content if isinstance(content, list) else []))
        return text_part(heading + _JOINT.join(texts)) if texts else None
    url = _url(source)
    if url is None:
        return None
    # A file without a name is refused by OpenAI.
    name = title if isinstance(title, str) and title else "document.pdf"
    return {"type": "file", "file": {"filename": name, "file_data": url}}


def _search_result(block: Mapping[str, Any]) -> Part | None:
    content = block.get("content")
    told = [str(block[name]) for name in ("title", "source") if isinstance(block.get(name), str)]
    told += _texts(content if isinstance(content, list) else [])
    return text_part("\n".join(told)) if told else None


def _texts(blocks: list[Any]) -> Iterator[str]:
    return (block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str))


def _word(block: Mapping[str, Any]) -> str:
    """What a block that is left out is counted as."""
    kind = block.get("type")
    if not isinstance(kind, str):
        return "other"
    # Words of our own only: a type that a client makes up must not become the label of a metric.
    if kind in _DROPPED or kind in ("image", "document", "search_result"):
        return kind
    if kind.endswith("_tool_result") or kind.startswith("mcp_"):
        return "server_tool_result"
    return "other"
