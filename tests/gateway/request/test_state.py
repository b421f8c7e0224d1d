"""A request's state: what is read of the client once, for all who need it."""

from typing import Any

import pytest
from aiohttp import web
from multidict import CIMultiDict

from tests.support.client import TOOLS, ask, chat
from tests.support.faulty_upstream import answer_json, completion

KEY = "a-word-that-opens-the-gateway"


class Counted(CIMultiDict[str]):
    """Headers that take down which of them were asked for."""

    asked: list[str]

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.append(key)
        return super().get(key, default)


@pytest.mark.parametrize("header", [("Authorization", f"Bearer {KEY}"), ("X-Api-Key", KEY)])
async def test_what_the_client_shows_who_it_is_with_is_read_once(gateway, upstream, client, log, monkeypatch, header):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url, GATEWAY_API_KEYS=KEY, AUDIT_BODIES="full")
    asked: list[str] = []

    def counted(request: web.BaseRequest) -> Counted:
        headers = Counted(request._message.headers)
        headers.asked = asked
        return headers

    monkeypatch.setattr(web.BaseRequest, "headers", property(counted))
    got = await ask(client, running.url, chat(stream=False, tools=TOOLS), headers=dict([header]))
    assert got.status == 200
    await log.record("request_ended")
    assert asked.count("Authorization") == 1
    assert asked.count("X-Api-Key") <= 1
