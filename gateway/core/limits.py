"""Every bound of the reading path in one place."""

from attrs import frozen

__all__ = ["Limits"]

MIB = 1 << 20


@frozen(kw_only=True)
class Limits:
    """Bounds that hostile input meets; the defaults are those of the settings."""

    max_event_bytes: int = 4 * MIB
    max_call_bytes: int = MIB
    max_choices: int = 128
    """Answers that one request may be given: those that it asks for."""
    max_tools: int = 128
    """That are described in a prompt."""
    max_read_tools: int = 1024
    """That a text is held against; with more of them it is not read."""
