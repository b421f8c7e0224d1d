"""Logs: one line per event whatever is in it, no secret, and never a wait."""

import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.telemetry.logs import LineWriter, _portions, configure_logging, ready_lines
from gateway.telemetry.redaction import _BEARER, _PAIR, _VENDOR_KEY, REDACTED, Redactor
from gateway.telemetry.request_line import lasting_line, request_line

SECRET = "canary-secret-value"


class Pipe:
    """A log target whose lines can be read back."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        self.dropped: list[tuple[str, int]] = []
        self._writer: LineWriter | None = None

    def configure(self, **options: object) -> None:
        logging.getLogger().handlers.clear()  # those of pytest raise what they cannot format
        self._writer = configure_logging(
            fd=self.write_fd,
            on_drop=lambda reason, lines: self.dropped.append((reason, lines)),
            secrets=[SECRET],
            **options,  # type: ignore[arg-type]
        )

    def lines(self) -> list[str]:
        assert self._writer is not None
        self._writer.close()
        os.close(self.write_fd)
        self.write_fd = -1
        with os.fdopen(os.dup(self.read_fd), encoding="utf-8", newline="\n") as file:
            return file.read().split("\n")[:-1]

    def close(self) -> None:
        os.close(self.read_fd)
        if self.write_fd >= 0:
            os.close(self.write_fd)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    pipe = Pipe()
    yield pipe
    pipe.close()
    root.setLevel(level)
    root.handlers[:] = handlers
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_an_event_is_one_json_line_with_time_level_and_request_id(pipe):
    pipe.configure()
    with structlog.contextvars.bound_contextvars(request_id="r-1"):
        structlog.get_logger().info("upstream_closed", bytes=12)
    [line] = pipe.lines()
    event = json.loads(line)
    assert event.pop("timestamp").endswith("Z")
    assert event == {"level": "info", "event": "upstream_closed", "bytes": 12, "request_id": "r-1"}


@pytest.mark.parametrize("form", ["json", "console"])
def test_newlines_and_terminal_codes_stay_inside_their_line(pipe, form):
    pipe.configure(form=form)
    structlog.get_logger().info("seen\nfake", text="a\r\nb\x1b[31m\u2028\x9b\x00", **{"k\n": "v"})
    [line] = pipe.lines()
    assert not any(char in line for char in "\x1b\r\u2028\x9b\x00")


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_secret_is_nowhere(pipe, form):
    pipe.configure(form=form, level="debug")
    log = structlog.get_logger()
    log.info("a", url=f"http://h/?k={SECRET}", nested={"list": [f"x{SECRET}y"], SECRET: 1})
    log.info("b", headers={"Authorization": "Bearer canary-other", "X-Api-Key": "canary-key"})
    log.debug("c", text="authorization: Bearer canary-token and sk-canary12345678 api_key=canary-2")
    log.info("/".join(["d", SECRET]), upstream_api_key="canary-3", cookie="canary-4", password="canary-5")
    try:
        raise ValueError(f"no access with {SECRET}")
    except ValueError:
        log.exception("e")
    logging.getLogger("library").warning("sent %s", SECRET)
    lines = "\n".join(pipe.lines())
    assert "canary" not in lines
    assert lines.count(REDACTED) >= 10


@pytest.mark.parametrize("text", ["ba\u017fic canary", "TO\u212aEN=canary", "gsk_canary1234567"])
def test_a_secret_is_seen_however_its_name_is_written(text):
    assert "canary" not in Redactor().mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "AKIACANARY0123456789",
        "ASIACANARY0123456789",
        "AIzaSyCANARY-0123456789_abcdefghijklmno",
        "github_pat_CANARY0123456789",
        "gho_CANARY0123456789",
        "glpat-CANARY0123456789",
        "xoxb-CANARY-0123456789",
        "eyJhbGciOiJCANARY0123.eyJzdWIiCANARY.CANARY-0_1",
        "-----BEGIN RSA PRIVATE KEY-----\nCANARY\nCANARY==\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\\nCANARY cut",
    ],
)
def test_keys_of_vendors_are_known_by_their_looks(text):
    for told in (text, f'{{"content": "{text}"}}', f"keep {text} keep"):
        clean = Redactor().mask(told)
        assert "CANARY" not in clean
        assert clean.count("keep") == told.count("keep") - ("cut" in told and "keep" in told)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ("bearer ", "Ba\u017fic ", "api_key=", "To\u212aen: ", "\u017fecret=", "sk-", "XAI_", "gho_", "12345678")
        )
        | st.text("bearicktosnwpghfxuli-_= \u212a\u017f1234567890", max_size=9),
        max_size=6,
    ).map("".join)
)
def test_no_text_that_a_pattern_would_change_is_passed_over(text):
    changed = _VENDOR_KEY.sub("", _PAIR.sub("", _BEARER.sub("", text)))
    assert changed == text or Redactor().mask(text) != text


def test_a_field_cannot_pass_for_the_time_or_the_level(pipe):
    pipe.configure()
    structlog.get_logger().warning("a", timestamp="never", level="none")
    event = json.loads(pipe.lines()[0])
    assert event["level"] == "warning"
    assert event["timestamp"].startswith("20")


def test_lines_that_fit_are_written_in_portions_that_do_not_mix():
    lines = [b"x" * size + b"\n" for size in (10, 4000, 84, 5000, 1, 4095, 1)]
    portions = list(_portions(b"".join(lines)))
    assert b"".join(portions) == b"".join(lines)
    assert all(portion.endswith(b"\n") for portion in portions)
    assert [len(portion) for portion in portions] == [4012, 85, 5001, 2, 4096, 2]


def test_counts_of_tokens_are_no_secret(pipe):
    pipe.configure()
    structlog.get_logger().info("a", input_tokens=7, max_tokens=8, keys=2, monkey="yes")
    assert json.loads(pipe.lines()[0])["input_tokens"] == 7


def test_a_traceback_is_in_the_event(pipe):
    pipe.configure()
    try:
        raise ValueError("oh")
    except ValueError as error:
        structlog.get_logger().error("failed", exc_info=error)
    [line] = pipe.lines()
    assert "ValueError: oh" in json.loads(line)["exception"]


def test_on_a_console_a_traceback_is_indented_below_its_event(pipe):
    pipe.configure(form="console")
    try:
        raise ValueError("oh\n12:00:00 info    forged")
    except ValueError:
        structlog.get_logger().exception("failed")
    first, *rest = pipe.lines()
    assert "failed" in first
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_less_severe_events_are_left_out(pipe):
    pipe.configure(level="warning")
    structlog.get_logger().info("a")
    structlog.get_logger().warning("b")
    logging.getLogger("library").info("c")
    assert [json.loads(line)["event"] for line in pipe.lines()] == ["b"]


def test_what_libraries_log_takes_the_same_way(pipe):
    pipe.configure()
    logging.getLogger("aiohttp.server").error("Error handling %s", "x\ny")
    logging.getLogger("aiohttp.server").error("cannot be formatted %d", "x")
    [line] = pipe.lines()
    event = json.loads(line)
    assert (event["event"], event["logger"], event["message"]) == (
        *("library_logged", "aiohttp.server"),
        "Error handling x\ny",
    )


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        10**5000,
        "\ud800",
        b"\xff",
        {1: {2: {3: {4: {5: {6: {7: 8}}}}}}},
        ["x"] * 100_000,
        "y" * 1_000_000,
        Unprintable(),
        {Ellipsis: None},
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("form", ["json", "console"])
def test_any_value_can_be_logged_in_bounds(pipe, value, form):
    pipe.configure(form=form)
    structlog.get_logger().info("a", value=value)
    [line] = pipe.lines()
    assert len(line) < 20_000
    if form == "json":
        json.loads(line, parse_constant=pytest.fail)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_redaction_leaves_what_json_can_hold(value):
    fields = Redactor([SECRET]).fields({"value": value})
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields


@pytest.mark.parametrize("own", [{}, {"worker": 3}])
def test_a_line_with_a_ready_beginning_says_what_any_other_line_would(pipe, own):
    pipe.configure(fields=own)
    begin = {"route": "chat", "model": f"m {SECRET}", "stream": True, "status": 200, "naïve": "\x7f\u2028"}
    numbers = {"bytes_in": 7, "duration_s": 0.0001, "overhead_s": 1e-06}
    words: list[dict[str, str]] = [
        {},
        {"completion_id": "chatcmpl-1"},
        {"completion_id": f"id {SECRET}"},
        {"completion_id": "Bearer abcdefgh"},
        {"completion_id": "x" * 600},
        {"completion_id": "half \ud800"},
    ]
    rests: list[dict[str, object]] = [
        {},
        {"completion_id": f"id {SECRET}", "finish_reasons": ["stop", SECRET], "usage": {"input": 3}},
        {"notes": ["half \ud800", "x" * 20_000], "calls": [{"tool": "a", "score": 0.97, "authorization": "b"}]},
        {"far": 1 << 70, "nan": float("nan")},
    ]
    cases = [*((word, {}) for word in words), *(({}, rest) for rest in rests)]
    for key in ("known", None):
        for word, rest in cases:
            with structlog.contextvars.bound_contextvars(request_id="r-1", trace_id="t"):
                structlog.get_logger().info("request_ended", **begin, **numbers, **word, **rest)
            lines = ready_lines()
            assert lines is not None
            told = {**numbers, **word, "request_id": "r-1", "trace_id": "t"}
            lines.write("request_ended", key, lambda: begin, told, ["r-1", *word.values()], rest)
    written = [json.loads(line) for line in pipe.lines()]
    for line in written:
        assert line.pop("timestamp").endswith("Z")
        assert line["model"] == f"m {REDACTED}"
    assert written[0::2] == written[1::2]
    assert len(written) == 4 * len(cases)


@pytest.mark.parametrize("options", [{"form": "console"}, {"level": "warning"}])
def test_no_line_is_ready_where_the_log_is_for_people_or_says_less(pipe, options):
    pipe.configure(**options)
    assert ready_lines() is None


def test_no_line_is_ready_once_the_log_goes_elsewhere(pipe):
    pipe.configure()
    assert ready_lines() is not None
    with structlog.testing.capture_logs():
        assert ready_lines() is None
    assert ready_lines() is not None
    pipe.lines()
    assert ready_lines() is None


def test_a_blocked_pipe_drops_and_counts_and_never_waits():
    read_fd, write_fd = os.pipe()
    fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, 4096)
    dropped: list[str] = []
    writer = LineWriter(write_fd, on_drop=lambda reason, lines: dropped.append(reason), max_lines=50)
    for number in range(2000):
        writer.write(f"{number} " + "x" * 500)
    assert dropped
    assert set(dropped) == {"queue_full"}
    reader = threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(read_fd, 1 << 16), b"")])
    reader.start()
    writer.close()
    os.close(write_fd)
    reader.join()
    os.close(read_fd)


def test_a_target_that_went_away_is_counted_and_harms_nothing():
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    dropped: list[tuple[str, int]] = []
    writer = LineWriter(write_fd, on_drop=lambda reason, lines: dropped.append((reason, lines)))
    writer.write("a")
    writer.write("b")
    writer.close()
    os.close(write_fd)
    assert sum(lines for reason, lines in dropped if reason == "write_failed") == 2


def test_a_non_blocking_target_gets_every_line():
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    dropped: list[str] = []
    writer = LineWriter(write_fd, on_drop=lambda reason, lines: dropped.append(reason))
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.extend(iter(lambda: os.read(read_fd, 1 << 16), b"")))
    for number in range(400):
        writer.write(f"{number} " + "x" * 500)
    reader.start()
    writer.close()
    os.close(write_fd)
    reader.join()
    os.close(read_fd)
    assert len(b"".join(received).split(b"\n")) == 401
    assert not dropped


# --- One line a request for the terminal: a sign, what became of the answer, and how long it took


HERMES = {"tool": "get_weather", "dialect": "hermes", "score": 0.97, "reasons": ["tag 97"]}

UNCLOSED = {**HERMES, "reason": "not_closed", "sentence": "`city` was not closed", "setting": ""}

QWEN = {"model": "qwen2.5-coder:7b", "route": "chat", "method": "POST", "arm": "live", "status": 200}


@pytest.mark.parametrize(
    ("fields", "line", "paint"),
    [
        (
            {**QWEN, "calls": [HERMES], "duration_s": 0.0141},
            "qwen2.5-coder:7b ✓ get_weather recovered (hermes 0.97) 14 ms",
            "good",
        ),
        (
            {**QWEN, "refused": [UNCLOSED], "repaired": True, "duration_s": 2.04},
            "qwen2.5-coder:7b ✗ stayed text: `city` was not closed; asked again, failed 2.0 s",
            "bad",
        ),
        (
            {**QWEN, "calls": [HERMES], "repaired": True, "duration_s": 1.0},
            "qwen2.5-coder:7b ✓ asked again, then get_weather recovered (hermes 0.97) 1.0 s",
            "good",
        ),
        (
            {**QWEN, "refused": [{**UNCLOSED, "setting": "TRANSFORM_MIN_CONFIDENCE=0.85"}], "duration_s": 0.1},
            "qwen2.5-coder:7b ✗ stayed text: `city` was not closed (TRANSFORM_MIN_CONFIDENCE=0.85) 100 ms",
            "bad",
        ),
        (
            {**QWEN, "arm": "dry_run", "would_call": [HERMES], "duration_s": 0.2},
            "qwen2.5-coder:7b [dry_run] ◇ get_weather would be recovered (hermes 0.97) 200 ms",
            "good",
        ),
        ({**QWEN, "native_calls": 2, "duration_s": 0.3}, "qwen2.5-coder:7b ✓ 2 native calls 300 ms", "good"),
        (
            {**QWEN, "status": 502, "error": "upstream_refused", "cause": "refused", "duration_s": 0.002},
            "qwen2.5-coder:7b ! 502 upstream_refused (refused) 2 ms",
            "bad",
        ),
        ({**QWEN, "end": "client_abort", "duration_s": 0.5}, "qwen2.5-coder:7b ! the client left 500 ms", "bad"),
        ({**QWEN, "duration_s": 0.5}, "qwen2.5-coder:7b · 200 500 ms", "plain"),
        ({"method": "GET", "route": "models", "status": 200, "duration_s": 0.001}, "GET models · 200 1 ms", "plain"),
    ],
)
def test_a_request_is_told_in_a_line(fields: dict[str, Any], line: str, paint: str) -> None:
    assert request_line(fields) == (line, paint)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"model": "qwen2.5-coder:7b", "age_s": 5.2, "waits_for": "model_server", "bytes_out": 0},
            "qwen2.5-coder:7b … still going on after 5.2 s: the model server has not begun to answer",
        ),
        (
            {"model": None, "route": "chat", "age_s": 30.0, "waits_for": "first_bytes", "bytes_out": 0},
            "chat … still going on after 30.0 s: nothing could be sent yet",
        ),
        (
            {"model": "m", "age_s": 5.0, "waits_for": "", "bytes_out": 12_345},
            "m … still going on after 5.0 s: 12,345 bytes sent so far",
        ),
    ],
)
def test_a_request_that_lasts_is_told_of(fields: dict[str, Any], line: str) -> None:
    assert lasting_line(fields) == line


def test_an_answer_of_a_thousand_calls_is_still_a_line() -> None:
    line, _ = request_line({**QWEN, "calls": [HERMES] * 1000, "duration_s": 0.1})
    assert len(line) < 300
