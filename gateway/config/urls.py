"""Where the gateway listens, as a URL."""

from gateway.config.declarations import Settings

__all__ = ["in_url", "listening_url"]


def in_url(host: str) -> str:
    """The host as a URL has it."""
    return f"[{host}]" if ":" in host else host


def listening_url(settings: Settings, port: int | None = None) -> str:
    """The address that a program on this machine can use."""
    # All addresses together are none that one can connect to, at least on Windows.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - compared, not bound
    return f"http://{in_url(host)}:{settings.port if port is None else port}"
