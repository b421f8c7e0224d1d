"""The look at the model servers after the start: what is amiss is said before anybody asks for an answer."""

import pytest

from gateway.process.first_look import look_around
from tests.support.faulty_upstream import FaultyUpstream, answer, answer_json, without_tls
from tests.support.processes import free_port

LISTING = {"object": "list", "data": [{"id": f"model-{number}"} for number in range(6)]}


@pytest.fixture(autouse=True)
def looks_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultyUpstream, "shows_looks", True)


async def test_the_models_are_counted(gateway, upstream, log):
    upstream.script = answer_json(LISTING)
    await look_around(await gateway(upstream.url))
    line = await log.record("model_server_seen")
    assert (line["level"], line["upstream"], line["models"]) == ("info", "default", 6)
    assert line["message"] == f"{upstream.url} has model-0, model-1, model-2 and 3 more"
    assert len(upstream.requests) == 1


async def test_an_address_without_its_path_is_named_with_its_setting(gateway, upstream, log):
    upstream.script = answer_json({"detail": "Not Found"}, status="404 Not Found")
    await look_around(await gateway(upstream.url.removesuffix("/v1")))
    line = await log.record("model_server_seen")
    assert "does UPSTREAM_URL include it" in line["advice"]
    assert line["level"] == "warning"


async def test_tls_where_there_is_none_is_named(gateway, log):
    async with without_tls() as port:
        await look_around(await gateway(f"https://127.0.0.1:{port}/v1"))
    line = await log.record("model_server_seen")
    assert line["advice"] == "is it http:// in UPSTREAM_URL, not https://?"
    assert line["level"] == "error"


async def test_plain_http_on_a_port_of_tls_is_named(gateway, upstream, log):
    body = b"<center>The plain HTTP request was sent to HTTPS port</center>"
    upstream.script = answer(body, status="400 Bad Request")
    await look_around(await gateway(upstream.url))
    line = await log.record("model_server_seen")
    assert line["advice"] == "is it https:// in UPSTREAM_URL?"


async def test_a_port_where_nobody_listens(gateway, log):
    await look_around(await gateway(f"http://127.0.0.1:{free_port()}/v1"))
    line = await log.record("model_server_seen")
    assert "cannot be reached: Connection refused" in line["message"]
    assert "does UPSTREAM_URL name its host and port?" in line["advice"]


async def test_the_demo_is_not_looked_at(gateway, log):
    await look_around(await gateway(None))
    assert "model_server_seen" not in log.path.read_text()
