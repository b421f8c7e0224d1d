"""Answers of the gateway's own."""

from aiohttp import web

__all__ = ["json_response"]


def json_response(body: bytes, *, status: int = 200) -> web.Response:
    """A JSON answer from its bytes."""
    return web.Response(body=body, status=status, content_type="application/json")
