"""The tools of one request under the names that the model is shown, and what each of them is to the client.

Chat knows functions with one flat name. Other wires have tools in namespaces, and tools that are no functions; a call
is only run by the client when it comes back as what was declared. The names depend on the declarations alone, so that
history is told with the very names that the model is shown, and prompts stay in the server's cache.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Literal

from attrs import frozen

__all__ = ["MAX_NAME", "ToolKind", "ToolName", "ToolNames"]

ToolKind = Literal["function", "custom", "tool_search", "local_shell", "shell", "apply_patch", "vendor"]

MAX_NAME = 64
"""Longer names are refused by OpenAI: https://platform.openai.com/docs/api-reference/chat/create."""
_HASH_CHARS = 8
_MAX_OWN = 1024
_FLAT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]+")
_SEPARATOR = re.compile(r"__|[.:/]+")
_UNNAMED = "functions"
"""The namespace of what has none."""


@frozen
class ToolName:
    """What a flat name stands for."""

    kind: ToolKind
    namespace: str | None
    own: str


class ToolNames:
    """The table of one request."""

    __slots__ = ("_by_flat", "_flat", "_is_shared", "_parted", "_spelt")

    def __init__(self) -> None:
        self._is_shared = False
        """Another table has the same dicts: this one takes its own before it changes them."""
        self._by_flat: dict[str, ToolName] = {}
        self._flat: dict[tuple[str, str], str] = {}
        self._parted: dict[tuple[str, ...], list[str]] | None = None
        self._spelt: dict[tuple[str, str], str] = {}
        """Names of a history that nothing declares."""

    def copy(self) -> "ToolNames":
        """The same table, to which more may be added."""
        other = ToolNames.__new__(ToolNames)
        other._by_flat, other._flat, other._parted, other._spelt = self._by_flat, self._flat, self._parted, {}
        self._is_shared = other._is_shared = True
        return other

    def is_like(self, other: "ToolNames") -> bool:
        """Whether the same is declared in both, so that the names are the same."""
        return self._by_flat is other._by_flat or (self._by_flat == other._by_flat and self._flat == other._flat)

    def __len__(self) -> int:
        return len(self._by_flat)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_flat)

    def add(self, own: str, *, namespace: str | None = None, kind: ToolKind = "function") -> str:
        """The flat name of a tool that is declared; one that is declared twice is what it was the first time."""
        place = (_namespace(namespace), own)
        flat = self._flat.get(place)
        if flat is None:
            if self._is_shared:
                self._by_flat, self._flat, self._is_shared = dict(self._by_flat), dict(self._flat), False
            flat = self._spell(place)
            self._flat[place] = flat
            self._by_flat[flat] = ToolName(kind, namespace, own)
            self._parted = None
        return flat

    def flat(self, own: str, namespace: str | None = None) -> str:
        """The name under which a call of the history is shown, declared or not."""
        place = (_namespace(namespace), own)
        known = self._flat.get(place)
        if known is None and not place[0]:
            known = self.meant(own)
        if known is None:
            known = self._spelt.get(place)
        if known is None:
            known = self._spelt[place] = self._spell(place)
        return known

    def own(self, flat: str) -> ToolName | None:
        """What the client knows a called tool by; None for a name that is not in the table."""
        return self._by_flat.get(flat)

    def of_client(self, flat: str) -> str:
        """The name that the client knows a called tool by, also where that is not in the table."""
        found = self._by_flat.get(flat)
        return flat if found is None else found.own

    def meant(self, name: str) -> str | None:
        """The declared flat name that a model, or a history, means by a name; None where that is not certain.

        Models write namespaces with a dot, a colon or a slash, or leave them out:
        https://github.com/openai/codex/issues/23186
        """
        if name in self._by_flat:
            return name
        parts = _parts(name)
        found = self._table().get(parts, ()) if parts else ()
        return found[0] if len(found) == 1 else None

    def _table(self) -> dict[tuple[str, ...], list[str]]:
        """The flat names by the parts of all their forms."""
        if self._parted is None:
            self._parted = {}
            for flat, name in self._by_flat.items():
                forms = {_parts(flat), _parts(name.own), _parts(f"{name.namespace or _UNNAMED}.{name.own}")}
                for form in forms:
                    self._parted.setdefault(form, []).append(flat)
        return self._parted

    def _spell(self, place: tuple[str, str]) -> str:
        """The plain name where it can be one and nobody has it, else one with a hash of what it stands for."""
        namespace, own = place
        plain = f"{namespace}__{own}" if namespace else own
        if _FLAT.fullmatch(plain) and plain not in self._by_flat:
            return plain
        clean = _FOREIGN.sub("_", plain[:_MAX_OWN]).strip("_") or "tool"
        head = clean[: MAX_NAME - _HASH_CHARS - 1]
        count = 0
        while True:
            flat = f"{head}_{_hash(namespace, own, count)}"
            if flat not in self._by_flat:
                return flat
            count += 1


def _namespace(namespace: str | None) -> str:
    return "" if namespace is None or namespace == _UNNAMED else namespace


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in _SEPARATOR.split(name[:_MAX_OWN]) if part)


def _hash(namespace: str, own: str, count: int) -> str:
    # With its length, or namespace and name could be parted in another way and give the same hash.
    told = f"{len(namespace)}:{namespace}{own}\0{count}".encode("utf-8", "surrogatepass")
    return blake2b(told, digest_size=_HASH_CHARS // 2).hexdigest()
