"""A request prepared with the tools that its model is to see, and what brings its calls back to the client's."""

from functools import partial
from typing import Any

from attrs import evolve
from msgspec.structs import replace

from gateway.core.client import Client
from gateway.core.rules import ModelRule, covers_model
from gateway.core.tools import ToolSet
from gateway.request.state import RequestState
from gateway.wire.chat_request import ChatRequest
from strategies.asking.ask_again import AskAgain
from strategies.asking.family_ids import known_ids
from strategies.base import CallTerms, Options, Prepared
from strategies.factory import Selection
from strategies.mapping.answers import mapped
from strategies.mapping.mappings import MAPPINGS
from strategies.schema.known_tools import only_reads
from strategies.schema.names import repair_name

__all__ = ["mends_calls", "options_for", "with_tools"]

UNMAPPED = frozenset({"passthrough", "xml_text"})
"""Strategies that show the model no tools of the request."""
LOOKED_THROUGH = "native"
TRUSTED = frozenset({"native", "passthrough"})
"""Strategies whose models' calls are counted alone, unless the settings say otherwise."""


def options_for(state: RequestState, selection: Selection, client: Client) -> Options:
    """What the selected strategy may look at for this request."""
    configuration = state.configuration
    name, slices_off = selection.strategy.name, state.shared.rollout.slices_off
    known = configuration.known_options
    if name == LOOKED_THROUGH and state.upstream.row.strategy == name:  # their wires keep calls and text apart
        known = configuration.known_deaf_options
    options = known.get(selection.dialect)
    if options is None:
        options = configuration.options(selection.dialect)
        if known is configuration.known_deaf_options:
            options = known[selection.dialect] = evolve(options, native_leaks=False)
    if slices_off:
        off = frozenset(dialect for strategy, _, dialect in map(_parted, slices_off) if strategy == name)
        options = evolve(options, dialects_off=off) if off else options
    return evolve(options, client=client) if selection.reason == "client" else options


def _parted(name: str) -> tuple[str, str, str]:
    return name.partition("/")


def with_tools(
    state: RequestState, request: ChatRequest, selection: Selection, options: Options, rule: ModelRule | None
) -> Prepared:
    """What the strategy prepares, for the surface of tools that is set for the model."""
    strategy = selection.strategy
    configuration = state.configuration
    may_map = rule is not None or configuration.settings.tool_map
    name = configuration.tool_map(request.model, rule) if may_map else None
    mapping = MAPPINGS.get(name) if name is not None and strategy.name not in UNMAPPED else None
    # Several answers at once would each need a translation of their own to be asked for again.
    is_single = request.body.get("n") in (None, 1)
    work = mapping.of(request) if mapping is not None and request.wants_tools and is_single else None
    if work is None:
        prepared = strategy.prepare(request, options)
        return _held(state, prepared, request, **_pinning(state, prepared))
    # A call is translated as a whole, so its arguments cannot go out piece by piece.
    prepared = strategy.prepare(work.request, evolve(options, stream_arguments="buffered"))
    prepared = replace(prepared, warnings=(f"tools shown as {name}", *prepared.warnings))
    prepared = mapped(prepared, work, one_at_a_time=request.parallel is False)
    return _held(state, prepared, work.request)


def mends_calls(state: RequestState, model: str, strategy: str) -> bool:
    """Whether structured calls of this model that do not fit are held, mended and asked for again."""
    settings = state.configuration.settings
    # Arguments that have gone out cannot be mended any more.
    if settings.stream_arguments == "incremental":
        return False
    for pattern, mode in settings.structured_calls:
        if covers_model(pattern, model):
            if mode == "auto":
                break
            return mode == "mend"
    return strategy not in TRUSTED and not state.shared.valid_calls.is_clean(state.upstream.name, state.model or "")


def _pinning(state: RequestState, prepared: Prepared) -> dict[str, AskAgain]:
    """Its second question held to the tool that was meant, by what the server is known to obey."""
    ask, abilities = prepared.ask_again, state.shared.abilities
    if not isinstance(ask, AskAgain) or ask.renderer is not None:
        return {}
    upstream, model, lesson = state.upstream.name, state.model or "", state.learned
    able = lesson.able if lesson is not None else ()
    if not able and abilities.is_empty:
        return {}
    pins = abilities.has(upstream, model, "named", is_learned="named" in able)
    strict = abilities.has(upstream, model, "strict", is_learned="strict" in able)
    return {"ask_again": replace(ask, pins=pins, strict=strict)} if pins or strict else {}


def _held(state: RequestState, prepared: Prepared, shown: ChatRequest, **changes: Any) -> Prepared:
    """The same with these changes, its structured calls held to the tools that the model was shown.

    Their names are repaired where they certainly mean a declared tool.
    """
    if not shown.tools.names:
        return replace(prepared, **changes) if changes else prepared
    if not prepared.mend_native:
        return replace(prepared, calls=CallTerms(tools=shown.tools), **changes)
    settings = state.configuration.settings
    keeps = settings.duplicate_calls == "keep"
    # The conversation as it goes upstream, in which calls that were left as text are calls.
    ask = prepared.ask_again
    ids = known_ids(shown.model, ask.messages if isinstance(ask, AskAgain) else shown.messages)
    terms = CallTerms(
        tools=shown.tools,
        taken_ids=ids,
        next_id=ids.next_id,
        mends=mends_calls(state, shown.model, prepared.strategy),
        one_only=shown.parallel is False,
        drops_copies=None if keeps else partial(_is_harmful_twice, tools=shown.tools),
    )
    rename = partial(repair_name, declared=shown.tools, aliases=dict(settings.tool_aliases))
    return replace(prepared, calls=terms, rename=rename, **changes)


def _is_harmful_twice(name: str, tools: ToolSet) -> bool:
    """Whether a tool may change something, so that a copy of its call is not meant."""
    tool = tools.get(name)
    return not (only_reads(name) or (tool is not None and tool.only_reads))
