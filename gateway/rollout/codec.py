"""The shared records of the rollout as they stand in the store: JSON, readable by versions before and after."""

from typing import TypeVar

import msgspec

from gateway.rollout.evidence import Evidence
from gateway.rollout.stages import RolloutState

__all__ = ["EVIDENCE_KEY", "STATE_KEY", "encoded", "evidence_of", "state_of"]

STATE_KEY = "rollout"
EVIDENCE_KEY = "evidence"

T = TypeVar("T", RolloutState, Evidence)

_ENCODER = msgspec.json.Encoder()
_STATES = msgspec.json.Decoder(RolloutState)
_EVIDENCE = msgspec.json.Decoder(Evidence)


def encoded(value: RolloutState | Evidence) -> bytes:
    """As it is stored."""
    return _ENCODER.encode(value)


def state_of(raw: bytes | None) -> RolloutState | None:
    """The state, unless there is none that could be read."""
    return _decoded(_STATES, raw)


def evidence_of(raw: bytes | None) -> Evidence | None:
    """The evidence, unless there is none that could be read."""
    return _decoded(_EVIDENCE, raw)


def _decoded(decoder: msgspec.json.Decoder[T], raw: bytes | None) -> T | None:
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors
        return None
