"""Values that cannot be decoded in full, anywhere in a request or an answer: no fault of ours, and nothing is lost."""

import asyncio
import gzip
import json
import zlib
from contextlib import suppress
from itertools import islice

import pytest

from gateway.answer.watch import WatchedBody, WatchedStream
from gateway.core.errors import UpstreamBadReply
from tests.gateway.answer.test_watch import beside
from tests.gateway.kinds.test_rows import STREAMS, TURN, check_stream, read
from tests.support.chat import DONE, HEAD, answer_body, prepared, stream, whole
from tests.support.client import TOOLS, ask, chat
from tests.support.faulty_upstream import STREAM_HEAD, answer, answer_json, completion
from tests.support.hostile_json import HOSTILE, drawn, places, with_value

CALL = "<read>\n<filePath>/a.py</filePath>\n</read>"
NATIVE = {"index": 0, "type": "function", "function": {"name": "read", "arguments": {"filePath": "/a.py"}}}


def chunk(delta, finish=None, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return {**HEAD, "choices": [choice], "usage": None, **more}


TEXT = [chunk({"role": "assistant"}), chunk({"content": CALL[:9]}), chunk({"content": CALL[9:]}), chunk({}, "stop")]
CALLS = [chunk({"role": "assistant", "tool_calls": [NATIVE]}), chunk({}, "stop", usage={"prompt_tokens": 1})]
LEGACY = [chunk({"function_call": {"name": "read", "arguments": "{}"}}), chunk({}, "function_call")]
HOW = [prepared(tools=None), prepared(), prepared(wait=True), prepared(stream_arguments="incremental")]
MIND = pytest.mark.parametrize("chunks", [TEXT, CALLS, LEGACY], ids=["text", "calls", "legacy"])


def sent(chunks, at, data):
    return [
        b"data: " + (data if number == at else json.dumps(each).encode()) + b"\n\n"
        for number, each in enumerate(chunks)
    ]


@MIND
@pytest.mark.parametrize("name", HOSTILE)
def test_a_stream_with_such_a_value_ends_as_streams_do(chunks, name):
    """In every place of every event, whatever becomes of it: what is not an event for any client is the server's."""
    for at, each in enumerate(chunks):
        for path in list(places(each))[1:]:
            events = [*sent(chunks, at, with_value(each, path, HOSTILE[name])), DONE]
            for how in HOW:
                out, exchange = stream(events, how)
                assert out.endswith(DONE) or exchange.facts.failure in ("upstream_bad_reply", "upstream_error")
            untouched = WatchedStream(beside(prepared()))
            assert b"".join(map(untouched.feed, events)) == b"".join(events)
            untouched.finish()


@pytest.mark.parametrize("name", ["infinite", "infinite_below", "digits", "list", "long"])
@pytest.mark.parametrize("where", ["top", "choice", "delta", "call"])
def test_a_number_that_nobody_can_hold_goes_on_as_it_is_written(name, where):
    """Beside calls that are mended, and beside text that becomes a call."""
    paths = {"top": (), "choice": ("choices", 0), "delta": ("choices", 0, "delta")}
    paths["call"] = ("choices", 0, "delta", "tool_calls", 0)
    hostile = HOSTILE[name]
    data = with_value(CALLS[0], (*paths[where], "x"), hostile)
    out, exchange = stream([*sent(CALLS, 0, data), DONE], prepared(wait=True))
    assert exchange.facts.failure is None
    assert exchange.facts.mended["arguments_object"] == exchange.facts.mended["id_missing"] == 1
    assert b'"x":' + hostile in out.replace(b" ", b"")
    if where != "call":
        data = with_value(TEXT[2], (*paths[where], "x"), hostile)
        out, exchange = stream([*sent(TEXT, 2, data), DONE], prepared())
        assert exchange.facts.failure is None
        assert [call.verdict.name for call in exchange.facts.calls] == ["read"]


@pytest.mark.parametrize("hostile", [b"1e999", b"9" * 5000, b'{"filePath":"/a.py","x":1e999}'])
def test_arguments_that_nobody_can_decode_are_passed_on_as_text(hostile):
    data = with_value(CALLS[0], ("choices", 0, "delta", "tool_calls", 0, "function", "arguments"), hostile)
    out, exchange = stream([*sent(CALLS, 0, data), DONE], prepared(wait=True))
    assert exchange.facts.failure is None
    assert hostile in out.replace(b'\\"', b'"')


@pytest.mark.parametrize("name", HOSTILE)
def test_a_whole_answer_with_such_a_value_is_answered(name):
    calls = [{key: value for key, value in NATIVE.items() if key != "index"}]
    for body in (
        answer_body(CALL),
        answer_body(None, tool_calls=calls),
        answer_body("x", function_call=calls[0]["function"]),
    ):
        answered = json.loads(body)
        for path in list(places(answered))[1:]:
            data = with_value(answered, path, HOSTILE[name])
            for how in HOW:
                with suppress(UpstreamBadReply):
                    whole(data, how)
            assert WatchedBody(beside(prepared())).transform(data) == data


@pytest.mark.parametrize("kind", STREAMS)
def test_servers_of_other_kinds_may_say_what_they_want(kind):
    events = [
        line[5:] for line in STREAMS[kind](TURN).replace(b"\r\n", b"\n").split(b"\n") if line.startswith(b"data:")
    ]
    good = [json.loads(event) for event in events]
    for at, data in islice(drawn(good, seed=8), 400):
        pieces = [b"data: " + (data if number == at else event) + b"\n\n" for number, event in enumerate(events)]
        check_stream(read(kind, pieces))


# Over sockets: the whole way, with its log


@pytest.mark.parametrize("mode", ["full", "dry_run"])
@pytest.mark.parametrize("model", ["gpt-4o", "deepseek-chat", "qwen3-coder"])
async def test_answers_over_sockets(gateway, upstream, client, log, mode, model):
    running = await gateway(upstream.url, TRANSFORM_MODE=mode, REPAIR_ATTEMPTS="0")
    cases = drawn([*TEXT[1:3], CALLS[0], LEGACY[0], completion("hi", tool_calls=[NATIVE])], seed=9)
    for at, data in islice(cases, 60):
        head = STREAM_HEAD
        if at < 4:
            body = b"data: " + data + b"\n\n" + DONE
        else:
            head, body = STREAM_HEAD.replace(b"text/event-stream", b"application/json"), data

        async def script(connection, _received, said=head + body):
            await connection.send(said)

        upstream.script = script
        got = await ask(client, running.url, chat(model=model, tools=TOOLS, stream=at < 4))
        assert b"internal" not in got.body, data
        assert got.status in (200, 502), data
    written = await log.until("request_ended")
    assert "Traceback" not in written
    assert "internal" not in written


async def test_requests_over_sockets(gateway, upstream, client, log):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    history = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **NATIVE}]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    for model in ("gpt-4o", "deepseek-chat", "qwen3-coder"):
        body = {**chat(model=model, tools=TOOLS, stream=False), "messages": history, "temperature": 1, "metadata": {}}
        for _, data in islice(drawn([body], seed=10), 120):
            got = await ask_raw(client, running.url, data)
            assert got[0] in (200, 400, 404), (data, got)
            assert b"internal" not in got[1], data
    written = await log.until("request_ended")
    assert "Traceback" not in written
    assert "internal" not in written


