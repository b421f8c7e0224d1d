"""System prompts of the kind that clients of tags send, and requests that carry them."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway.core.client import Client
from gateway.wire.chat_request import ChatRequest, parse_request

ROO_TOOLS: dict[str, list[str]] = {
    "read_file": ["args"],
    "write_to_file": ["path*", "content*", "line_count*"],
    "apply_diff": ["path*", "diff*"],
    "search_files": ["path*", "regex*", "file_pattern"],
    "list_files": ["path*", "recursive"],
    "execute_command": ["command*", "cwd"],
    "use_mcp_tool": ["server_name*", "tool_name*", "arguments*"],
    "ask_followup_question": ["question*", "follow_up*"],
    "attempt_completion": ["result*"],
    "switch_mode": ["mode_slug*", "reason"],
    "update_todo_list": ["todos*"],
}
CLINE_TOOLS: dict[str, list[str]] = {
    "execute_command": ["command*", "requires_approval*"],
    "read_file": ["path*", "task_progress"],
    "write_to_file": ["path*", "content*", "task_progress"],
    "replace_in_file": ["path*", "diff*"],
    "list_files": ["path*", "recursive"],
    "ask_followup_question": ["question*", "options"],
    "attempt_completion": ["result*", "command"],
    "plan_mode_respond": ["response*"],
    "load_mcp_documentation": [],
}
TOOLS: Mapping[str, dict[str, list[str]]] = {"roo": ROO_TOOLS, "kilo": ROO_TOOLS, "cline": CLINE_TOOLS}
NAMES = {"roo": "Roo", "kilo": "Kilo Code", "cline": "Cline"}
CLIENTS = {
    "roo": Client(user_agent="RooCode/3.28.0", title="Roo Code"),
    "kilo": Client(user_agent="Kilo-Code/4.90.0", title="Kilo Code"),
    "cline": Client(user_agent="Cline/3.30.0", title="Cline"),
}


def prompt(client: str, tools: Mapping[str, list[str]] | None = None) -> str:
    """A system prompt that documents its tools."""
    sections = "\n\n".join(_section(name, params) for name, params in (tools or TOOLS[client]).items())
    return (
        f"You are {NAMES[client]}, a careful engineer.\n\n====\n\nTOOL USE\n\nUse one tool per message.\n\n"
        f"# Tool Use Formatting\n\nWrite XML tags.\n\n# Tools\n\n{sections}\n\n# Guidelines\n\n1. Think first.\n\n"
        "====\n\nMCP SERVERS\n\n## github (`npx server`)\n\n### Available Tools\n- search: finds\n\n"
        "====\n\nRULES\n\n- Be brief."
    )


def _section(name: str, params: Iterable[str]) -> str:
    params = list(params)
    lines = [f"- {param.rstrip('*')}: ({'required' if param[-1] == '*' else 'optional'}) a value" for param in params]
    shown = "\n".join(f"<{param.rstrip('*')}>value here</{param.rstrip('*')}>" for param in params)
    listed = "Parameters:\n" + "\n".join(lines) if lines else "Parameters: None"
    if params == ["args"]:
        listed = "Parameters:\n- args: Contains files, where each holds:\n  - path: (required) where"
        shown = "<args>\n  <file>\n    <path>path/to/file</path>\n  </file>\n</args>"
    return f"## {name}\nDescription: Request to {name}.\n{listed}\nUsage:\n<{name}>\n{shown}\n</{name}>"


def tag_request(client: str, *messages: dict[str, Any], model: str = "deepseek-chat", **fields: Any) -> ChatRequest:
    """A request as such a client sends it."""
    told = [{"role": "system", "content": prompt(client)}, *(messages or [{"role": "user", "content": "go on"}])]
    return parse_request(msgspec.json.encode({"model": model, "messages": told, "stream": True, **fields}))
