"""Who is let in, over real sockets: both ports, every route, and what a browser is told."""

from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from gateway.app import Gateway
from gateway.config.load import load
from tests.conftest import Log
from tests.support.client import Answer, answer_to, ask, chat, exchange, get, post_bytes, status_of
from tests.support.faulty_upstream import DONE, FaultyUpstream, answer_json, completion, event, stream, text

StartGateway = Callable[..., Awaitable[Gateway]]

EVIL = "https://evil.example"
CHAT = "https://chat.example"
PATHS = ("/v1/chat/completions", "/v1/models", "/v1/files", "/", "/healthz", "/readyz", "/metrics", "/nothing")
OPEN = {"UPSTREAM_API_KEY": "sk-ours"}


@pytest.mark.parametrize("path", PATHS)
async def test_on_loopback_without_keys_no_path_is_open_to_others(
    gateway: StartGateway, upstream: FaultyUpstream, path: str
) -> None:
    running = await gateway(upstream.url, **OPEN)
    for headers, status, setting in (
        (("Host: evil.example",), 421, b"GATEWAY_ALLOWED_HOSTS"),
        (("Host: localhost.",), 421, b"GATEWAY_ALLOWED_HOSTS"),
        (("Host: localhost", f"Origin: {EVIL}"), 403, b"GATEWAY_ALLOWED_ORIGINS"),
        (("Host: localhost", "Origin: null"), 403, b"GATEWAY_ALLOWED_ORIGINS"),
        (("Host: localhost", "Sec-Fetch-Site: cross-site"), 403, b"GATEWAY_ALLOWED_ORIGINS"),
    ):
        for method in ("GET", "POST", "OPTIONS"):
            answer = await answer_to(running.url, path, *headers, method=method)
            assert status_of(answer) == status
            assert setting in answer
            assert b"access-control" not in answer.lower()
    assert upstream.requests == []


@pytest.mark.parametrize(
    "headers",
    [(), ("Host: localhost", "Host: evil.example"), ("Host: evil.example", "Host: localhost")],
)
async def test_a_host_that_is_missing_or_there_twice_is_no_way_in(
    gateway: StartGateway, upstream: FaultyUpstream, headers: tuple[str, ...]
) -> None:
    running = await gateway(upstream.url, **OPEN)
    assert status_of(await answer_to(running.url, "/v1/files", *headers)) in (400, 421)
    assert status_of(await answer_to(running.url, "http://localhost/v1/files", "Host: evil.example")) == 421
    assert status_of(await answer_to(running.url, "http://evil.example/v1/files", "Host: localhost")) == 421
    assert upstream.requests == []


async def test_a_refusal_is_logged_and_counted_like_any_answer(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession, log: Log
) -> None:
    running = await gateway(upstream.url)
    got = await ask(client, running.url, headers={"Origin": EVIL})
    assert (got.status, got.error) == (403, "foreign_origin")
    refused = await log.record("request_not_let_in")
    assert (refused["error"], refused["origin"]) == ("foreign_origin", [EVIL])
    assert (await log.record("request_ended"))["error"] == "foreign_origin"
    exposition = (await get(client, running.metrics_url or "")).body.decode()
    assert 'toolgate_requests_total{arm="off",code="4xx",health="ok",route="chat",stream="false"} 1.0' in exposition


