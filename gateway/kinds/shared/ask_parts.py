"""OpenAI chat requests as kinds need them: contents in parts, functions, choices, numbers, every one checked.

What no other wire has a word for - log probabilities, seeds, penalties, predictions - is left out by the kinds: an
answer without it is still an answer. More than one choice is not, and is refused.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from attrs import field, frozen

from gateway.core.errors import InvalidRequest
from gateway.kinds.shared.decoding import dict_of, object_in, string_of
from gateway.wire.chat_request import texts_of

__all__ = [
    "BUDGETS",
    "OPENING",
    "Blob",
    "Choice",
    "Function",
    "Names",
    "Part",
    "arguments_of",
    "blob_of",
    "bounded_nesting",
    "call_ids",
    "choice_of",
    "effort_of",
    "functions_of",
    "messages_of",
    "nothing_to_answer",
    "number_of",
    "parts_of",
    "refuse_more_choices",
    "stops_of",
    "text_of",
    "token_limit",
    "tool_calls_of",
]

# https://ai.google.dev/gemini-api/docs/openai#thinking
BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 32768, "max": 32768}
"""Tokens of thought by effort, for servers that count them: as Google's own OpenAI surface has it."""
OPENING = "Continue."
"""Stands before an assistant's message that would be first: other wires want the user to begin."""
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


@frozen(kw_only=True)
class Blob:
    """A picture or a document, by value or by address."""

    media_type: str = ""
    data: str = ""
    """Base64."""
    url: str = ""
    name: str = ""


@frozen(kw_only=True)
class Part:
    """One part of a content."""

    kind: Literal["text", "image", "file", "audio"]
    text: str = ""
    blob: Blob = Blob()
    file_id: str = ""
    cache: dict[str, Any] | None = None
    """The mark of Anthropic's prompt cache, which some clients send."""


@frozen(kw_only=True)
class Function:
    """A function that may be called."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(factory=dict)
    cache: dict[str, Any] | None = None


@frozen(kw_only=True)
class Choice:
    """What `tool_choice` demands."""

    mode: Literal["auto", "any", "tool", "none"] = "auto"
    names: tuple[str, ...] = ()
    """The only functions allowed; for `tool` exactly one."""
    is_given: bool = False


@contextmanager
def bounded_nesting() -> Iterator[None]:
    """Turns what nests too deeply to be walked into a refusal."""
    try:
        yield
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages, each with a role that is known."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise InvalidRequest("messages must be a list", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or string_of(message.get("role")) not in _ROLES:
            raise InvalidRequest("the message has no role that is known", param=f"messages[{index}].role")
    return messages


def nothing_to_answer() -> InvalidRequest:
    """The refusal of a request without a message that another wire could carry."""
    return InvalidRequest("the messages hold nothing to answer", param="messages")


def parts_of(content: object, *, where: str) -> Iterator[Part]:
    """The parts of a content, those that hold nothing left out."""
    if isinstance(content, str):
        if content:
            yield Part(kind="text", text=content)
        return
    for index, part in enumerate(content if isinstance(content, list) else ()):
        # Not in OpenAI's description, but clients send it and other servers take it.
        if isinstance(part, str):
            yield Part(kind="text", text=part)
        elif isinstance(part, dict):
            yield from _part(part, where=f"{where}[{index}]")


def _part(part: dict[str, Any], *, where: str) -> Iterator[Part]:
    kind, cache = part.get("type"), part.get("cache_control")
    cache = cache if isinstance(cache, dict) else None
    # Clients of both of OpenAI's APIs mix the names of parts.
    if kind in ("text", "input_text", "output_text", "refusal"):
        text = string_of(part.get("refusal" if kind == "refusal" else "text"))
        if text:
            yield Part(kind="text", text=text, cache=cache)
    elif kind == "image_url":
        image = part.get("image_url")
        url = image if isinstance(image, str) else string_of(dict_of(image).get("url"))
        yield Part(kind="image", blob=blob_of(url, where=where), cache=cache)
    elif kind == "file":
        yield _file(dict_of(part.get("file")), cache, where)
    elif kind == "input_audio":
        audio = dict_of(part.get("input_audio"))
        media_type = f"audio/{string_of(audio.get('format')) or 'wav'}"
        yield Part(kind="audio", blob=Blob(media_type=media_type, data=string_of(audio.get("data"))))
    else:
        raise InvalidRequest("the model server has no such part of a message", param=f"{where}.type")


def _file(file: dict[str, Any], cache: dict[str, Any] | None, where: str) -> Part:
    name = string_of(file.get("filename"))
    if file_id := string_of(file.get("file_id")):
        return Part(kind="file", file_id=file_id, cache=cache)
    blob = blob_of(string_of(file.get("file_data")), where=where)
    return Part(
        kind="file", blob=Blob(media_type=blob.media_type, data=blob.data, url=blob.url, name=name), cache=cache
    )


def blob_of(url: str, *, where: str) -> Blob:
    """What a URL holds or points to."""
    scheme = url[:8].lower()
    if scheme.startswith(("http://", "https://", "gs://")):
        return Blob(url=url)
    if not scheme.startswith("data:"):
        raise InvalidRequest("the URL is neither data nor http", param=where)
    head, comma, data = url[5:].partition(",")
    if not comma:
        raise InvalidRequest("the data URL holds no data", param=where)
    media_type, *options = (piece.strip().lower() for piece in head.split(";"))
    # A data URL may be written plainly (https://www.rfc-editor.org/rfc/rfc2397); the other wires know base64 alone.
    if "base64" not in options:
        data = _base64(unquote_to_bytes(data))
    return Blob(media_type=media_type or "text/plain", data=data)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def text_of(content: object) -> str:
    """The text of a content, its other parts left out."""
    return "".join(texts_of(content))


def tool_calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls of an assistant's message that name a function."""
    calls = message.get("tool_calls")
    return [
        call
        for call in (calls if isinstance(calls, list) else ())
        if isinstance(call, dict) and string_of(dict_of(call.get("function")).get("name"))
    ]


