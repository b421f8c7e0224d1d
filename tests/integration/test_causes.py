"""Why a model server could not answer: one word in log and record, and what to look at for its operator alone."""

import pytest

from gateway.core.records import RequestRecord
from tests.support.client import ask, chat
from tests.support.faulty_upstream import answer_json, hang, without_tls
from tests.support.processes import free_port

KEYED = {"GATEWAY_API_KEYS": "opens-the-door"}
KEY = {"Authorization": "Bearer opens-the-door"}


async def test_nobody_listens(gateway, client, log):
    url = f"http://127.0.0.1:{free_port()}/v1"
    running = await gateway(url)
    answer = await ask(client, running.url, chat())
    assert answer.json["error"]["code"] == "upstream_refused"
    assert f"UPSTREAM_URL is {url}" in answer.json["error"]["message"]
    assert "is it running" in answer.json["error"]["message"]
    line = await log.record("request_ended")
    assert (line["cause"], line["upstream"]) == ("refused", "default")
    assert await running.upkeep.recorder.flush(5)
    [record] = [each async for each in running.upkeep.store.scan(RequestRecord)]
    assert (record.cause, record.upstream) == ("refused", "default")


async def test_a_host_that_is_none(gateway, client, log):
    running = await gateway("http://no-such-host.invalid/v1")
    answer = await ask(client, running.url, chat())
    assert "spelt right" in answer.json["error"]["message"]
    assert (await log.record("request_ended"))["cause"] == "no_such_host"


async def test_a_server_without_tls(gateway, client, log):
    async with without_tls() as port:
        running = await gateway(f"https://127.0.0.1:{port}/v1")
        answer = await ask(client, running.url, chat())
    assert "is it http:// in UPSTREAM_URL" in answer.json["error"]["message"]
    assert (await log.record("request_ended"))["cause"] == "tls"


async def test_a_server_that_says_nothing(gateway, upstream, client, log):
    upstream.script = hang
    running = await gateway(upstream.url, UPSTREAM_FIRST_BYTE_TIMEOUT_S="0.2")
    answer = await ask(client, running.url, chat())
    assert "UPSTREAM_*_TIMEOUT_S" in answer.json["error"]["message"]
    assert (await log.record("request_ended"))["cause"] == "timeout"


async def test_a_path_that_is_none(gateway, upstream, client, log):
    upstream.script = answer_json({"detail": "Not Found"}, status="404 Not Found")
    running = await gateway(upstream.url)
    answer = await ask(client, running.url, chat())
    assert (answer.status, answer.json) == (404, {"detail": "Not Found"}), "the server's own words stay"
    assert (await log.record("request_ended"))["cause"] == "not_found"


@pytest.mark.parametrize(
    ("environ", "headers"),
    [
        (KEYED, KEY),
        ({"GATEWAY_ALLOWED_HOSTS": "gateway.example"}, {}),
        ({"GATEWAY_ALLOWED_ORIGINS": "https://x.y"}, {}),
    ],
)
async def test_whoever_is_no_operator_learns_no_address(gateway, client, environ, headers):
    url = f"http://127.0.0.1:{free_port()}/v1"
    running = await gateway(url, **environ)
    answer = await ask(client, running.url, chat(), headers=headers)
    assert answer.json["error"]["message"] == "the model server cannot be reached"
