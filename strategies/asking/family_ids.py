"""The ids of calls that a model's family insists on, and how they go both ways without anything being remembered.

Upwards each call of a conversation gets the family's form: Kimi's count the calls from the first one on, Mistral's are
nine letters or digits, those of a client by hash. Downwards the server's ids go to the client as they are, and come
back as they are; one that the conversation knows already, as a server counts from 0 in every answer, becomes the id
which that call is going to have upwards.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from functools import partial
from typing import Any

from attrs import frozen

__all__ = ["KnownIds", "family_id", "known_ids", "short_id"]

_KIMI = re.compile("|".join(map(translate, ("kimi-k2*", "moonshot*"))))
_MISTRAL = re.compile(
    "|".join(
        map(
            translate,
            ("mistral*", "ministral*", "magistral*", "devstral*", "codestral*", "open-mistral*", "pixtral*"),
        )
    )
)
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")


@frozen(kw_only=True)
class KnownIds:
    """The ids that the calls of a conversation have, and what the next calls' would be."""

    taken: frozenset[str]
    next_id: Callable[[str, str, int], str]
    """From the server's own id, the tool's name, and how many calls of the answer came before."""


def family_id(model: str, given: str, name: str, count: int) -> str | None:
    """The id in the form that the model's family asks for; None where any form will do."""
    family = model.lower().rpartition("/")[2]
    if _KIMI.match(family):
        # Counted over the whole conversation. With any other id in its history the model stops calling, or damages ids
        # of its own: https://github.com/getkimchi/kimchi/issues/1063
        # https://github.com/vybestack/llxprt-code/issues/713
        return f"functions.{name}:{count}"
    if _MISTRAL.match(family):
        # Nine letters or digits, or Mistral's API and templates answer 400:
        # https://github.com/anomalyco/opencode/issues/1680
        return given if _MISTRAL_ID.fullmatch(given) else short_id(given)
    return None


def known_ids(model: str, messages: Iterable[Mapping[str, Any]]) -> KnownIds | None:
    """What there is to know of a conversation's ids; `None` where the model's family asks for no form."""
    family = model.lower().rpartition("/")[2]
    if not _KIMI.match(family) and not _MISTRAL.match(family):
        return None
    calls = [call for message in messages for call in _calls(message)]
    taken = frozenset(call["id"] for call in calls if isinstance(call.get("id"), str))
    return KnownIds(taken=taken, next_id=partial(_next_id, model, len(calls)))


def short_id(text: str) -> str:
    """Nine letters and digits for a text, always the same."""
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16])
    digits = ""
    for _ in range(9):
        number, digit = divmod(number, len(_ALPHABET))
        digits += _ALPHABET[digit]
    return digits


def _next_id(model: str, before: int, given: str, name: str, number: int) -> str:
    return family_id(model, f"{given}\0{before + number}", name, before + number) or given


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") if message.get("role") == "assistant" else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
