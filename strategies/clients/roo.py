"""Roo Code up to 3.36, whose tools live in its system prompt, and Kilo Code, which is built on it.

It undoes one round of entities in files, commands and diffs, unless the model's name holds "claude"; there a value may
be written with entities, and nowhere else. Kilo Code up to early 2026 undoes them too, but nothing is written with
entities for it: a value that holds some is left as the model wrote it.
"""

from strategies.clients.client_parser import Rules
from strategies.clients.profile import Profile
from strategies.clients.tag_arguments import diffs, file_writing, follow_up, listing, reading, server_call

__all__ = ["KILO", "ROO"]

_FILES = frozenset({"write_to_file"})
_TOOLS = (
    "access_mcp_resource",
    "apply_diff",
    "ask_followup_question",
    "attempt_completion",
    "browser_action",
    "codebase_search",
    "execute_command",
    "fetch_instructions",
    "generate_image",
    "insert_content",
    "list_code_definition_names",
    "list_files",
    "new_task",
    "read_file",
    "run_slash_command",
    "search_and_replace",
    "search_files",
    "switch_mode",
    "update_todo_list",
    "use_mcp_tool",
    "write_to_file",
)
_FORMS = {
    "apply_diff": diffs,
    "ask_followup_question": follow_up,
    "list_files": listing,
    "read_file": reading,
    "use_mcp_tool": server_call,
    "write_to_file": file_writing,
}

# https://github.com/RooCodeInc/Roo-Code/blob/0e110a2d47d54b3f9222a9c3c8a07d442aaafbde/src/core/assistant-message/parseAssistantMessage.ts
ROO = Profile(
    id="roo",
    agents=("RooCode/", "Roo-Code/"),
    titles=("Roo Code",),
    phrases=("You are Roo",),
    tools=_TOOLS,
    rules=Rules(
        # https://github.com/RooCodeInc/Roo-Code/blob/cf6b3848bd85de1958a5aea92e5a041086a877d3/src/core/tools/writeToFileTool.ts
        decodes=frozenset({("write_to_file", "content"), ("execute_command", "command"), ("apply_diff", "diff")}),
        # So that a file may hold the closing tag of its own parameter.
        crude=_FILES,
        files=_FILES,
        # Its parser gives a parameter up that grows beyond, against answers without end:
        # https://github.com/RooCodeInc/Roo-Code/blob/0e110a2d47d54b3f9222a9c3c8a07d442aaafbde/src/core/assistant-message/parseAssistantMessage.ts
        max_value=100 << 10,
    ),
    escapes=True,
    forms=_FORMS,
    aliases={"ask_followup": "ask_followup_question", "write_file": "write_to_file"},
)
# https://github.com/Kilo-Org/kilocode/blob/b2e5191b0e50d14dc66cbf9c0f4ff0989f2bc6bd/src/core/assistant-message/AssistantMessageParser.ts
KILO = Profile(
    id="kilo",
    agents=("Kilo-Code/", "KiloCode/"),
    titles=("Kilo Code",),
    phrases=("You are Kilo Code",),
    tools=(*_TOOLS, "condense", "delete_file", "edit_file", "fast_edit_file", "new_rule", "report_bug"),
    rules=Rules(
        decodes=frozenset({("write_to_file", "content"), ("execute_command", "command"), ("apply_diff", "diff")}),
        crude=frozenset({"write_to_file", "new_rule"}),
        files=_FILES,
    ),
    forms=_FORMS,
    aliases={"ask_followup": "ask_followup_question", "write_file": "write_to_file"},
)
