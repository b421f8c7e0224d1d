"""What a request teaches about its model: whether to give it native tools, and what its answer may be rated by."""

import structlog

from gateway.answer.candidates import attempts
from gateway.answer.facts import Facts
from gateway.core.errors import UpstreamRejected
from gateway.request.state import Turn
from gateway.traffic.lesson_rules import Fault, refuses_tools
from strategies.factory import NATIVE_STRATEGIES

__all__ = ["fall_back", "learn_from", "may_fall_back"]

log = structlog.get_logger("toolgate")


def may_fall_back(turn: Turn, error: UpstreamRejected) -> bool:
    """Whether this refusal was one of native tools, which the request can do without."""
    return (
        turn.configuration.settings.native_fallback
        and turn.arm == "live"
        and turn.strategy in NATIVE_STRATEGIES
        and refuses_tools(error.upstream_status, error.payload)
    )


def fall_back(turn: Turn, reason: str) -> None:
    """From now on, for a while, this model is told of its tools in the prompt."""
    upstream, model = turn.upstream.name, turn.model or ""
    turn.shared.lessons.learn(upstream, model, reason, turn.patience.now())
    turn.shared.telemetry.count("toolgate_native_fallbacks_total", {"upstream": upstream, "reason": reason})
    log.info("native_fallback", reason=reason, model=model, upstream=upstream, upstream_status=turn.upstream_status)


def learn_from(turn: Turn) -> None:
    """Take down how a request has ended: its answer can be rated, and its native calls were usable or not."""
    facts = turn.facts
    if facts is None:
        return
    if facts.completion_id is not None:
        turn.shared.answers.remember(facts.completion_id, request_id=turn.id, strategy=turn.strategy, arm=turn.arm)
    settings = turn.configuration.settings
    if (
        not (settings.native_fallback and settings.native_fallback_rate)
        or turn.arm != "live"
        or turn.strategy not in NATIVE_STRATEGIES
    ):
        return
    fault = _fault(facts)
    if fault is None and not facts.native_calls and not facts.calls:
        return
    learned = turn.shared.native_record.observe(
        turn.upstream.name,
        turn.model or "",
        fault,
        turn.patience.now(),
        window=settings.native_fallback_window,
        percent=settings.native_fallback_rate,
    )
    if learned is not None:
        fall_back(turn, learned)


def _fault(facts: Facts) -> Fault | None:
    """What was wrong with an answer's calls; one that was recovered from text arrived as it should."""
    if facts.unusable_calls:
        return "bad_arguments"
    is_lost = not facts.calls and not facts.repaired
    return "as_text" if is_lost and (facts.attempts or attempts(facts)) else None
