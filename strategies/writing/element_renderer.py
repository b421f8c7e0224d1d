"""Writes the dialects whose parameters are elements with raw text.

A call is its opener, its parameters, its closer; several calls of one message may share a section. Text stands as it
is, other values as JSON. Whether a value can be carried is not reasoned about: the call is read by the dialect's own
grammar, alone and before another call, and what does not come back the same at the first pass is refused.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.grammar.confidence import judge
from strategies.grammar.dialect import Arguments, Context, Draft, Opening, Parse
from strategies.text.cursor import Cursor, Reject
from strategies.writing.renderer import CannotExpress, in_one_frame, without_tokens
from strategies.writing.token_renderer import Result, family_section, json_text

__all__ = ["ParameterRenderer", "in_lines", "inline"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
_KEY = re.compile(r"[A-Za-z0-9_.:-]+")


def in_lines(text: str) -> str:
    """A value on lines of its own."""
    return f"\n{text}\n"


def inline(text: str) -> str:
    """A value between its tags; on lines of its own where it begins or ends with a line break."""
    # The reader takes one line break off on each side, so a value's own needs one more.
    return in_lines(text) if text[:1] in ("\n", "\r") or text[-1:] in ("\n", "\r") else text


@frozen(kw_only=True)
class ParameterRenderer:
    """One dialect of the kind, from its tags."""

    id: str
    marker: str
    """The text that opens a call when it is read."""
    parse: Parse
    call_open: Callable[[str], str]
    call_close: str
    param: Callable[[str, Any, str], str]
    """One parameter from its key, its value and the value's text."""
    opening: str = ""
    closing: str = ""
    between: str = "\n"
    answer: Result = field(default=lambda name, call_id, content: content)
    tokens: tuple[str, ...] = ()
    """What a result must not be able to write."""
    result_separator: str = "\n"

    def tool_section(self, tools: Sequence[Tool], *, parallel: bool) -> str:
        several = "a value\nof several lines"
        body = self.param("KEY", "value", "value") + self.param("OTHER_KEY", several, several)
        form = f"{self.opening}{self.call_open('NAME')}{body}{self.call_close}{self.closing}"
        return family_section(tools, form, self.call, parallel=parallel)

    def call(self, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str:
        body = "".join(self.param(key, value, _text(value)) for key, value in arguments.items())
        text = f"{self.opening}{self.call_open(name)}{body}{self.call_close}{self.closing}"
        fault = self._fault(text, name, arguments, tool)
        if fault is not None:
            raise CannotExpress(fault, text)
        return text

    def calls(self, rendered: Sequence[str]) -> str:
        return in_one_frame(rendered, self.opening, self.between, self.closing)

    def result(self, name: str, call_id: str, content: str, fmt: str) -> str:
        return self.answer(name, call_id, without_tokens(content, self.tokens))

    def _fault(self, text: str, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str | None:
        if not _NAME.fullmatch(name) or not all(_KEY.fullmatch(key) for key in arguments):
            return "a name cannot be written"
        context = Context(tools=ToolSet([tool] if tool else []), options=Options(), prompted=self.id)
        expected = json_text(dict(arguments))
        # Before another call a value may end elsewhere than at the text's own end.
        for written in (text, self.calls([text, text])):
            draft = self._read(written, context)
            if draft is None or (draft.end is not None and draft.end > len(text)):
                return "a value holds what would end it"
            judged = judge(draft, context, self.id)
            if judged.verdict.name != name or not judged.verdict.accepted or json_text(judged.arguments) != expected:
                return "an argument would be read as another value"
        return None

    def _read(self, text: str, context: Context) -> Draft | None:
        """The first call that the grammar finds, if the first pass finds one."""
        opening = Opening(marker=self.marker, before="")
        try:
            # Only the first pass: what needs a second one depends on what stands around the call.
            found = (draft for draft in self.parse(Cursor(text, eof=True), context, opening, Arguments(None)) if draft)
            return next(found, None)
        except Reject:
            return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