async def test_who_names_this_machine_is_answered(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    for headers in (
        {},
        {"Host": "localhost"},
        {"Host": "LOCALHOST:1"},
        {"Host": "[::1]:8080"},
        {"Host": "localhost:8080", "Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"},
    ):
        got = await ask(client, running.url, chat(stream=False), headers=headers)
        assert got.status == 200
        assert not any(name.lower().startswith("access-control") for name in got.headers)
    assert len(upstream.requests) == 5


async def test_with_keys_any_host_and_any_page_is_asked_for_one(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json(completion(), headers={"Access-Control-Allow-Origin": "*"})
    running = await gateway(upstream.url, GATEWAY_API_KEYS="sk-gate", **OPEN)
    page = {"Host": "evil.example", "Origin": EVIL, "Sec-Fetch-Site": "cross-site"}
    assert (await ask(client, running.url, headers=page)).status == 401
    got = await ask(client, running.url, chat(stream=False), headers=page | {"Authorization": "Bearer sk-gate"})
    assert got.status == 200
    assert "Access-Control-Allow-Origin" not in got.headers
    assert (await get(client, f"{running.url}/healthz", headers=page)).status == 200
    assert (await get(client, running.metrics_url or "", headers=page)).status == 200


async def test_with_keys_and_a_list_pages_of_others_are_refused(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url, GATEWAY_API_KEYS="sk-gate", GATEWAY_ALLOWED_ORIGINS=CHAT)
    key = {"Authorization": "Bearer sk-gate"}
    assert (await ask(client, running.url, headers=key | {"Origin": EVIL})).status == 403
    for path in ("/healthz", "/metrics", "/"):
        assert (await get(client, running.url + path, headers={"Origin": EVIL})).status == 403
    refused = await ask(client, running.url, headers={"Origin": CHAT})
    assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (401, CHAT)
    got = await ask(client, running.url, chat(stream=False), headers=key | {"Origin": CHAT, "Host": "gate.example"})
    assert (got.status, got.headers["Access-Control-Allow-Origin"]) == (200, CHAT)
    assert (await ask(client, running.url, chat(stream=False), headers=key)).headers["Vary"] == "Origin"


async def test_a_listed_page_asks_for_leave_and_reads_stream_answer_and_error(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    running = await gateway(upstream.url, GATEWAY_ALLOWED_ORIGINS=f"vscode-webview://*,{CHAT}")
    page = {"Origin": CHAT, "Sec-Fetch-Site": "cross-site"}
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-stainless-os"}
    for path in PATHS:
        async with client.options(running.url + path, headers=page | wanted) as leave:
            assert (leave.status, await leave.read()) == (204, b"")
            assert leave.headers["Access-Control-Allow-Headers"] == "authorization, x-stainless-os"
            assert leave.headers["Access-Control-Allow-Origin"] == CHAT
    assert upstream.requests == []

    upstream.script = stream(text("hello"), event(finish="stop"), DONE)
    streamed = await ask(client, running.url, headers=page)
    assert streamed.content == "hello"
    upstream.script = answer_json({"error": {"message": "no", "code": "x"}}, status="429 Slow", headers={"Vary": "Y"})
    answers = [streamed, await ask(client, running.url, headers=page)]
    for path in ("/v1/files", "/healthz", "/metrics", "/nothing", "/"):
        answers.append(await get(client, running.url + path, headers=page))
    answers.append(await ask(client, running.url, {"model": "a\nb"}, headers=page))
    assert [got.status for got in answers] == [200, 429, 429, 200, 200, 404, 200, 400]
    for got in answers:
        assert got.headers["Access-Control-Allow-Origin"] == CHAT
        assert "Origin" in ",".join(got.headers.getall("Vary"))  # type: ignore[attr-defined]
        assert "X-Request-Id" in got.headers["Access-Control-Expose-Headers"]
    for received in upstream.requests:
        assert not {"origin", "sec-fetch-site"} & received.headers.keys()
    webview = await get(client, f"{running.url}/healthz", headers={"Origin": "vscode-webview://0a1"})
    assert webview.headers["Access-Control-Allow-Origin"] == "vscode-webview://0a1"


async def test_who_may_read_is_never_the_model_servers_to_say(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    lax = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Credentials": "true"}
    running = await gateway(upstream.url)
    for body in (answer_json(completion(), headers=lax), answer_json({}, status="400 X", headers=lax)):
        upstream.script = body
        for got in (await ask(client, running.url, chat(stream=False)), await get(client, f"{running.url}/v1/files")):
            assert not [name for name in got.headers if name.lower().startswith("access-control")]


async def test_a_page_must_declare_its_body(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    running = await gateway(upstream.url, GATEWAY_ALLOWED_ORIGINS=CHAT)
    for path in ("/v1/chat/completions", "/v1/feedback", "/v1/embeddings", "/nothing"):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            headers = {"Origin": CHAT, "Content-Type": kind}
            async with client.post(running.url + path, data=b"{}", headers=headers) as refused:
                assert refused.status == 415
                assert (await refused.json())["error"]["code"] == "not_json"
                assert refused.headers["Access-Control-Allow-Origin"] == CHAT
    chunked = (
        b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nTransfer-Encoding: chunked\r\n"
    )
    assert status_of(await exchange(running.url, chunked + b"Connection: close\r\n\r\n2\r\n{}\r\n0\r\n\r\n")) == 415
    assert upstream.requests == []
    upstream.script = answer_json(completion())
    async with client.post(f"{running.url}/v1/files", data=b"x", headers={"Content-Type": "text/plain"}) as relayed:
        assert relayed.status == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.5"])
async def test_what_it_listens_on_counts_by_whatever_name_it_was_set(
    gateway: StartGateway, upstream: FaultyUpstream, host: str
) -> None:
    running = await gateway(upstream.url, GATEWAY_HOST=host, METRICS_HOST=host)
    for url in (running.url, (running.metrics_url or "").removesuffix("/metrics")):
        own = url.removeprefix("http://")
        assert status_of(await answer_to(url, "/metrics", f"Host: {own}", f"Origin: {url}")) == 200
        assert status_of(await answer_to(url, "/metrics", "Host: gate.example")) == 421


async def test_elsewhere_an_open_gateway_takes_any_host_until_some_are_listed(
    gateway: StartGateway, upstream: FaultyUpstream
) -> None:
    running = await gateway(upstream.url, GATEWAY_HOST="0.0.0.0")  # noqa: S104 - what is tested
    assert status_of(await answer_to(running.url, "/healthz", "Host: gate.example")) == 200
    assert status_of(await answer_to(running.url, "/healthz", "Host: gate.example", f"Origin: {EVIL}")) == 403
    assert status_of(await answer_to(running.url, "/healthz", "Host: x", "Sec-Fetch-Site: cross-site")) == 403
    assert status_of(await answer_to(running.url, "/healthz", "Host: x.example", "Origin: http://x.example")) == 200
    # Its other port listens on loopback, and is judged by that.
    metrics = (running.metrics_url or "").removesuffix("/metrics")
    assert status_of(await answer_to(metrics, "/metrics", "Host: gate.example")) == 421
    assert status_of(await answer_to(metrics, "/metrics", "Host: localhost")) == 200
    listed = await gateway(upstream.url, GATEWAY_HOST="0.0.0.0", GATEWAY_ALLOWED_HOSTS="gate.example")  # noqa: S104
    for host, status in (("gate.example", 200), ("gate.example:80", 200), ("evil.example", 421), ("127.0.0.1", 200)):
        assert status_of(await answer_to(listed.url, "/healthz", f"Host: {host}")) == status


async def test_a_metrics_port_that_others_reach_is_judged_by_its_own_address(
    gateway: StartGateway, upstream: FaultyUpstream
) -> None:
    running = await gateway(upstream.url, METRICS_HOST="0.0.0.0")  # noqa: S104 - what is tested
    metrics = (running.metrics_url or "").replace("0.0.0.0", "127.0.0.1").removesuffix("/metrics")  # noqa: S104
    assert status_of(await answer_to(metrics, "/metrics", "Host: prometheus.example")) == 200
    assert status_of(await answer_to(metrics, "/metrics", "Host: x", f"Origin: {EVIL}")) == 403
    assert status_of(await answer_to(running.url, "/metrics", "Host: prometheus.example")) == 421


async def test_the_front_page_says_what_this_is_and_nothing_else(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    running = await gateway(upstream.url, **OPEN)
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    got = await get(client, f"{running.url}/", headers=link)
    assert got.status == 200
    assert got.headers["Content-Type"].startswith("text/plain")
    assert f"{running.url}/v1" in got.body.decode()
    assert upstream.url not in got.body.decode()
    async with client.post(f"{running.url}/", data=b"x") as other:
        assert other.status == 404
    keys = await gateway(upstream.url, GATEWAY_API_KEYS="sk-gate")
    hostile = await answer_to(keys.url, "/", "Host: <script>alert(1)</script>")
    assert status_of(hostile) in (200, 400)
    assert b"<script>" not in hostile


async def test_a_reload_changes_who_is_let_in(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    running = await gateway(upstream.url)

    async def answers() -> list[int]:
        asked: list[Answer] = [
            await get(client, f"{running.url}/healthz", headers={"Host": "gate.example"}),
            await get(client, f"{running.url}/healthz", headers={"Origin": CHAT}),
            await get(client, running.metrics_url or "", headers={"Host": "gate.example"}),
        ]
        return [got.status for got in asked]

    environ = {"UPSTREAM_URL": upstream.url, "METRICS_PORT": "0", "GATEWAY_PORT": "0", "STORE_URL": "memory://"}
    assert await answers() == [421, 403, 421]
    running.reload(load({**environ, "GATEWAY_ALLOWED_HOSTS": "gate.example", "GATEWAY_ALLOWED_ORIGINS": CHAT}))
    assert await answers() == [200, 200, 200]
    running.reload(load({**environ, "GATEWAY_API_KEYS": "sk-gate"}))
    assert await answers() == [200, 200, 200]
    running.reload(load(environ))
    assert await answers() == [421, 403, 421]


async def test_a_raw_post_of_a_page_costs_nothing(gateway: StartGateway, upstream: FaultyUpstream) -> None:
    running = await gateway(upstream.url, **OPEN)
    page = post_bytes(chat(), f"Origin: {EVIL}", "Content-Type: text/plain", "Connection: close")
    assert status_of(await exchange(running.url, page)) == 403
    assert upstream.requests == []
