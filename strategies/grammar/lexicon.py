"""Every literal text that may mean something to the reader of one request, found in one pass.

A marker is looked up by its first two characters at each place where a first character of any marker stands; a tail
that is a proper prefix of a marker is what must be held back.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, lru_cache

from gateway.wire.calm import Loud, letters_but

__all__ = [
    "END_TOKENS",
    "LEFTOVERS",
    "REASONING",
    "REASONING_ENDS",
    "TURNS",
    "Lexicon",
    "Triggers",
    "end_tokens_from",
    "ends_turn",
    "is_wordy",
    "lexicon",
    "line_of",
    "reasoning_beside",
]

# By the templates of Qwen, DeepSeek, GLM, Kimi and MiniMax; the prompts of Cline; Seed-OSS; Magistral; Command;
# Hermes; Apertus; Gemma 4; gpt-oss; Kimi K3; K2 Horizon; Solar Open 2; PLaMo 3; Hy3.
REASONING: Mapping[str, str] = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<scratch_pad>": "</scratch_pad>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|channel>": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",
    "<ifm|think>": "</ifm|think>",
    "<ifm|think_fast>": "</ifm|think_fast>",
    "<ifm|think_faster>": "</ifm|think_faster>",
    "<|think:start|>": "<|think:end|>",
    "<|plamo:begin_think:plamo|>": "<|plamo:end_think:plamo|>",
    "<think:opensource>": "</think:opensource>",
    "[unused16]": "[unused17]",
    # Gemini's, Kimi-VL's, Sky-T1's and MedGemma's, and what prompts ask for: clients fold the same ones away,
    # https://github.com/open-webui/open-webui/blob/main/backend/open_webui/utils/middleware.py
    "<thought>": "</thought>",
    "<Thought>": "</Thought>",
    "<Think>": "</Think>",
    "<reason>": "</reason>",
    "<reasoning>": "</reasoning>",
    "<reflection>": "</reflection>",
    "<scratchpad>": "</scratchpad>",
    "<antThinking>": "</antThinking>",
    "<|think|>": "<|/think|>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|thought_start|>": "<|thought_end|>",
    "◁think▷": "◁/think▷",
    "<unused94>": "<unused95>",
}
"""Openers of reasoning blocks inside the text, and what closes each."""
_NAMES = ("<thought>", "<Thought>", "<Think>", "<reason>", "<reasoning>", "<reflection>", "<scratchpad>")
"""Of these, words that are the names of tools, too."""
REASONING_ENDS = tuple(REASONING.values())

# Servers that show special tokens, or whose stop words do not fit, leave these in the text:
# https://github.com/scouzi1966/maclocal-api/issues/121
END_TOKENS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|call|>",
    "<|end|>",
    "<|return|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "<seed:eos>",
    "</s>",
    "[e~[",
    "[|endofturn|]",
    "<|END_OF_TURN_TOKEN|>",
    "<|ifm|im_end|>",
    "<|im:end|>",
    "<|plamo:tag|>",
    "<|calls|>",
    "[unused10]",
    # https://github.com/huggingface/transformers/blob/v4.45.0/src/transformers/agents/prompts.py
    "<end_action>",
    "<end_code>",
    # Gemma's and MedGemma's, Llama 4's, Ling's.
    "<eos>",
    "<turn|>",
    "<|eot|>",
    "<|role_end|>",
)
"""What ends a turn for the engine, and is text only by mistake."""
TURNS = (
    *(f"<|im_start|>{role}" for role in ("user", "tool", "system")),
    *(f"<|start_header_id|>{role}" for role in ("user", "tool", "ipython", "system")),
    *("<start_of_turn>user", "<|turn>user", "<|turn>tool", "<|im_user|>", "<|im_system|>", "<｜User｜>", "[INST]"),
    *("<|start|>user", "<|USER_TOKEN|>", "<|START_TOOL_RESULT|>", "<seed:bos>user", "<seed:bos>tool"),
    *("<|start_of_role|>user", "<|user|>", "<|observation|>", "<|system|>"),
)
"""How the turn of somebody else begins in the templates of Qwen, Llama, Gemma, Kimi, DeepSeek, Mistral, gpt-oss,
Command, Seed-OSS, Granite, GLM and Phi. Where a server does not stop at the token in front of it, the model goes on
with what others would say, and with what it would do then:
https://github.com/ggml-org/llama.cpp/issues/4072"""
_CLOSERS = frozenset({"<|call|>", "<|end|>", "<|return|>", "<|calls|>", "<|plamo:tag|>", "[unused10]"})
# GLM's end with the role of who is to speak next: https://huggingface.co/zai-org/GLM-4.6/blob/main/generation_config.json
_OF_ENGINES = (*(token for token in END_TOKENS if token not in _CLOSERS), "<|user|>", "<|observation|>")
"""Those that close nothing else: some forms end their calls with such a token."""
_LONGEST_END = max(map(len, _OF_ENGINES))
_MOST_ENDS = 4
_ENDS_WITHIN = 256
"""How many of them may stand at the end of an answer, and within how many characters."""
LEFTOVERS = (
    "</tool_call>",
    "</tool_calls>",
    "</seed:tool_call>",
    "</minimax:tool_call>",
    "</ifm|tool_call>",
    "</ifm|tool_calls>",
    "</｜GCML｜tool_calls>",
    "<|tool_call:end|>",
    "</dots_function_call>",
    "<｜tool_call_end｜>",
    "<｜tool_sep｜>",
    "<｜tool_calls_end｜>",
    "</tool_use>",
    "</tools>",
    "</tool>",
    "</function>",
    "</function_call>",
    "</function_calls>",
    "</invoke>",
    "</action>",
    "</xml>",
    "<｜｜DSML｜｜m>",
    "<｜DSML｜m>",
    *END_TOKENS,
)
"""What may be left directly behind a call: closers of a wrapper that is already read, end tokens."""


