"""Every parser of the project with what it is fed by the fuzzers, and what has to hold of whatever it makes of that."""

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache

from attrs import frozen

from gateway.config.declared.keys import KeyRing
from gateway.config.load import load
from gateway.core.errors import ClientError, ConfigError, UpstreamBadReply
from gateway.core.origins import parse_authority, parse_origin
from gateway.core.records import RequestRecord
from gateway.rollout.call_ids import CallIds
from gateway.rollout.codec import evidence_of, state_of
from gateway.rollout.counters import read as read_name
from gateway.rollout.outcomes import last_answer
from gateway.state.record_codec import unpack
from gateway.surfaces.heard import Heard
from gateway.surfaces.messages.surface import MESSAGES
from gateway.surfaces.port import Situation, Surface
from gateway.surfaces.responses.surface import RESPONSES
from gateway.upstream.body import Framed
from gateway.upstream.plain import Answer, Connection
from gateway.wire.chat_chunks import BadChunk, decode_chunk, decode_object
from gateway.wire.chat_request import parse_request
from gateway.wire.json_scan import JsonScanner, JsonTooDeep
from gateway.wire.sse import EventTooLong, SseDecoder
from strategies.text.dumping import dumps
from strategies.text.escapes import Backslashes, HalfEscaped
from strategies.text.python_text import PythonFault, read_calls
from strategies.text.shell_lines import ShellFault, simple_commands
from strategies.text.tolerant_json import JsonFault, parse
from strategies.text.turns import whole
from strategies.text.yaml_lines import NoMapping, read_mapping
from tests.gateway.kinds.test_rows import STREAMS, TURN, check_stream
from tests.gateway.kinds.test_rows import read as read_kind
from tests.gateway.surfaces.test_heard import Teller

__all__ = ["PARSERS", "Parser", "drawn"]

