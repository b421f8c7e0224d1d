"""The nginx configuration of deploy/nginx: what it says, and what a real nginx does with it."""

import asyncio
import io
import json
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import crossplane  # type: ignore[import-untyped]
import pytest

from gateway.app import Gateway
from tests.deploy.proxy import DEPLOY, HAS_NGINX, NGINX, Proxy, configure, nginx, running, temporary_paths
from tests.grafana.queries import DASHBOARDS, FOREIGN, filled, panels, selectors
from tests.support.client import chat, get
from tests.support.faulty_upstream import (
    DONE,
    STREAM_HEAD,
    Connection,
    FaultyUpstream,
    Received,
    answer_json,
    close_at_once,
    completion,
    event,
    hang,
    paused,
    stream,
    text,
)
from tests.support.processes import free_port, free_ports, takes_connections, until

StartGateway = Callable[..., Awaitable[Gateway]]

FOLDER = DEPLOY / "nginx"

CHAT = "/v1/chat/completions"

TRUST_THIS_MACHINE = "set_real_ip_from 127.0.0.1;"

pytestmark = [pytest.mark.system, pytest.mark.skipif(not HAS_NGINX, reason="needs nginx")]


async def post(client: aiohttp.ClientSession, proxy: Proxy, **options: Any) -> aiohttp.ClientResponse:
    """One request that is not streamed, its answer read."""
    options.setdefault("json", chat(stream=False))
    response = await client.post(f"{proxy.url}{CHAT}", ssl=proxy.trusted(), **options)
    await response.read()
    return response


async def raw(proxy: Proxy, request: bytes, *, until: bytes | None = None) -> bytes:
    """What nginx answers to these bytes: all of it, or up to some bytes."""
    reader, writer = await asyncio.open_connection("localhost", proxy.port, ssl=proxy.trusted())
    try:
        async with asyncio.timeout(5):
            writer.write(request)
            return await (reader.read(-1) if until is None else reader.readuntil(until))
    finally:
        writer.transport.abort()


def statements(name: str) -> list[dict[str, Any]]:
    """Every directive of a file, blocks unfolded."""
    parsed = crossplane.parse(str(FOLDER / name), single=True, check_ctx=False)
    assert parsed["errors"] == []
    found: list[dict[str, Any]] = []
    rest = [each for config in parsed["config"] for each in config["parsed"]]
    while rest:
        each = rest.pop(0)
        found.append(each)
        rest = [*each.get("block", []), *rest]
    return found


# --- what the files say --------------------------------------------------------------------------------------------


def test_nginx_accepts_the_configuration_without_a_warning(tmp_path: Path) -> None:
    assert NGINX is not None
    path = configure(tmp_path, ["127.0.0.1:8080"], ports=free_ports(3))
    tested = subprocess.run(
        [NGINX, "-t", "-p", str(tmp_path), "-c", str(path)], capture_output=True, text=True, timeout=30
    )
    assert tested.returncode == 0, tested.stderr
    assert not re.search(r"\[(warn|error|emerg)\]", tested.stderr), tested.stderr


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.conf")))
def test_the_files_parse(name: str) -> None:
    assert statements(name)


def test_timeouts_fit_those_of_the_gateway() -> None:
    from gateway.config.load import load
    from gateway.front.connection import KEEPALIVE_TIMEOUT_S

    settings = load({})
    said = {each["directive"]: each["args"] for name in ("site.conf", "toolgate.conf") for each in statements(name)}
    seconds = {name: int(args[0][:-1]) for name, args in said.items() if re.fullmatch(r"\d+s", "".join(args))}
    assert seconds["proxy_read_timeout"] > settings.total_timeout_s
    assert seconds["worker_shutdown_timeout"] > settings.total_timeout_s
    assert said["client_max_body_size"] == [f"{settings.max_body_bytes >> 20}m"]
    assert 4 * settings.max_concurrency <= int(said["worker_connections"][0])
    assert int(said["worker_rlimit_nofile"][0]) >= 2 * int(said["worker_connections"][0])
    kept = [each["args"] for each in statements("site.conf") if each["directive"] == "keepalive_timeout"]
    assert [int(args[0][:-1]) < KEEPALIVE_TIMEOUT_S for args in kept] == [True]


