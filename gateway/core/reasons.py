"""Why a candidate stayed text: the closed list that log, metrics, records and report take their word from.

Another reason is a member here, its sentence in `gateway.core.sentences`, and how far a candidate comes that is
refused for it in `gateway.answer.candidates`; tests name what is missing.
"""

from enum import StrEnum

__all__ = ["Reason"]


class Reason(StrEnum):
    """Each member's value is the word that metrics and records have for it."""

    INTERNAL = "internal"
    """The reader failed."""
    PARSE = "parse"
    """No dialect could read it as a call."""
    NOT_CLOSED = "not_closed"
    """A part of it has no end, though the answer has one."""
    CUT = "cut"
    """The answer was cut inside it."""
    TOO_LARGE = "too_large"
    """It is longer than a call may be."""
    SCHEMA_INVALID = "schema_invalid"
    """It was read, and its arguments are none that its tool can take."""
    UNKNOWN_TOOL = "unknown_tool"
    """It names no tool that is known."""
    NOT_LISTED = "not_listed"
    """Its tool is none of those that may be recovered."""
    LOW_CONFIDENCE = "low_confidence"
    """Its score is below the threshold."""
    PROVENANCE = "provenance"
    """It quotes what the client had sent."""
    SLICE_OFF = "slice_off"
    """Its dialect fared worse than untouched answers and is switched off."""
    UNSAYABLE = "unsayable"
    """The client's own form cannot say it."""

    @classmethod
    def of(cls, word: str) -> "Reason":
        """The reason with this word; any other word says that nothing could be read."""
        # The enumeration's own way raises for a word that is not there, which costs more than all the rest.
        return cls._value2member_map_.get(word, cls.PARSE)  # type: ignore[return-value]
