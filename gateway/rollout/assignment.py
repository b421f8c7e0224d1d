"""Who is live: a keyed hash puts every conversation into a bucket, and the share in force says which buckets are.

There is no state in it: all processes give the same answer, and a share that grows only adds conversations.
"""

from hashlib import blake2b
from typing import Literal

from attrs import frozen
from msgspec import Struct

from gateway.core.records import Arm

__all__ = ["WHOLE", "Assignment", "Forced", "InForce", "Mode", "assign", "bucket", "is_live", "slice_name"]

WHOLE = 10_000
"""All conversations, in hundredths of a percent, as every share is counted."""

Mode = Literal["off", "dry_run", "canary", "full"]
Forced = Literal["live", "control", "off"]

_PERSON = b"toolgate-rollout"


@frozen(kw_only=True)
class InForce:
    """What the next requests get: the mode, the share that is live, and the slices that are switched off."""

    mode: Mode
    percent: int = 0
    """Hundredths of a percent; counts in the modes canary and full."""
    epoch: int = 0
    slices_off: frozenset[str] = frozenset()


class Assignment(Struct, frozen=True, kw_only=True):
    """The arm of one request, for as long as it lasts, and the epoch that it began in."""

    arm: Arm
    epoch: int
    forced: bool = False
    """Somebody chose the arm: such a request says nothing about the arms."""


def bucket(salt: bytes, key: str) -> float:
    """Where a conversation stands between 0 and 1 (never 1), as only the holder of the salt can tell."""
    # The key of a `blake2b` has 64 bytes at most, and an operator's salt may be longer.
    secret = salt if len(salt) <= blake2b.MAX_KEY_SIZE else blake2b(salt).digest()
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, key=secret, person=_PERSON).digest()
    # The upper 53 bits: all 64 would round up to 1.0 at the very end.
    return float((int.from_bytes(digest, "big") >> 11) / (1 << 53))


def is_live(bucket: float, hundredths_of_percent: int) -> bool:
    """Whether a bucket is within the share."""
    return bucket < hundredths_of_percent / WHOLE


def assign(in_force: InForce, salt: bytes, key: str, forced: Forced | None = None) -> Assignment:
    """The arm of a request; a forced one is never more than what is in force allows."""
    if in_force.mode == "off" or forced == "off":
        return Assignment(arm="off", epoch=in_force.epoch, forced=forced is not None)
    if in_force.mode == "dry_run":
        return Assignment(arm="dry_run", epoch=in_force.epoch, forced=forced is not None)
    if forced is not None:
        return Assignment(arm=forced, epoch=in_force.epoch, forced=True)
    # Every bucket is within the whole.
    share = in_force.percent
    arm: Arm = "live" if share >= WHOLE or is_live(bucket(salt, key), share) else "control"
    return Assignment(arm=arm, epoch=in_force.epoch)


def slice_name(strategy: str, dialect: str) -> str:
    """The name of a strategy in a dialect, as the judge keeps it."""
    return f"{strategy}/{dialect}"
