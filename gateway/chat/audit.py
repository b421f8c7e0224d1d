"""Commands that were recovered from shell blocks: each one leaves a line of its own."""

import structlog

from gateway.answer.facts import Facts

__all__ = ["audit"]

log = structlog.get_logger("toolgate")


def audit(facts: Facts | None) -> None:
    """Write down every recovered command of an answer; what it says, for the debug log alone."""
    for call in facts.calls if facts is not None else ():
        if call.command:
            verdict = call.verdict
            log.info("shell_call_recovered", tool=verdict.name, score=verdict.score / 100, reasons=verdict.reasons)
            log.debug("shell_call_text", tool=verdict.name, arguments=call.command)
