"""How tools are offered and calls are read."""

from functools import partial
from typing import Literal

from attrs import frozen

from gateway.config.declared.setting import setting
from gateway.config.declared.values import (
    aliases,
    boolean,
    call_modes,
    choice,
    hundredths,
    names,
    rules,
    size,
    tool_maps,
    whole,
)
from gateway.core.rules import Rule

__all__ = ["ToolCalls"]

_MIB = 1 << 20
_calls = partial(setting, group="Tool calls")


@frozen(kw_only=True, slots=False)
class ToolCalls:
    """How tools are offered and calls are read."""

    tool_calling_enabled: bool = _calls(
        "TOOL_CALLING_ENABLED", boolean, True, "false: tools are taken out of requests and answers are left alone."
    )
    auto_detect: bool = _calls(
        "TOOL_CALLING_AUTO_DETECT",
        boolean,
        True,
        "Recognise clients whose tools are in their system prompt, and requests for tool work that offer no tools; "
        "calls in answers to the latter are counted, not delivered.",
    )
    prompt_reminder: bool = _calls(
        "PROMPT_REMINDER",
        boolean,
        False,
        "Add a short reminder of the form to the prompt of clients whose tools are in their system prompt.",
    )
    strategy_rules: tuple[Rule, ...] = _calls(
        "STRATEGY_RULES",
        rules,
        (),
        "Which strategy a model gets, as glob=strategy or glob=strategy:dialect, comma-separated; the first match "
        "wins, empty means the built-in table.",
    )
    max_tools: int = _calls(
        "TOOL_CALLING_MAX_TOOLS",
        whole(1, 4096),
        128,
        "Most tools that xml_prompt describes; more are answered with 400 too_many_tools.",
    )
    max_call_bytes: int = _calls(
        "TOOL_CALLING_MAX_CALL_BYTES", size(64), _MIB, "Longest tool call; a longer one stays text."
    )
    min_confidence: int = _calls(
        "TRANSFORM_MIN_CONFIDENCE", hundredths, 90, "Score from 0 to 1 below which a candidate stays text."
    )
    confidence_json_block: int = _calls(
        "CONFIDENCE_JSON_BLOCK", hundredths, 95, "Base score of a call in a fenced JSON block."
    )
    confidence_shell: int = _calls(
        "CONFIDENCE_SHELL",
        hundredths,
        80,
        "Base score of a call in a shell block, and with RECOVERY_SHELL the score that such a call needs.",
    )
    recovery_json: bool = _calls("RECOVERY_JSON", boolean, True, "Recover calls that were written as JSON text.")
    recovery_tools: tuple[str, ...] = _calls(
        "RECOVERY_TOOLS",
        names,
        (),
        "The only tools that may be recovered from text, as comma-separated globs; empty means all known.",
    )
    recovery_shell: bool = _calls(
        "RECOVERY_SHELL",
        boolean,
        False,
        "Recover a command from a shell block that ends an answer, if the request declares a tool that runs commands.",
    )
    shell_allowlist: tuple[str, ...] = _calls(
        "SHELL_ALLOWLIST",
        names,
        ("ls", "pwd", "cat", "head", "tail", "wc", "grep", "stat"),
        "First words that a recovered command may start with, comma-separated.",
    )
    shell_allow_operators: bool = _calls(
        "SHELL_ALLOW_OPERATORS", boolean, False, "Let recovered commands hold chaining, pipes and redirects."
    )
    repair_attempts: int = _calls(
        "REPAIR_ATTEMPTS",
        whole(0, 3),
        1,
        "How often the model is asked again for a call that it plainly meant and broke, before any of it was shown.",
    )
    rescue: bool = _calls(
        "RESCUE",
        boolean,
        True,
        "Where the model server's own parser failed at a turn with tools: read the call out of its error, else ask "
        "once more with the tools in the prompt, before any text of the answer was sent.",
    )
    loop_steer: bool = _calls(
        "LOOP_STEER",
        boolean,
        False,
        "Tell a model whose last four calls were equal, with equal results, to do something else: one sentence behind "
        "the last result.",
    )
    native_fallback: bool = _calls(
        "NATIVE_FALLBACK",
        boolean,
        True,
        "Ask again with xml_prompt where the model server refuses native tools, and give that model xml_prompt for "
        "an hour; leave a model that would be prompted its native tools where its untouched answers call them well. "
        "STRATEGY_RULES win over both.",
    )
    native_fallback_rate: int = _calls(
        "NATIVE_FALLBACK_RATE",
        hundredths,
        80,
        "Share of the last answers with calls, from 0 to 1, whose calls came as text that could not be recovered, or "
        "with unusable arguments, from which on a model counts as one without native tools; 0 never does.",
    )
    native_fallback_window: int = _calls(
        "NATIVE_FALLBACK_WINDOW", whole(5, 1000), 50, "How many answers with calls that share is taken of."
    )
    calls_per_message: Literal["auto", "first", "all"] = _calls(
        "TOOL_CALLS_PER_MESSAGE",
        choice("auto", "first", "all"),
        "auto",
        "How many calls of one answer are delivered; auto: the first for xml_prompt unless the request allows "
        "parallel calls, else all.",
    )
    trailing_text: Literal["drop", "keep"] = _calls(
        "TRAILING_TEXT", choice("drop", "keep"), "drop", "What becomes of text after the last call."
    )
    duplicate_calls: Literal["drop", "keep"] = _calls(
        "DUPLICATE_CALLS",
        choice("drop", "keep"),
        "drop",
        "What becomes of an exact copy of a call directly behind it, unless the tool is known to change nothing.",
    )
    undeclared_tools: Literal["pass", "text"] = _calls(
        "UNDECLARED_TOOLS",
        choice("pass", "text"),
        "pass",
        "What becomes of a call whose tool was not offered. In a family's special tokens it is asked for again and, in "
        "vain, passes under the name that was written; in tags that of a well-known tool passes, as the client's own "
        "answer is the better one. text: both stay text, and nothing is asked.",
    )
    unfit_calls: Literal["pass", "text"] = _calls(
        "UNFIT_CALLS",
        choice("pass", "text"),
        "pass",
        "What becomes of a call in a family's special tokens, read without any mend, whose arguments its tool does not "
        "take: it is asked for again and, in vain, passes as it was written, as a structured one would. text: then it "
        "stays text.",
    )
    structured_calls: tuple[tuple[str, str], ...] = _calls(
        "STRUCTURED_CALLS",
        call_modes,
        (("*", "auto"),),
        "What becomes of structured calls that do not fit their tool: count leaves them, mend holds, mends and asks "
        "again; auto is mend but for the native strategy and for a model without a fault in its last 500 calls. One "
        "word, or glob=mode by model, comma-separated; the first match wins. STREAM_ARGUMENTS=incremental means count.",
    )
    native_leaks: bool = _calls(
        "NATIVE_LEAKS",
        boolean,
        True,
        "Where an answer of a native model holds no structured call, look for its own family's markup in the text: "
        "Claude's, gpt-oss's, Gemini's, Mistral's, Command's, and tags of declared tools. Never for servers of the "
        "kinds anthropic and gemini.",
    )
    none_markup: Literal["keep", "drop"] = _calls(
        "NONE_MARKUP",
        choice("keep", "drop"),
        "keep",
        "What becomes of a call's markup in an answer to a request whose tool_choice is none: it stays in the text, or "
        "it is left out. It is counted either way.",
    )
    reasoning_calls: bool = _calls(
        "REASONING_CALLS",
        boolean,
        True,
        "Where an answer holds reasoning in a field of its own and nothing else, read a call in a family's own form "
        "that the reasoning ends in; the field itself is relayed as it came. For recovery and xml_prompt.",
    )
    stream_arguments: Literal["buffered", "incremental"] = _calls(
        "STREAM_ARGUMENTS",
        choice("buffered", "incremental"),
        "buffered",
        "incremental: argument text flows once it can be no draft; buffered: a call is shown once it is complete.",
    )
    tool_map: tuple[tuple[str, str], ...] = _calls(
        "TOOL_MAP",
        tool_maps,
        (),
        "Tools that a model is shown in the place of the client's own, translated both ways: claude_text_editor or "
        "apply_patch, for all models or as glob=mapping, comma-separated; the first match wins, none shows the "
        "client's.",
    )
    tool_aliases: tuple[tuple[str, str], ...] = _calls(
        "TOOL_ALIASES",
        aliases,
        (),
        "Other names for declared tools, as alias=tool, comma-separated: a structured call of the alias becomes one of "
        "the tool.",
    )
    result_format: Literal["bracket", "plain"] = _calls(
        "XML_RESULT_FORMAT", choice("bracket", "plain"), "bracket", "How tool results are shown to the model."
    )
