"""Kilo Code's extension up to early 2026, built on Roo Code.

It undoes entities too, but nothing is written with entities for it: a value that holds some is left as the model wrote
it.
"""

from strategies.clients.client_parser import Rules
from strategies.clients.profile import Profile
from strategies.clients.roo import FORMS, TOOLS

__all__ = ["KILO"]

_FILES = frozenset({"write_to_file", "new_rule"})

# https://github.com/Kilo-Org/kilocode/blob/b2e5191b0e50d14dc66cbf9c0f4ff0989f2bc6bd/src/core/assistant-message/AssistantMessageParser.ts
KILO = Profile(
    id="kilo",
    agents=("Kilo-Code/", "KiloCode/"),
    titles=("Kilo Code",),
    phrases=("You are Kilo Code",),
    tools=(*TOOLS, "condense", "delete_file", "edit_file", "fast_edit_file", "new_rule", "report_bug"),
    rules=Rules(
        decodes=frozenset({("write_to_file", "content"), ("execute_command", "command"), ("apply_diff", "diff")}),
        crude=_FILES,
        files=frozenset({"write_to_file"}),
    ),
    forms=FORMS,
    aliases={"ask_followup": "ask_followup_question", "write_file": "write_to_file"},
)
