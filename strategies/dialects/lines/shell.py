"""A shell fence as the last thing of a message, recovered as one command; only where the operator asked for it.

    body    = line { newline line } ; a heredoc or an open quote continues its line
    command = the lines that are commands, joined

Conditions: a declared tool runs commands, this is the only shell fence, the words before it say that the model itself
acts, every simple command starts with an allowed word, and without `SHELL_ALLOW_OPERATORS` there is one line without
chaining, redirects or substitutions. A fence does not close inside a heredoc. One pass over the body, no recursion.
"""

import re
from collections.abc import Generator
from typing import Any

from gateway.core.tools import Tool
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Fence, Opening
from strategies.grammar.fences import closes_here, read_line
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.shell_lines import ShellFault, heredocs, simple_commands

__all__ = ["SHELL", "SHELL_FENCES", "shell_tool"]

_POSIX = ("bash", "sh", "shell", "zsh", "ksh", "fish")
# Sessions hold output beside commands, which prompts alone tell apart.
_SESSIONS = ("console", "terminal", "shell-session", "shellsession", "sh-session")
_WINDOWS = ("powershell", "pwsh", "ps1", "ps", "cmd", "bat", "batch", "dos")
SHELL_FENCES = (*_POSIX, *_SESSIONS, *_WINDOWS)
# Of OpenCode, Roo Code and Cline, Qwen Code and Gemini CLI, Cursor, Codex.
_TOOLS = (
    *("bash", "execute_command", "run_shell_command", "run_terminal_cmd", "run_terminal_command", "shell", "terminal"),
    *("exec_command", "run_command", "run_commands"),
)
_IS_WINDOWS = re.compile(r"\b(?:windows|powershell|pwsh|cmd\.exe)\b", re.IGNORECASE)
_PROMPT = re.compile(
    r"[ \t]*+(?:\[[^\]\n]*+\]|\([^)\n]*+\)|[\w.-]++@[\w.-]++[:~/\w.-]*+)?+[ \t]*+[$%❯][ \t]++(.*)\Z", re.DOTALL
)
_ROOT_PROMPT = re.compile(r"[ \t]*+(?:\[[^\]\n]*+\]|[\w.-]++@[\w.-]++[:~/\w.-]*+)[ \t]*+#[ \t]++(.*)\Z", re.DOTALL)
_BARE_ROOT = re.compile(r"[ \t]*+#[ \t]++(.*)\Z", re.DOTALL)
_WINDOWS_PROMPT = re.compile(r"(?:PS [^>\n]*>[ ]?|[A-Z]:\\[^>\n]*>)(.*)\Z", re.DOTALL)
# A command with a place to fill in is for a person.
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w /-]*>(?!>)|\byour[-_]\w+|(?:\A|\s)\.\.\.(?:\s|\Z)|\bpath/to/", re.IGNORECASE)
_ACTS = re.compile(
    r"\b(?:i['’]?ll|i will|i['’]?m going to|i am going to|i need to|i have to|i want to|i should|let me|let['’]?s"
    r"|running|executing|checking|listing|reading|next|now|first|then"
    r"|ich werde|ich führe|ich prüfe|ich sehe|lass mich|als nächstes|zuerst"
    r"|voy a|déjame|permíteme|ejecuto|ejecutando|je vais|laisse-moi|laissez-moi|j['’]exécute"
    r"|vou|deixe-me|deixa-me|eseguo|lasciami|fammi|давайте|сейчас|выполню|запущу|посмотрю|проверю)\b"
    r"|我来|我将|我会|让我|我要|接下来|首先|実行します|確認します|見てみます|まず|次に|실행하겠|확인하겠|살펴보겠",
    re.IGNORECASE,
)
# Agents that execute every fence run examples: https://github.com/gptme/gptme/issues/327
_TELLS = re.compile(
    r"\b(?:you|your|run (?:this|the following)|try|to install|to use|for example|for instance|e\.g|usage|output"
    r"|expected|prints?|don['’]?t|do not|never|avoid|would|if|instructions?|du kannst|sie können|ihr|beispiel|ausgabe"
    r"|nicht|puedes|puede|ejemplo|salida|vous|tu peux|exemple|sortie|você|pode|exemplo|saída|puoi|esempio"
    r"|вы|можете|можно|пример|вывод|не)\b"
    r"|[?？]|你|您|例如|用法|输出|不要|如果|例えば|出力|예를|출력",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?。！？\n])\s+|\n")
_MAX_DESCRIPTION = 80


def shell_tool(context: Context) -> Tool | None:
    """The declared tool that runs commands, in whatever case its name is written."""
    exact = next(filter(None, map(context.find, _TOOLS)), None)
    return exact or next((tool for tool in context.tools if tool.name.casefold() in _TOOLS), None)


def _fences(context: Context) -> tuple[str, ...]:
    return SHELL_FENCES if context.options.recovery_shell and shell_tool(context) is not None else ()


