"""What a person says of a candidate, kept for the report."""

from gateway.core.ports import Store
from gateway.core.records import LabelRecord

__all__ = ["keep_label"]


async def keep_label(
    store: Store, *, at: float, request_id: str, number: int, is_right: bool, by: str = "", note: str = ""
) -> LabelRecord:
    """Keep that a candidate was read rightly, or wrongly; the last label of it counts."""
    label = LabelRecord(at=at, request_id=request_id, number=number, is_right=is_right, by=by, note=note)
    await store.append([label])
    return label
