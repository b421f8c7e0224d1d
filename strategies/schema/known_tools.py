"""The well-known tools of coding agents, for requests that did not declare them.

One row per tool and parameter set: `name*:type` with `*` for required. A type is a JSON type in short, an
enumeration (`a|b`), one of the shapes below, and `?` allows null. Clients that share a name with other parameters
give variants of that tool.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from gateway.core.tools import Tool

__all__ = ["known", "known_tools", "only_reads"]

_READS = frozenset(
    (
        "access_mcp_resource codebase_search codesearch fetch_instructions fetch_web_content glob grep list"
        " list_code_definition_names list_files load_mcp_documentation lsp read read_command_output read_file"
        " read_files recall search_codebase search_files todoread web_fetch web_search webfetch websearch"
    ).split()
)
"""Those that change nothing."""

_TYPES: Mapping[str, str] = {
    "str": "string",
    "int": "integer",
    "num": "number",
    "bool": "boolean",
    "obj": "object",
}

_SHAPES: Mapping[str, str | tuple[str, ...]] = {
    # A tuple is an array of what it holds; a row is an object; any other word is a type.
    "STRINGS": ("str",),
    "LIST": (),
    "RANGE": ("int",),
    "RANGES": ("RANGE",),
    "ROO_FILES": ("path* line_ranges:RANGES?",),
    "ROO_INDENTATION": "anchor_line:int max_levels:int include_siblings:bool include_header:bool max_lines:int",
    "ROO_OPERATIONS": ("search* replace*",),
    "ROO_FOLLOW_UP": ("text* mode:str?",),
    "CLINE_FILES": ("path* start_line:int end_line:int",),
    "CLINE_REQUESTS": ("url* prompt",),
    "OPENCODE_EDITS": ("filePath oldString* newString* replaceAll:bool",),
    "OPENCODE_TODOS": ("content* status*:pending|in_progress|completed|cancelled priority:high|medium|low id",),
    "OPENCODE_CALLS": ("tool* parameters*:obj",),
    "OBJECTS": ("obj",),
}

_ROO: tuple[tuple[str, str], ...] = (
    ("read_file", "args*"),
    ("read_file", "path* start_line:int end_line:int"),
    ("read_file", "files*:ROO_FILES"),
    ("read_file", "path* mode:slice|indentation offset:int limit:int indentation:ROO_INDENTATION"),
    ("write_to_file", "path* content* line_count:int"),
    ("write_file", "path* content* line_count:int"),
    ("apply_diff", "path* diff*"),
    ("apply_diff", "args*"),
    ("insert_content", "path* line*:int content*"),
    (
        "search_and_replace",
        "path* search* replace* start_line:int end_line:int use_regex:bool ignore_case:bool",
    ),
    ("search_and_replace", "path* operations*:ROO_OPERATIONS"),
    ("search_replace", "file_path* old_string* new_string*"),
    ("edit_file", "file_path* old_string* new_string* expected_replacements:num"),
    ("edit", "file_path* old_string* new_string* replace_all:bool"),
    ("apply_patch", "patch*"),
    ("search_files", "path* regex* file_pattern:str?"),
    ("list_files", "path* recursive:bool"),
    ("list_code_definition_names", "path*"),
    ("codebase_search", "query* path:str?"),
    ("execute_command", "command* cwd:str? timeout:num?"),
    ("read_command_output", "artifact_id* search offset:int limit:int"),
    (
        "browser_action",
        "action*:launch|hover|click|type|press|resize|scroll_down|scroll_up|screenshot|close"
        " url coordinate size text path",
    ),
    ("use_mcp_tool", "server_name* tool_name* arguments*:obj"),
    ("access_mcp_resource", "server_name* uri*"),
    ("ask_followup_question", "question* follow_up*"),
    ("ask_followup_question", "question* follow_up*:ROO_FOLLOW_UP"),
    ("attempt_completion", "result* command"),
    ("switch_mode", "mode_slug* reason"),
    ("new_task", "mode* message* todos:str?"),
    ("update_todo_list", "todos*"),
    ("fetch_instructions", "task*:create_mcp_server|create_mode"),
    ("run_slash_command", "command* args:str?"),
    ("skill", "skill* args:str?"),
    ("generate_image", "prompt* path* image:str?"),
)

_CLINE: tuple[tuple[str, str], ...] = (
    ("execute_command", "command* requires_approval*:bool timeout:int"),
    ("read_file", "path* task_progress"),
    ("write_to_file", "path* content* task_progress"),
    ("replace_in_file", "path* diff* task_progress"),
    ("replace_in_file", "absolutePath* diff* task_progress"),
    ("search_files", "path* regex* file_pattern task_progress"),
    ("list_files", "path* recursive:bool task_progress"),
    ("list_code_definition_names", "path* task_progress"),
    ("browser_action", "action*:launch|click|type|scroll_down|scroll_up|close url coordinate text"),
    ("use_mcp_tool", "server_name* tool_name* arguments*:obj task_progress"),
    ("access_mcp_resource", "server_name* uri* task_progress"),
    ("load_mcp_documentation", ""),
    ("ask_followup_question", "question* options:STRINGS task_progress"),
    ("attempt_completion", "result* command task_progress"),
    ("plan_mode_respond", "response* needs_more_exploration:bool task_progress"),
    ("act_mode_respond", "response* task_progress"),
    ("new_task", "context*"),
    ("condense", "context*"),
    ("summarize_task", "context*"),
    ("new_rule", "path* content*"),
    ("report_bug", "title* what_happened* steps_to_reproduce* api_request_output additional_context"),
    ("web_fetch", "url* prompt"),
    ("web_search", "query* allowed_domains:STRINGS blocked_domains:STRINGS"),
    ("use_skill", "skill_name*"),
    ("use_subagents", "prompt_1* prompt_2 prompt_3 prompt_4 prompt_5"),
    ("generate_explanation", "title* from_ref* to_ref"),
    ("apply_patch", "input*"),
    ("read_files", "files*:CLINE_FILES"),
    ("search_codebase", "queries*:STRINGS"),
    ("run_commands", "commands*:LIST"),
    ("fetch_web_content", "requests*:CLINE_REQUESTS"),
    ("editor", "path* old_text new_text insert_line:int"),
    ("skills", "skill* args"),
    ("ask_question", "question* options:STRINGS"),
    ("submit_and_exit", "summary* verified:bool"),
)

_KILO: tuple[tuple[str, str], ...] = (
    ("delete_file", "path*"),
    ("fast_edit_file", "target_file* instructions* code_edit*"),
    ("edit_file", "target_file* instructions* code_edit*"),
    ("ask_followup_question", "question* follow_up"),
    ("report_bug", "title* description*"),
    ("recall", "mode* query sessionID limit:int"),
    ("repo_clone", "repository* refresh:bool branch"),
)

_OPENCODE: tuple[tuple[str, str], ...] = (
    ("read", "filePath* offset:int limit:int"),
    ("write", "content* filePath*"),
    ("edit", "filePath* oldString* newString* replaceAll:bool"),
    ("read", "path* offset:int limit:int"),
    ("write", "content* path*"),
    ("edit", "path* oldString* newString* replaceAll:bool"),
    ("multiedit", "filePath* edits*:OPENCODE_EDITS"),
    ("bash", "command* timeout:int workdir description"),
    ("glob", "pattern* path"),
    ("grep", "pattern* path include"),
    ("list", "path ignore:STRINGS"),
    ("patch", "patchText*"),
    ("apply_patch", "patchText*"),
    ("todowrite", "todos*:OPENCODE_TODOS"),
    ("todoread", ""),
    ("webfetch", "url* format:text|markdown|html timeout:num"),
    ("websearch", "query* numResults:int livecrawl type contextMaxCharacters:int"),
    ("codesearch", "query* tokensNum:int"),
    ("task", "description* prompt* subagent_type* task_id session_id command background:bool"),
    ("question", "questions*:OBJECTS"),
    ("skill", "name*"),
    ("lsp", "operation* filePath* line*:int character*:int query"),
    ("batch", "tool_calls*:OPENCODE_CALLS"),
    ("plan_exit", ""),
)


def known(name: str) -> tuple[Tool, ...]:
    """The variants of the well-known tool of exactly this name, most usual first; empty when there is none."""
    return known_tools().get(name, ())


def only_reads(name: str) -> bool:
    """Whether the well-known tool of this name changes nothing, so that it can be called again without harm."""
    return name in _READS


@cache
def known_tools() -> Mapping[str, tuple[Tool, ...]]:
    """All well-known tools by name."""
    tools: dict[str, list[Tool]] = {}
    for name, row in _ROO + _CLINE + _KILO + _OPENCODE:
        tool = Tool(name=name, parameters=_object(row), known=True)
        variants = tools.setdefault(name, [])
        if tool not in variants:
            variants.append(tool)
    return MappingProxyType({name: tuple(variants) for name, variants in tools.items()})


def _object(row: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for entry in row.split():
        name, _, kind = entry.partition(":")
        if name.endswith("*"):
            name = name[:-1]
            required.append(name)
        properties[name] = _property(kind or "str")
    return {"type": "object", "properties": properties, "required": required}


def _property(kind: str) -> dict[str, Any]:
    schema = _kind(kind.removesuffix("?"))
    return {"anyOf": [schema, {"type": "null"}]} if kind.endswith("?") else schema


def _kind(kind: str) -> dict[str, Any]:
    if kind in _TYPES:
        return {"type": _TYPES[kind]}
    if "|" in kind:
        return {"type": "string", "enum": kind.split("|")}
    shape = _SHAPES[kind]
    if isinstance(shape, str):
        return _object(shape)
    if not shape:
        return {"type": "array"}
    item = shape[0]
    return {"type": "array", "items": _kind(item) if item in _TYPES or item in _SHAPES else _object(item)}
