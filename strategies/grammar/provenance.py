"""Whether a call in the answer was only copied from what the client sent: a file, a web page, a user's text.

Texts are compared without their white space, in a few forms in which a quotation differs from its source: as it is,
without line numbers and quotation signs at line starts, and with the escapes of JSON and markup undone. A call counts
as copied when all of it stands in one message, or when its head or its tail does while the rest is missing there: an
opener that is left open in a file, for the model to go on with.

Bounds: a text is folded once per request, only when a call is about to be accepted, and only if it holds the longest
word of the call, of its head or of its end. A look-up is linear in these texts, and there are as many as the budget
allows; what comes after that is taken for a copy.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategies.text.turns import LONG, TURN, Turns, replaced, whole

__all__ = ["Provenance"]

# A call that an agent's own file or page put into the model's mouth is no call of the model's:
# https://github.com/NousResearch/hermes-agent/issues/47967 https://genai.owasp.org/llmrisk/llm01-prompt-injection/
_SENDERS = frozenset({"user", "tool", "function"})
_MAX_DEPTH = 4
# Some tenths of a second of comparing: no honest answer has so many calls in so long a conversation.
_BUDGET = 256 << 20
"""Characters that the look-ups of one request may go over."""
_REACH = 4096
"""How far behind the head of a copied call the rest of it is looked for, at least."""
# A shorter tail (`</read>`) stands in any text about tools.
_MIN_TAIL = 12
_OWN = 200
"""By so much of its end an answer is found in what is sent behind it."""
_EDGE = 400
_WORD = re.compile(r"[A-Za-z0-9_]{3,64}")
# Agents show files with numbers before their lines, and people quote with `>`; models copy without.
_LINE_PREFIX = re.compile(r"^[ \t]*(?:[0-9]+[ \t]*[|:\t→-][ \t]?|(?:>[ \t]?)+|[+|-][ \t]?)", re.MULTILINE)
_JSON_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_ENTITIES = (
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", '"'),
    ("&#34;", '"'),
    ("&apos;", "'"),
    ("&#39;", "'"),
    ("&amp;", "&"),
)
# A byte order mark and a zero-width space: pages hold them, and models leave them out when they copy.
_INVISIBLE = ("\ufeff", "\u200b")


class Provenance:
    """Knows the texts that one request brought; made for each request, it looks at them when it is first asked."""

    __slots__ = ("_budget", "_folded", "_messages", "_sources")

    def __init__(self, messages: Sequence[Mapping[str, Any]] = ()) -> None:
        self._messages = messages
        self._sources: list[str] | None = None
        self._folded: dict[int, tuple[str, ...]] = {}
        self._budget = _BUDGET

    def quotes(self, raw: str, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the call that stands in the answer as `raw` was copied; one without arguments never was."""
        return whole(self.quoting(raw, name, arguments))

    def quoting(self, raw: str, name: str, arguments: Mapping[str, Any]) -> Turns[bool]:
        """The same in turns."""
        # A call without arguments has nothing of the page's in it: what it does its tool does anyway.
        if not self._messages or not arguments:
            return False
        block = yield from _folded(raw)
        if not block:
            return False
        head, tail, opening, closing = yield from _parts(block, name, arguments)
        needles = (
            (yield from _needle(raw, block)),
            (yield from _needle(raw[:_EDGE], head)),
            (yield from _needle(raw[-_EDGE:], closing)),
        )
        sources: list[str] = []
        for text in self._texts():
            # Folding a text goes over it several times, the search for a word once and in C.
            if any(map(text.__contains__, needles)):
                sources += yield from self._forms(text)
        self._budget -= 3 * sum(map(len, sources))
        # An attacker who fills the conversation must not win by making it too long to compare.
        if self._budget < 0:
            return bool(sources)
        for source in sources:
            if len(source) > LONG:
                yield
            if (
                block in source
                or _is_left_open(source, head, closing, len(block))
                or _is_left_unopened(source, tail, opening, closing, len(block))
            ):
                return True
        return False

    def _texts(self) -> list[str]:
        if self._sources is None:
            # Not the assistant's own: a model that repeats its call means it again.
            self._sources = []
            said = ""
            for message in self._messages:
                role, texts = message.get("role"), _strings(message.get("content"), _MAX_DEPTH)
                if role in _SENDERS:
                    self._sources += (_without(text, said) for text in texts) if said and role == "user" else texts
                said = "".join(texts).rstrip() if role == "assistant" and not message.get("tool_calls") else ""
        return self._sources

    def _forms(self, text: str) -> Turns[tuple[str, ...]]:
        forms = self._folded.get(id(text))
        if forms is None:
            forms = self._folded[id(text)] = tuple((yield from _forms(text)))
        return forms