# One letter alone would stop the scan in every other word; four of them hardly ever.
_WORD = 4
"""How much of a marker that begins with a letter, a tilde or a parenthesis is asked for before it is looked at."""


def end_tokens_from(text: str) -> int:
    """From where on the text may be tokens that end the turn: its length where its end is none, nor begins one."""
    base = max(0, len(text) - _ENDS_WITHIN)
    tail = text[base:]
    found = end = len(tail)
    # What has begun of one counts as one.
    begun = max(tail.rfind("<"), tail.rfind("["))
    if begun >= 0 and end - begun < _LONGEST_END:
        rest = tail[begun:]
        if any(token.startswith(rest) and token != rest for token in _OF_ENGINES):
            found = begun
    for _ in range(_MOST_ENDS):
        end = len(tail[:found].rstrip())
        token = next((token for token in _OF_ENGINES if tail.endswith(token, 0, end)), None)
        if token is None:
            break
        found = end - len(token)
    return base + found


def ends_turn(before: str) -> bool:
    """Whether a text ends with what ends a turn for the engine."""
    return before.rstrip().endswith(END_TOKENS)


def reasoning_beside(markers: Collection[str]) -> tuple[str, ...]:
    """What opens and closes reasoning where these markers open calls: tags of a tool are that and nothing else."""
    names = {opener for opener in _NAMES if opener[:-1] in markers}
    return tuple(each for pair in REASONING.items() if pair[0] not in names for each in pair)


def line_of(before: str) -> str:
    """What stands on the last line of a text; the end of a reasoning block begins a line."""
    # Templates write the answer right behind the closer of the reasoning, and the model goes on like that.
    line = before.rsplit("\n", 1)[-1]
    if ">" in line or "]" in line:
        for end in REASONING_ENDS:
            line = line.rsplit(end, 1)[-1]
    return line


def _starts_of(markers: Iterable[str]) -> set[str]:
    """What of these is looked for first: one character, or the first word where that character is in all prose."""
    return {marker[:_WORD] if marker[0].isalnum() or marker[0] in "~(" else marker[0] for marker in markers}


_Starts = frozenset[str]


def is_wordy(marker: str) -> bool:
    """Whether text is full of what it begins with: words, and calls in code."""
    return marker[0].isalpha() or marker[0] == "("


