"""A JSON value that stands for calls: every shape in which a name and its arguments are written.

Keys count only at the object's own level, so a `name` among the arguments is an argument. A schema that is echoed back
is not a call, nor is an object whose name nobody declared.
"""

import re
from typing import Any, TypeGuard

from gateway.core.tools import Tool
from strategies.grammar.dialect import Context, Draft
from strategies.schema.names import resolve_parameter
from strategies.schema.tool_schema import ToolSchema
from strategies.text.cursor import Reject
from strategies.text.strict_json import is_same_json
from strategies.text.turns import TURN, Turns, at_once

__all__ = ["CONTAINER_KEYS", "EXTRAS", "MOST_WORDS", "NAME_KEYS", "drafting", "drafts_of", "renaming"]

# The key `tool_call` is what small models make of the examples in their prompts.
NAME_KEYS = ("name", "tool", "tool_name", "function_name", "function", "recipient_name", "tool_call", "toolName")
CONTAINER_KEYS = (
    *("arguments", "parameters", "args", "params", "input", "tool_input", "function_args", "action_input"),
    # https://github.com/agent0ai/agent-zero/blob/main/prompts/agent.system.main.communication.md
    *("tool_args", "tool_arguments", "tool_params"),
    # https://github.com/microsoft/vscode-copilot-release/issues/7280
    "inputs",
)
# Parts of a message as Gemini's and Bedrock's servers have them: https://ai.google.dev/api/caching#FunctionCall,
# https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html
_WRAPPER_KEYS = ("function", "tool_call", "function_call", "tool", "functionCall", "toolUse", "tool_use")
# AutoGPT's answer, and those that were asked for in its manner:
# https://github.com/Significant-Gravitas/AutoGPT/blob/master/classic/original_autogpt/autogpt/agents/prompt_strategies/one_shot.py
_ACTIONS = ("command", "action")
_LIST_KEYS = ("tool_calls", "function_calls", "calls", "tool_uses")
EXTRAS = frozenset(
    {
        *("thought", "thoughts", "thinking", "reasoning", "reason", "rationale", "explanation", "headline"),
        *("id", "type", "call_id", "tool_call_id", "index", "toolCallId", "toolUseId"),
    }
)
_CONTAINERS = frozenset(CONTAINER_KEYS)
_NAME = re.compile(r"\s*[^\s<>(){}\[\]=\"'`|｜]{1,256}\s*")
"""What may be the name of a tool that nobody declared: markup is none."""
_MESSAGE = (("role", "assistant"), ("content", None), ("content", ""))
"""What a message says besides its calls when it says nothing."""
MOST_WORDS = 500
"""How much a message says beside its calls: more is a page or a file."""
_CALLS = 50
"""How many calls are looked at in one turn."""
_BREAK = re.compile(r"[\x00-\x1f]")
_PARALLEL = "multi_tool_use.parallel"


def drafting(
    value: Any,
    context: Context,
    *,
    form: str,
    steps: tuple[str, ...] = (),
    name: str | None = None,
    code: str | None = None,
    aliases: bool = True,
    bare: bool = False,
) -> Turns[list[Draft]]:
    """The calls that `value` stands for, read in turns; raises `Reject` where it stands for none.

    `bare`: nothing but its members says that it is a call, so there may be no others.
    """
    objects = _objects(value)
    if not objects:
        raise Reject("no object")
    if bare and any(map(_is_record, objects)):
        raise Reject("more than a call")
    drafts: list[Draft] = []
    for count, found in enumerate(objects, 1):
        drafts.append((yield from _draft(found, context, form, steps, name, code, aliases)))
        if not count % _CALLS:
            yield
    return drafts


drafts_of = at_once(drafting)


def _is_record(value: dict[str, Any]) -> bool:
    """Whether an object with arguments says more than a call does: its result, its version, what it is for."""
    containers = [key for key in CONTAINER_KEYS if key in value]
    rest = value.keys() - EXTRAS - _OF_BLOCKS - {_name_of(value)[1], *containers[:1]}
    # What a library writes out has all of its members, those without a value too.
    return bool(containers) and any(value[key] is not None or key in _OUTCOMES for key in rest)


# Members of Anthropic's blocks: https://docs.anthropic.com/en/api/messages
_OF_BLOCKS = frozenset({"cache_control", "caller"})
_OUTCOMES = frozenset({"result", "results", "output", "response", "error", "content", "default"})
"""What a record of a call has, be it empty."""