def test_what_must_not_be_lost_is_said() -> None:
    said = [(each["directive"], *each["args"]) for each in statements("toolgate.conf")]
    assert ("ssl_protocols", "TLSv1.2", "TLSv1.3") in said
    assert ("ssl_early_data", "on") not in said
    status = said.index(("location", "=", "/nginx_status"))
    assert said[status + 1 : status + 4] == [("stub_status",), ("allow", "127.0.0.1"), ("deny", "all")]
    assert ("listen", "127.0.0.1:8081") in said


def test_a_post_that_was_sent_is_not_for_the_next_gateway() -> None:
    said = [each["args"] for each in statements("toolgate.conf") if each["directive"] == "proxy_next_upstream"]
    assert said == [["error", "timeout"]]


# --- what nginx does -----------------------------------------------------------------------------------------------


async def test_a_call_streams_through_tls_and_http_2(
    gateway: StartGateway, upstream: FaultyUpstream, tmp_path: Path
) -> None:
    upstream.script = stream(text("hello"), event(finish="stop"), DONE)
    running = await gateway(upstream.url)
    async with nginx(tmp_path, running.url) as proxy:
        process = await asyncio.create_subprocess_exec(
            *("curl", "-sS", "--http2", "--cacert", str(tmp_path / "tls.crt"), "--max-time", "20"),
            *("-w", "\n%{http_version} %{http_code}", "-H", "Content-Type: application/json"),
            *("-d", json.dumps(chat()), f"{proxy.url}{CHAT}"),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    assert out.decode().endswith("\n2 200")
    assert b"hello" in out
    assert b"data: [DONE]" in out


async def test_events_arrive_one_by_one_and_uncompressed(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    seen = asyncio.Semaphore(0)

    async def paced(connection: Connection, received: Received) -> None:
        await connection.send(STREAM_HEAD, text("event 0"))
        for number in range(1, 5):
            await seen.acquire()
            await connection.send(text(f"event {number}"))
        await connection.send(event(finish="stop"), DONE)

    upstream.script = paced
    running = await gateway(upstream.url)
    headers = {"Accept-Encoding": "gzip"}
    async with nginx(tmp_path, running.url) as proxy:
        asked = client.post(f"{proxy.url}{CHAT}", json=chat(), headers=headers, ssl=proxy.trusted())
        async with asyncio.timeout(20), asked as response:
            assert "Content-Encoding" not in response.headers
            for number in range(5):
                assert f"event {number}".encode() in await response.content.readuntil(b"\n\n")
                seen.release()  # the next event is written only now: were this one held, the test would end here
            assert b"[DONE]" in await response.content.read()


async def test_whole_answers_are_compressed(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = answer_json(completion("a long answer " * 500))
    running = await gateway(upstream.url)
    async with nginx(tmp_path, running.url) as proxy:
        response = await post(client, proxy, headers={"Accept-Encoding": "gzip"})
    assert response.headers["Content-Encoding"] == "gzip"
    assert "a long answer" in await response.text()


async def test_too_many_requests_of_one_address_are_refused_with_429(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = answer_json(completion())
    async with nginx(tmp_path, f"127.0.0.1:{upstream.port}") as proxy:
        answers = await asyncio.gather(*(post(client, proxy) for _ in range(80)))
    refused = [response for response in answers if response.status == 429]
    assert {response.status for response in answers} == {200, 429}
    assert len(answers) - len(refused) >= 41
    assert {(await response.json())["error"]["code"] for response in refused} == {"rate_limited"}
    assert {response.headers["Retry-After"] for response in refused} == {"1"}
    assert all(response.headers["X-Request-Id"] for response in refused)


async def test_too_many_open_answers_of_one_address_are_refused_with_429(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = hang
    fewer = {"limit_conn toolgate_streams 100;": "limit_conn toolgate_streams 3;"}
    async with nginx(tmp_path, f"127.0.0.1:{upstream.port}", changes=fewer) as proxy:
        asked = [asyncio.ensure_future(post(client, proxy)) for _ in range(5)]
        refused = [await each for _, each in zip(range(2), asyncio.as_completed(asked), strict=False)]
        assert [response.status for response in refused] == [429, 429]
        assert len(upstream.requests) <= 3
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def test_a_body_above_the_limit_is_refused_unread(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async with nginx(tmp_path, f"127.0.0.1:{upstream.port}") as proxy:
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {(32 << 20) + 1}\r\n\r\n"
        )
        answer = await raw(proxy, head.encode(), until=b"}}")
        assert b" 413 " in answer.split(b"\r\n", 1)[0]
        assert b'"code":"body_too_large"' in answer
        assert upstream.requests == []
        large = io.BytesIO(
            json.dumps(chat(stream=False, messages=[{"role": "user", "content": "x" * (4 << 20)}])).encode()
        )
        assert (await post(client, proxy, json=None, data=large)).status == 200
    assert len(upstream.last.body) > 4 << 20


@pytest.mark.parametrize(
    "path",
    [
        *("/metrics", "/healthz", "/readyz", "/", "/v1", "/admin", "/nginx_status", "/METRICS", "/metrics/"),
        *("/v1/../metrics", "/v1/%2e%2e/metrics", "//metrics", "/v1/..%2fmetrics"),
    ],
)
async def test_only_the_api_is_reached_from_outside(
    gateway: StartGateway, upstream: FaultyUpstream, tmp_path: Path, path: str
) -> None:
    running = await gateway(upstream.url)
    async with nginx(tmp_path, running.url) as proxy:
        answer = await raw(proxy, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert b" 404 " in answer.split(b"\r\n", 1)[0]
    assert b'"code":"not_found"' in answer
    assert b"toolgate_" not in answer
    assert b"Strict-Transport-Security: max-age=" in answer
    assert b"\r\nServer: nginx\r\n" in answer
    assert upstream.requests == []


async def test_the_state_of_nginx_is_for_this_machine(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    async with nginx(tmp_path, "127.0.0.1:9") as proxy:
        async with client.get(f"{proxy.status_url}/nginx_status") as response:
            assert "Active connections" in await response.text()
        async with client.get(f"{proxy.status_url}/") as response:
            assert response.status == 404


async def test_what_is_unencrypted_is_sent_to_the_encrypted_port(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    async with nginx(tmp_path, "127.0.0.1:9") as proxy:
        async with client.post(f"{proxy.plain_url}{CHAT}", allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (308, f"https://127.0.0.1{CHAT}")


async def test_the_request_id_goes_up_comes_back_and_is_logged(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    async with nginx(tmp_path, running.url) as proxy:
        kept = await post(client, proxy, headers={"X-Request-Id": "own-1.2_3", "Authorization": "Bearer secret-key"})
        assert kept.headers.getall("X-Request-Id") == ["own-1.2_3"]
        made = await post(client, proxy, headers={"X-Request-Id": "not safe"})
        assert re.fullmatch("[0-9a-f]{32}", made.headers["X-Request-Id"])
        line = await proxy.logged("own-1.2_3")
        await proxy.logged(made.headers["X-Request-Id"])
        assert "secret-key" not in (tmp_path / "access.log").read_text()
    assert (line["status"], line["path"], line["arm"]) == ("200", CHAT, "live")
    assert min(float(line[f"{phase}_s"]) for phase in ("request", "connect", "headers", "upstream")) >= 0


async def test_what_a_client_says_of_itself_goes_no_further(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = answer_json(completion())
    claims = {
        "X-Forwarded-For": "203.0.113.9",
        "X-Real-IP": "203.0.113.9",
        "Forwarded": "for=203.0.113.9",
        "X-Forwarded-Proto": "http",
        "X-Toolgate-Force": "live",
    }
    async with nginx(tmp_path, f"127.0.0.1:{upstream.port}") as proxy:
        await post(client, proxy, headers=claims)
    up = upstream.last.headers
    assert (up["x-forwarded-for"], up["x-real-ip"]) == ("127.0.0.1", "127.0.0.1")
    assert up["x-forwarded-proto"] == "https"
    assert up["host"] == up["x-forwarded-host"] == "localhost"
    assert "forwarded" not in up
    assert "x-toolgate-force" not in up


@pytest.mark.parametrize(
    ("claimed", "client_is"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9", "203.0.113.9"),
        ("203.0.113.9, 127.0.0.1", "203.0.113.9"),
        ("nonsense", "127.0.0.1"),
    ],
)
async def test_a_known_proxy_says_who_the_client_is(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path, claimed: str, client_is: str
) -> None:
    upstream.script = answer_json(completion())
    async with nginx(tmp_path, f"127.0.0.1:{upstream.port}", more=TRUST_THIS_MACHINE) as proxy:
        await post(client, proxy, headers={"X-Forwarded-For": claimed})
    assert upstream.last.headers["x-forwarded-for"] == client_is


async def test_connections_to_the_gateway_are_kept(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    heads: list[list[bytes]] = []
    body = json.dumps(completion()).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append([])
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                heads[-1].append(head := await reader.readuntil(b"\r\n\r\n"))
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        async with nginx(tmp_path, f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
            for _ in range(5):
                assert (await post(client, proxy)).status == 200
    (kept,) = heads
    assert len(kept) == 5
    assert all(b" HTTP/1.1\r\n" in head and b"\nconnection:" not in head.lower() for head in kept)


async def test_a_post_that_was_sent_is_never_repeated(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = close_at_once
    second = await FaultyUpstream(close_at_once).start()
    async with nginx(tmp_path, f"127.0.0.1:{upstream.port}", f"127.0.0.1:{second.port}") as proxy:
        response = await post(client, proxy)
    await second.close()
    assert response.status == 502
    assert (await response.json())["error"]["code"] == "gateway_unreachable"
    assert len(upstream.requests) + len(second.requests) == 1


async def test_a_refused_connection_moves_on(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = answer_json(completion())
    closed = free_port()
    async with nginx(tmp_path, f"127.0.0.1:{closed}", f"127.0.0.1:{upstream.port}") as proxy:
        statuses = [(await post(client, proxy)).status for _ in range(8)]
    assert statuses == [200] * 8
    assert len(upstream.requests) == 8


async def test_headers_of_the_model_server_do_not_steer_nginx(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = answer_json(
        completion(), headers={"X-Accel-Redirect": "/nginx_status", "X-Accel-Buffering": "yes"}
    )
    async with nginx(tmp_path, f"127.0.0.1:{upstream.port}") as proxy:
        response = await post(client, proxy)
    assert response.status == 200
    assert (await response.json())["choices"]


SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n".encode()


@pytest.mark.parametrize(
    "request_bytes",
    [
        HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        HEAD + b"Content-Length: 0\r\nContent-Length: 41\r\n\r\n" + SMUGGLED,
        HEAD + b"Content-Length: +5\r\n\r\nhello" + SMUGGLED,
        HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
        HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\n\r\n" + SMUGGLED,
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
    ],
    ids=["cl-te", "two-cl", "signed-cl", "two-te", "odd-te", "bad-chunk", "no-host", "two-hosts"],
)
async def test_a_request_that_hides_another_is_refused_and_the_connection_closed(
    upstream: FaultyUpstream, tmp_path: Path, request_bytes: bytes
) -> None:
    async with nginx(tmp_path, f"127.0.0.1:{upstream.port}") as proxy:
        answer = await raw(proxy, request_bytes)
    assert re.match(rb"HTTP/1.1 (400|501) ", answer)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert upstream.requests == []


async def test_a_reload_cuts_no_stream(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    go_on = asyncio.Event()

    upstream.script = paused(go_on, text("first"), text("last"), event(finish="stop"), DONE)
    running = await gateway(upstream.url)
    async with nginx(tmp_path, running.url) as proxy, asyncio.timeout(30):
        responses = []
        for _ in range(10):
            responses.append(await client.post(f"{proxy.url}{CHAT}", json=chat(), ssl=proxy.trusted()))
            await responses[-1].content.readuntil(b"\n\n")
        await proxy.reload()
        go_on.set()
        bodies = [await response.read() for response in responses]
        assert all(b"last" in body and b"[DONE]" in body for body in bodies)
        upstream.script = answer_json(completion())
        assert (await post(client, proxy)).status == 200


# --- who is let in -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, 421),
        ({"GATEWAY_ALLOWED_HOSTS": "gate.example"}, 200),
        ({"GATEWAY_API_KEYS": "sk-gate"}, 200),
    ],
)
async def test_a_gateway_without_keys_has_to_know_the_name_that_nginx_passes_on(
    settings: dict[str, str],
    status: int,
    gateway: StartGateway,
    upstream: FaultyUpstream,
    client: aiohttp.ClientSession,
    tmp_path: Path,
) -> None:
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url, **settings)
    async with nginx(tmp_path, running.url) as proxy:
        headers = {"Host": "gate.example", "Authorization": "Bearer sk-gate"}
        response = await post(client, proxy, headers=headers)
    assert response.status == status
    assert status == 200 or b"GATEWAY_ALLOWED_HOSTS" in await response.read()
    assert len(upstream.requests) == (status == 200)


async def test_a_listed_page_reads_answers_through_nginx(
    gateway: StartGateway, upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url, GATEWAY_API_KEYS="sk-gate", GATEWAY_ALLOWED_ORIGINS="https://chat.example")
    page = {"Host": "gate.example", "Origin": "https://chat.example", "Sec-Fetch-Site": "cross-site"}
    async with nginx(tmp_path, running.url) as proxy:
        wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        async with client.options(f"{proxy.url}{CHAT}", headers=page | wanted, ssl=proxy.trusted()) as leave:
            assert (leave.status, leave.headers["Access-Control-Allow-Headers"]) == (204, "authorization")
        for key, status in (("Bearer sk-gate", 200), ("Bearer sk-wrong", 401)):
            response = await post(client, proxy, headers=page | {"Authorization": key})
            assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (status, page["Origin"])
        other = await post(client, proxy, headers=page | {"Authorization": "Bearer sk-gate", "Origin": "null"})
        assert other.status == 403


# --- The exporter of deploy/docker: a real nginx tells it by syslog, and Prometheus' text says how its answers were.


EXPORTER = DEPLOY / "docker" / "nginx_exporter.py"


def configured(folder: Path, port: int, syslog: int) -> Path:
    """The lines that the site of the composition has for it, and two answers."""
    site = (DEPLOY / "docker" / "nginx-site.conf").read_text()
    lines = "\n".join(re.findall(r"^(?:log_format|access_log) .*$", site, re.MULTILINE))
    assert "nginx-exporter:5140" in lines
    path = folder / "nginx.conf"
    path.write_text(
        f"master_process off; pid {folder}/pid; error_log stderr;\nevents {{}}\nhttp {{\n{temporary_paths(folder)}\n"
        f"{lines.replace('nginx-exporter:5140', f'127.0.0.1:{syslog}')}\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{ return 200; }} location /gone {{ return 502; }} }}\n}}\n"
    )
    return path


async def test_answers_are_counted_by_method_and_status(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    port, syslog, metrics = free_ports(3)
    where = ("--syslog", f"127.0.0.1:{syslog}", "--metrics", f"127.0.0.1:{metrics}")
    process = await asyncio.create_subprocess_exec(sys.executable, EXPORTER, *where)
    try:
        await until(lambda: takes_connections(f"http://127.0.0.1:{metrics}"))
        async with running(tmp_path, configured(tmp_path, port, syslog), port):
            for path in ("/", "/", "/gone"):
                await get(client, f"http://127.0.0.1:{port}{path}")
            async with client.request("BREW", f"http://127.0.0.1:{port}/"):
                pass
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"<190>nginx: GET 200 and more", ("127.0.0.1", syslog))
        wanted = {
            'nginx_http_response_count_total{method="GET",status="200"}': "2.0",
            'nginx_http_response_count_total{method="GET",status="502"}': "1.0",
            'nginx_http_response_count_total{method="other",status="200"}': "1.0",
            "nginx_log_unread_total": "1.0",
        }
        async with asyncio.timeout(20):
            while True:
                told = (await get(client, f"http://127.0.0.1:{metrics}/metrics")).body.decode()
                seen = dict(line.rsplit(" ", 1) for line in told.splitlines() if line and not line.startswith("#"))
                if {name: seen.get(name) for name in wanted} == wanted:
                    break
                await asyncio.sleep(0.02)  # datagrams tell nobody that they have arrived
    finally:
        process.kill()
        await process.wait()


def test_the_dashboard_asks_for_what_it_has() -> None:
    (metric,) = FOREIGN
    assert metric == "nginx_http_response_count_total"
    found = [
        selector
        for panel in panels(DASHBOARDS["streaming"])
        for target in panel["targets"]
        for selector in selectors(filled(target["expr"]))
        if selector.metric == metric
    ]
    assert found
    assert all(selector.matchers.keys() <= {"job", "instance", "method", "status"} for selector in found)
