"""The rows U1 to U28 of deploy/FAULTS.md: whatever a model server does, the client gets an answer it understands."""

import asyncio
import gzip
import io
import json
import socket
import time
import zlib
from contextlib import suppress
from types import SimpleNamespace

import openai
import pytest

from tests.support.client import ENDS, TOOLS, ask, chat, dispatched, get
from tests.support.cost import Pulse
from tests.support.faulty_upstream import (
    DONE,
    STREAM_HEAD,
    answer,
    answer_json,
    close_at_once,
    completion,
    event,
    hang,
    in_turn,
    raw,
    stream,
    text,
)

CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
FINISH = event(finish="stop")
STREAMS = pytest.mark.parametrize("tools", [None, TOOLS], ids=["passthrough", "read"])


@pytest.fixture(params=["plain", "full"], autouse=True)
def way(request, monkeypatch):
    """The two clients of the model server: the lean one, and the library's own, which serves what that one cannot."""
    if request.param == "full":
        monkeypatch.setattr("gateway.upstream.client.Connections.where_possible", lambda: None)
    return request.param


def asked(tools=None, **fields):
    """A request whose answer is relayed as it is, or read by the recovery strategy."""
    return chat(model="deepseek-chat", **({"tools": tools} if tools else {}), **fields)


@pytest.fixture
def closed_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]  # bound but not listening: refused, and nobody else can take it


async def test_u1_a_refused_connection_is_a_fast_502(gateway, client, closed_port):
    running = await gateway(f"http://127.0.0.1:{closed_port}/v1")
    async with Pulse() as pulse:
        got = await ask(client, running.url)
    assert (got.status, got.error) == (502, "upstream_refused")
    assert got.headers["x-should-retry"] == "false"
    assert pulse.seconds < 0.6
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_upstream_retries_total{reason="upstream_refused",upstream="default"} 1.0' in exposition


async def test_u1_the_breaker_opens_and_closes_again(gateway, upstream, client, log):
    upstream.script = close_at_once
    running = await gateway(upstream.url)
    for _ in range(5):
        assert (await ask(client, running.url)).error == "upstream_disconnected"
    async with Pulse() as pulse:
        refused = await ask(client, running.url)
    assert (refused.status, refused.error) == (503, "breaker_open")
    # Why it is left alone, and what to look at: nobody but its operator is let in here.
    assert f"(UPSTREAM_URL is {upstream.url}): see its log" in refused.json["error"]["message"]
    assert (await log.record("request_ended"))["cause"] == "disconnected"
    assert int(refused.headers["Retry-After"]) >= 1
    assert pulse.seconds < 0.2
    assert len(upstream.requests) == 5
    upstream.script = answer_json(completion())
    running.shared.breaker("default")._open_until = 0.0  # the wait is over
    assert (await ask(client, running.url, chat(stream=False))).json == completion()


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
async def test_u1_answers_that_speak_of_the_request_never_open_the_breaker(gateway, upstream, client, status):
    upstream.script = answer_json({"error": {"message": "x"}}, status=f"{status} X", headers={"Retry-After": "99"})
    running = await gateway(upstream.url)
    for _ in range(8):
        assert (await ask(client, running.url)).json == {"error": {"message": "x"}}
    assert running.shared.breaker("default").state == "closed"


async def test_u1_a_server_that_says_it_is_down_opens_the_breaker(gateway, upstream, client):
    upstream.script = answer(b"", status="503 X", headers={"Retry-After": "99"})
    running = await gateway(upstream.url)
    for _ in range(5):
        await ask(client, running.url)
    assert running.shared.breaker("default").state == "open"


