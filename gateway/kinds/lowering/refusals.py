"""Which server refuses which keyword of JSON Schema, and how each can be done without: one table.

What is refused is said in words, left out, or put in its place from where it was referred to, so that a lowered schema
allows at least all that the original allows. A keyword goes together with those that would mean less without it.
"""

from collections.abc import Mapping
from typing import Literal

from attrs import frozen

__all__ = ["KEPT_BY_GEMINI", "LOWERABLE", "REFERENCES", "REFUSALS", "UNIONS_REFUSED_AT_ROOT", "Refusal"]


@frozen(kw_only=True)
class Refusal:
    """One keyword."""

    way: Literal["said", "left out", "put in place", "never"] = "left out"
    """How it is done without, for a server whose owner names it; `never`: nothing is left of a schema without it."""
    together: tuple[str, ...] = ()
    """All of those that mean something only beside each other, itself among them."""
    gemini: bool = False
    """Gemini's `parameters` take it: https://ai.google.dev/api/caching#Schema, foreign keywords are a 400."""
    anthropic: bool = True
    """Anthropic takes it at the root of a tool's schema, which it wants to be a plain object."""


_CONDITION = ("if", "then", "else")
_CONTAINED = ("contains", "minContains", "maxContains")

REFUSALS: Mapping[str, Refusal] = {
    "title": Refusal(gemini=True),
    "description": Refusal(way="never", gemini=True),
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), Refusal(way="said", gemini=True)),
    **dict.fromkeys(("minProperties", "maxProperties"), Refusal(way="said", gemini=True)),
    # llama.cpp makes a grammar of the schema, and one `pattern` that it cannot say is a 400 for the whole request:
    # https://github.com/ggml-org/llama.cpp/issues/26930 https://github.com/ggml-org/llama.cpp/issues/25746
    **dict.fromkeys(("pattern", "minimum", "maximum"), Refusal(way="said", gemini=True)),
    "default": Refusal(gemini=True),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems"), Refusal(way="said")),
    **dict.fromkeys(("format", "const", "enum"), Refusal(way="said")),
    **dict.fromkeys(("$id", "$comment", "$anchor", "examples", "deprecated", "readOnly", "writeOnly"), Refusal()),
    **dict.fromkeys(("contentEncoding", "contentMediaType", "nullable", "not"), Refusal()),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies", "propertyNames"), Refusal()),
    **dict.fromkeys(("additionalProperties", "additionalItems"), Refusal()),
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), Refusal()),
    **dict.fromkeys(("$schema", "allOf", "anyOf", "oneOf"), Refusal(anthropic=False)),
    **dict.fromkeys(_CONDITION, Refusal(together=_CONDITION)),
    **dict.fromkeys(_CONTAINED, Refusal(together=_CONTAINED)),
    "patternProperties": Refusal(together=("patternProperties", "additionalProperties")),
    "prefixItems": Refusal(together=("prefixItems", "items", "additionalItems")),
    "$ref": Refusal(way="put in place", anthropic=False),
    **dict.fromkeys(("$defs", "definitions"), Refusal(way="put in place")),
}
"""Gemini gets what it takes in this order. What is not here, all servers take; `type` and `properties` are needed."""

LOWERABLE = frozenset(keyword for keyword, row in REFUSALS.items() if row.way != "never")
"""The keywords that can be done without."""
REFERENCES = tuple(keyword for keyword, row in REFUSALS.items() if row.way == "put in place")
KEPT_BY_GEMINI = tuple(keyword for keyword, row in REFUSALS.items() if row.gemini)
UNIONS_REFUSED_AT_ROOT = tuple(key for key, row in REFUSALS.items() if key.endswith("Of") and not row.anthropic)
