"""Tools that are no functions, shown to the model as functions: their parameters, and what comes back of a call.

A custom tool takes free text, which stands in one argument of the function; the tools of vendors have the parameters
that the vendors publish. Tools that a vendor's own server would run are known by their types: nobody here can run
them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from attrs import frozen

__all__ = [
    "APPLY_PATCH",
    "BRIDGE",
    "CUSTOM_INPUT",
    "LOCAL_SHELL",
    "SHELL",
    "CustomInput",
    "custom_function",
    "function",
    "is_cut_patch",
    "is_server_tool",
    "read_input",
    "vendor_parameters",
]

CUSTOM_INPUT = "input"
BRIDGE = f"Called here as a function: the whole text goes, unchanged, into the string argument `{CUSTOM_INPUT}`."
"""Stands behind a custom tool's own description, which may forbid to wrap its text in JSON, as that of Codex does."""
_SERVER_TOOLS = (
    "web_search",
    "web_fetch",
    "code_execution",
    "file_search",
    "code_interpreter",
    "mcp",
    "image_generation",
    "computer",
    "tool_search_tool",
)
_PATCH_BEGIN = "*** Begin Patch"
_PATCH_END = "\n*** End Patch"
_FENCE = "```"


def _typed(kind: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "description": description, **more}


def _shape(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_STRINGS = {"items": {"type": "string"}}

# https://platform.openai.com/docs/guides/tools-local-shell
LOCAL_SHELL: Mapping[str, Any] = _shape(
    ("command",),
    command=_typed("array", "The command and its arguments, each a string of its own.", **_STRINGS),
    working_directory=_typed("string", "Where the command is run."),
    timeout_ms=_typed("integer", "After how many milliseconds the command is ended."),
)
# https://platform.openai.com/docs/guides/tools-shell
SHELL: Mapping[str, Any] = _shape(
    ("commands",),
    commands=_typed("array", "Lines for the shell, run one after the other.", **_STRINGS),
    timeout_ms=_typed("integer", "After how many milliseconds the commands are ended."),
    max_output_length=_typed("integer", "How many characters of each command's output are told."),
)
# https://platform.openai.com/docs/guides/tools-apply-patch
APPLY_PATCH: Mapping[str, Any] = _shape(
    ("type", "path"),
    type=_typed("string", "What becomes of the file.", enum=["create_file", "update_file", "delete_file"]),
    path=_typed("string", "The file."),
    diff=_typed(
        "string", "The change in V4A form; for a new file all its lines, each behind a `+`. Not for deletions."
    ),
)
_EDITING = {
    "path": _typed("string", "The file or directory."),
    "file_text": _typed("string", "For `create`: what the file is to hold."),
    "old_str": _typed("string", "For `str_replace`: the text that is replaced."),
    "new_str": _typed("string", "For `str_replace`: the text that takes its place."),
    "insert_line": _typed("integer", "For `insert`: the line behind which text is inserted, 0 for the beginning."),
    "insert_text": _typed("string", "For `insert`: the text."),
    "view_range": _typed("array", "For `view`: the first and the last line.", items={"type": "integer"}),
}
# https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/bash-tool, text-editor-tool and memory-tool
_VENDOR: Mapping[str, Mapping[str, Any]] = {
    "bash_": _shape(
        (),
        command=_typed("string", "The command line."),
        restart=_typed("boolean", "Start the shell anew instead."),
    ),
    "text_editor_": _shape(
        ("command", "path"),
        command=_typed("string", "What is done.", enum=["view", "create", "str_replace", "insert"]),
        **_EDITING,
    ),
    "memory_": _shape(
        ("command",),
        command=_typed("string", "What is done.", enum=["view", "create", "str_replace", "insert", "delete", "rename"]),
        old_path=_typed("string", "For `rename`: the path so far."),
        new_path=_typed("string", "For `rename`: the path from then on."),
        **_EDITING,
    ),
}


@frozen
class CustomInput:
    """The text of a custom tool's call."""

    text: str
    is_mended: bool = False
    """It did not stand where it was asked for."""


def function(
    name: str, description: str, parameters: Mapping[str, Any] | None, *, strict: object = None
) -> dict[str, Any]:
    """The declaration of a chat function."""
    told: dict[str, Any] = {"name": name}
    if description:
        told["description"] = description
    told["parameters"] = parameters if parameters is not None else {"type": "object", "properties": {}}
    if isinstance(strict, bool):
        told["strict"] = strict
    return {"type": "function", "function": told}


def custom_function(name: str, description: str, form: object) -> dict[str, Any]:
    """The function that stands for a custom tool; `form` is its declared format."""
    told = [description.rstrip(), BRIDGE] if description.strip() else [BRIDGE]
    grammar = _grammar(form)
    if grammar:
        told.append(grammar)
    parameters = _shape((CUSTOM_INPUT,), **{CUSTOM_INPUT: _typed("string", "The whole text, unchanged.")})
    return function(name, "\n\n".join(told), parameters)


def _grammar(form: object) -> str:
    if not isinstance(form, dict) or form.get("type") != "grammar":
        return ""
    # Responses has its fields beside the type: https://platform.openai.com/docs/guides/function-calling#custom-tools
    inner = form.get("grammar")  # where chat has it
    told = inner if isinstance(inner, dict) else form
    definition, syntax = told.get("definition"), told.get("syntax")
    if not isinstance(definition, str) or not definition.strip():
        return ""
    named = f" ({syntax})" if isinstance(syntax, str) and syntax else ""
    return f"The text follows this grammar{named}:\n{definition.strip()}"


def read_input(arguments: str) -> CustomInput | None:
    """The text that a call of a custom tool brings, wherever the model has put it; None where that is not certain.

    Models that were told not to wrap their text in JSON may send the text itself for the arguments.
    """
    try:
        value = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        # What has begun as the JSON that was asked for and is broken must not be run as if it were the text itself.
        looks_like_json = arguments.lstrip()[:1] == "{" and f'"{CUSTOM_INPUT}"' in arguments
        return None if looks_like_json else _unfenced(arguments, is_mended=True)
    # A JSON string in place of the object that holds it.
    if isinstance(value, str):
        return _unfenced(value, is_mended=True)
    if not isinstance(value, dict):
        return None
    if isinstance(text := value.get(CUSTOM_INPUT), str):
        return _unfenced(text, is_mended=len(value) > 1)
    # Under another name than it was asked for (`patch`, `code`): one text alone can be nothing else.
    if len(value) == 1 and isinstance(text := next(iter(value.values())), str):
        return _unfenced(text, is_mended=True)
    return None


def _unfenced(text: str, *, is_mended: bool) -> CustomInput:
    """The text without a code fence around a whole patch: any other text may begin with one."""
    whole = text.strip()
    # Codex hands the text to its parser as it is, and that refuses a patch which does not begin with its own first
    # line: https://github.com/openai/codex/blob/main/codex-rs/apply-patch/apply_patch_tool_instructions.md
    if whole.startswith(_FENCE) and whole.endswith("\n" + _FENCE):
        inner = whole[: -len(_FENCE)].partition("\n")[2]
        if inner.lstrip().startswith(_PATCH_BEGIN):
            return CustomInput(inner, is_mended=True)
    return CustomInput(text, is_mended=is_mended)


def is_cut_patch(text: str) -> bool:
    """Whether a patch has begun and not ended: half of a change is none."""
    return text.lstrip().startswith(_PATCH_BEGIN) and _PATCH_END not in text


def is_server_tool(kind: str) -> bool:
    """Whether a tool of this type is run by the vendor's own server."""
    # Types carry the date of their version behind the name: `web_search_20250305`.
    return kind.startswith(_SERVER_TOOLS)


def vendor_parameters(kind: str) -> Mapping[str, Any] | None:
    """The parameters of a vendor's tool that the client itself runs; None for any other type."""
    # As those of Anthropic's tools that run at the client: `bash_20250124`.
    return next((shape for prefix, shape in _VENDOR.items() if kind.startswith(prefix)), None)