async def test_u2_a_connect_that_hangs_ends_at_its_deadline(gateway, client):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):  # the backlog is full: further SYNs get no answer
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        running = await gateway(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", UPSTREAM_CONNECT_TIMEOUT_S="0.5")
        started = time.monotonic()
        async with Pulse() as pulse:
            got = await ask(client, running.url)
        took = time.monotonic() - started
        for filler in fillers:
            filler.close()
    assert (got.status, got.error) == (504, "upstream_timeout")
    assert took >= 0.45
    assert pulse.seconds < 1.0


@pytest.mark.parametrize("streamed", [True, False])
async def test_u3_no_answer_ends_at_the_first_byte_deadline(gateway, upstream, client, streamed):
    upstream.script = hang
    running = await gateway(upstream.url, UPSTREAM_FIRST_BYTE_TIMEOUT_S="0.2")
    got = await ask(client, running.url, chat(stream=streamed))
    assert (got.status, got.error) == (504, "upstream_timeout")
    assert len(upstream.requests) == 1
    await upstream.until_all_gone()


async def test_u3_headers_without_a_body_wait_for_the_first_byte_deadline_too(gateway, upstream, client):
    async def script(connection, received):
        await connection.send(STREAM_HEAD)
        await connection.until_gone()

    upstream.script = script
    running = await gateway(upstream.url, UPSTREAM_FIRST_BYTE_TIMEOUT_S="0.4", UPSTREAM_IDLE_TIMEOUT_S="0.1")
    started = time.monotonic()
    assert (await ask(client, running.url)).error == "upstream_timeout"
    assert time.monotonic() - started >= 0.4


async def test_u4_a_close_before_the_status_line_is_not_repeated(gateway, upstream, client):
    upstream.script = close_at_once
    running = await gateway(upstream.url)
    got = await ask(client, running.url)
    assert (got.status, got.error) == (502, "upstream_disconnected")
    assert len(upstream.requests) == 1


@STREAMS
async def test_u5_a_reset_between_events_keeps_what_came(gateway, upstream, client, tools):
    async def script(connection, received):
        await connection.send(CHUNKED_HEAD)
        await connection.send_chunked(text("one "), text("two"), last=False)
        await asyncio.sleep(0.05)
        connection.reset()

    upstream.script = script
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools))
    assert got.content == "one two"
    assert got.error == "upstream_disconnected"
    # By these words agents know that they may ask again, as they do where a server breaks off by itself.
    assert b'"type":"server_error"' in got.body
    assert b"connection lost" in got.body


@pytest.mark.parametrize("model", ["deepseek-chat", "qwen3-coder"])
async def test_u6_a_reset_within_a_tool_call_is_never_a_call(gateway, upstream, client, model):
    written = "Let me look. <read_file>\n<path>a"

    async def script(connection, received):
        await connection.send(CHUNKED_HEAD)
        await connection.send_chunked(*(text(char) for char in written), last=False)
        await asyncio.sleep(0.05)
        connection.reset()

    upstream.script = script
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model=model, tools=TOOLS))
    assert got.content == written
    assert got.error == "upstream_disconnected"
    assert b"tool_calls" not in got.body


@STREAMS
@pytest.mark.parametrize("pieces", [(text("hel"), text("lo")), ()], ids=["some", "none"])
async def test_u7_a_clean_close_in_the_middle_is_an_error(gateway, upstream, client, tools, pieces):
    upstream.script = stream(*pieces)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools))
    assert got.error == "upstream_truncated"
    assert got.content == ("hello" if pieces else "")


async def test_u7_the_openai_client_raises_on_it(gateway, upstream):
    upstream.script = stream(text("hel"))
    running = await gateway(upstream.url)
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="sk-x", max_retries=0) as sdk:
        chunks = await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], stream=True)
        with pytest.raises(openai.APIError) as raised:
            async for _ in chunks:
                pass
    assert raised.value.code == "upstream_truncated"


@STREAMS
async def test_u8_a_missing_done_is_added(gateway, upstream, client, tools):
    upstream.script = stream(text("hello"), FINISH)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools))
    assert got.content == "hello"
    assert got.error is None
    assert got.is_done


async def test_u9_a_stream_without_end_ends_at_the_total_deadline(gateway, upstream, client):
    async def script(connection, received):
        await connection.send(STREAM_HEAD)
        while not connection.gone.is_set():
            await connection.send(text("x"))
            await asyncio.sleep(0.02)

    upstream.script = script
    running = await gateway(upstream.url, UPSTREAM_TOTAL_TIMEOUT_S="0.4", UPSTREAM_IDLE_TIMEOUT_S="5")
    got = await ask(client, running.url)
    assert got.error == "upstream_timeout"
    assert len(got.content) > 5
    await upstream.until_all_gone()


