"""One line a request for the terminal: a sign, what became of the answer, and how long it took."""

from typing import Any

import pytest

from gateway.telemetry.request_line import lasting_line, request_line

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