def _objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, of a `tool_calls` member, of a parallel call, or the one that is there."""
    if isinstance(value, list):
        # One entry that is no object: the list is data, and calls out of the middle of data are nobody's.
        if not all(isinstance(entry, dict) for entry in value):
            raise Reject("no object")
        return [found for entry in _without_words(value) for found in _objects(entry)]
    if not isinstance(value, dict):
        return []
    wrapped = _wrapped(value)
    if wrapped is not None:
        return wrapped
    named, _ = _name_of(value)
    if named and named.endswith(_PARALLEL):
        held = value.get("parameters") or value.get("arguments")
        # The names inside have prefixes of their own (`functions.`), which are resolved like any other spelling.
        uses = held.get("tool_uses") if isinstance(held, dict) else None
        return _objects(uses) if isinstance(uses, list) else []
    return [value]


def _without_words(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a message without the few words before its calls, which go with the markup that they stand in."""
    said = 0
    for count, part in enumerate(parts):
        words = part.get("text")
        if part.get("type") != "text" or not isinstance(words, str) or part.keys() - _WORDS:
            return parts[count:]
        said += len(words)
        if said > MOST_WORDS:
            break
    return parts


_WORDS = frozenset({"type", "text", "cache_control", "citations"})


def _wrapped(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The calls inside a message that says nothing else, or inside an object around one call; None for neither."""
    said = {key: held for key, held in value.items() if (key, held) not in _MESSAGE}
    # A few words beside the calls go with the markup that they stand in: the turn would be lost for them.
    words = said.get("content")
    if (
        len(said) == 2
        and isinstance(words, str)
        and len(words) <= MOST_WORDS
        and not said.keys().isdisjoint(_LIST_KEYS)
    ):
        del said["content"]
    meant = [key for key in said if key not in EXTRAS]
    if len(meant) == 1:
        key, inner = meant[0], said[meant[0]]
        if key in _LIST_KEYS and (isinstance(inner, list) or _is_named(inner)):
            return _objects(inner)
        # Only around something with a name: a tool's own argument may be called so.
        if _is_named(inner) and (key in _WRAPPER_KEYS or (key in _ACTIONS and not _CONTAINERS.isdisjoint(inner))):
            return [inner]
    # A request of MCP: https://modelcontextprotocol.io/specification/2025-06-18/server/tools
    if value.get("method") == "tools/call" and _is_named(value.get("params")):
        return [value["params"]]
    inner = value.get("function")
    # A second name beside it is for whoever knows the tools.
    if not _is_named(inner) or _name_of(value)[0] not in (None, _name_of(inner)[0]):
        return None
    # The arguments beside the function, not in it: https://github.com/groq/groq-typescript/issues/28
    beside = {key: value[key] for key in CONTAINER_KEYS if key in value}
    if _CONTAINERS.isdisjoint(inner):
        return [{**inner, **beside}]
    return None if _differ(beside, inner) else [inner]


_NOTHING: tuple[Any, ...] = (None, "", {}, [])
"""What says nothing of arguments."""


def _differ(value: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the first holds arguments that are not those of the second."""
    own = next((other[key] for key in CONTAINER_KEYS if key in other), None)
    return any(
        key in value and value[key] not in _NOTHING and not is_same_json(value[key], own) for key in CONTAINER_KEYS
    )


def _is_named(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object that says which tool is meant."""
    return isinstance(value, dict) and bool(_name_of(value)[0])


def _name_of(value: dict[str, Any]) -> tuple[str | None, str]:
    for key in NAME_KEYS:
        if isinstance(value.get(key), str):
            return value[key], key
    # LangChain's agents taught models this form; the second key keeps other objects with an `action` out. OpenDevin's
    # had `args`: https://github.com/OpenHands/OpenHands/blob/91cb30a3ea6fc217c784c2e651331bc688f947bc/agenthub/planner_agent/prompt.py
    if isinstance(value.get("action"), str) and (
        "action_input" in value or any(isinstance(value.get(key), dict) for key in CONTAINER_KEYS)
    ):
        return value["action"], "action"
    # A shell tool has a `command`, too: only beside arguments that are an object is it a name.
    if isinstance(value.get("command"), str) and isinstance(value.get("args"), dict):
        return value["command"], "command"
    return None, ""


def _draft(
    value: dict[str, Any],
    context: Context,
    form: str,
    steps: tuple[str, ...],
    name: str | None,
    code: str | None,
    aliases: bool,
) -> Turns[Draft]:
    key = ""
    if name is None:
        name, key = _name_of(value)
    if name is None:
        name, value = _name_as_key(value, context)
    elif not key:
        value = {"arguments": value} if not any(entry in value for entry in CONTAINER_KEYS) else value
    found = context.resolve(name, aliases=aliases)
    container = next((entry for entry in CONTAINER_KEYS if entry in value), None)
    if _says_two_things(value, key, container, found[0] if found else None, context):
        raise Reject("it can be read in several ways", attempted=found is not None)
    # Models repeat the declaration that they were shown before they call anything.
    if container is not None and (_is_schema(value[container]) or _is_declaration(value, container)):
        raise Reject("a schema, not a call")
    if found is None:
        return (yield from _undeclared(name, value, key, container, form, steps))
    tool, mends = found
    schema = context.schema(tool)
    # Without a container the other members may be the arguments, but only if there is no doubt about any.
    raw = _flat(value, key, schema, tool) if container is None else value[container]
    opened = yield from schema.opening(None if _is_blank(raw) and not schema.required else raw)
    if opened is None:
        raise Reject("arguments are not an object", attempted=True)
    beside = _beside(value, (key, container), opened.arguments, schema)
    # Those beside the container only add: a key in both is the container's.
    named, rename_mends = yield from renaming({**opened.arguments, **beside}, schema)
    steps = (*steps, "argument_beside") if beside else steps
    if code is not None:
        named = {**named, "code": code}
    adapted = yield from schema.adapting(named)
    return Draft(
        name=tool.name,
        tool=tool,
        arguments=adapted.arguments,
        form=form,
        mends=(*steps, *mends, *opened.mends, *rename_mends, *adapted.mends),
    )


def _is_blank(raw: object) -> bool:
    """Whether nothing stands in the place of arguments, which a tool that needs none may be given."""
    return raw == [] or (isinstance(raw, str) and not raw.strip())


def _says_two_things(
    value: dict[str, Any], key: str, container: str | None, tool: Tool | None, context: Context
) -> bool:
    """Whether another member names another tool, or holds other arguments than those that count."""
    # The name stood elsewhere: beside arguments only a tool's name is another.
    if not key:
        another = context.resolve(_name_of(value)[0] or "") if container is not None else None
        return another is not None and another[0] is not tool
    if container is not None and _differ(value, value):
        return True
    # Without a container any member may be an argument.
    arguments = context.schema(tool).properties if tool is not None and container is None else {}
    for entry in NAME_KEYS:
        held = value.get(entry)
        if container is not None and isinstance(held, dict) and _differ(held, value):
            return True
        other = _name_of(held)[0] if isinstance(held, dict) else held
        if entry == key or not isinstance(other, str) or other == value[key] or entry in arguments:
            continue
        meant = context.resolve(other)
        if tool is None or meant is None or meant[0] is not tool:
            return True
    return False


def _beside(
    value: dict[str, Any], own: tuple[str | None, ...], given: dict[str, Any], schema: ToolSchema
) -> dict[str, Any]:
    """Arguments that fell out of their container: a brace too many ended it before them."""
    if own[1] is None:
        return {}
    taken = {*own, *EXTRAS, *NAME_KEYS, *CONTAINER_KEYS, *given}
    return {key: held for key, held in value.items() if key in schema.properties and key not in taken}


def _undeclared(
    name: str, value: dict[str, Any], key: str, container: str | None, form: str, steps: tuple[str, ...]
) -> Turns[Draft]:
    """A call of a tool that nobody declared: its arguments only where there is no doubt what they are."""
    # An undeclared name goes on to the client or the model as it is: nothing in it may look like markup.
    if not _NAME.fullmatch(name):
        raise Reject("no name")
    if container is None and value.keys() - EXTRAS - {key}:
        raise Reject("no arguments")
    opened = yield from ToolSchema(Tool(name=name)).opening(value[container] if container else None)
    if opened is None:
        raise Reject("arguments are not an object")
    return Draft(name=name, tool=None, arguments=opened.arguments, form=form, mends=(*steps, *opened.mends))


def _name_as_key(value: dict[str, Any], context: Context) -> tuple[str, dict[str, Any]]:
    """`{"read": {"filePath": "/a"}}`."""
    if len(value) == 1:
        ((name, arguments),) = value.items()
        # Exactly as declared: any object with one member would else be a call of what it resembles.
        if isinstance(arguments, dict) and context.find(name) is not None:
            return name, {"arguments": arguments}
    raise Reject("no name")


def _flat(value: dict[str, Any], key: str, schema: ToolSchema, tool: Tool) -> dict[str, Any]:
    """Arguments beside the name, if all of them are the tool's and the name is not."""
    rest = {entry: held for entry, held in value.items() if entry != key}
    rest = {
        entry: held
        for entry, held in rest.items()
        if entry in schema.properties or entry not in EXTRAS or not isinstance(held, str)
    }
    if not rest:
        return {}
    if key in schema.properties or not all(entry in schema.properties for entry in rest):
        raise Reject(f"no arguments for {tool.name}", attempted=True)
    return rest


def renaming(arguments: dict[str, Any], schema: ToolSchema) -> Turns[tuple[dict[str, Any], tuple[str, ...]]]:
    """Arguments under the schema's own names."""
    under: dict[str, Any] = {}
    mends: list[str] = []
    taken = set(arguments)
    for count, (key, value) in enumerate(arguments.items(), 1):
        if not count % TURN:
            yield
        # A key is a word: a line break in it shows that something in it was lost.
        if key not in schema.properties and _BREAK.search(key):
            raise Reject("not a key", attempted=True)
        target, found = resolve_parameter(key, schema, taken)
        under[target] = value
        taken.add(target)
        mends += found
    return under, tuple(mends)


def _is_declaration(value: dict[str, Any], container: str) -> bool:
    """Whether it says what a tool is for, and no more than that it takes something."""
    return container == "parameters" and not value[container] and isinstance(value.get("description"), str)


def _is_schema(container: Any) -> bool:
    return (
        isinstance(container, dict)
        and container.get("type") == "object"
        and isinstance(container.get("properties"), dict)
    )