_NOISE = (
    b"\x00",
    b"\xff",
    b"\xc3",
    "é\u2028\U0001f600".encode(),
    b" ",
    b"\n",
    b"\r\n",
    b"\t",
    b"x" * 70,
    b"\\",
    b"\\u",
)
_JSON = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"'", b'"a"', b'{"name": "read", "arguments": {"path": "a"}}'),
    *(b"true", b"None", b"NaN", b"1e999", b"-", b"0x1", b"9" * 4400, b'"\\ud800"', b"\\n", b"//", b"...", b'"a": '),
)
_CHAT = (
    *(b'{"id":"c","object":"chat.completion.chunk","choices":[', b'{"index":0,"delta":', b'"finish_reason":', b"null"),
    *(
        b'{"content":"',
        b'"tool_calls":[{"index":0,"id":"c","function":{"name":"read","arguments":"',
        b'"usage":{}',
        b"]}",
    ),
)
_SSE = (b"data: ", b"data:", b"event: error", b": c", b"\n\n", b"\r", b"\r\n\r\n", b"\xef\xbb\xbf", b"data: [DONE]\n\n")
_REQUEST = (
    *(
        b'{"model":"m","messages":[',
        b'{"role":"user","content":"hi"}',
        b'"stream":true',
        b'"tools":[{"type":"function",',
    ),
    *(
        b'"function":{"name":"read","parameters":{}}}]',
        b'"tool_choice":',
        b'"n":',
        b'"model":"m"',
        b'"parallel_tool_calls":',
    ),
)
_ITEMS = (
    *(
        b'{"model":"m","input":[',
        b'{"model":"m","max_tokens":5,"messages":[',
        b'{"type":"message","role":"user","content":[',
    ),
    *(b'{"type":"input_text","text":"hi"}', b'{"type":"text","text":"hi"}', b'{"type":"function_call","call_id":"c",'),
    *(
        b'"name":"read","arguments":"{}"}',
        b'{"type":"tool_use","id":"c","name":"read","input":{}}',
        b"]}",
        b"]}]}",
        b"]",
    ),
    *(b'{"type":"function_call_output","call_id":"c","output":"x"}', b'{"type":"tool_result","tool_use_id":"c"}'),
    *(
        b'"tools":[{"name":"read","input_schema":{}}]',
        b'{"type":"thinking","thinking":"x","signature":"',
        b'"system":"s"',
    ),
)
_PYTHON = (
    *(b"[", b"]", b"read(", b")", b"path=", b"'a'", b'"""', b"f'", b"r'", b"b'", b"\\x4", b"print(", b"**", b"{", b"}"),
    *(b"lambda: 0", b"not ", b"-1", b"1_0", b"0b", b"None", b", ", b"#", b"default_api.", b"Tool(", b"\\N{DASH}"),
)
_YAML = (b"a: ", b"- ", b"  ", b"|", b">-", b"'", b'"', b"#", b"&a ", b"*a", b"!!x ", b"{", b"[", b"? ", b"---", b"\n")
_SHELL = (
    b"ls",
    b" -la",
    b"'",
    b'"',
    b"`",
    b"$(",
    b")",
    b"|",
    b"&&",
    b";",
    b">",
    b"<<EOF\n",
    b"EOF\n",
    b"\\\n",
    b"#",
    b"=",
)
_KEYS = (
    b"sk-a",
    b"sha256:",
    b"0" * 64,
    b" expires=",
    b"2027-01-31",
    b" requests/min=",
    b"600",
    b" tokens/min=",
    b" streams=",
)
_HOSTS = (
    b"http://",
    b"https://",
    b"localhost",
    b"[::1]",
    b":8080",
    b"*",
    b"/",
    b"@",
    b"%",
    b"127.0.0.1",
    b"null",
    b"[",
    b"]",
)
_REPLY_HEADS = (
    b"",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
)
# Sizes of more than fifteen digits are refused here, and read by the library: nobody writes them.
_REPLY = (
    *(
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n",
        b"HTTP/1.0 200 \r\n",
    ),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\n",
        b"Connection: close\r\n",
        b"Content-Encoding: gzip\r\n",
    ),
    *(
        b"\r\n",
        b"5\r\nhello\r\n",
        b"5\r\nhello\r\n",
        b"5\r\nhello\r\n",
        b"B;x=y\r\nhello world\r\n",
        b"hello",
        b"0\r\n\r\n",
    ),
    *(b"0\r\nA: b\r\n\r\n", b"-5\r\n", b"5 \r\n", b"fffffffffffffffff\r\n", b"00", b";" * 300, b"HTTP/", b": "),
)
_NAMES = (b"r|", b"t|", b"1|", b"live|", b"a/b|", b"|", b"call_", b"0" * 24, b"_1", b"9" * 30)


@frozen
class Parser:
    """What is asked of one parser."""

    check: Callable[[bytes], object]
    words: tuple[bytes, ...]

    def __call__(self, data: bytes) -> None:
        self.check(data)


def drawn(rng: random.Random, parser: Parser) -> bytes:
    """Words of the parser's language and noise, now and then changed in one place."""
    data = b"".join(rng.choice(_NOISE if rng.random() < 0.15 else parser.words) for _ in range(rng.randint(0, 24)))
    if data and rng.random() < 0.2:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + rng.randint(0, 2) :]
    return data


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _cuts(data: bytes) -> list[bytes]:
    """The same in pieces whose sizes the data itself says: mostly small ones, now and then most of it at once."""
    pieces, at, most = [], 0, (9, 9, 40, 200)[sum(data[:64]) % 4]
    while at < len(data):
        size = 1 + data[at] % most
        pieces.append(data[at : at + size])
        at += size
    return pieces


def _sse(data: bytes) -> None:
    def events(pieces: list[bytes]) -> list[tuple[bytes, bytes | None]] | None:
        decoder, found = SseDecoder(400), []
        try:
            for piece in pieces:
                found += decoder.feed(piece)
            return found + decoder.finish()
        except EventTooLong:
            return None

    one, other = events([data]), events(_cuts(data))
    if one is None or other is None:
        assert len(data) > 400
        return
    assert [event for _, event in one if event is not None] == [event for _, event in other if event is not None]
    for lines in (one, other):
        kept, came = b"".join(raw for raw, _ in lines), data.removeprefix(b"\xef\xbb\xbf")
        assert kept.startswith(came)
        assert kept.removeprefix(came) in (b"", b"\n", b"\n\n")


