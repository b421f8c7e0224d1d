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
        # A queue would only add the wait to what the client waits already; SDKs come back by themselves:
        # https://www.rfc-editor.org/rfc/rfc9110#section-15.6.4
        if self.active >= self.limit:
            raise NoCapacity("too many requests at once", retry_after_s=1.0)
        self.active += 1

    def leave(self) -> None:
        """Give the place back."""
        self.active -= 1
