"""How stores cut time into blocks of a second, by a clock that may be set back.

Set back by less than `LONGEST_JUMP_S`, it goes on in the last block until it has caught up. After more, the blocks of
the future are dropped, and who asks for what is behind one of them is given all there are.
"""

__all__ = ["BLOCK_SECONDS", "LONGEST_JUMP_S", "MAX_BLOCKS", "behind", "current"]

BLOCK_SECONDS = 48 * 3600
MAX_BLOCKS = 500
# NTP moves a clock by steps of up to some seconds; more is somebody who sets it.
LONGEST_JUMP_S = 60


def current(now: int, last: int) -> int:
    """The block that is added to in this second, where `last` is the latest one there is."""
    return now if last > now + LONGEST_JUMP_S else max(now, last)


def behind(after: int, now: int) -> int:
    """The number behind which blocks are given to who asks for those behind `after`."""
    return 0 if after > now + LONGEST_JUMP_S else after
