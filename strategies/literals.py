"""Where markup is only being talked about: code fences, quotations, lead-ins that announce an example."""

import re

from strategies.dialect import Opening

__all__ = ["closes_fence", "is_announced_example", "is_quoted", "opens_fence"]

_QUOTES = "\"'“”‘’«»„「『`"
_SENTENCE_ENDS = ".:;!?。：；！？…>)]}*"
_CLOSER = re.compile(r" {0,3}(`{3,}|~{3,})[ \t\r]*\Z")
_CLOSER_BEGUN = re.compile(r" {0,3}(?:`*|~*)[ \t\r]*\Z")
_SENTENCE = re.compile(r"[.!?。！？\n]")
_ANNOUNCED = re.compile(
    r"\b(?:examples?|for instance|e\.g|such as|would look|looks? like|will look|schema|response is|syntax|format"
    r"|template|sample|illustrat\w+|hypothetical\w*|beispiel\w*|zum beispiel|etwa so|por ejemplo|ejemplos?|par exemple"
    r"|exemples?|exemplos?|por exemplo|esempio|например|пример\w*|voorbeeld)\b"
    r"|例如|比如|示例|例子|範例|范例|格式|例えば|たとえば|예를 들|예시",
    re.IGNORECASE,
)
_LEAD_IN = 240


def opens_fence(info: str, mark: str) -> str | None:
    """The info word of a fence line, lower-cased; None when the line opens no fence."""
    if mark == "`" and "`" in info:
        return None
    words = info.split(None, 1)
    return words[0].lower() if words else ""


def closes_fence(line: str, fence: tuple[str, int], *, partial: bool = False) -> bool:
    """Whether a line closes the fence (`partial`: may still become one that does)."""
    mark, size = fence
    if partial:
        return _CLOSER_BEGUN.match(line) is not None and (not line.strip() or mark in line)
    match = _CLOSER.match(line)
    return match is not None and match.group(1)[0] == mark and len(match.group(1)) >= size


def is_quoted(opening: Opening, level: str) -> bool:
    """Whether an opener of this evidence level stands in a quotation or inside running text."""
    line = opening.line
    if line.lstrip().startswith(">"):
        return True
    last = opening.before[-1:]
    if last and last in _QUOTES:
        return True
    if level not in "CD":
        return False
    told = line.rstrip()
    return bool(told) and told[-1] not in _SENTENCE_ENDS


def is_announced_example(before: str) -> bool:
    """Whether the last sentence before a block announces an example, a quotation or a schema."""
    text = before.rstrip()[-_LEAD_IN:].rstrip(":：.。")
    sentence = _SENTENCE.split(text.rstrip())[-1]
    return _ANNOUNCED.search(sentence) is not None
