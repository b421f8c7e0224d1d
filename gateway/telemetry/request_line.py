"""What a request came to in one line for whoever watches the terminal; the JSON log keeps every field."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

__all__ = ["Paint", "lasting_line", "request_line"]

Paint = Literal["good", "bad", "plain"]
_SHOWN = 3
_PAINTS: dict[str, Paint] = {"✓": "good", "◇": "good", "✗": "bad", "!": "bad"}


def request_line(fields: Mapping[str, Any]) -> tuple[str, Paint]:
    """The line of a `request_ended` event, and how it is painted; the sign says the same without colours."""
    parts = list(_parts(fields))
    sign = parts[0][:1] if parts else "·"
    who = fields.get("model") or f"{fields.get('method', '')} {fields.get('route', '')}".strip()
    arm = f" [{fields['arm']}]" if fields.get("arm") not in (None, "live") else ""
    words = "; ".join(parts) or f"· {fields.get('status', '')}"
    return f"{who}{arm} {words} {_time(fields.get('duration_s', 0.0))}", _PAINTS.get(sign, "plain")


def lasting_line(fields: Mapping[str, Any]) -> str:
    """The line of a `request_lasts` event."""
    who = fields.get("model") or fields.get("route", "")
    waits = {"model_server": "the model server has not begun to answer", "first_bytes": "nothing could be sent yet"}
    said = waits.get(str(fields.get("waits_for") or "")) or f"{fields.get('bytes_out', 0):,} bytes sent so far"
    return f"{who} … still going on after {_time(fields.get('age_s', 0.0))}: {said}"


def _parts(fields: Mapping[str, Any]) -> Iterator[str]:
    """What became of it, the worst first where it failed."""
    if (error := fields.get("error") or fields.get("failure")) is not None:
        cause = f" ({fields['cause']})" if "cause" in fields else ""
        yield f"! {fields.get('status')} {error}{cause}"
    elif fields.get("end") == "client_abort":
        yield "! the client left"
    repaired = "asked again, then " if fields.get("repaired") and fields.get("calls") else ""
    for calls, sign, how in (("calls", "✓", "recovered"), ("would_call", "◇", "would be recovered")):
        for call in _some(fields.get(calls, ())):
            yield f"{sign} {repaired}{call['tool']} {how} ({call['dialect']} {call['score']:.2f})"
    if native := fields.get("native_calls"):
        yield f"✓ {native} native call{'s' if native > 1 else ''}"
    for refused in _some(fields.get("refused", ())):
        setting = f" ({refused['setting']})" if refused.get("setting") else ""
        yield f"✗ stayed text: {refused.get('sentence') or refused.get('reason')}{setting}"
    if fields.get("repaired") and not fields.get("calls"):
        yield "asked again, failed"


def _some(calls: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    yield from calls[:_SHOWN]
    # The rest would push what matters off the screen.


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