async def test_u9_a_flood_without_end_ends_at_the_total_deadline(gateway, upstream, client):
    async def script(connection, received):
        await connection.send(STREAM_HEAD)
        while not connection.gone.is_set():
            await connection.send(text("x" * 1000))

    upstream.script = script
    running = await gateway(upstream.url, UPSTREAM_TOTAL_TIMEOUT_S="0.3", UPSTREAM_MAX_REPLY_BYTES="64GiB")
    assert (await ask(client, running.url)).error == "upstream_timeout"


@STREAMS
async def test_u10_silence_carries_comments_and_ends_at_the_idle_deadline(gateway, upstream, client, tools):
    async def script(connection, received):
        await connection.send(STREAM_HEAD, text("hello"))
        await connection.until_gone()

    upstream.script = script
    running = await gateway(upstream.url, GATEWAY_KEEPALIVE_S="0.05", UPSTREAM_IDLE_TIMEOUT_S="0.35")
    got = await ask(client, running.url, asked(tools))
    assert 3 <= got.body.count(b": keep-alive\n\n") <= 7
    assert got.content == "hello"
    assert got.error == "upstream_timeout"


async def test_u10_a_stream_that_flows_carries_no_comment(gateway, upstream, client, monkeypatch):
    """Time passes from piece to piece alone, less than the pause that is told, and many times as much in all."""
    now, got = [1000.0], bytearray()
    monkeypatch.setattr("gateway.request.deadline.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("gateway.request.deadline.LONGEST_SLEEP_S", 0.001)  # it looks at that clock all the time

    async def script(connection, received):
        await connection.send(STREAM_HEAD)
        for number in range(24):
            now[0] += 6.0
            await connection.send(text(f"word {number}, "))
            while f"word {number}".encode() not in got:  # noqa: ASYNC110 - the client does not tell
                await asyncio.sleep(0.002)
        await connection.send(event(finish="stop"), DONE)

    upstream.script = script
    running = await gateway(upstream.url, GATEWAY_KEEPALIVE_S="10")
    async with client.post(f"{running.url}/v1/chat/completions", json=asked()) as response:
        async for piece in response.content.iter_any():
            got.extend(piece)
    assert got.endswith(b"[DONE]\n\n")
    assert b": keep-alive" not in got


async def test_u10_no_comment_cuts_an_event_in_two(gateway, upstream, client):
    whole = text("hello")

    async def script(connection, received):
        await connection.send(STREAM_HEAD, whole[:30])
        await asyncio.sleep(0.2)
        await connection.send(whole[30:], FINISH, DONE)

    upstream.script = script
    running = await gateway(upstream.url, GATEWAY_KEEPALIVE_S="0.03")
    got = await ask(client, running.url)
    assert got.content == "hello"
    assert got.is_done


async def test_u10_nothing_is_sent_before_the_upstreams_headers(gateway, upstream, client):
    async def script(connection, received):
        await asyncio.sleep(0.2)
        await answer_json({"error": {"message": "no", "code": "x"}}, status="404 Not Found")(connection, received)

    upstream.script = script
    running = await gateway(upstream.url, GATEWAY_KEEPALIVE_S="0.03")
    assert (await ask(client, running.url)).status == 404


@STREAMS
@pytest.mark.parametrize(
    "bad",
    [b'data: {"choices": [\n\n', b"data: nonsense\n\n", b'data: {"choices":\xff}\n\n', b'data: {"a":"\xc3"}\n\n'],
    ids=["cut", "words", "bytes", "utf8"],
)
async def test_u11_u12_an_event_that_no_client_can_read_is_not_passed(gateway, upstream, client, tools, bad):
    upstream.script = stream(text("hello"), bad, text("after"), FINISH, DONE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools))
    assert got.content == "hello"
    assert got.error == "upstream_bad_reply"
    assert bad not in got.body


@STREAMS
async def test_u12_a_character_that_is_cut_by_a_packet_is_joined(gateway, upstream, client, tools):
    whole = b'data: {"choices":[{"index":0,"delta":{"content":"gr\xc3\xbc\xc3\x9fe \xf0\x9f\x98\x80"}}]}\n\n'
    cut = whole.index(b"\x9f\x98")
    upstream.script = stream(whole[:cut], whole[cut:], FINISH, DONE)
    running = await gateway(upstream.url)
    assert (await ask(client, running.url, asked(tools))).content == "grüße 😀"