@lru_cache(maxsize=256)
def _trigger(
    starts: _Starts, glued: _Starts, lines: _Starts = frozenset(), apart: _Starts = frozenset()
) -> re.Pattern[str]:
    """What finds the places where one of these stands, or may stand when the text goes on.

    A letter counts at the beginning of a word alone, as every other word ends in what some marker begins with, and a
    parenthesis not behind a name; where one of the `glued` begins with it, anywhere; where all are `apart`, not behind
    words and a blank. With `lines`, a line break counts where its line begins with one of these, or may. Each
    alternative begins with a character of its own: the engine passes over all others at once. Nearly all tools lead to
    the same few starts, so that what finds them is made once.
    """
    rests: dict[tuple[str, str], set[str]] = {}
    for start in starts:
        first = re.escape(start[0])
        behind = "" if not is_wordy(start) or start in glued else f"(?<![A-Za-z]{first})"
        behind += rf"(?<![^\s] {first})" if start in apart else ""
        rests.setdefault((start[0], behind), set()).add(start[1:])
    alternatives = [_alternative(first, rests[first, behind], behind) for first, behind in sorted(rests)]
    if lines:
        words: dict[str, set[str]] = {}
        for start in lines:
            words.setdefault(start[0], set()).add(start[1:])
        begun = "|".join(_alternative(first, words[first]) for first in sorted(words))
        alternatives.append(rf"\n(?=[ \t\r\n]*+(?:{begun}|\Z))")
    return re.compile("|".join(alternatives) or r"(?!)")


@lru_cache(maxsize=256)
def _trigger_in_json(starts: _Starts, glued: _Starts, lines: _Starts, apart: _Starts) -> Loud:
    """The same in the JSON of a text; of what is not ASCII only letters and signs are known to be none.

    What JSON writes with a backslash is one, too, but for a line break before a letter with which none of these begins.

    What a start may not stand behind is asked once its characters are there: asked first, each character of a text was
    tried with every start, which cost more than all else that is done for an event.
    """
    letters = letters_but(frozenset(start[0] for start in starts | lines if not start[0].isascii()))
    starts, lines = (frozenset(filter(str.isascii, each)) for each in (starts, lines))
    rests: dict[tuple[str, str], set[str]] = {}
    ends: dict[str, set[str]] = {}
    for start in starts:
        if len(start) > 1 and start[0] not in starts:
            not_behind = ("" if not is_wordy(start) or start in glued else "A-Za-z") + (" " if start in apart else "")
            rests.setdefault((not_behind, start[:2]), set()).add(start[2:])
            ends.setdefault(not_behind, set()).add(start[0])
    # One class in front: the engine passes over all that is not in it at once. Behind it a character each, as those
    # that differ cost next to nothing, and what it may not stand behind last.
    begun = []
    for (not_behind, head), words in sorted(rests.items()):
        stands = f"(?<={re.escape(head)})" + (f"(?<![{not_behind}]{re.escape(head)})" if not_behind else "")
        begun.append(re.escape(head[1]) + stands + _going_on(words))
    for not_behind, firsts in sorted(ends.items()):
        stands = f"(?<={_class(firsts)})" + (f"(?<![{not_behind}]{_class(firsts)})" if not_behind else "")
        begun.append(rf"\Z{stands}")
    is_no_line = rf"(?!(?<=\\)n(?=[A-Za-z]){_going_on({*starts, *lines}, is_not=True)})"
    firsts = set().union(*ends.values())
    signs = {start for start in starts if len(start) == 1}
    pattern = rf'["\\\x00-\x1f\x80-\xff{_class(signs | firsts)[1:]}(?:'
    pattern += "".join(f"{each}|" for each in begun) + (f"(?<!{_class(firsts)})" if firsts else "") + is_no_line + ")"
    return Loud(re.compile(pattern.encode("latin-1")), letters)


def _class(chars: Collection[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(chars)))}]"


def _alternative(first: str, rests: set[str], behind: str = "") -> str:
    return re.escape(first) + behind + ("" if "" in rests else _going_on(rests))


def _going_on(rests: set[str], *, is_not: bool = False) -> str:
    """That one of these follows, or may when the text goes on; or none."""
    # At the very end of a text a start may be cut anywhere.
    begun = {rest[:size] for rest in rests for size in range(len(rest))}
    whole, cut = ("|".join(map(re.escape, sorted(words))) for words in (rests, begun))
    return rf"(?{'!' if is_not else '='}{whole}|(?:{cut})\Z)"


