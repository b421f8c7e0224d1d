"""How long an answer a model can give, learned from the words with which its server refuses a longer one.

Clients that do not know their model ask for the same length whatever it is (Claude Code for 32,000 tokens). A server
that cannot give so much says so with the numbers; they hold for an hour, as servers change.
"""

import re
from collections import OrderedDict

from attrs import define, field, frozen

__all__ = ["CAP_S", "OutputCap", "OutputCaps", "cap_in"]

CAP_S = 3600.0
MAX_PAIRS = 1024
MIN_TOKENS = 16
"""With less room than this an answer is none: the conversation itself is too long."""
_NUMBER = r"[`'\" ]{0,3}([0-9][0-9_,]{0,12})"
# OpenAI; Anthropic; servers of the Chinese hosts, by the names of their fields.
_OUTPUT = re.compile(
    rf"""
      (?:supports[ ])?at[ ]most{_NUMBER}[ ](?:completion|output)[ ]tokens
    | >{_NUMBER},[ ]which[ ]is[ ]the[ ]maximum
    | max_(?:completion_)?tokens[`'" ]{{0,3}}(?:must|should)[ ]be[^0-9]{{0,40}}{_NUMBER}
    | valid[ ]range[ ]of[ ]max_(?:completion_)?tokens[ ]is[ ]\[1,{_NUMBER}\]
    """,
    re.IGNORECASE | re.VERBOSE,
)
# vLLM and OpenAI; Hugging Face's TGI, by `inputs`:
# https://github.com/huggingface/text-generation-inference/blob/main/router/src/validation.rs
_CONTEXT = re.compile(
    rf"""
      (?:maximum|max)[ ](?:model[ ]|context[ ])?(?:context[ ])?(?:length|window|size)(?:[ ]is|[ ]of)?{_NUMBER}
    | (?:must[ ]be|be)[ ]<={_NUMBER}
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PROMPT = re.compile(
    rf"""
      {_NUMBER}[ ](?:tokens[ ])?(?:in[ ]the[ ]messages|from[ ]the[ ]input|in[ ]your[ ]prompt|input[ ]tokens)
    | Given:{_NUMBER}[ ]`inputs`
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SPEAKS_OF = re.compile(
    r"max_(?:completion_|output_|new_)?tokens|max_tokens|completion|output tokens|context length", re.I
)


@frozen(kw_only=True)
class OutputCap:
    """What a model can give, as far as its server said."""

    output: int | None = None
    """Whatever the request holds."""
    context: int | None = None
    """With the request, whatever that takes."""

    def most(self, prompt: int) -> int | None:
        """How long an answer may be asked for behind a request of so many tokens."""
        room = None if self.context is None else max(MIN_TOKENS, self.context - prompt)
        return min((each for each in (self.output, room) if each is not None), default=None)


def cap_in(words: str, asked: int) -> tuple[OutputCap, int] | None:
    """What a refusal says of the length that was asked for: the cap, and what to ask for instead; None for others."""
    # Any other 400 with two numbers in it is not about lengths.
    if not _SPEAKS_OF.search(words):
        return None
    output = _number(_OUTPUT, words)
    if output is not None and MIN_TOKENS <= output < asked:
        return OutputCap(output=output), output
    context, prompt = _number(_CONTEXT, words), _number(_PROMPT, words)
    if context is None or prompt is None or not prompt + MIN_TOKENS <= context < prompt + asked:
        return None
    return OutputCap(context=context), context - prompt


def _number(pattern: re.Pattern[str], words: str) -> int | None:
    match = pattern.search(words)
    found = next((group for group in match.groups() if group), None) if match is not None else None
    return int(found.replace(",", "").replace("_", "")) if found else None


@define
class OutputCaps:
    """The caps of one process."""

    _caps: OrderedDict[tuple[str, str], tuple[float, OutputCap]] = field(factory=OrderedDict)
    any_known: bool = field(default=False, init=False)
    """Something was ever learned: mostly there is nothing to be asked for."""

    def learn(self, upstream: str, model: str, cap: OutputCap, now: float) -> None:
        """From now on, for an hour."""
        self.any_known = True
        self._caps[upstream, model] = (now + CAP_S, cap)
        self._caps.move_to_end((upstream, model))
        if len(self._caps) > MAX_PAIRS:
            self._caps.popitem(last=False)

    def recall(self, upstream: str, model: str, now: float) -> OutputCap | None:
        """What holds now."""
        until, cap = self._caps.get((upstream, model), (0.0, None))
        return cap if now < until else None
