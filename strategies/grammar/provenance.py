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

__all__ = ["Provenance"]

# A call that an agent's own file or page put into the model's mouth is no call of the model's:
# https://github.com/NousResearch/hermes-agent/issues/47967 https://genai.owasp.org/llmrisk/llm01-prompt-injection/
_SENDERS = frozenset({"user", "tool", "function"})
_MAX_DEPTH = 4
_BUDGET = 256 << 20
"""Characters that the look-ups of one request may go over."""
_REACH = 4096
"""How far behind the head of a copied call the rest of it is looked for, at least."""
_MIN_TAIL = 12
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
        if not self._messages or not arguments:
            return False
        block = _folded(raw)
        if not block:
            return False
        head, tail, opening, closing = _parts(block, name, arguments)
        needles = (_needle(raw, block), _needle(raw[:_EDGE], head), _needle(raw[-_EDGE:], closing))
        sources = [
            source for text in self._texts() if any(map(text.__contains__, needles)) for source in self._forms(text)
        ]
        self._budget -= 3 * sum(map(len, sources))
        if self._budget < 0:
            return bool(sources)
        return any(
            block in source
            or _is_left_open(source, head, closing, len(block))
            or _is_left_unopened(source, tail, opening, closing, len(block))
            for source in sources
        )

    def _texts(self) -> list[str]:
        if self._sources is None:
            sent = (message for message in self._messages if message.get("role") in _SENDERS)
            self._sources = [text for message in sent for text in _strings(message.get("content"), _MAX_DEPTH)]
        return self._sources

    def _forms(self, text: str) -> tuple[str, ...]:
        forms = self._folded.get(id(text))
        if forms is None:
            forms = self._folded[id(text)] = tuple(_forms(text))
        return forms


def _needle(raw: str, folded: str) -> str:
    """The longest word of a part, which every text that holds the part must hold, too; empty where there is none."""
    words = (word for word in _WORD.findall(raw) if word in folded[:_EDGE] or word in folded[-_EDGE:])
    return max(words, key=len, default="")


def _strings(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, list):
        for item in value:
            yield from _strings(item, depth - 1)
    elif depth and isinstance(value, dict):
        yield from _strings(value.get("text"), depth - 1)
        yield from _strings(value.get("content"), depth - 1)


def _forms(text: str) -> Iterator[str]:
    """The text folded, and its other readings where they differ."""
    whole = _folded(text)
    seen = {whole}
    yield whole
    plain = _LINE_PREFIX.sub("", text)
    for form in (plain, _from_json(text), _from_markup(plain)):
        folded = _folded(form)
        if folded not in seen:
            seen.add(folded)
            yield folded


def _from_json(text: str) -> str:
    """The text with one round of JSON's escapes undone."""
    if "\\" not in text:
        return text
    plain = _JSON_ESCAPE.sub(_unescaped, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(match: re.Match[str]) -> str:
    code, sign = match.groups()
    return chr(int(code, 16)) if code else _CONTROLS.get(sign, sign)


def _from_markup(text: str) -> str:
    """The text with one round of markup's entities undone."""
    if "&" not in text:
        return text
    for entity, char in _ENTITIES:
        text = text.replace(entity, char)
    return text


def _folded(text: str) -> str:
    folded = "".join(text.split())
    for char in _INVISIBLE:
        folded = folded.replace(char, "")
    return folded


def _parts(block: str, name: str, arguments: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """The call's head up to its first value, its tail from its last value on, its opening and its closing markup."""
    named = block.find(name)
    opened = named + len(name)
    spans = [span for span in (_span(block, value, opened) for value in arguments.values()) if span]
    if not spans or named < 0:
        return "", "", "", ""
    first, last = min(spans), max(spans, key=lambda span: span[1])
    return block[: first[0]], block[last[0] :], block[:opened], _last_mark(block[last[1] :])


def _span(block: str, value: object, after: int) -> tuple[int, int] | None:
    """Where a value stands in the call, as far as that can be told."""
    text = _folded(value) if isinstance(value, str) else ""
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
