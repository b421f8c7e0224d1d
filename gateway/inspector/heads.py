"""The head of a record that is there as a whole."""

from gateway.core.records import RequestRecord
from gateway.inspector.rows import CallHead, Head

__all__ = ["head_of"]


def head_of(record: RequestRecord) -> Head:
    """Of a request's record, what its line shows."""
    return Head(
        id=record.id,
        at=record.at,
        key=record.key,
        model=record.model,
        arm=record.arm,
        strategy=record.strategy,
        tools=record.tools,
        status=record.status,
        healthy=record.healthy,
        end=record.end,
        error=record.error,
        finish_reason=record.finish_reason,
        native_calls=record.native_calls,
        duration_s=record.duration_s,
        calls=tuple(
            CallHead(
                number=call.number,
                dialect=call.dialect,
                tool=call.tool,
                score=call.score,
                decision=call.decision,
                reason=call.reason,
                meant=call.meant,
                signs=call.signs,
            )
            for call in record.calls
        ),
    )
