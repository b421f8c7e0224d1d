"""Where markup is only being talked about: code fences, quotations, lead-ins that announce an example."""

import re

from strategies.dialect import Opening
from strategies.lexicon import END_TOKENS

__all__ = [
    "FenceMark",
    "closes_fence",
    "is_announced_example",
    "is_quoted",
    "last_sentence",
    "may_open_fence",
    "opens_fence",
    "stands_in_words",
]

_QUOTES = "\"'“”‘’«»„「『`"
_OPENING_QUOTES = ("«", "„")
_THIN_SPACES = " \u00a0\u202f"
_TAGS = re.compile(r"(?:<[A-Za-z][^<>\n]{0,80}>)+\Z")
"""Openers of a wrapper: what they stand in, the call inside stands in."""
_SENTENCE_ENDS = ".:;!?。：；！？…>)]}*"
_FENCE_INDENT = re.compile(r"[ \t]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)*\Z")
_CLOSER = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t\r]*\Z")
_CLOSER_RUN = re.compile(r"[ \t]*(?:`{3,}|~{3,})")
_CLOSER_BEGUN = re.compile(r"[ \t]*(?:`*|~*)[ \t\r]*\Z")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|[0-9]{1,9}[.)])\s*\Z")
_ENDS = ".!?。！？\n"
_ANNOUNCED = re.compile(
    r"\b(?:examples?|for instance|such as|(?:would|will|might|could) look like"
    r"|looks? like (?:this|so|that|the following)|looks? like\Z|schema|response is|syntax|format|template"
    r"|sample|illustrat\w+|hypothetical\w*|beispiel\w*|zum beispiel|etwa so|por ejemplo|ejemplos?|par exemple"
    r"|exemples?|exemplos?|por exemplo|esempio|например|пример\w*|voorbeeld)\b"
    r"|例如|比如|示例|例子|範例|范例|格式|例えば|たとえば|예를 들|예시",
    re.IGNORECASE,
)
_SHORT_FORMS = re.compile(r"\b(?:e\. ?g|z\. ?B|p\. ?ej|p\. ?ex)\b\.?", re.IGNORECASE)
_LEAD_IN = 240


FenceMark = tuple[str, int, int]
"""The character of a code fence, how many there are, and the column where it opens."""


def may_open_fence(line: str) -> bool:
    """Whether a code fence may open behind this text on its line: indentation and list markers."""
    return _FENCE_INDENT.match(line) is not None


def opens_fence(info: str, mark: str) -> str | None:
    """The info word of a fence line, lower-cased; None when the line opens no fence."""
    if mark == "`" and "`" in info:
        return None
    words = info.split(None, 1)
    return words[0].lower() if words else ""


def closes_fence(line: str, fence: FenceMark, *, partial: bool = False) -> bool:
    """Whether a line closes the fence (`partial`: may still become one that does)."""
    mark, size, column = fence
    line, is_partial = _without_end_tokens(line) if mark in line else (line, False)
    if partial:
        return _CLOSER_BEGUN.match(line) is not None and (not line.strip() or mark in line)
    match = None if is_partial else _CLOSER.match(line)
    if match is None:
        return False
    indent, run = match.groups()
    return run[0] == mark and len(run) >= size and len(indent) <= column + 3


def _without_end_tokens(line: str) -> tuple[str, bool]:
    """The line of a fence without the tokens behind it, and whether the last of them has only begun."""
    run = _CLOSER_RUN.match(line)
    if run is None:
        return line, False
    rest = line[run.end() :].strip()
    while rest:
        token = next((token for token in END_TOKENS if rest.startswith(token)), None)
        if token is None:
            is_begun = any(token.startswith(rest) for token in END_TOKENS)
            return (run.group(), True) if is_begun else (line, False)
        rest = rest[len(token) :].strip()
    return run.group(), False


def is_quoted(opening: Opening, level: str, *, inline: bool = False) -> bool:
    """Whether an opener of this evidence level stands in a quotation, or in running text unless `inline` allows it."""
    line = opening.line
    if line.lstrip().startswith(">"):
        return True
    ahead = opening.before
    if ahead.endswith(">"):
        ahead = _TAGS.sub("", ahead[-_LEAD_IN:])
    last = ahead[-1:]
    if last and (last in _QUOTES or (last in _THIN_SPACES and ahead.rstrip(_THIN_SPACES)[-1:] in _OPENING_QUOTES)):
        return True
    if level not in "CD":
        return False
    return _LIST_ITEM.match(line) is not None or (not inline and stands_in_words(opening))


def stands_in_words(opening: Opening) -> bool:
    """Whether an opener stands in a line of words that does not end a sentence before it."""
    told = opening.line.rstrip()
    return bool(told) and told[-1] not in _SENTENCE_ENDS


def is_announced_example(before: str) -> bool:
    """Whether the last sentence before a block announces an example, a quotation or a schema."""
    text = before.rstrip()[-_LEAD_IN:].rstrip(":：.。")
    if "." in text:
        text = _SHORT_FORMS.sub("such as", text).rstrip()
    return _ANNOUNCED.search(last_sentence(text)) is not None


def last_sentence(text: str) -> str:
    """What stands behind the last end of a sentence."""
    return text[max(map(text.rfind, _ENDS)) + 1 :]