@STREAMS
@pytest.mark.parametrize("start", [b"data: ", b"", b": "], ids=["event", "nothing", "comment"])
async def test_u13_u14_a_line_without_end_is_given_up(gateway, upstream, client, tools, start):
    async def script(connection, received):
        await connection.send(STREAM_HEAD, start)
        while not connection.gone.is_set():
            await connection.send(b"x" * 65536)

    upstream.script = script
    running = await gateway(upstream.url, UPSTREAM_MAX_EVENT_BYTES="1MiB")
    got = await ask(client, running.url, asked(tools))
    assert got.error == "upstream_bad_reply"
    assert len(got.body) < 1000
    await upstream.until_all_gone()


@STREAMS
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
async def test_u15_every_line_end_is_understood(gateway, upstream, client, tools, end):
    clean = b"".join((text("hello "), text("world"), FINISH, DONE))
    written = b"\xef\xbb\xbf" + clean.replace(b"\n", end)
    upstream.script = stream(*(written[at : at + 1] for at in range(len(written))))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools))
    assert got.content == "hello world"
    assert got.is_done
    assert not got.body.startswith(b"\xef\xbb\xbf")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("as_asked", ["passthrough", "read", "dry_run", "relayed"])
async def test_u15_no_byte_is_lost_between_the_halves_of_a_line_end(gateway, upstream, client, as_asked, end):
    clean = b"".join((b": hi\n\n", text("hello "), text("world"), FINISH, DONE))
    written = clean.replace(b"\n", end)

    async def script(connection, _received):
        await connection.send(STREAM_HEAD)
        for piece in written.replace(b"\r", b"\r|").split(b"|"):
            await connection.send(piece)
            await asyncio.sleep(0.005)  # so that the pieces come one by one

    upstream.script = script
    running = await gateway(upstream.url, TRANSFORM_MODE="dry_run" if as_asked == "dry_run" else "full")
    body = asked(None if as_asked == "passthrough" else TOOLS)
    path = "/v1/completions" if as_asked == "relayed" else "/v1/chat/completions"
    async with client.post(running.url + path, json=body) as response:
        got = await response.read()
    assert got == written
    assert dispatched(got) == dispatched(clean)


@STREAMS
async def test_u16_comments_ids_and_data_over_several_lines(gateway, upstream, client, tools):
    upstream.script = stream(
        b": OPENROUTER PROCESSING\n\n",
        b"id: 1\nretry: 5\nodd: x\nevent: message\n" + text("hel"),
        b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"lo"}}]}\n\n',
        FINISH,
        DONE,
    )
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools))
    assert got.content == "hello"
    assert got.error is None


@STREAMS
@pytest.mark.parametrize("last", [DONE.rstrip(), b"data: [DONE]\n"])
async def test_u17_a_last_event_without_its_blank_line_is_completed(gateway, upstream, client, tools, last):
    upstream.script = stream(text("hello"), FINISH, last)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools))
    assert got.content == "hello"
    assert got.is_done
    assert got.body.endswith(b"\n\n")


@STREAMS
async def test_u17_a_finish_without_its_blank_line_is_read(gateway, upstream, client, tools):
    upstream.script = stream(text("hello") + FINISH.rstrip())
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools))
    assert (got.content, got.error, got.is_done) == ("hello", None, True)
    assert FINISH in got.body


PLAIN = b"".join((text("hello "), text("world"), FINISH, DONE))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_u18_an_encoded_stream_is_decoded_though_none_was_asked_for(gateway, upstream, client, coding):
    packed = gzip.compress(PLAIN) if coding == "gzip" else zlib.compress(PLAIN)
    head = STREAM_HEAD[:-2] + f"Content-Encoding: {coding}\r\n\r\n".encode()
    upstream.script = stream(packed[:20], packed[20:], head=head)
    running = await gateway(upstream.url)
    got = await ask(client, running.url)
    assert got.content == "hello world"
    assert "Content-Encoding" not in got.headers


