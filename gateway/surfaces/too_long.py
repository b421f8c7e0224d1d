"""Numbers in the words of servers that refuse a request for its length: how much was asked, and how much there is.

Clients that know them shorten the conversation themselves, and a limit on the answer that is larger than the model's
can be lowered.
"""

import re

import msgspec
from attrs import frozen

__all__ = ["Overflow", "overflow_in", "words_of"]

_MAX_CHARS = 4000
# OpenAI's and llama.cpp's, which gives both numbers in fields of its own.
_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_TOO_LONG = re.compile(
    r"prompt is too long|context[ _-]?(?:length|window|size|limit)|maximum model length|too many (?:input )?tokens"
    r"|exceeds? the (?:maximum|model'?s?|available) .{0,30}(?:tokens|context)"
    r"|(?:input|prompt)[^.]{0,40} (?:is )?(?:too long|longer than)",
    re.IGNORECASE,
)
_NUMBER = r"[\(\[`'\"= :of]{0,4}([0-9][0-9_,]{2,12})"
_LIMIT = re.compile(
    rf"""
      (?:maximum|max(?:imum)?[ ]model|model(?:'s)?)[ ](?:context[ ])?(?:length|window|size)(?:[ ](?:is|of))?{_NUMBER}
    | context[ ](?:length|window|size|limit)(?:[ ]of)?(?:[ ]only|[ ]is)?{_NUMBER}
    | >[ ]{_NUMBER}[ ](?:tokens[ ])?maximum
    | number[ ]of[ ](?:input[ ])?tokens[ ]allowed{_NUMBER}
    | with{_NUMBER}[ ]maximum[ ]context
    | n_ctx[^0-9]{{1,6}}([0-9]{{3,12}})
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NEEDED = re.compile(
    rf"""
      prompt[ ]is[ ]too[ ]long:{_NUMBER}
    | {_NUMBER}[ ](?:tokens[ ])?(?:in[ ]the[ ]messages|from[ ]the[ ]input|input[ ]tokens|of[ ]text[ ]input)
    | (?:request|messages|prompt|input)[^0-9.]{{0,60}}(?:has|have|resulted[ ]in|contains|length|count|first)?{_NUMBER}
    | you[ ]requested(?:[ ]a[ ]total[ ]of)?{_NUMBER}
    | n_prompt_tokens[^0-9]{{1,6}}([0-9]{{3,12}})
    | keep[ ]the[ ]first{_NUMBER}
    """,
    re.IGNORECASE | re.VERBOSE,
)


@frozen(kw_only=True)
class Overflow:
    """A request that does not fit its model, as far as the server's words tell."""

    words: str
    needed: int | None = None
    allowed: int | None = None


def overflow_in(payload: bytes | None) -> Overflow | None:
    """What an error body says of a request that is too long; None where it speaks of something else."""
    words, codes = words_of(payload)
    if not words or not (_CODES & codes or _TOO_LONG.search(words)):
        return None
    allowed = _first(_LIMIT, words)
    # Servers name several numbers: only one above the limit can be what was asked for.
    needed = next((number for number in _all(_NEEDED, words) if allowed is None or number > allowed), None)
    if allowed is None or needed is None:
        return Overflow(words=words)
    return Overflow(words=words, needed=needed, allowed=allowed)


def words_of(payload: bytes | None) -> tuple[str, frozenset[str]]:
    """The message of an error body in the form of any server, and its codes; the figures that stand beside it too."""
    if payload is None:
        return "", frozenset()
    try:
        body = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return "", frozenset()
    holder = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(holder, str):
        return holder[:_MAX_CHARS], frozenset()
    if not isinstance(holder, dict):
        return "", frozenset()
    message = next((holder[name] for name in ("message", "detail") if isinstance(holder.get(name), str)), "")
    figures = [f" {name}={holder[name]}" for name in ("n_prompt_tokens", "n_ctx") if type(holder.get(name)) is int]
    codes = frozenset(holder[name] for name in ("code", "type") if isinstance(holder.get(name), str))
    return message[:_MAX_CHARS] + "".join(figures), codes


def _first(pattern: re.Pattern[str], words: str) -> int | None:
    return next(iter(_all(pattern, words)), None)


def _all(pattern: re.Pattern[str], words: str) -> list[int]:
    found = (next((group for group in match.groups() if group), "") for match in pattern.finditer(words))
    return [int(number) for number in (each.replace(",", "").replace("_", "") for each in found) if number]
