"""Reads a period out of a store, record by record, into figures."""

from collections.abc import Callable

from gateway.core.ports import Store
from gateway.core.records import DecisionRecord, FeedbackRecord, LabelRecord, OutcomeRecord, RequestRecord
from gateway.report.figures import Tally
from gateway.report.tallies import last_labels
from gateway.report.tree import Figures, ReportRules

__all__ = ["gather"]

_EVERY = 500


async def gather(
    store: Store,
    *,
    rules: ReportRules,
    since: float,
    until: float,
    made_at: float,
    version: str,
    on_progress: Callable[[int, float], None] = lambda count, at: None,
) -> Figures:
    """The figures of `since <= at < until`; labels count whenever they were given."""
    tally = Tally(labels=last_labels([label async for label in store.scan(LabelRecord)]))
    count = 0
    async for request in store.scan(RequestRecord, since=since, until=until):
        tally.add_request(request)
        count += 1
        if count % _EVERY == 0:
            on_progress(count, request.at)
    async for outcome in store.scan(OutcomeRecord, since=since, until=until):
        tally.add_outcome(outcome)
    async for rating in store.scan(FeedbackRecord, since=since, until=until):
        tally.add_feedback(rating)
    async for decision in store.scan(DecisionRecord, since=since, until=until):
        tally.add_decision(decision)
    return tally.figures(rules=rules, since=since, until=until, made_at=made_at, version=version)