def _may_open(context: Context, opening: Opening) -> bool:
    """Another system's shell needs a tool that says it is for that system."""
    if opening.fence is None or opening.fence.info not in _WINDOWS:
        return True
    tool = shell_tool(context)
    return tool is not None and _IS_WINDOWS.search(tool.description) is not None


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    tool = shell_tool(context)
    fence = opening.fence
    if tool is None or fence is None:
        raise Reject("no tool for commands")
    lead = _last_sentence(opening.lead)
    # Two ways of doing it, or steps of a guide: nobody can tell which are meant to be run.
    if opening.earlier.intersection(SHELL_FENCES):
        raise Reject("several shell fences")
    asks = any(mark in opening.lead.rstrip().rpartition("\n")[2] for mark in "?？")
    if opening.lead.strip() and (asks or not _ACTS.search(lead) or _TELLS.search(lead)):
        raise Reject("not announced as an action")
    pieces: list[str] = []
    yield from _body(cur, fence, pieces)
    command = _command("".join(pieces).replace("\r\n", "\n"), fence.info)
    single = _refuse_unsafe(command, context)
    yield Draft(
        name=tool.name,
        tool=tool,
        arguments=_arguments(command, lead, tool, context),
        form="shell" if single else "shell_lines",
    )


def _last_sentence(text: str) -> str:
    return next((part for part in reversed(_SENTENCE.split(text[-400:].strip())) if part.strip()), "").strip()


def _body(cur: Cursor, fence: Fence, pieces: list[str]) -> Steps:
    """Everything up to the line that closes the fence outside of heredocs; that line stays."""
    waiting: list[tuple[str, bool]] = []
    while True:
        if not waiting and (yield from closes_here(cur, fence)):
            return
        if (yield from cur.at_end()):
            if cur.cut or waiting:
                raise Reject("cut")
            return
        line: list[str] = []
        yield from read_line(cur, line.append)
        pieces += line
        text = "".join(line).rstrip("\r\n")
        if not waiting:
            waiting = [(word, indented) for word, indented, _ in heredocs(text)]
        elif (text.lstrip("\t") if waiting[0][1] else text) == waiting[0][0]:
            waiting.pop(0)


def _command(body: str, info: str) -> str:
    """The body without prompts and without the output between them."""
    commands = _logical_lines(body.strip("\n"))
    prompts = [_prompted(lines[0], info) for lines in commands]
    if info not in _SESSIONS and not any(found is not None for found in prompts):
        return body.strip("\n").rstrip()
    kept: list[str] = []
    for lines, found in zip(commands, prompts, strict=True):
        if found is not None:
            kept += [found, *(line.removeprefix("> ") for line in lines[1:])]
    return "\n".join(kept).strip()


def _logical_lines(body: str) -> list[list[str]]:
    """The lines, each with those that continue it: behind a backslash, or inside a heredoc."""
    found: list[list[str]] = []
    waiting: list[tuple[str, bool]] = []
    continued = False
    for line in body.split("\n"):
        if waiting:
            found[-1].append(line)
            word, indented = waiting[0]
            if (line.lstrip("\t") if indented else line) == word:
                waiting.pop(0)
            continue
        if continued:
            found[-1].append(line)
        else:
            found.append([line])
        waiting = [(word, indented) for word, indented, _ in heredocs(line)]
        continued = line.endswith("\\")
    return found


def _prompted(line: str, info: str) -> str | None:
    """The command behind a prompt."""
    patterns = [_PROMPT, _ROOT_PROMPT]
    if info in _SESSIONS:
        patterns.append(_BARE_ROOT)
    if info in _WINDOWS:
        patterns = [_WINDOWS_PROMPT]
    return next((match.group(1) for pattern in patterns if (match := pattern.match(line))), None)


def _refuse_unsafe(command: str, context: Context) -> bool:
    """Whether it is one plain line; raises `Reject` for what may not run."""
    options = context.options
    if _PLACEHOLDER.search(command):
        raise Reject("placeholder")
    try:
        found = simple_commands(command)
    except ShellFault as fault:
        raise Reject(fault.reason) from None
    if not found.words:
        raise Reject("no command")
    refused = next((word for word in found.words if word not in options.shell_allowlist), None)
    if refused is not None:
        raise Reject("command not in SHELL_ALLOWLIST")
    if found.operators and not options.shell_allow_operators:
        raise Reject("operators are not allowed")
    return found.lines == 1


def _arguments(command: str, lead: str, tool: Tool, context: Context) -> dict[str, Any]:
    schema = context.schema(tool)
    key = next((key for key in ("command", "cmd", "commands") if key in schema.properties), None)
    if key is None:
        raise Reject("no parameter for a command")
    arguments: dict[str, Any] = {key: [command] if key == "commands" else command}
    for name in ("description", "explanation"):
        if name in schema.required:
            arguments[name] = lead.rstrip(":：")[:_MAX_DESCRIPTION] or command.split()[0]
    if "requires_approval" in schema.required:
        arguments["requires_approval"] = True
    return arguments


# Agents that ran every fence ran examples, too: https://github.com/gptme/gptme/issues/327
SHELL = Dialect(
    id="shell",
    family="shell",
    level="E",
    bodies=_fences,
    may_open=_may_open,
    parse=_parse,
    carriers=(),
    example="I'll look.\n\n```bash\nls -la\n```",
)
