"""`toolgate doctor`: what it finds in what is really there, and what it advises."""

import asyncio
import json
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.app import Gateway
from gateway.cli.run.doctor import doctor
from tests.support.faulty_upstream import Connection, FaultyUpstream, Received, answer, answer_json, hang, raw
from tests.support.stores import RedisServer, needs_redis

LISTING = {"object": "list", "data": [{"id": name} for name in ("qwen3", "glm-5", "m", "n")]}


@pytest.fixture(autouse=True)
def looks_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultyUpstream, "shows_looks", True)


@pytest.fixture
def port() -> Iterator[int]:
    """A port that stays taken, by something that never answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield int(taken.getsockname()[1])


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"GATEWAY_PORT": "0", "METRICS_PORT": "0", "STORE_URL": f"sqlite:///{tmp_path}/store.db"}


def run(environ: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(doctor, arguments, env=environ, catch_exceptions=False)


async def examined(environ: dict[str, str]) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """The exit code and what was found, by what it is about; run beside the servers that it asks."""
    result = await asyncio.to_thread(run, environ, "--json")
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    assert document["ok"] == (result.exit_code == 0)
    found: dict[str, list[dict[str, str]]] = {}
    for finding in document["findings"]:
        found.setdefault(finding["about"], []).append(finding)
    return result.exit_code, found


def test_with_nothing_but_the_demo_all_is_well(environ: dict[str, str]) -> None:
    result = run(environ)
    assert result.exit_code == 0
    assert "FAULT" not in result.stdout
    assert "the embedded demo" in result.stdout
    assert "will be made at the first start" in result.stdout


@pytest.mark.parametrize(
    ("more", "level", "message", "advice"),
    [
        ({}, "ok", "only requests to localhost, 127.0.0.0/8, [::1] are answered", "GATEWAY_ALLOWED_HOSTS"),
        ({"GATEWAY_ALLOWED_HOSTS": "gate.example"}, "ok", "[::1], gate.example are answered", "GATEWAY_API_KEYS"),
        ({"GATEWAY_HOST": "10.0.0.1"}, "warning", "whoever reaches 10.0.0.1 is answered", "GATEWAY_ALLOWED_HOSTS"),
        ({"GATEWAY_API_KEYS": "sk-gate"}, "", "", ""),
    ],
)
def test_without_keys_it_says_who_is_answered_and_what_a_proxy_needs(
    environ: dict[str, str], more: dict[str, str], level: str, message: str, advice: str
) -> None:
    document = json.loads(run({**environ, "UPSTREAM_URL": "http://127.0.0.1:9/v1", **more}, "--json").stdout)
    found = [finding for finding in document["findings"] if finding["about"] == "door"]
    assert [each["level"] for each in found] == ([level] if level else [])
    for each in found:
        assert message in each["message"]
        assert advice in each["advice"]


async def test_the_probe_is_let_in_whatever_names_are_listed(gateway: Callable[..., Awaitable[Gateway]]) -> None:
    listed = {"GATEWAY_HOST": "0.0.0.0", "GATEWAY_ALLOWED_HOSTS": "gate.example"}  # noqa: S104 - what images set
    running = await gateway("http://127.0.0.1:9/v1", **listed)
    environ = {**listed, "UPSTREAM_URL": "http://127.0.0.1:9/v1", "GATEWAY_PORT": running.url.rpartition(":")[2]}
    assert (await asyncio.to_thread(run, environ, "--probe")).exit_code == 0


def test_every_fault_of_the_settings_is_told(environ: dict[str, str]) -> None:
    result = run({**environ, "GATEWAY_DRAIN_S": "soon", "STRATEGY_RULES": "*=nope"})
    assert result.exit_code == 78
    assert "GATEWAY_DRAIN_S" in result.stdout
    assert "nope" in result.stdout


async def test_the_models_of_the_upstream_are_named(environ: dict[str, str], upstream: FaultyUpstream) -> None:
    upstream.script = answer_json(LISTING, headers={"Date": "Mon, 01 Jan 2001 00:00:00 GMT"})
    code, found = await examined({**environ, "UPSTREAM_URL": upstream.url, "UPSTREAM_API_KEY": "sk-canary-77"})
    assert [each.target for each in upstream.requests].count("/v1/models") == 1
    assert {each.headers["authorization"] for each in upstream.requests} == {"Bearer sk-canary-77"}
    assert found["upstream"][0]["message"] == f"{upstream.url} has qwen3, glm-5, m and 1 more"
    assert (code, found["clock"][0]["level"]) == (1, "fault")
    assert "sk-canary-77" not in json.dumps(found)


async def test_a_long_list_of_models_is_read_to_its_end(environ: dict[str, str], upstream: FaultyUpstream) -> None:
    listing = {"data": [{"id": f"model-{number}", "description": "x" * 1000} for number in range(400)]}

    async def in_pieces(connection: Connection, received: Received) -> None:
        body = json.dumps(listing).encode()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 50_000):
            await connection.send(body[start : start + 50_000])
            await asyncio.sleep(0)

    upstream.script = in_pieces
    code, found = await examined({**environ, "UPSTREAM_URL": upstream.url})
    assert found["upstream"][0]["message"] == f"{upstream.url} has model-0, model-1, model-2 and 397 more"
    assert code == 0


@pytest.mark.parametrize(
    ("script", "level", "message"),
    [
        (answer_json({"data": []}), "warning", "has no model"),
        (answer_json([1]), "warning", "has no list of models (200)"),
        (answer(b"[" * 200_000), "warning", "has no list of models (200)"),
        (answer_json({}, status="404 Not Found"), "warning", "has no list of models (404)"),
        (answer_json({}, status="401 Unauthorized"), "warning", "wants a key (401)"),
        (answer_json({}, status="500 Oops"), "fault", "answers 500"),
        (answer_json({}, status="302 Found", headers={"Location": "http://x/"}), "fault", "sends elsewhere (302)"),
        (raw(b"SSH-2.0-OpenSSH_9.2\r\n"), "fault", "does not speak HTTP"),
        (answer_json({"data": [{"id": "a\x1b[31m"}]}), "ok", "has ?"),
    ],
)
async def test_what_is_wrong_with_the_upstream_is_told(
    environ: dict[str, str], upstream: FaultyUpstream, script: Any, level: str, message: str
) -> None:
    upstream.script = script
    code, found = await examined({**environ, "UPSTREAM_URL": upstream.url})
    assert found["upstream"][0]["level"] == level
    assert message in found["upstream"][0]["message"]
    assert code == (1 if level == "fault" else 0)


async def test_a_key_that_is_refused_is_a_fault(environ: dict[str, str], upstream: FaultyUpstream) -> None:
    upstream.script = answer_json({}, status="401 Unauthorized")
    code, found = await examined({**environ, "UPSTREAM_URL": upstream.url, "UPSTREAM_API_KEY": "sk-canary-77"})
    assert (code, found["upstream"][0]["advice"]) == (1, "set the key that it wants")


def test_where_no_demo_would_answer_none_is_told(environ: dict[str, str], tmp_path: Path) -> None:
    result = run({**environ, "GATEWAY_CONFIG": str(tmp_path / "missing.toml")})
    assert result.exit_code == 78
    assert "embedded demo" not in result.stdout


async def test_every_upstream_of_the_tables_is_asked_in_its_own_way(
    environ: dict[str, str], upstream: FaultyUpstream, tmp_path: Path
) -> None:
    upstream.script = answer_json({"models": [{"name": "models/gemini-3"}]})
    toml = tmp_path / "toolgate.toml"
    toml.write_text(
        f"[upstreams.cloud]\nurl = '{upstream.url}'\nkind = 'gemini'\napi_key = 'AIza-canary-77'\n"
        "[upstreams.gone]\nurl = 'http://127.0.0.1:9/v1'\n"
    )
    code, found = await examined({**environ, "GATEWAY_CONFIG": str(toml)})
    assert upstream.last.headers["x-goog-api-key"] == "AIza-canary-77"
    assert [each["level"] for each in found["upstream"]] == ["ok", "fault"]
    assert found["upstream"][0]["message"] == f"cloud: {upstream.url} has gemini-3"
    assert "url of [upstreams.gone]" in found["upstream"][1]["advice"]
    assert code == 1


@pytest.mark.parametrize(("key", "level", "advice"), [("sk-x", "fault", "wants"), (None, "warning", "api_key of [up")])
async def test_of_a_named_upstream_its_own_key_is_meant(
    environ: dict[str, str], upstream: FaultyUpstream, tmp_path: Path, key: str | None, level: str, advice: str
) -> None:
    upstream.script = answer_json({}, status="401 Unauthorized")
    toml = tmp_path / "toolgate.toml"
    credential = f"api_key = '{key}'" if key else ""
    toml.write_text(f"[upstreams.a]\nurl = '{upstream.url}'\nkind = 'anthropic'\n{credential}\n")
    _, found = await examined({**environ, "GATEWAY_CONFIG": str(toml)})
    assert found["upstream"][0]["level"] == level
    assert advice in found["upstream"][0]["advice"]


def test_an_upstream_that_is_not_there_is_a_fault(environ: dict[str, str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        result = run({**environ, "UPSTREAM_URL": url})
    assert result.exit_code == 1
    assert f"{url} cannot be reached: Connection refused" in result.stdout


async def test_an_upstream_that_says_nothing_is_given_up(
    environ: dict[str, str], upstream: FaultyUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstream.look._LONGEST_S", 0.2)
    monkeypatch.setattr("gateway.upstream.look._WIRES_S", 0.2)
    upstream.script = hang
    code, found = await examined({**environ, "UPSTREAM_URL": upstream.url})
    assert (code, found["upstream"][0]["level"]) == (1, "fault")
    assert "does not answer within 0.2 s" in found["upstream"][0]["message"]


async def test_of_a_gateway_that_runs_its_ports_are_no_fault(
    environ: dict[str, str], gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    upstream.script = answer_json(LISTING)
    running = await gateway(upstream.url)
    environ |= {"GATEWAY_PORT": running.url.rpartition(":")[2], "METRICS_PORT": "9464"}
    code, found = await examined({**environ, "UPSTREAM_URL": upstream.url})
    assert code == 0
    assert found["gateway"][0]["message"] == f"ready at {running.url}"
    assert "75 s" in found["keep-alive"][0]["message"]
    assert "metrics" not in found


async def test_the_probe_tells_a_gateway_that_is_ready_from_one_that_drains(
    environ: dict[str, str], gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    running = await gateway(upstream.url)
    environ["GATEWAY_PORT"] = running.url.rpartition(":")[2]
    ready = await asyncio.to_thread(run, environ, "--probe")
    assert ready.exit_code == 0
    running.shared.draining = True
    draining = await asyncio.to_thread(run, environ, "--probe", "--json")
    assert draining.exit_code == 1
    assert json.loads(draining.stdout)["findings"][0]["message"] == f"{running.url} is draining"
    assert upstream.requests == [], "it costs the model server nothing"


def test_the_probe_of_what_does_not_answer_fails_in_time(
    environ: dict[str, str], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.run.doctor.PROBE_TIMEOUT_S", 0.2)
    result = run({**environ, "GATEWAY_PORT": str(port)}, "--probe")
    assert result.exit_code == 1
    assert "nothing answers" in result.stdout


def test_ports_that_others_hold_are_faults(environ: dict[str, str], port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.run.doctor.PROBE_TIMEOUT_S", 0.2)
    taken = run({**environ, "GATEWAY_PORT": str(port)})
    assert taken.exit_code == 1
    assert f"127.0.0.1:{port} is taken" in taken.stdout
    any_address = run({**environ, "GATEWAY_HOST": "localhost", "GATEWAY_PORT": str(port)})
    assert f"localhost:{port} is taken" in any_address.stdout, "whichever of its addresses comes first"
    second = run({**environ, "METRICS_PORT": str(port - 1), "GATEWAY_WORKERS": "2"})
    assert second.exit_code == 1
    assert f"127.0.0.1:{port} is taken" in second.stdout


def test_an_address_that_is_none_is_a_fault_of_the_host(environ: dict[str, str]) -> None:
    result = run({**environ, "METRICS_HOST": "host.invalid", "METRICS_PORT": "9464"})
    assert result.exit_code == 1
    assert "METRICS_HOST: host.invalid has no address" in result.stdout


def test_a_store_without_a_folder_is_a_fault(environ: dict[str, str], tmp_path: Path) -> None:
    result = run({**environ, "STORE_URL": f"sqlite:///{tmp_path}/missing/store.db"})
    assert result.exit_code == 1
    assert f"there is no folder {tmp_path}/missing" in result.stdout


def test_a_store_that_is_no_database_is_a_fault(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"not a database, but long enough to be looked at" * 100)
    result = run(environ)
    assert result.exit_code == 1
    assert "sqlite cannot be used" in result.stdout


def test_a_store_that_would_fill_the_disk_is_told(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = shutil.disk_usage(tmp_path)._replace(free=5 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda path: little)
    result = run(environ)
    assert f"{tmp_path} has 5 MiB left, records may take 1024 MiB" in result.stdout
    assert result.exit_code == 0


def test_a_folder_that_cannot_be_written_to_is_a_fault(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    result = run(environ)
    assert result.exit_code == 1
    assert f"{tmp_path} cannot be written to by this user" in result.stdout


@needs_redis
async def test_a_store_that_takes_nothing_is_a_fault(environ: dict[str, str], tmp_path: Path) -> None:
    server = await RedisServer(tmp_path).start()
    try:
        environ = {**environ, "STORE_URL": server.url}
        assert (await examined(environ))[1]["store"][0]["message"] == "redis answers and can be written to"
        await server.command("CONFIG", "SET", "maxmemory", "1")
        code, found = await examined(environ)
    finally:
        await server.close()
    assert code == 1
    assert "the store's memory is full" in found["store"][0]["message"]


def test_redis_that_is_not_there_is_a_fault(environ: dict[str, str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"redis://user:canary-pass-5@127.0.0.1:{closed.getsockname()[1]}/0"
        result = run({**environ, "STORE_URL": url})
    assert result.exit_code == 1
    assert "redis cannot be used" in result.stdout
    assert "canary-pass-5" not in result.stdout


def test_a_store_in_memory_is_told(environ: dict[str, str]) -> None:
    result = run({**environ, "STORE_URL": "memory://"})
    assert "a restart forgets everything" in result.stdout
    assert result.exit_code == 0


def test_too_few_descriptors_are_told(environ: dict[str, str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        result = run({**environ, "GATEWAY_MAX_CONCURRENCY": "2000"})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "GATEWAY_MAX_CONCURRENCY may take 4128" in result.stdout
    assert "ulimit -n" in result.stdout


def test_the_probe_needs_little_time_to_start() -> None:
    code = "import sys, gateway.cli.run.doctor; assert not {'aiohttp', 'asyncio'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (("responses", "messages"), "default speaks chat"),
        (("responses",), "default speaks chat, messages"),
        ((), "default speaks chat, responses, messages"),
    ],
)
async def test_the_wires_that_a_server_speaks_are_found_out(
    environ: dict[str, str], upstream: FaultyUpstream, missing: tuple[str, ...], told: str
) -> None:
    async def script(connection: Connection, received: Received) -> None:
        if received.target.endswith("/models"):
            await answer_json(LISTING)(connection, received)
            return
        assert received.body == b"{}"
        is_missing = received.target.rpartition("/")[2] in missing
        await answer_json({}, status="404 Not Found" if is_missing else "400 Bad Request")(connection, received)

    upstream.shows_looks = True
    upstream.script = script
    _, found = await examined({**environ, "UPSTREAM_URL": upstream.url})
    assert [each["message"] for each in found["wires"]] == [told]