def call_ids(message: Mapping[str, Any]) -> list[str]:
    """The ids of a message's calls."""
    return [string_of(call.get("id")) for call in tool_calls_of(message)]


def arguments_of(call: Mapping[str, Any]) -> object:
    """A call's arguments as an object, whatever a client kept of them."""
    arguments = call["function"].get("arguments")
    # No string, though the API has one: https://github.com/ggml-org/llama.cpp/issues/20198
    if isinstance(arguments, dict):
        return arguments
    text = string_of(arguments)
    if not text.strip():
        return {}
    # What a client kept of a broken call has to be an object here, or the whole conversation could not go on.
    return object_in(text) or {"arguments": text}


class Names:
    """Names in the letters that a server takes, and back; different ones stay different."""

    def __init__(self, spelt: Callable[[str], str]) -> None:
        self._spelt = spelt
        self._told: dict[str, str] = {}
        self._meant: dict[str, str] = {}

    def told(self, name: str) -> str:
        """The name for the server."""
        if name not in self._told:
            base = self._spelt(name)
            told, number = base, 1
            # Two names of the client may be the same in the server's letters.
            while told in self._meant:
                number += 1
                told = f"{base}_{len(self._told)}_{number}"
            self._told[name] = told
            self._meant[told] = name
        return self._told[name]

    def meant(self, name: str) -> str:
        """The client's name."""
        return self._meant.get(name, name)


def functions_of(body: Mapping[str, Any]) -> list[Function]:
    """The functions that a request declares."""
    found = []
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        function = dict_of(dict_of(tool).get("function"))
        name = string_of(function.get("name"))
        if name:
            cache = tool.get("cache_control") or function.get("cache_control")
            found.append(
                Function(
                    name=name,
                    description=string_of(function.get("description")),
                    parameters=dict_of(function.get("parameters")),
                    cache=cache if isinstance(cache, dict) else None,
                )
            )
    return found


def choice_of(body: Mapping[str, Any]) -> Choice:
    """What the request demands of calls."""
    choice = body.get("tool_choice")
    if isinstance(choice, str):
        modes: dict[str, Literal["auto", "any", "none"]] = {
            "auto": "auto",
            "required": "any",
            "any": "any",
            "none": "none",
        }
        if choice in modes:
            return Choice(mode=modes[choice], is_given=True)
    elif isinstance(choice, dict):
        if name := string_of(dict_of(choice.get("function")).get("name")) or string_of(choice.get("name")):
            return Choice(mode="tool", names=(name,), is_given=True)
        if choice.get("type") == "allowed_tools":
            return _allowed(dict_of(choice.get("allowed_tools")))
    return Choice()


def _allowed(allowed: dict[str, Any]) -> Choice:
    tools = allowed.get("tools")
    entries = [dict_of(tool) for tool in (tools if isinstance(tools, list) else ())]
    names = [string_of(dict_of(entry.get("function")).get("name")) or string_of(entry.get("name")) for entry in entries]
    mode: Literal["auto", "any"] = "any" if allowed.get("mode") == "required" else "auto"
    return Choice(mode=mode, names=tuple(name for name in names if name), is_given=True)


def effort_of(body: Mapping[str, Any]) -> str | None:
    """How hard the model is to think; None where the request does not say."""
    effort = body.get("reasoning_effort") or dict_of(body.get("reasoning")).get("effort")
    return effort.lower() if isinstance(effort, str) else None


def token_limit(body: Mapping[str, Any]) -> int | None:
    """How long the answer may be, in tokens."""
    # The newer name wins where a client sends both for servers of either age.
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidRequest(f"{name} must be a whole number above 0", param=name)
        return value
    return None


def number_of(body: Mapping[str, Any], name: str) -> float | None:
    """A number, where the request gives one."""
    value = body.get(name)
    # To Python `True` is a number.
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return value if is_number else None


def stops_of(body: Mapping[str, Any]) -> list[str]:
    """The words that end an answer; those of white space alone no other wire takes."""
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    return [word for word in stops if isinstance(word, str) and word.strip()]


def refuse_more_choices(body: Mapping[str, Any]) -> None:
    """Raise if more than one choice is asked for."""
    count = body.get("n")
    if isinstance(count, int | float) and count > 1:
        raise InvalidRequest("this model server gives one choice per request: n must be 1", param="n")
