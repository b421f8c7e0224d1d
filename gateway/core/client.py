"""Who is asking, as far as the request's own words tell."""

from msgspec import Struct

__all__ = ["Client"]


class Client(Struct, frozen=True, kw_only=True):
    """What a client says of itself: its `User-Agent` and its `X-Title`."""

    user_agent: str = ""
    title: str = ""