async def test_u18_a_corrupt_encoding_is_an_error(gateway, upstream, client):
    packed = bytearray(gzip.compress(PLAIN))
    packed[15:25] = b"\xff" * 10
    upstream.script = stream(bytes(packed), head=STREAM_HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n")
    running = await gateway(upstream.url)
    assert (await ask(client, running.url)).error == "upstream_bad_reply"


async def test_u18_a_truncated_encoding_is_an_error(gateway, upstream, client):
    packed = gzip.compress(PLAIN)
    upstream.script = stream(packed[:-40], head=STREAM_HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n")
    running = await gateway(upstream.url)
    assert (await ask(client, running.url)).error in (
        "upstream_truncated",
        "upstream_bad_reply",
        "upstream_disconnected",
    )


@pytest.mark.parametrize("streamed", [True, False])
async def test_u19_a_bomb_is_stopped_at_the_decoded_cap(gateway, upstream, client, streamed):
    zeros = b": " + b"0" * 100 + b"\n"
    packed = gzip.compress((zeros if streamed else b" ") * (200_000 if streamed else 20_000_000))
    head = STREAM_HEAD if streamed else STREAM_HEAD.replace(b"text/event-stream", b"application/json")
    upstream.script = stream(packed, head=head[:-2] + b"Content-Encoding: gzip\r\n\r\n")
    running = await gateway(upstream.url, UPSTREAM_MAX_REPLY_BYTES="1MiB")
    got = await ask(client, running.url, chat(stream=streamed))
    assert got.error == "upstream_bad_reply"


@STREAMS
async def test_u20_json_though_a_stream_was_asked_for_becomes_one(gateway, upstream, client, tools):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools))
    assert got.headers["Content-Type"] == "text/event-stream"
    assert got.content == "hello"
    assert got.is_done


async def test_u20_a_stream_though_none_was_asked_for_is_gathered(gateway, upstream, client):
    upstream.script = stream(event({"role": "assistant"}), text("hel"), text("lo"), FINISH, DONE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(stream=False))
    assert got.headers["Content-Type"].startswith("application/json")
    assert got.json["object"] == "chat.completion"
    assert got.json["choices"][0]["message"]["content"] == "hello"
    assert got.json["choices"][0]["finish_reason"] == "stop"


async def test_u20_a_stream_without_a_declared_type_is_recognised(gateway, upstream, client):
    head = STREAM_HEAD.replace(b"Content-Type: text/event-stream\r\n", b"")
    upstream.script = stream(b"\n", b"da", b"ta: ", text("hello")[6:], FINISH, DONE, head=head)
    running = await gateway(upstream.url)
    got = await ask(client, running.url)
    assert got.content == "hello"
    assert got.is_done


@pytest.mark.parametrize("streamed", [True, False])
async def test_u21_a_page_is_not_an_answer(gateway, upstream, client, streamed):
    upstream.script = answer(b"<html>nginx secret page</html>", headers={"Content-Type": "text/html"})
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(stream=streamed))
    assert (got.status, got.error) == (502, "upstream_bad_reply")
    assert b"nginx" not in got.body


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{", b'{"a":1}', b"[" * 50_000])
async def test_u21_a_body_that_is_no_completion_is_the_upstreams_fault(gateway, upstream, client, body, streamed):
    upstream.script = answer(body)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(stream=streamed))
    assert got.status in (200, 502)
    if body != b'{"a":1}':
        assert got.error in ("upstream_bad_reply", "upstream_truncated")


KEPT = {400, 402, 404, 408, 413, 422, 429}


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 503, 529])
async def test_u22_a_status_is_kept_where_it_is_the_clients_business(gateway, upstream, client, status):
    body = {"error": {"message": "too long", "type": "t", "param": None, "code": "context_length_exceeded"}}
    upstream.script = answer_json(body, status=f"{status} X", headers={"Retry-After": "11"})
    running = await gateway(upstream.url)
    got = await ask(client, running.url)
    assert got.status == (status if status in KEPT | {401, 403} else 502)
    assert got.json == body
    assert got.headers["Retry-After"] == "11"
    assert got.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_u22_a_body_that_is_not_json_is_replaced(gateway, upstream, client, status):
    upstream.script = answer(b"<html>oops</html>", status=f"{status} X")
    running = await gateway(upstream.url)
    got = await ask(client, running.url)
    assert got.error == "upstream_rejected"
    assert b"oops" not in got.body
    assert str(status) in got.json["error"]["message"]


