"""Cline 3 with tools in its system prompt: it trims every value, so nobody can tell it how a file begins or ends.

It undoes entities in files and diffs, but nothing is written with entities for it.
"""

from strategies.clients.client_parser import Rules
from strategies.clients.profile import Profile
from strategies.clients.tag_arguments import Form, listing, server_call

__all__ = ["CLINE"]

_FILES = frozenset({"write_to_file", "new_rule"})

# https://github.com/cline/cline/blob/06a9f7b4d993f44fa42d77ddbe612fd0875a46e1/src/core/assistant-message/parse-assistant-message.ts
CLINE = Profile(
    id="cline",
    agents=("Cline/",),
    titles=("Cline",),
    phrases=("You are Cline",),
    tools=(
        "access_mcp_resource",
        "act_mode_respond",
        "apply_patch",
        "ask_followup_question",
        "attempt_completion",
        "browser_action",
        "condense",
        "execute_command",
        "generate_explanation",
        "list_code_definition_names",
        "list_files",
        "load_mcp_documentation",
        "new_rule",
        "new_task",
        "plan_mode_respond",
        "read_file",
        "replace_in_file",
        "report_bug",
        "search_files",
        "summarize_task",
        "use_mcp_tool",
        "use_skill",
        "use_subagents",
        "web_fetch",
        "web_search",
        "write_to_file",
    ),
    rules=Rules(
        # Every value is trimmed, that of a file as well:
        # https://github.com/cline/cline/blob/06a9f7b4d993f44fa42d77ddbe612fd0875a46e1/src/core/assistant-message/parse-assistant-message.ts
        keeps=frozenset(),
        # For models that write entities:
        # https://github.com/cline/cline/blob/c2b554ceb2afe3c6bd1862638d9076a92f65b10a/src/utils/string.ts
        decodes=frozenset(
            {
                ("write_to_file", "content"),
                ("new_rule", "content"),
                ("replace_in_file", "diff"),
                ("execute_command", "command"),
            }
        ),
        files=_FILES,
    ),
    forms={
        "ask_followup_question": Form(reads=("question", "options"), asks=("question",)),
        "list_files": listing,
        "use_mcp_tool": server_call,
    },
    aliases={"ask_followup": "ask_followup_question"},
)
