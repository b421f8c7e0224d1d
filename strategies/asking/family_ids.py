"""The ids of a conversation's calls, those that a model's family insists on among them, without anything remembered.

Upwards each call of a conversation gets the family's form: Kimi's count the calls from the first one on, Mistral's are
nine letters or digits, those of a client by hash. Downwards the server's ids go to the client as they are, and come
back as they are; one that the conversation knows already, as a server counts from 0 in every answer, becomes the id
which that call is going to have upwards, or, where no form is asked for, one of the gateway's own.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from functools import partial
from typing import Any

from attrs import define

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


@define(eq=False)
class KnownIds:
    """The ids that the calls of a conversation have, gathered once somebody asks, and what the next calls' would be."""

    _messages: Iterable[Mapping[str, Any]]
    next_id: Callable[[str, str, int], str] | None = None
    """From the server's own id, the tool's name, and how many calls of the answer came before; `None` where the
    model's family asks for no form."""
    _ids: frozenset[object] | None = None

    def __contains__(self, call_id: object) -> bool:
        # Most answers hold no call, and a long conversation would have been gone through in vain.
        if self._ids is None:
            self._ids = frozenset(
                told
                for message in self._messages
                for call in _calls(message)
                if isinstance(told := call.get("id"), str)
            )
        return call_id in self._ids


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


def known_ids(model: str, messages: Sequence[Mapping[str, Any]]) -> KnownIds:
    """What there is to know of a conversation's ids.

    Results find their calls by them, and several servers count them anew in each answer, or have one only:
    https://github.com/NousResearch/hermes-agent/issues/70724 https://github.com/fw-ai/fireconnect/issues/16
    """
    family = model.lower().rpartition("/")[2]
    if not _KIMI.match(family) and not _MISTRAL.match(family):
        return KnownIds(messages)
    before = sum(len(_calls(message)) for message in messages)
    return KnownIds(messages, partial(_next_id, model, before))


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