@pytest.mark.parametrize("status", [401, 403])
async def test_u22_a_fault_of_our_own_key_is_not_the_clients(gateway, upstream, client, status):
    upstream.script = answer_json({"error": {"message": "bad key sk-ours"}}, status=f"{status} X")
    running = await gateway(upstream.url, UPSTREAM_API_KEY="sk-ours")
    got = await ask(client, running.url)
    assert (got.status, got.error) == (502, "upstream_rejected")
    assert b"sk-ours" not in got.body


async def test_u22_our_own_secret_is_masked_in_what_is_passed_on(gateway, upstream, client):
    upstream.script = answer_json({"error": {"message": "you sent sk-ours-123"}}, status="400 X")
    running = await gateway(upstream.url, UPSTREAM_API_KEY="sk-ours-123")
    got = await ask(client, running.url)
    assert got.status == 400
    assert b"sk-ours" not in got.body
    assert "you sent" in got.json["error"]["message"]


async def test_u23_a_long_wait_is_passed_on_capped_and_not_waited_for(gateway, upstream, client):
    upstream.script = answer_json({"error": {"message": "slow down"}}, status="429 X", headers={"Retry-After": "3600"})
    running = await gateway(upstream.url)
    async with Pulse() as pulse:
        got = await ask(client, running.url)
    assert got.status == 429
    assert got.headers["Retry-After"] == "60"
    assert "x-should-retry" not in got.headers
    assert pulse.seconds < 1.0
    assert len(upstream.requests) == 1


async def test_u23_a_short_wait_is_waited_for_once(gateway, upstream, client):
    upstream.script = in_turn(
        answer_json({"error": {}}, status="503 X", headers={"Retry-After": "0"}), answer_json(completion())
    )
    running = await gateway(upstream.url)
    assert (await ask(client, running.url, chat(stream=False))).json == completion()
    assert len(upstream.requests) == 2
    upstream.script = answer_json({"error": {}}, status="429 X", headers={"Retry-After": "0"})
    got = await ask(client, running.url)
    assert got.status == 429
    assert got.headers["x-should-retry"] == "false"
    assert len(upstream.requests) == 4


async def test_u24_a_redirect_is_not_followed(gateway, upstream, client):
    upstream.script = raw(
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/steal\r\nContent-Length: 0\r\n\r\n" % upstream.port
    )
    running = await gateway(upstream.url, UPSTREAM_API_KEY="sk-ours")
    got = await ask(client, running.url)
    assert (got.status, got.error) == (502, "upstream_bad_reply")
    relayed = await get(client, f"{running.url}/v1/files", allow_redirects=False)
    assert relayed.status == 502
    assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 10_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(200)) + b"Content-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/9.9 nonsense\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Bad: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=["long header", "many headers", "bad chunk", "both lengths", "version", "noise", "nul"],
)
async def test_u25_what_is_not_http_is_the_upstreams_fault(gateway, upstream, client, reply):
    async def script(connection, received):
        await connection.send(reply)
        await connection.until_gone()

    upstream.script = script
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(stream=False))
    assert (got.status, got.error) == (502, "upstream_bad_reply")
    await upstream.until_all_gone()


