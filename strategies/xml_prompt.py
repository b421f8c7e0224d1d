"""Tools for models that only read text: described in the system prompt, called in tags, read back from the answer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from re import compile as pattern
from typing import Any, Protocol

from gateway.core.errors import InvalidRequest, TooManyTools
from gateway.core.tools import Tool, ToolSet
from gateway.wire.chat_request import TOOL_FIELDS, ChatRequest
from gateway.wire.known_texts import adopt, made_of
from strategies.asking.ask_again import Demand, asking_again, demanded
from strategies.asking.forbidden import forbidding_reader, forbids_calls
from strategies.asking.history import render_history
from strategies.asking.past_calls import mend
from strategies.asking.renderers import RENDERERS, renderer
from strategies.base import AnswerReader, Options, Prepared, Shape
from strategies.grammar.dialect import Renderer
from strategies.schema.structured import function_name
from strategies.writing.prompt import add_section, firm_instruction, holds_section, section

__all__ = ["MakesReaders", "XmlPromptStrategy"]

_USABLE_NAME = pattern(r"[A-Za-z0-9_-]{1,64}\Z")


class MakesReaders(Protocol):
    """How a reader for the prompted dialect is made."""

    def __call__(
        self,
        *,
        tools: ToolSet,
        options: Options,
        model: str,
        prompted: str | None,
        messages: Sequence[Mapping[str, Any]],
    ) -> Callable[[], AnswerReader]: ...


class XmlPromptStrategy:
    """Takes the tools out of the request, puts them into its prompt, and reads calls from the answer's text."""

    name = "xml_prompt"

    def __init__(self, make_readers: MakesReaders | None = None) -> None:
        if make_readers is None:
            from strategies.reading.factory import reader_factory

            make_readers = reader_factory
        self._make_readers = make_readers

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """The request as text for the model; raises `ClientError` where tools or tool results cannot be used."""
        writer = renderer(options.dialect)
        warnings = list(_dialect_warnings(options.dialect))
        tools, demand = _offered(request, options, warnings)
        mended = mend(request, options)
        warnings += mended.notes
        history = render_history(mended.messages, renderer=writer, tools=request.tools, fmt=options.result_format)
        if not (request.tools or history.rendered or request.body.get("tools")):
            return Prepared(strategy=self.name, body=request.raw, warnings=tuple(warnings))
        first_only = _first_only(request, options)
        messages = history.messages
        if tools and not holds_section(messages):
            text = section(writer, tools, parallel=not first_only)
            messages = add_section(messages, text + (firm_instruction(demand.name) if demand.required else ""))
        return Prepared(
            strategy=self.name,
            body=_encoded(request, messages),
            make_reader=self._reader(request, options, tools, writer),
            reads_reasoning=options.reasoning_calls,
            ask_again=asking_again(request, messages=messages, tools=tools, demand=demand, renderer=writer),
            shape=Shape(first_only=first_only, keep_trailing=options.trailing_text == "keep"),
            warnings=(*warnings, *history.warnings),
            prompted_tools=len(tools),
        )

    def _reader(
        self, request: ChatRequest, options: Options, tools: ToolSet, writer: Renderer
    ) -> Callable[[], AnswerReader] | None:
        if not tools:
            return forbidding_reader(request, options, writer.id) if forbids_calls(request) else None
        return self._make_readers(
            tools=tools, options=options, model=request.model, prompted=writer.id, messages=request.messages
        )


def _encoded(request: ChatRequest, messages: list[dict[str, Any]]) -> bytes:
    try:
        return request.replace(messages=messages, **dict.fromkeys(TOOL_FIELDS))
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def _dialect_warnings(dialect: str | None) -> Iterator[str]:
    if dialect is not None and dialect not in RENDERERS:
        yield f"the dialect {dialect} cannot be written; generic tags were used"


def _first_only(request: ChatRequest, options: Options) -> bool:
    if request.parallel is False or options.calls_per_message == "first":
        return True
    return options.calls_per_message == "auto" and request.parallel is not True


# --- which tools, and whether one must be called ---------------------------------------------------------------------


def _offered(request: ChatRequest, options: Options, warnings: list[str]) -> tuple[ToolSet, Demand]:
    """The tools that the model is told about, and what the request demands of them."""
    if request.tool_choice == "none":
        return ToolSet(), Demand()
    given = request.body.get("tools")
    tools, faults = made_of(given, "usable", lambda: _usable(request, given))
    warnings += faults
    if len(tools) > options.limits.max_tools:
        raise TooManyTools(f"{len(tools)} tools are more than the {options.limits.max_tools} allowed", param="tools")
    return _allowed(tools, request.tool_choice)


def _usable(request: ChatRequest, entries: object) -> tuple[ToolSet, tuple[str, ...]]:
    """The tools that have a name to be called by, and what there is to say of the others."""
    usable: list[Tool] = []
    warnings: list[str] = []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        name = function_name(entry)
        tool = request.tools.get(name) if name is not None else None
        if tool is None or not tool.name.strip():
            warnings.append(f"tools[{index}] has no usable function name and was left out")
        elif not _USABLE_NAME.match(tool.name):
            raise InvalidRequest(
                "a tool's name must be 1 to 64 letters, digits, underscores or hyphens",
                param=f"tools[{index}].function.name",
            )
        else:
            usable.append(tool)
    tools = ToolSet(usable)
    adopt(entries, tools)
    return tools, tuple(warnings)


def _allowed(tools: ToolSet, choice: object) -> tuple[ToolSet, Demand]:
    demand = demanded(choice)
    if demand.name is not None:
        _present(tools, {demand.name})
    allowed = choice.get("allowed_tools") if isinstance(choice, dict) else None
    if not isinstance(allowed, dict):
        return tools, demand
    entries = allowed.get("tools")
    names = {function_name(entry) for entry in (entries if isinstance(entries, list) else ())}
    return ToolSet(_present(tools, names)), demand


def _present(tools: ToolSet, names: Iterable[str | None]) -> list[Tool]:
    """The tools of these names; a choice of tools that are not there is the request's fault."""
    wanted = set(names)
    found = [tool for tool in tools if tool.name in wanted]
    if len(found) < len(wanted) or not found:
        raise InvalidRequest("tool_choice names a tool that is not among the tools", param="tool_choice")
    return found