async def ask_raw(client, url, data, path="/v1/chat/completions", **headers):
    named = {"Content-Type": "application/json", **headers}
    async with client.post(url + path, data=data, headers=named) as response:
        return response.status, await response.read()


GOOD = json.dumps(chat(stream=False)).encode()
BROKEN = [
    ("gzip", b"\x1f\x8b" + b"x" * 50),
    ("gzip", GOOD),
    ("gzip", gzip.compress(GOOD, mtime=0)[:20]),
    ("gzip", gzip.compress(GOOD, mtime=0)[:30] + b"\xff" * 30),
    ("deflate", b"zzzz"),
    ("deflate", zlib.compress(GOOD)[:9] + b"\xff" * 40),
    ("br", b"xxxx"),
    ("zstd", b"xxxx"),
]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/feedback", "/v1/models", "/", "/x"])
@pytest.mark.parametrize("keys", ["", "sk-good"])
async def test_bodies_that_cannot_be_decompressed_are_the_clients(gateway, upstream, connect, log, path, keys):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url, **({"GATEWAY_API_KEYS": keys} if keys else {}))
    for encoding, body in BROKEN:
        # The library sees the fault of a deflated body that comes in pieces only when the body's time is over.
        for pieces in [[body], [body[:2], body[2:]]][: 2 if encoding == "gzip" else 1]:
            reader, writer = await connect(running.url)
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.002)
            said = await asyncio.wait_for(reader.read(), 5)
            assert b"internal" not in said
            assert said.split(b" ")[1] in (b"200", b"400", b"401", b"404", b"405", b"415"), said
    written = await log.until("request_")
    assert "Traceback" not in written


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("encoding", "body"), BROKEN[:6])
async def test_answers_that_cannot_be_decompressed_are_the_servers(
    gateway, upstream, client, log, streamed, encoding, body
):
    upstream.script = answer(body, headers={"Content-Encoding": encoding})
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(stream=streamed))
    assert got.status == 502
    assert got.error in ("upstream_bad_reply", "upstream_disconnected")
    assert "Traceback" not in await log.until("request_ended")