async def test_u26_an_answer_before_the_request_was_read_is_taken(gateway, upstream, client):
    upstream.script = answer_json(completion())
    early = (
        b"HTTP/1.1 413 Too Large\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    )

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(early)
        await writer.drain()
        while await reader.read(1 << 20):
            pass
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        running = await gateway(f"http://127.0.0.1:{port}/v1")
        got = await ask(client, running.url, chat(stream=False, padding="x" * 900_000))
        assert got.status in (413, 502)
    finally:
        await running.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("padding", [900_000, 3_900_000, 6_000_000])
async def test_u26_a_server_that_answers_and_reads_no_more_is_heard_at_once(gateway, client, padding):
    """Far more than the sockets take in between: most of the request is still here when the answer comes."""
    told = b'{"error":{"message":"huge"}}'
    early = b"HTTP/1.1 413 Too Large\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n" + told
    answered, gone = asyncio.Event(), asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        writer.write(early)
        await answered.wait()
        # Nothing of it waits in the gateway either: what is left of the connection ends at once.
        writer.transport.resume_reading()
        with suppress(ConnectionError):
            while await reader.read(1 << 20):
                pass
        writer.transport.abort()
        gone.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 16)
    try:
        running = await gateway(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        body = io.BytesIO(json.dumps(chat(stream=False, padding="x" * padding)).encode())
        async with asyncio.timeout(10), client.post(f"{running.url}/v1/chat/completions", data=body) as response:
            assert (response.status, b"huge" in await response.read()) == (413, True)
        answered.set()
        async with asyncio.timeout(10):
            await gone.wait()
    finally:
        server.close()
        await server.wait_closed()


async def test_u26_a_needless_100_continue_is_ignored(gateway, upstream, client):
    upstream.script = raw(
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + PLAIN,
    )
    running = await gateway(upstream.url)
    assert (await ask(client, running.url)).content == "hello world"


@STREAMS
async def test_u27_one_byte_at_a_time_is_the_same_stream(gateway, upstream, client, tools):
    running = await gateway(upstream.url)
    upstream.script = stream(PLAIN)
    whole = await ask(client, running.url, asked(tools))
    upstream.script = stream(*(PLAIN[at : at + 1] for at in range(len(PLAIN))))
    assert (await ask(client, running.url, asked(tools))).chunks == whole.chunks


@STREAMS
async def test_u27_reads_that_end_within_events_are_the_same_stream(gateway, upstream, client, tools):
    whole = b"".join(text(f"word {number} ") for number in range(400)) + FINISH + DONE
    upstream.script = stream(*(whole[at : at + 7001] for at in range(0, len(whole), 7001)))
    running = await gateway(upstream.url)
    assert (await ask(client, running.url, asked(tools))).body == whole


@STREAMS
async def test_u28_choices_usage_and_unknown_fields_survive(gateway, upstream, client, tools):
    first = {"index": 0, "delta": {"content": "a", "reasoning_content": "r"}, "logprobs": {"content": []}}
    second = {"index": 1, "delta": {"content": "b", "odd": 1}, "finish_reason": None}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    pieces = (
        event(choices=[first], system_fingerprint="fp", odd={"x": 1}),
        event(choices=[second]),
        event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        event(choices=[{"index": 1, "delta": {}, "finish_reason": "length"}]),
        event(choices=[], usage=usage),
        DONE,
    )
    upstream.script = stream(*pieces)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools) | {"n": 2})
    assert got.body == b"".join(pieces)


@STREAMS
@pytest.mark.parametrize("index", [1, 8_000, -1])
async def test_u28_a_choice_that_nobody_asked_for_is_the_servers_fault(gateway, upstream, client, tools, index):
    upstream.script = stream(text("a"), event(choices=[{"index": index, "delta": {"content": "b"}}]), FINISH, DONE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked(tools))
    assert (got.content, got.error) == ("a", "upstream_bad_reply")


async def test_the_connection_of_a_finished_stream_is_used_again(gateway, upstream, client):
    ports = []

    async def script(connection, received):
        ports.append(connection.writer.get_extra_info("peername")[1])
        await connection.send(CHUNKED_HEAD)
        await connection.send_chunked(PLAIN)
        line = await connection.reader.readuntil(b"\r\n\r\n")
        size = int(line.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await connection.reader.readexactly(size)
        ports.append(connection.writer.get_extra_info("peername")[1])
        await connection.send(CHUNKED_HEAD)
        await connection.send_chunked(PLAIN)

    upstream.watches = False
    upstream.script = script
    running = await gateway(upstream.url)
    for _ in range(2):
        assert (await ask(client, running.url)).is_done
    assert len(ports) == 2
    assert ports[0] == ports[1]


async def test_an_upstream_that_stays_open_after_done_holds_nobody_up(gateway, upstream, client):
    async def script(connection, received):
        await connection.send(STREAM_HEAD, PLAIN)
        await connection.until_gone()

    upstream.script = script
    running = await gateway(upstream.url)
    async with Pulse() as pulse:
        assert (await ask(client, running.url)).is_done
    assert pulse.seconds < 3
    await upstream.until_all_gone()