def _without(text: str, said: str) -> str:
    """What a user sent right behind an answer, without the end of that answer.

    Qwen Code tells a model whose answer was cut how far it had come, with the call that it had begun:
    https://github.com/QwenLM/qwen-code/blob/main/packages/core/src/core/geminiChat.ts
    """
    tail = said[-_OWN:]
    at = text.rfind(tail) if len(tail) >= _MIN_TAIL else -1
    if at < 0:
        return text
    end = at + len(tail)
    least, most = len(tail), min(len(said), end)
    while least < most:
        size = (least + most + 1) // 2
        least, most = (size, most) if said.endswith(text[end - size : end]) else (least, size - 1)
    return text[: end - least] + "\n" + text[end:]


_SHORT = 1 << 12
"""A part whose words are put in order in one go."""


def _needle(raw: str, folded: str) -> Turns[str]:
    """The longest word of a part, which every text that holds the part must hold, too; empty where there is none."""
    head, tail = folded[:_EDGE], folded[-_EDGE:]
    if len(raw) <= _SHORT:  # in C, but for the few words that come first
        words = sorted(_WORD.findall(raw), key=len, reverse=True)
        return next((word for word in words if word in head or word in tail), "")
    longest = ""
    for count, match in enumerate(_WORD.finditer(raw), 1):
        word = match.group()
        if len(word) > len(longest) and (word in head or word in tail):
            longest = word
        if not count % (4 * TURN):
            yield
    return longest


def _strings(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, list):
        for item in value:
            yield from _strings(item, depth - 1)
    elif depth and isinstance(value, dict):
        yield from _strings(value.get("text"), depth - 1)
        yield from _strings(value.get("content"), depth - 1)


def _forms(text: str) -> Turns[list[str]]:
    """The text folded, and its other readings where they differ."""
    plain = yield from _without_prefixes(text)
    found: list[str] = []
    for form in (text, plain, (yield from _from_json(text)), (yield from _from_markup(plain))):
        folded = yield from _folded(form)
        if folded not in found:
            found.append(folded)
    return found


def _without_prefixes(text: str) -> Turns[str]:
    """The text without line numbers and quotation signs at line starts."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        end = text.find("\n", at + LONG) + 1 or len(text)
        parts.append(_LINE_PREFIX.sub("", text[at:end]))
        at = end
        if at < len(text):
            yield
    return "".join(parts)


def _from_json(text: str) -> Turns[str]:
    """The text with one round of JSON's escapes undone."""
    if "\\" not in text:
        return text
    plain = yield from replaced(_JSON_ESCAPE, text, _unescaped)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(match: re.Match[str]) -> str:
    code, sign = match.groups()
    return chr(int(code, 16)) if code else _CONTROLS.get(sign, sign)


def _from_markup(text: str) -> Turns[str]:
    """The text with one round of markup's entities undone."""
    if "&" not in text:
        return text
    for entity, char in _ENTITIES:
        if len(text) > LONG:
            yield
        text = text.replace(entity, char)
    return text


def _folded(text: str) -> Turns[str]:
    parts: list[str] = []
    for at in range(0, len(text), LONG):
        if at:
            yield
        part = "".join(text[at : at + LONG].split())
        for char in _INVISIBLE:
            part = part.replace(char, "")
        parts.append(part)
    return "".join(parts)


def _parts(block: str, name: str, arguments: Mapping[str, Any]) -> Turns[tuple[str, str, str, str]]:
    """The call's head up to its first value, its tail from its last value on, its opening and its closing markup."""
    named = block.find(name)
    opened = named + len(name)
    spans: list[tuple[int, int]] = []
    for value in arguments.values():
        span = yield from _span(block, value, opened)
        spans += [span] if span else []
    if not spans or named < 0:
        return "", "", "", ""
    first, last = min(spans), max(spans, key=lambda span: span[1])
    return block[: first[0]], block[last[0] :], block[:opened], _last_mark(block[last[1] :])


def _span(block: str, value: object, after: int) -> Turns[tuple[int, int] | None]:
    """Where a value stands in the call, as far as that can be told."""
    text: str = (yield from _folded(value)) if isinstance(value, str) else ""
    start = block.find(text, after) if text else -1
    return None if start < 0 else (start, start + len(text))


def _last_mark(closing: str) -> str:
    """What ends the call: its last tag or token, or the braces of its object."""
    at = closing.rfind("<")
    return closing[at:] if at >= 0 else closing[-2:]


def _is_left_open(source: str, head: str, closing: str, size: int) -> bool:
    """Whether the head of a call stands in the source without the end of one behind it."""
    if not head or not closing:
        return False
    at = source.find(head)
    return at >= 0 and source.find(closing, at + len(head), at + len(head) + max(_REACH, 2 * size)) < 0


def _is_left_unopened(source: str, tail: str, opening: str, closing: str, size: int) -> bool:
    """Whether the last value and the end of a call stand in the source without the beginning of one before them.

    Braces alone are no end that tells a call from any other data.
    """
    if len(tail) < _MIN_TAIL or not opening or not closing.startswith("<"):
        return False
    at = source.find(tail)
    return at >= 0 and source.rfind(opening, max(0, at - max(_REACH, 2 * size)), at) < 0