class Triggers:
    """What finds the places where one of some markers stands, in more than one kind of text.

    The `glued` among them may stand behind a letter, those that are `apart` not behind words on their line, unless they
    are glued to them.
    """

    __slots__ = ("_apart", "_glued", "_starts")

    def __init__(
        self, markers: Iterable[str], extra: Iterable[str], glued: Iterable[str], apart: Collection[str]
    ) -> None:
        near = set(markers).difference(apart)
        self._starts = frozenset((*extra, *_starts_of(markers)))
        self._glued = frozenset(_starts_of(glued))
        self._apart = frozenset(_starts_of(apart)).difference(_starts_of(near))

    def of_lines(self, firsts: _Starts, without: Collection[str] = ()) -> re.Pattern[str]:
        """Of line breaks it finds those whose line begins with one of these, or may."""
        return _trigger(self._starts.difference(without), self._glued, firsts, self._apart)

    def in_json(self, firsts: _Starts, without: Collection[str] = ()) -> Loud:
        """In the JSON of a text it finds all else that is neither plain ASCII nor a letter, too."""
        return _trigger_in_json(self._starts.difference(without), self._glued, firsts, self._apart)


class Lexicon:
    """The markers of one request.

    A hundred tools have four thousand: each table of them is made when it is first looked into, which for an answer of
    prose is never.
    """

    def __init__(self, markers: Iterable[str], extra: tuple[str, ...] = (), glued: tuple[str, ...] = ()) -> None:
        self._markers = frozenset(markers)
        self._extra = extra
        self._glued = glued
        self._begun: dict[str, list[str]] = {}
        """By what has begun: no more than the markers have beginnings."""

    @cached_property
    def starts(self) -> _Starts:
        """What of its markers is looked for first."""
        return frozenset((*self._extra, *_starts_of(self._markers)))

    @cached_property
    def trigger(self) -> re.Pattern[str]:
        """What finds the places where one of them stands, or may."""
        return _trigger(self.starts, frozenset(_starts_of(self._glued)))

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._markers)

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._markers), default=1)

    @cached_property
    def _by_head(self) -> dict[str, tuple[str, ...]]:
        by_head: dict[str, list[str]] = {}
        # Longest first: `<tool_call>` must not be taken for `<tool`.
        for marker in sorted(self._markers, key=len, reverse=True):
            by_head.setdefault(marker[:2], []).append(marker)
        return {head: tuple(found) for head, found in by_head.items()}

    def at(self, text: str, index: int) -> str | None:
        """The longest marker that stands at `index`."""
        # Markers of one character have a head of one.
        for head in (text[index : index + 2], text[index]):
            markers = self._by_head.get(head)
            if markers and text.startswith(markers, index):
                for marker in markers:
                    if text.startswith(marker, index):
                        return marker
        return None

    def may_begin(self, text: str, index: int) -> bool:
        """Whether the text from `index` to its end is a proper prefix of a marker."""
        if not 0 < len(text) - index < self._longest:
            return False
        rest = text[index:]
        place = bisect_right(self._sorted, rest)  # what begins with it stands right behind it
        return place < len(self._sorted) and self._sorted[place].startswith(rest)

    def begun(self, text: str, index: int) -> list[str]:
        """The markers that the text from `index` to its end is a proper prefix of."""
        if not 0 < len(text) - index < self._longest:
            return []
        rest = text[index:]
        if (known := self._begun.get(rest)) is not None:
            return known
        place = bisect_right(self._sorted, rest)
        found = self._sorted[place : bisect_right(self._sorted, rest, place, key=lambda marker: marker[: len(rest)])]
        if found:
            self._begun[rest] = found
        return found


# Agents send the same tools with every request: building takes longer than all that is looked up in it.
@lru_cache(maxsize=256)
def lexicon(markers: tuple[str, ...], extra: tuple[str, ...] = (), glued: tuple[str, ...] = ()) -> Lexicon:
    """A lexicon, shared by requests with the same markers; the `glued` among them may stand behind a letter."""
    return Lexicon(markers, extra, glued)
