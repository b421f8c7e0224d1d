"""A request prepared with the tools that its model is to see, and what brings its calls back to the client's."""

from functools import partial

from attrs import evolve

from gateway.core.client import Client
from gateway.core.rules import ModelRule
from gateway.request.findings import Findings
from gateway.request.state import RequestState
from gateway.wire.chat_request import ChatRequest
from strategies.base import Options, Prepared
from strategies.factory import Selection
from strategies.mapping.answers import mapped
from strategies.mapping.mappings import MAPPINGS
from strategies.schema.names import repair_name

__all__ = ["note_prepared", "options_for", "with_tools"]

UNMAPPED = frozenset({"passthrough", "xml_text"})
"""Strategies that show the model no tools of the request."""


def options_for(state: RequestState, selection: Selection, client: Client) -> Options:
    """What the selected strategy may look at for this request."""
    options = state.configuration.options(selection.dialect)
    name = selection.strategy.name
    off = [dialect for strategy, _, dialect in map(_parted, state.shared.rollout.slices_off) if strategy == name]
    if off:
        options = evolve(options, dialects_off=frozenset(off))
    return evolve(options, client=client) if selection.reason == "client" else options


def _parted(name: str) -> tuple[str, str, str]:
    return name.partition("/")


def with_tools(
    state: RequestState, request: ChatRequest, selection: Selection, options: Options, rule: ModelRule | None
) -> Prepared:
    """What the strategy prepares, for the surface of tools that is set for the model."""
    strategy = selection.strategy
    name = state.configuration.tool_map(request.model, rule)
    mapping = MAPPINGS.get(name) if name is not None and strategy.name not in UNMAPPED else None
    # Several answers at once would each need a translation of their own to be asked for again.
    is_single = request.body.get("n") in (None, 1)
    work = mapping.of(request) if mapping is not None and request.wants_tools and is_single else None
    if work is None:
        return _renaming(state, strategy.prepare(request, options), request)
    prepared = strategy.prepare(work.request, evolve(options, stream_arguments="buffered"))
    prepared = evolve(prepared, warnings=(f"tools shown as {name}", *prepared.warnings))
    return _renaming(state, mapped(prepared, work, one_at_a_time=request.parallel is False), work.request)


def _renaming(state: RequestState, prepared: Prepared, shown: ChatRequest) -> Prepared:
    """The same, with the names of structured calls repaired where they certainly mean a declared tool."""
    if not prepared.mend_native or not shown.tools:
        return prepared
    aliases = dict(state.configuration.settings.tool_aliases)
    return evolve(prepared, rename=partial(repair_name, declared=shown.tools, aliases=aliases))


def note_prepared(found: Findings, request: ChatRequest, prepared: Prepared) -> None:
    """What the strategy made of the request."""
    found.strategy = prepared.strategy
    found.notes.extend(prepared.warnings)
    found.is_rewritten = prepared.body is not request.raw and prepared.body != request.raw
    found.prompted_tools = prepared.prompted_tools
