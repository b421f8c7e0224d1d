"""Tools' schemas without the keywords that a server's owner names: those are taken out, the rest stays as it is.

Bounds and patterns are said in words instead. Where a schema forbids something, it is left out whole rather than made
to forbid more.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from gateway.core.errors import InvalidRequest
from gateway.kinds.lowering.refusals import LOWERABLE, REFERENCES, REFUSALS
from gateway.kinds.lowering.walk import Schema, Walk, in_words, inside, note

__all__ = ["lowered", "without"]

_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def lowered(body: bytes, keywords: Collection[str]) -> bytes:
    """A request with the schemas of its tools lowered; its own bytes where that changes nothing."""
    try:
        fields = _FIELDS.decode(body)
        tools = msgspec.json.decode(fields.get("tools", b"null"))
    except (ValueError, RecursionError):
        return body
    if not isinstance(tools, list):
        return body
    told = [_lowered_tool(tool, keywords) for tool in tools]
    if told == tools:
        return body
    try:
        return msgspec.json.encode({**fields, "tools": told})
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply", param="tools") from None


def _lowered_tool(tool: Any, keywords: Collection[str]) -> Any:
    function = tool.get("function") if isinstance(tool, dict) else None
    parameters = function.get("parameters") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(parameters, dict):
        return tool
    return {**tool, "function": {**function, "parameters": without(parameters, keywords)}}


def without(schema: Mapping[str, Any], keywords: Collection[str]) -> Schema:
    """The schema without these keywords."""
    work = _Without(dict(schema), frozenset(keywords) & LOWERABLE)
    found = work.lowered(dict(schema), 0)
    return found if isinstance(found, dict) else {}


class _Without(Walk):
    """One schema on its way down."""

    def __init__(self, root: Schema, keywords: frozenset[str]) -> None:
        super().__init__(root)
        self._keywords = keywords
        self._inlines = bool(keywords.intersection(REFERENCES))

    def lowered(self, schema: Any, depth: int) -> Any:
        """The schema, or a flag that stands for one, without the keywords."""
        is_within = self._enter(depth)
        if not isinstance(schema, dict):
            return schema
        if not is_within:
            return {}
        if self._inlines and "$ref" in schema:
            return self._inlined(schema, depth)
        out: Schema = {}
        for key, value in schema.items():
            if not (self._inlines and key in REFERENCES):
                out[key] = self._member(key, value, depth)
        self._undo_forbidding(schema, out)
        self._take_out(out)
        if out != schema:
            self._drop(out, _UNEVALUATED)
        return out

    def _member(self, key: str, value: Any, depth: int) -> Any:
        takes_members = key == "allOf" and key in self._keywords
        lower = self._branch if takes_members else self.lowered
        return inside(key, value, lambda inner: lower(inner, depth + 1))

    def _branch(self, schema: Any, depth: int) -> Any:
        """What is to be taken out of its list has to be there, not to be pointed to."""
        if isinstance(schema, dict) and "$ref" in schema:
            return self._inlined(schema, depth)
        return self.lowered(schema, depth)

    def _inlined(self, schema: Schema, depth: int) -> Any:
        """What a reference points to, with the words beside it."""
        words = {key: schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)}
        return {**(self._followed(schema["$ref"], {}, depth) or {}), **words}

    def _undo_forbidding(self, schema: Schema, out: Schema) -> None:
        """A condition that was made wider would rule out more: it goes."""
        # What was widened inside a `not` forbids more than before, and a server that obeys would refuse right calls.
        if out.get("not") != schema.get("not"):
            out.pop("not", None)
        if out.get("if") != schema.get("if"):
            self._drop(out, REFUSALS["if"].together)
        if out.get("contains") != schema.get("contains") and "maxContains" in out:
            self._drop(out, REFUSALS["contains"].together)
        if "oneOf" in out and ("oneOf" in self._keywords or out["oneOf"] != schema["oneOf"]):
            branches = out.pop("oneOf")
            if "anyOf" not in out:
                out["anyOf"] = branches
        if "allOf" in self._keywords and isinstance(out.get("allOf"), list):
            _take_members(out, out.pop("allOf"))

    def _take_out(self, out: Schema) -> None:
        for key in sorted(self._keywords.intersection(out)):
            if key not in out:
                continue
            # A list of one says the same, and servers that know no `const` know `enum`: llama.cpp, Gemini.
            if key == "const" and "enum" not in out and "enum" not in self._keywords:
                out["enum"] = [out.pop("const")]
                continue
            if REFUSALS[key].way == "said":
                note(out, f"({key}: {in_words(out[key])})")
            self._drop(out, REFUSALS[key].together or (key,))
            exclusive = f"exclusive{key.capitalize()}"
            if key in ("minimum", "maximum") and out.get(exclusive) is True:
                del out[exclusive]

    @staticmethod
    def _drop(out: Schema, keys: Collection[str]) -> None:
        for key in keys:
            out.pop(key, None)


def _take_members(out: Schema, branches: list[Any]) -> None:
    """What is certain of all branches at once: their members, and which of them are needed."""
    for branch in branches:
        if not isinstance(branch, dict):
            continue
        members = branch.get("properties")
        if isinstance(members, dict):
            known = out.get("properties")
            known = known if isinstance(known, dict) else {}
            out["properties"] = {**members, **known}
            for name in known.keys() & members.keys():
                if known[name] != members[name]:
                    out["properties"][name] = {}
            out.pop("additionalProperties", None)
        needed = branch.get("required")
        if isinstance(needed, list):
            mine = out.get("required")
            out["required"] = list(dict.fromkeys([*(mine if isinstance(mine, list) else ()), *needed]))
        for key in ("type", "description"):
            if key in branch:
                out.setdefault(key, branch[key])
