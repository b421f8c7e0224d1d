"""System prompts of the kind that clients of tags send, and requests that carry them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from attrs import define, field

from gateway.core.client import Client
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.schema.known_tools import known_tools

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


# --- How clients of tags read an answer, restated from their rules, one character at a time and without any shortcut.
# Roo Code and Kilo: the first closing tag ends a value; `content` loses one line break on each side, every other
# value the white space around it; in `write_to_file` a later `</content>` makes the content everything from the
# first opening to there. Roo undoes entities once in three places unless the model is a Claude. Cline trims every
# value.


SPACE = "".join(
    char for char in map(chr, range(0x10000)) if re.match(r"\s", char) and char not in "\x1c\x1d\x1e\x1f\x85"
)

SPACE += "\ufeff"

PARAMETERS = sorted(
    {name for tools in known_tools().values() for tool in tools for name in tool.parameters["properties"]}
)

DECODED = {("write_to_file", "content"), ("execute_command", "command"), ("apply_diff", "diff")}


@define
class Use:
    """One use of a tool, as the client would carry it out."""

    name: str
    params: dict[str, str] = field(factory=dict)
    partial: bool = True


def unescaped_once(text: str) -> str:
    names = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "#39": "'", "amp": "&"}
    return re.sub(r"&(lt|gt|quot|apos|#39|amp);", lambda match: names[match[1]], text)


def parse(text: str, client: str, *, tools: Iterable[str], model: str = "m") -> list[Use]:
    """Every tool use in an answer."""
    uses: list[Use] = []
    use: Use | None = None
    use_start = value_start = 0
    param: str | None = None
    tools = list(tools)
    for at in range(1, len(text) + 1):
        seen = text[:at] if at < 40 else text[at - 40 : at]
        if use is not None and param is not None:
            closer = f"</{param}>"
            if seen.endswith(closer) and at - len(closer) >= value_start:
                use.params[param] = cut(client, param, text[value_start : at - len(closer)])
                param = None
        elif use is not None:
            if seen.endswith(f"</{use.name}>"):
                use.partial = False
                uses.append(use)
                use = None
                continue
            if seen.endswith(">") and (opener := re.search(r"<(\w+)>\Z", seen)) and opener[1] in PARAMETERS:
                param, value_start = opener[1], at
            elif client != "cline" and use.name == "write_to_file" and seen.endswith("</content>"):
                inner = text[use_start:at]
                start, end = inner.find("<content>") + len("<content>"), inner.rfind("</content>")
                if end > start:
                    use.params["content"] = cut(client, "content", inner[start:end])
        elif seen.endswith(">") and (opener := re.search(r"<([\w-]+)>\Z", seen)) and opener[1] in tools:
            use, use_start = Use(opener[1]), at
    if client == "roo" and "claude" not in model:
        for done in uses:
            for key, value in done.params.items():
                if (done.name, key) in DECODED:
                    done.params[key] = unescaped_once(value)
    return uses


def cut(client: str, param: str, value: str) -> str:
    if client != "cline" and param == "content":
        return re.sub(r"\n\Z", "", re.sub(r"\A\n", "", value))
    return value.strip(SPACE)
