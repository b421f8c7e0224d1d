"""What the inside asks of the world. The edge implements these; tests pass fakes."""

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Clock", "IdMaker", "Meter"]


class Clock(Protocol):
    """Monotonic seconds."""

    def now(self) -> float: ...


class IdMaker(Protocol):
    """Makes the id of the next tool call: `call_` and 24 characters, unique."""

    def __call__(self, dialect: str) -> str: ...


class Meter(Protocol):
    """Counts and observes by metric name; labels are bounded by whoever implements it."""

    def count(self, name: str, labels: Mapping[str, str], amount: float = 1) -> None: ...

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None: ...
