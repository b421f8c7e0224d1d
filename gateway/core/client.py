"""Who is asking, as far as the request's own words tell."""

from attrs import frozen

__all__ = ["Client"]


@frozen(kw_only=True)
class Client:
    """What a client says of itself: its `User-Agent` and its `X-Title`."""

    user_agent: str = ""
    title: str = ""
