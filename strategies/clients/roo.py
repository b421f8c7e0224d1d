"""Roo Code up to 3.36, whose tools live in its system prompt.

It undoes one round of entities in files, commands and diffs, unless the model's name holds "claude"; there a value may
be written with entities, and nowhere else.
"""

from strategies.clients.client_parser import Rules
from strategies.clients.profile import ROO_FILES, Profile
from strategies.clients.tag_arguments import diffs, file_writing, follow_up, listing, reading, server_call

__all__ = ["FORMS", "ROO", "TOOLS"]

TOOLS = (
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
FORMS = {
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
    tools=TOOLS,
    rules=Rules(
        # https://github.com/RooCodeInc/Roo-Code/blob/cf6b3848bd85de1958a5aea92e5a041086a877d3/src/core/tools/writeToFileTool.ts
        decodes=frozenset({("write_to_file", "content"), ("execute_command", "command"), ("apply_diff", "diff")}),
        crude=ROO_FILES,
        files=ROO_FILES,
        max_value=100 << 10,
    ),
    escapes=True,
    forms=FORMS,
    aliases={"ask_followup": "ask_followup_question", "write_file": "write_to_file"},
)
