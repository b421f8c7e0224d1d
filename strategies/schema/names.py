"""Which declared tool, or parameter, a name in a model's answer means.

Each step is taken only if it leads to exactly one declared name: exact, cleaned of stray markup, without the namespaces
before its last `.`, `:` or `/`, in another case, with other separators, by the alias table.

Namespaces are cut off by whole segments, as few as possible: Gemini writes `default_api:read` or
`google:mcp:SERVER:read`, gpt-oss `functions.read`. A name that is declared as a whole is that tool's.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType

from attrs import frozen

from gateway.core.tools import Tool, ToolSet
from strategies.schema.tool_schema import ToolSchema, folded

__all__ = ["Resolved", "acts", "repair_name", "resolve", "resolve_parameter"]

# OpenAI takes 64 characters (https://github.com/modelcontextprotocol/modelcontextprotocol/issues/986): more is a text.
_MAX_NAME = 256
# `functions.` is harmony's, `default_api.` is Gemini's, `multi_tool_use.` ChatGPT's of old:
# https://github.com/openai/harmony/blob/main/docs/format.md https://github.com/lbjlaq/Antigravity-Manager/issues/938
_PREFIXES = ("functions.", "function.", "tools.", "tool.", "default_api.", "multi_tool_use.", "api.")
# Quotes and commas are left over from a list or a piece of code that the name was taken out of.
_LITTER = " \t\r\n\"'`“”‘’,;"
# Harmony's `<|channel|>`, Mistral's `[ARGS]`, a call's bracket, and the number of Kimi's ids behind the name.
_MARKUP = re.compile(r"<|\[ARGS\]|\(|:[0-9]*+\Z")
_HELD = re.compile(r"\{|\(\s*+[^)\s]")
"""Arguments within a name."""
# The tag of Qwen3-Coder, begun inside the JSON of Hermes: https://github.com/microsoft/foundry-local/pull/1060
_WORD_BEFORE = re.compile(r"\s*+<?function=")
# Hosts of MCP write the server's name in front: https://github.com/jundot/omlx/issues/1854
_SEPARATOR = re.compile(r"[.:/]")
_SPELLING = frozenset({"name_case", "name_folded", "name_prefix"})
_NO_ALIASES: Mapping[str, str] = MappingProxyType({})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]++|[0-9]++|[^\W\d_A-Za-z]++")

_TOOL_ALIASES: tuple[tuple[str, str], ...] = (
    (
        "read_file readFile Read view cat open_file ReadFile view_file",
        "read read_file read_files",
    ),
    (
        "write_file Write create_file WriteFile save_file file_write",
        "write write_to_file",
    ),
    (
        "edit_file Edit str_replace str_replace_editor replace Replace replace_in_file apply_diff",
        "edit search_replace replace_in_file",
    ),
    (
        "execute_command run_command run_terminal_cmd run_shell_command shell terminal Bash exec",
        "bash execute_command run_commands",
    ),
    (
        "list_files ls LS list_dir list_directory",
        "list list_files",
    ),
    (
        "search_files search Grep ripgrep grep_search rg",
        "grep search_files",
    ),
    (
        "find_files Glob file_search",
        "glob",
    ),
    (
        "update_todo_list TodoWrite todo_write",
        "todowrite update_todo_list",
    ),
    (
        "WebFetch fetch web_fetch fetch_url",
        "webfetch web_fetch",
    ),
    (
        "Task new_task spawn_agent",
        "task",
    ),
)
"""What models call a tool, and which declared tools that can mean."""

_LOOKING_TOOLS = (
    "read read_file read_files view list list_files list_directory list_code_definition_names ls glob grep"
    " search_files search_codebase codebase_search codesearch web_search websearch web_fetch webfetch"
    " fetch_web_content read_command_output fetch_instructions access_mcp_resource load_mcp_documentation todoread"
    " lsp recall question ask_question ask_followup_question skill skills use_skill"
)
"""Well-known tools that change nothing and run nothing, whatever words their names hold."""

_ACTING_WORDS = (
    "write edit create update delete remove replace insert append patch apply diff move rename copy save set put post"
    " send submit upload publish push commit merge deploy install uninstall add modify change make generate new"
    " run exec execute bash sh shell zsh powershell terminal command commands cmd script eval spawn start stop kill"
    " restart action act call use invoke task agent subagents batch switch condense todo todowrite multiedit"
    " editor notebook complete completion clone mkdir rm mv cp sql drop truncate alter wipe purge erase reset"
    " revert git"
)
"""Words in the names of tools that may write or execute; those of four letters and more count within others too."""

_PATHS = "path filePath file_path absolutePath target_file filename file"
_PARAMETER_ALIASES: tuple[str, ...] = (
    _PATHS,
    "content contents",
    "command cmd script",
    "file_pattern include glob",
    "old_string oldString old_str old_text",
    "new_string newString new_str new_text",
    "cwd workdir",
)
_WRITING_ALIASES = "content contents text"
_SEARCHING_ALIASES = "regex pattern query"
_SEARCH_WORDS = ("search", "grep", "find", "glob", "rg")


@frozen
class Resolved:
    """The tool a name means, and what had to be done to the name."""

    tool: Tool
    mends: tuple[str, ...] = ()


def resolve(name: str, tools: ToolSet, *, aliases: bool = True) -> Resolved | None:
    """The one declared tool that `name` means, or `None`."""
    exact = tools.get(name)
    if exact is not None:
        return Resolved(exact)
    if len(name) > _MAX_NAME:
        return None
    inner = next(filter(None, map(tools.get, _inner(name))), None)
    if inner is not None:
        return Resolved(inner, ("name_prefix",))
    cleaned = _cleaned(name)
    mends = ("name_cleaned",) if cleaned != name else ()
    meant = (cleaned, *_inner(cleaned))
    for step, fold in _FOLDS:
        by_spelling = _by_spelling(tools, fold, meant)
        for spelt in meant:
            found = by_spelling[fold(spelt)]
            if len(found) == 1:
                cut = ("name_prefix",) if spelt != cleaned else ()
                return Resolved(found[0], (*mends, *cut, *step))
    return _by_alias(cleaned, tools, mends) if aliases else None


def resolve_parameter(key: str, schema: ToolSchema, taken: Container[str]) -> tuple[str, tuple[str, ...]]:
    """The declared, unset parameter that an undeclared `key` means, and the mend; else the key as it is."""
    # A parameter that the schema declares is meant by its own name, whatever it resembles.
    if not key or key in schema.properties or len(key) > _MAX_NAME:
        return key, ()
    spelt = schema.spelt.get(folded(key))
    if spelt:
        # A parameter that has its value already cannot be meant by a second name.
        return (spelt[0], ("parameter_case",)) if len(spelt) == 1 and spelt[0] not in taken else (key, ())
    meant = _alias_targets(folded(key), schema)
    return (meant[0], ("parameter_alias",)) if len(meant) == 1 and meant[0] not in taken else (key, ())


def repair_name(name: str, declared: ToolSet, aliases: Mapping[str, str] = _NO_ALIASES) -> str | None:
    """The declared tool that a structured call's name means, or `None`.

    Case, separators and namespaces may differ for every tool. Litter and aliases, the operator's before the built-in,
    lead only to tools that neither write nor execute.
    """
    found = resolve(name, declared, aliases=False)
    if found is not None:
        # What stands in it beside the name would be lost: `list_files({"path": "src"})` with no arguments.
        if "name_cleaned" in found.mends and _HELD.search(name) is not None:
            return None
        # Litter around a name says that it was torn out of something: reading may then be tried, writing not.
        return found.tool.name if _SPELLING.issuperset(found.mends) or not acts(found.tool.name) else None
    if len(name) > _MAX_NAME:
        return None
    spelling = folded(name)
    meant = {target for alias, target in aliases.items() if folded(alias) == spelling}
    if not meant:
        found = _by_alias(name, declared, ())
    elif len(meant) == 1:
        found = resolve(meant.pop(), declared, aliases=False)
    return found.tool.name if found is not None and not acts(found.tool.name) else None


def acts(name: str) -> bool:
    """Whether a tool of this name may write or execute: as the well-known tools do, else by the words of its name."""
    if len(name) > _MAX_NAME:
        return True
    spelling = folded(name)
    # Wrong in one direction only: a tool that looks may run by mistake, one that writes may not.
    if spelling in _LOOKING:
        return False
    return any(word in spelling for word in _ACTING_ANYWHERE) or not _ACTING.isdisjoint(
        word.casefold() for word in _WORD.findall(name)
    )


def _cleaned(name: str) -> str:
    if (word := _WORD_BEFORE.match(name)) is not None:
        name = name[word.end() :]
    markup = _MARKUP.search(name)
    if markup is not None:
        name = name[: markup.start()]
    return name.strip(_LITTER).rstrip(":").strip(_LITTER)


def _inner(name: str) -> tuple[str, ...]:
    """What stands behind each separator, the longest first."""
    ends = [match.end() for match in _SEPARATOR.finditer(name)]
    return tuple(name[end:] for end in ends if end < len(name))


_FOLDS: tuple[tuple[tuple[str, ...], Callable[[str], str]], ...] = (
    ((), str),
    (("name_case",), str.casefold),
    (("name_folded",), folded),
)


def _by_spelling(tools: ToolSet, fold: Callable[[str], str], names: Iterable[str]) -> dict[str, list[Tool]]:
    """The tools of each of these names, as far as `fold` tells names apart."""
    found: dict[str, list[Tool]] = {fold(name): [] for name in names}
    for tool in tools:
        same = found.get(fold(tool.name))
        if same is not None:
            same.append(tool)
    return found


def _only(tools: Iterable[Tool]) -> Tool | None:
    """The tool, if it is the only one."""
    found = list(tools)
    return found[0] if len(found) == 1 else None


def _by_alias(name: str, tools: ToolSet, mends: tuple[str, ...]) -> Resolved | None:
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix) and len(name) > len(prefix)), "")
    name = name.removeprefix(prefix)
    mends = (*mends, "name_prefix") if prefix else mends
    spelling = folded(name)
    targets = _TARGETS.get(spelling)
    # Two tools that differ in case alone are both meant by such a name: there is no telling, and no alias either.
    if not targets or any(folded(tool.name) == spelling for tool in tools):
        return None
    found = _only(tool for tool in tools if folded(tool.name) in targets)
    return Resolved(found, (*mends, "name_alias")) if found is not None else None


def _targets() -> Mapping[str, frozenset[str]]:
    return MappingProxyType(
        {
            folded(source): frozenset(map(folded, candidates.split()))
            for sources, candidates in _TOOL_ALIASES
            for source in sources.split()
        }
    )


_TARGETS = _targets()
_LOOKING = frozenset(map(folded, _LOOKING_TOOLS.split()))
_ACTING = frozenset(_ACTING_WORDS.split())
_ACTING_ANYWHERE = tuple(sorted(word for word in _ACTING if len(word) > 3))
_GROUPS = tuple(frozenset(map(folded, group.split())) for group in _PARAMETER_ALIASES)
_PATH_GROUP = _GROUPS[0]
_WRITING_GROUP = frozenset(_WRITING_ALIASES.split())
_SEARCHING_GROUP = frozenset(_SEARCHING_ALIASES.split())


def _alias_targets(spelling: str, schema: ToolSchema) -> list[str]:
    words = {word for group in _groups_of(schema) if spelling in group for word in group}
    return [name for word in words for name in schema.spelt.get(word, ())]


def _groups_of(schema: ToolSchema) -> Iterable[frozenset[str]]:
    yield from _GROUPS
    if not _PATH_GROUP.isdisjoint(schema.spelt):
        yield _WRITING_GROUP
    if any(word in schema.name.casefold() for word in _SEARCH_WORDS):
        yield _SEARCHING_GROUP
