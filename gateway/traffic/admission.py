"""How many requests run at once; one too many is told when to come back instead of being queued."""

from attrs import define

from gateway.core.errors import NoCapacity

__all__ = ["Admission"]


@define
class Admission:
    """A count of the requests under way, bounded by `limit`."""

    limit: int
    active: int = 0

    def enter(self) -> None:
        """Take a place; raises `NoCapacity` when there is none."""
        if self.active >= self.limit:
            raise NoCapacity("too many requests at once", retry_after_s=1.0)
        self.active += 1

    def leave(self) -> None:
        """Give the place back."""
        self.active -= 1
