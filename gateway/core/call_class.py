"""How a structured call stands to what was declared: the closed list that metrics, records and report count by."""

from enum import StrEnum

__all__ = ["CallClass"]


class CallClass(StrEnum):
    """A call has one class: the first of those below that holds, and `valid` where none does."""

    VALID = "valid"
    """What JSON Schema takes; `null` for an optional parameter counts as left out."""
    INVALID_JSON = "invalid_json"
    """The arguments are no JSON."""
    UNKNOWN_NAME = "unknown_name"
    """The request offered no tool of this name."""
    SCHEMA_MISMATCH = "schema_mismatch"
    """The arguments are JSON that the tool's schema does not take."""
