"""Who is let in, over real sockets: both ports, every route, and what a browser is told."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from gateway.app import Gateway
from gateway.config.load import load
from tests.conftest import Log
from tests.support.client import TOOLS, Answer, answer_to, ask, chat, exchange, get, post_bytes, status_of
from tests.support.faulty_upstream import (
    DONE,
    STREAM_HEAD,
    FaultyUpstream,
    answer_json,
    completion,
    event,
    raw,
    stream,
    text,
)
from tests.support.stores import RedisServer, needs_redis

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


# --- Limits of keys, seen by clients: who is refused, what is told, and what goes on while Redis is away


USAGE = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def keys(tmp_path: Path):
    def written(*lines):
        path = tmp_path / "keys"
        path.write_text("\n".join(lines) + "\n")
        return {"GATEWAY_API_KEYS": f"@{path}"}

    return written


async def test_a_key_may_have_so_many_requests_a_minute(gateway, upstream, client, keys):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url, **keys("few requests/min=3", "free"))
    answers = [await ask(client, running.url, chat(), headers=bearer("few")) for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["2", "1", "0", "0", "0"]
    refused = answers[3]
    assert refused.json["error"]["code"] == "rate_limited"
    assert refused.json["error"]["type"] == "rate_limit_error"
    assert 50 <= int(refused.headers["Retry-After"]) <= 60
    assert len(upstream.requests) == 3
    free = await ask(client, running.url, chat(), headers=bearer("free"))
    assert free.status == 200
    assert not [name for name in free.headers if name.lower().startswith("x-ratelimit")]


async def test_tokens_are_those_that_the_server_counts(gateway, upstream, client, keys):
    upstream.script = answer_json({**completion("hello"), "usage": USAGE})
    running = await gateway(upstream.url, **keys("few tokens/min=80"))
    statuses = []
    for _ in range(3):
        statuses.append((await ask(client, running.url, chat(), headers=bearer("few"))).status)
    assert statuses == [200, 200, 429], "at 50 it is below 80, at 100 it is not"


async def test_streams_hold_their_places_until_they_end(gateway, upstream, client, keys):
    may_end, both = asyncio.Event(), asyncio.Event()

    async def slow(connection, received):
        if len(upstream.requests) == 2:
            both.set()
        await connection.send(STREAM_HEAD, text("hello"))
        await may_end.wait()
        await connection.send(event(finish="stop"), DONE)

    upstream.script = slow
    running = await gateway(upstream.url, **keys("two streams=2"))
    body = chat(stream=True)
    first = [asyncio.ensure_future(ask(client, running.url, body, headers=bearer("two"))) for _ in range(2)]
    await both.wait()
    third = await ask(client, running.url, body, headers=bearer("two"))
    assert (third.status, third.json["error"]["message"]) == (429, "this key may have 2 streams at a time")
    may_end.set()
    assert [answer.status for answer in await asyncio.gather(*first)] == [200, 200]
    assert (await ask(client, running.url, body, headers=bearer("two"))).status == 200


async def test_limits_stand_in_tables_too_and_follow_a_reload(gateway, upstream, client, tmp_path):
    upstream.script = answer_json(completion("hello"))
    toml = tmp_path / "toolgate.toml"
    toml.write_text('[keys.team]\nkey = "few"\nrequests_per_min = 1\n')
    running = await gateway(upstream.url, GATEWAY_CONFIG=str(toml))
    statuses = [(await ask(client, running.url, chat(), headers=bearer("few"))).status for _ in range(2)]
    assert statuses == [200, 429]
    toml.write_text('[keys.team]\nkey = "few"\nrequests_per_min = 3\n')
    running.reload(load({"UPSTREAM_URL": upstream.url, "GATEWAY_CONFIG": str(toml)}))
    assert (await ask(client, running.url, chat(), headers=bearer("few"))).status == 200


@pytest.fixture
async def redis(tmp_path):
    server = await RedisServer(tmp_path).start()
    yield server
    await server.close()


@needs_redis
async def test_two_gateways_hold_one_limit_and_each_its_own_while_redis_is_away(redis, gateway, upstream, client, keys):
    upstream.script = answer_json(completion("hello"))
    environ = {**keys("few requests/min=20"), "STORE_URL": redis.url, "STORE_TIMEOUT_MS": "1000"}
    one, other = await gateway(upstream.url, **environ), await gateway(upstream.url, **environ)

    async def admitted(running, times):
        answers = await asyncio.gather(*(ask(client, running.url, chat(), headers=bearer("few")) for _ in range(times)))
        statuses = [answer.status for answer in answers]
        assert set(statuses) <= {200, 429}, "no request fails"
        return statuses.count(200)

    mine, theirs = await asyncio.gather(admitted(one, 15), admitted(other, 15))
    assert mine + theirs == 20
    redis.freeze()
    assert mine + await admitted(one, 40) == 20, "what it had admitted counts while it is alone"
    metrics = (await get(client, f"{one.url}/metrics")).body.decode()
    assert "toolgate_limits_unshared_total" in metrics
    assert "toolgate_limits_unshared_total 0.0" not in metrics
    redis.thaw()
    answer = await ask(client, one.url, chat(), headers=bearer("few"))
    assert answer.status == 429


# --- The rows S9 to S14 of deploy/FAULTS.md, as far as a single gateway can show them


JSON = {"Content-Type": "application/json"}

WHOLE = (text("hello"), event(finish="stop"), DONE)


@pytest.mark.parametrize("model", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "\x7f", " "])
async def test_s9_control_characters_in_a_model_name_are_refused(gateway, upstream, client, model):
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model=model))
    assert (got.status, got.json["error"]["param"]) == (400, "model")
    assert upstream.requests == []


async def test_s9_an_unsafe_request_id_is_not_reflected(gateway, upstream, client):
    upstream.script = stream(*WHOLE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, headers={"X-Request-Id": "a" * 65})
    assert got.headers["X-Request-Id"].startswith("req_")
    assert upstream.last.headers["x-request-id"] == got.headers["X-Request-Id"]


async def test_s9_a_header_of_the_upstream_cannot_split_the_answer(gateway, upstream, client):
    upstream.script = raw(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nX-Odd: \xff\xfe\r\nX-Tab: a\tb\r\n"
        b"X-Good: \xc3\xa4\r\n\r\n" + b"".join(WHOLE)
    )
    running = await gateway(upstream.url)
    got = await exchange(running.url, post_bytes(chat(), "Connection: close"))
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert b"X-Odd" not in got
    assert b"X-Tab" not in got
    assert got.count(b"HTTP/1.1") == 1


async def test_s10_no_secret_is_seen_anywhere(gateway, upstream, client, log):
    ours, theirs = "sk-ours-5f1e", "sk-theirs-77aa"
    upstream.script = answer_json(
        {"error": {"message": f"{ours} is wrong", "code": "x"}}, status="400 X", headers={"X-Request-Id": "up"}
    )
    running = await gateway(upstream.url, UPSTREAM_API_KEY=ours, GATEWAY_API_KEYS=theirs)
    bodies = []
    for key in (theirs, "sk-wrong-0001"):
        headers = {"Authorization": f"Bearer {key}"}
        bodies.append((await ask(client, running.url, headers=headers)).body)
        bodies.append((await get(client, f"{running.url}/v1/models", headers=headers)).body)
        bodies.append((await get(client, f"{running.url}/v1/files?key=sk-query-42", headers=headers)).body)
    bodies.append((await get(client, f"{running.url}/metrics")).body)
    seen = b"".join(bodies).decode() + await log.until('"route":"relay"')
    for secret in (ours, theirs, "sk-wrong-0001", "sk-query-42"):
        assert secret not in seen


async def test_s11_without_a_right_key_nothing_goes_upstream(gateway, upstream, client):
    digest = hashlib.sha256(b"sk-hashed").hexdigest()
    running = await gateway(upstream.url, GATEWAY_API_KEYS=f"sk-one,sha256:{digest}")
    for headers in ({}, {"Authorization": "Bearer sk-two"}, {"Authorization": "Basic sk-one"}, {"X-Api-Key": "no"}):
        for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/v1/files")):
            async with client.request(method, running.url + path, headers=headers) as response:
                assert response.status == 401
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert (await response.json())["error"]["code"] == "unauthenticated"
    assert upstream.requests == []
    upstream.script = stream(*WHOLE)
    for key in ("sk-one", "sk-hashed"):
        assert (await ask(client, running.url, headers={"Authorization": f"Bearer {key}"})).content == "hello"


async def test_s11_a_key_that_opens_the_gateway_is_never_forwarded(gateway, upstream, client):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url, GATEWAY_API_KEYS="sk-gate")
    headers = {"Authorization": "Bearer sk-gate", "X-Api-Key": "sk-gate"}
    await ask(client, running.url, chat(stream=False), headers=headers)
    await get(client, f"{running.url}/v1/files", headers=headers)
    assert len(upstream.requests) == 2
    for received in upstream.requests:
        assert "sk-gate" not in str(received)


async def test_s11_the_clients_key_goes_upstream_when_nobody_else_has_one(gateway, upstream, client):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(stream=False), headers={"Authorization": "Bearer sk-client"})
    assert upstream.last.headers["authorization"] == "Bearer sk-client"


async def test_s11_our_own_key_takes_the_place_of_the_clients(gateway, upstream, client):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url, UPSTREAM_API_KEY="sk-ours")
    await ask(client, running.url, chat(stream=False), headers={"Authorization": "Bearer sk-client", "X-Api-Key": "k"})
    assert upstream.last.headers["authorization"] == "Bearer sk-ours"
    assert "x-api-key" not in upstream.last.headers


@pytest.mark.parametrize("model", ["http://127.0.0.1:1/v1", "../../admin", "a\\b"])
async def test_s12_a_model_is_not_an_address(gateway, upstream, client, model):
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model=model, base_url="http://127.0.0.1:1"))
    assert (got.status, got.error) == (404, "unknown_model")
    assert upstream.requests == []


async def test_s12_a_target_with_an_address_stays_here(gateway, upstream):
    upstream.script = answer_json({})
    running = await gateway(upstream.url)
    request = b"GET http://127.0.0.1:1/v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert (await exchange(running.url, request)).startswith(b"HTTP/1.1 200")
    assert upstream.last.target == "/v1/files"
    assert upstream.last.headers["host"] == f"127.0.0.1:{upstream.port}"


SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"

PATH = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        PATH + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}   " + SMUGGLED,
        PATH + b"Content-Length: +2\r\n\r\n{}" + SMUGGLED,
        PATH + b"Content-Length: -1\r\n\r\n{}" + SMUGGLED,
        PATH + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b" Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
        PATH.replace(b"HTTP/1.1", b"HTTP/9.1") + b"\r\n" + SMUGGLED,
        b"\x16\x03\x01\x02\x00" + SMUGGLED,
        PATH + b"X-Nul: a\0b\r\n\r\n" + SMUGGLED,
        PATH + b"X-Long: " + b"x" * 9000 + b"\r\n\r\n" + SMUGGLED,
    ],
)
async def test_s13_what_two_servers_could_read_differently_is_refused_and_closed(gateway, upstream, request_bytes):
    running = await gateway(upstream.url)
    got = await exchange(running.url, request_bytes)
    assert got.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert got.count(b"HTTP/1.") == 1
    assert b'"code":"invalid_request"' in got
    assert upstream.requests == []


async def test_s14_hostile_names_add_few_series(gateway, upstream, client):
    upstream.script = stream(*WHOLE)
    running = await gateway(upstream.url)
    before = (await get(client, f"{running.url}/metrics")).body.count(b"\n")
    for number in range(150):
        await ask(client, running.url, chat(model=f"model-{number}"))
    after = (await get(client, f"{running.url}/metrics")).body.count(b"\n")
    assert after - before < 200


DOUBLED = {
    "model": '"gpt-4o-mini"',
    "messages": '[{"role":"user","content":"another"}]',
    "stream": "true",
    "stream_options": "{}",
    "n": "3",
    "user": '"somebody"',
    "tools": "[]",
    "tool_choice": '"none"',
    "parallel_tool_calls": "false",
    "functions": "[]",
    "function_call": '"none"',
}


@pytest.mark.parametrize("model", ["gpt-4o", "deepseek-chat", "qwen3-coder"])
async def test_a_key_that_is_acted_on_may_not_stand_twice(gateway, upstream, client, model):
    """The gateway would go by the last, and a server that gets the body as it came perhaps by the first."""
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    good = {
        **chat(model=model, stream=False, n=1, user="u", stream_options=None),
        "metadata": {"model": {"model": "x"}},
    }
    good |= {
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "functions": None,
        "function_call": None,
    }
    for key, value in DOUBLED.items():
        escaped = "".join(f"\\u{ord(char):04x}" for char in key)
        for spelling in (f'"{key}":{value}', f' "{escaped}"\n:\t{value} ', f'"{key}":{json.dumps(good[key])}'):
            for sent in (json.dumps(good)[:-1] + f",{spelling}}}", f"{{{spelling}," + json.dumps(good)[1:]):
                async with client.post(f"{running.url}/v1/chat/completions", data=sent, headers=JSON) as response:
                    error = (await response.json())["error"]
                assert (response.status, error["code"], error["param"]) == (400, "invalid_request", key)
    assert not upstream.requests
    spaced = (
        json.dumps({**good, "x": 'a "model": 1, "model": 2'}, indent=2)[:-1] + ', "temperature": 1, "temperature": 0}'
    )
    async with client.post(f"{running.url}/v1/chat/completions", data=spaced, headers=JSON) as response:
        assert response.status == 200
