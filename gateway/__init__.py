"""Toolgate: a gateway that makes every tool call arrive as a correct one, or leaves the answer exactly as it was."""

from gateway.core.version import __version__

__all__ = ["__version__"]
