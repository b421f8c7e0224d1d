"""What a request leaves behind: one line in the log and its share of the metrics."""

import structlog

from gateway.net.turn import Turn

__all__ = ["account"]

UNHEALTHY_ENDS = frozenset({"upstream_error", "upstream_timeout", "gateway_error"})

log = structlog.get_logger("toolgate")


def account(turn: Turn) -> None:
    """Write the request down; called once, when it has ended."""
    ended = turn.patience.now()
    _measure(turn, ended)
    log.info("request_ended", **_fields(turn, ended))


def _fields(turn: Turn, ended: float) -> dict[str, object]:
    fields: dict[str, object] = {
        "route": turn.route,
        "method": turn.http.method,
        "model": turn.model,
        "stream": turn.stream,
        "strategy": turn.strategy,
        "arm": turn.arm,
        "reason": turn.reason,
        "status": turn.status,
        "end": turn.end_reason,
        "error": None if turn.error is None else turn.error.code,
        "upstream_status": turn.upstream_status,
        "retries": turn.retries or None,
        "bytes_in": turn.bytes_in,
        "bytes_out": turn.bytes_out,
        "duration_s": round(ended - turn.started, 4),
        "upstream_first_s": _since(turn.started, turn.upstream_first),
        "first_sent_s": _since(turn.started, turn.first_sent),
        "overhead_s": round(turn.overhead_s, 6),
        "notes": turn.notes or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _since(started: float, moment: float | None) -> float | None:
    return None if moment is None else round(moment - started, 4)


def _measure(turn: Turn, ended: float) -> None:
    telemetry = turn.shared.telemetry
    end = turn.end_reason
    stream = "true" if turn.stream else "false"
    arm = turn.arm or turn.configuration.arm
    status = turn.status or 499
    telemetry.count(
        "toolgate_requests_total",
        {
            "route": turn.route,
            "stream": stream,
            "code": f"{status // 100}xx",
            "arm": arm,
            "health": "unhealthy" if end in UNHEALTHY_ENDS else "ok",
        },
    )
    telemetry.observe(
        "toolgate_request_duration_seconds", {"route": turn.route, "stream": stream, "arm": arm}, ended - turn.started
    )
    _measure_upstream(turn, ended)
    if turn.stream and turn.first_sent is not None:
        telemetry.count("toolgate_stream_ends_total", {"reason": end, "arm": arm})
        telemetry.observe("toolgate_stream_gap_seconds", {"arm": arm}, turn.longest_gap_s)
        telemetry.observe(
            "toolgate_time_to_first_token_seconds",
            {"upstream": turn.configuration.upstream, "arm": arm},
            turn.first_sent - turn.started,
        )


def _measure_upstream(turn: Turn, ended: float) -> None:
    if not turn.upstream_started:
        return
    telemetry = turn.shared.telemetry
    upstream = turn.configuration.upstream
    code = f"{turn.upstream_status // 100}xx" if turn.upstream_status is not None else "none"
    telemetry.count("toolgate_upstream_requests_total", {"upstream": upstream, "code": code})
    telemetry.observe(
        "toolgate_upstream_request_duration_seconds",
        {"upstream": upstream, "code": code},
        ended - turn.upstream_started,
    )
    if turn.upstream_first is not None:
        telemetry.observe(
            "toolgate_upstream_first_token_seconds", {"upstream": upstream}, turn.upstream_first - turn.started
        )