def _json(data: bytes) -> None:
    text = _text(data)
    for closed in (False, True):
        try:
            parsed = parse(text, closed=closed, body_keys=("a",), known_keys=("a", "b"))
        except JsonFault:
            continue
        assert 0 <= parsed.end <= len(text)
        json.loads(dumps(parsed.value), parse_constant=_no_constant)


def _no_constant(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def _scan(data: bytes) -> None:
    def end(pieces: list[str]) -> int | None:
        scanner, at = JsonScanner(), 0
        for piece in pieces:
            try:
                found = scanner.feed(piece)
            except JsonTooDeep:
                return None
            if found >= 0:
                return at + found
            at += len(piece)
        return -1

    text = _text(data)
    size = 1 + len(text) % (5 if len(text) < 1_000 else 97)
    assert end([text]) == end([text[at : at + size] for at in range(0, len(text), size)])


def _escapes(data: bytes) -> None:
    """The body of a string, which holds no quote and does not end in half of an escape."""
    body = _text(data).replace('"', "'")
    body = body if (len(body) - len(body.rstrip("\\"))) % 2 == 0 else body + "n"
    for or_python in (False, True):
        try:
            whole(Backslashes().json_text(body, or_python=or_python))
        except HalfEscaped:
            continue


def _refusing(*faults: type[Exception]) -> Callable[[Callable[[bytes], object]], Callable[[bytes], None]]:
    def made(read: Callable[[bytes], object]) -> Callable[[bytes], None]:
        def check(data: bytes) -> None:
            try:
                read(data)
            except faults:
                return

        return check

    return made


def _heard(data: bytes) -> None:
    def told(pieces: list[bytes]) -> list[tuple[object, ...]]:
        teller = Teller()
        heard = Heard(teller, max_event_bytes=1 << 16)
        try:
            for piece in pieces:
                heard.feed(piece)
            heard.finish()
        except UpstreamBadReply:
            teller.told.append(("bad",))
        return teller.told

    one, other = told([data]), told(_cuts(data))
    if ("bad",) not in one and ("bad",) not in other:
        assert one == other


class _Wire(asyncio.Transport):
    """A connection on which nothing is sent."""

    is_shut = False

    def write(self, data: object) -> None:
        pass

    def close(self) -> None:
        self.is_shut = True

    def is_closing(self) -> bool:
        return self.is_shut

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


_loop = cache(asyncio.new_event_loop)


def _reply(data: bytes) -> None:
    """One answer of a model server: what comes of it, whatever the cuts; and what the library would make of it."""
    data = _REPLY_HEADS[len(data) % len(_REPLY_HEADS)] + data

    def heard(pieces: list[bytes], *, by_library: bool = False) -> tuple[object, ...]:
        wire = _Wire()
        connection = wire.protocol = Connection(_loop(), ("localhost", 80))
        connection.connection_made(wire)
        asked = connection.ask(b"", decode=True, limit=None)
        if by_library:
            connection.lend(asked, b"")
        for piece in pieces:
            wire.protocol.data_received(piece)
        is_fit = connection.is_done
        wire.protocol.connection_lost(None)
        if asked.exception() is not None:
            return ("refused",)
        answer: Answer = asked.result()
        body = answer.body.take()
        end = "open" if not answer.body.is_over else "broken" if answer.body.fault is not None else "whole"
        is_ours = isinstance(answer.body, Framed)
        return answer.message.code, tuple(answer.message.raw_headers), body, end, is_fit if is_ours else "the library's"

    ours, theirs = heard([data]), heard([data], by_library=True)
    for cut in (_cuts(data), [*(data[at : at + 1] for at in range(min(len(data), 300))), data[300:]]):
        other = heard([piece for piece in cut if piece])
        # What the library reads depends on the cuts, where more comes behind an answer.
        assert ours == other or "the library's" in (ours[-1], other[-1]) or ("refused",) in (ours, other)
    assert ours[-1] is not True or ours[:-1] == theirs[:-1]
    # Some heads that never end the library takes for whole ones, once their connection has gone.
    assert theirs[-2:-1] != ("whole",) or ours[:-1] == theirs[:-1] or b"\r\n\r\n" not in data


def _kind(kind: str) -> Parser:
    good = [line + b"\n\n" for line in STREAMS[kind](TURN).replace(b"\r\n", b"\n").split(b"\n\n") if line]
    return Parser(lambda data: check_stream(read_kind(kind, _cuts(data) or [b""])), (*good, *good, *_SSE, *_JSON[:10]))


def _accepting(surface: Surface) -> Callable[[bytes], object]:
    situation = Situation(now=7.0, request_id="req_1", unique="0" * 24, secret=b"k", scope="alice")
    return lambda data: surface.accept(data, situation, {})


def _settings(data: bytes) -> None:
    value, names = _text(data).replace("\x00", ""), ("STRATEGY_RULES", "GATEWAY_ALLOWED_ORIGINS", "UPSTREAM_URL")
    name = (*names, "CANARY_STEPS", "TRUSTED_PROXIES")[sum(data) % 5]
    with suppress(ConfigError):
        load({"UPSTREAM_URL": "http://127.0.0.1:1/v1", name: value})


def _outcomes(data: bytes) -> None:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = _text(data)
    last_answer([{"role": "assistant", "tool_calls": said}, {"role": "tool", "tool_call_id": said, "content": said}])
    last_answer([{"role": "assistant", "content": "x"}, {"role": "user", "content": _text(data)}])


def _stored(data: bytes) -> None:
    unpack(RequestRecord, data)
    evidence_of(data)
    state_of(data)
    read_name(_text(data))
    CallIds(b"k" * 32, lambda size: b"x" * size).read(_text(data))


def _origins(data: bytes) -> None:
    parse_authority(_text(data))
    parse_origin(_text(data))


PARSERS: Mapping[str, Parser] = {
    "sse": Parser(_sse, (*_SSE, *_JSON[:8])),
    "json": Parser(_json, _JSON),
    "scan": Parser(_scan, _JSON),
    "python": Parser(_refusing(PythonFault)(lambda data: read_calls(_text(data), constructors=True)), _PYTHON),
    "yaml": Parser(_refusing(NoMapping)(lambda data: read_mapping(_text(data))), _YAML),
    "shell": Parser(_refusing(ShellFault)(lambda data: simple_commands(_text(data))), _SHELL),
    "escapes": Parser(
        _escapes,
        (*_PYTHON, *_JSON),
    ),
    "chunks": Parser(_refusing(BadChunk)(lambda data: (decode_chunk(data), decode_object(data))), (*_CHAT, *_JSON)),
    "requests": Parser(_refusing(ClientError)(parse_request), (*_REQUEST, *_JSON)),
    "responses_request": Parser(_refusing(ClientError)(_accepting(RESPONSES)), (*_ITEMS, *_REQUEST, *_JSON)),
    "messages_request": Parser(_refusing(ClientError)(_accepting(MESSAGES)), (*_ITEMS, *_REQUEST, *_JSON)),
    "reply": Parser(_reply, _REPLY),
    "heard": Parser(_heard, (*_SSE, *_CHAT, *_JSON[:8])),
    **{kind: _kind(kind) for kind in STREAMS},
    "settings": Parser(_settings, (*_HOSTS, *_NAMES, b"=", b",", b"qwen*", b"native", b"xml_prompt:hermes", b"5")),
    "keys": Parser(_refusing(ValueError)(lambda data: KeyRing.from_lines(_text(data))), (*_KEYS, b"\n", b"#")),
    "origins": Parser(_origins, _HOSTS),
    "outcomes": Parser(_outcomes, (*_JSON, b"Error: ", b"unknown tool", b"[Tool Result: read]", b"Result:\n")),
    "stored": Parser(_stored, (*_NAMES, *_JSON)),
}
