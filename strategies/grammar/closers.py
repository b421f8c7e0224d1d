"""What a tag means inside a raw value, and what stands behind the closers that may end it.

A closer says little by itself; what follows says more. So each look here goes ahead over closers, white space and the
tag behind them, and comes back: bounded, and the same however the text was cut.
"""

import re
from collections.abc import Callable
from typing import Literal, Protocol

from attrs import define, field, frozen

from strategies.text.cursor import Cursor, Steps

__all__ = [
    "CALL_END",
    "CLOSERS",
    "CLOSER_AT_END",
    "END_IN_TEXT",
    "PARAMETER_END",
    "Elements",
    "Kind",
    "Markup",
    "Run",
    "alien_follows",
    "call_follows",
    "closed_by",
    "closes_unopened",
    "end_of_run",
    "ends_here",
    "ends_in_half_a_tag",
    "ends_with_closer",
    "ends_with_token",
    "next_tag",
    "opens_call",
    "opens_pair",
    "read_run",
    "text_follows",
    "torn_opener_follows",
]

# A call's closer, its section's, an opener of the next section, and room for one that is doubled.
_BETWEEN = 6
"""How many closers and openers of sections may stand between one call and the next."""
_PAIR = 160
"""How far behind a parameter's opener the name has ended that stands behind it."""
_TYPE = "function"
"""What some write before the token behind which a call opens."""
_ALIENS = 4
"""How many parameters that the tool does not have may stand in a row."""
_ALIEN = 2_000
"""How far such a one may reach, where its own tag has to close it."""
_ELEMENT = re.compile(r"<([A-Za-z_][\w.:-]{0,63})>(?>(?:(?!</?\1>).)*)</\1>", re.DOTALL)

_OPENER = 160
"""How far the opener of a parameter reaches, and where its name stands behind it, that name."""
_TORN_OPENER = re.compile(r"<(?!/)[^<>\n]{1,100}(?:>\s{0,8}[A-Za-z_][\w.-]{0,63}\s{0,8}(?=<))?")
_WORD = re.compile(r"[A-Za-z_][\w.-]*+")
Kind = Literal[
    "close",
    "loose",
    "foreign",
    "other_close",
    "param",
    "call_close",
    "call_open",
    "next_call",
    "section_open",
    "section_close",
    "stray_close",
    "noise",
    "other",
]
"""`next_call` opens another tool's call: it does not nest, but behind a call's end it begins what comes next.
`stray_close` ends the call in its closer's place, but only behind a value that is closed. `foreign` closes the
parameters of another family, or is the parameter's own name where that is no tag. `other_close`
closes another parameter of the tool."""


class Markup(Protocol):
    """What the tags of one dialect mean while a value of one call is read."""

    stub: str
    """A closer of the value that counts although it lacks its `>`; empty where there is none."""
    distinct: bool
    """No document holds the tags by chance, and all parameters share one closer: a call or section that opens behind
    it makes it structural, and behind the opener of the next parameter it is that one's."""
    ends: tuple[str, ...]
    """Closers of which the answer's last characters may be a part."""
    texts: dict[str, list[str]]
    """The values of the call so far."""
    name_run: re.Pattern[str] | None
    """What stands between a call's opener and its first parameter, where the name is no part of the opener."""
    pair: re.Pattern[str] | None
    """What stands behind a parameter's opener, where its name is no part of it."""

    def kind(self, tag: str, key: str) -> tuple[Kind, str]:
        """The meaning of a tag inside the value of `key`, and the name it carries."""
        ...

    def may_follow(self, name: str) -> bool:
        """Whether a parameter of this name may come next: a property that has no value yet."""
        ...

    def declares(self, name: str) -> bool:
        """Whether a tag that means this parameter is an opener, and not just any element of a document."""
        ...

    def is_alien(self, name: str) -> bool:
        """Whether a parameter of this name can be read in its place although the tool has none such."""
        ...

    def counts(self, name: str) -> bool:
        """Whether elements of this name are looked at in pairs: those of the tool's parameters, if they are tags."""
        ...


def closed_by(cur: Cursor, markup: Markup, key: str, tag: str, *, body: bool) -> Steps:
    """What follows a closer, if it makes the closer structural: `param`, `call_close` or `end`."""
    cur.anchor = start = cur.offset
    cur.pos += len(tag)
    found: str | None = None
    after = yield from next_tag(cur, markup, key)
    if (yield from cur.at_stub(markup.ends)):
        found = "end" if not cur.cut else None
    elif after:
        kind, name = markup.kind(after, key)
        if kind in ("call_close", "section_close", "stray_close"):
            found = "call_close"
        elif kind == "param" and markup.may_follow(name):
            found = "param"
        elif kind in ("call_open", "section_open") and markup.distinct:
            found = "call_close"
        # A path or a number holds no tags: whatever opens behind it, it has ended.
        elif not body and kind in ("param", "call_open", "next_call"):
            found = "param"
    cur.back(start)
    cur.anchor = None
    return found


def alien_follows(cur: Cursor, markup: Markup, key: str, closers: int) -> Steps:
    """Whether a parameter that the tool does not have stands behind closers of this size, none opened by the value.

    Models write what a tool took when they were trained: OpenCode's `bash` has no `description` any more
    (https://github.com/anomalyco/opencode/blob/dev/packages/opencode/src/tool/shell.ts). Where each parameter closes by
    its own name the value may hold such elements, but not with the call's end or its next parameter behind them.
    """
    cur.anchor = start = cur.offset
    cur.pos += closers
    passed = found = False
    for _ in range(_ALIENS + 1):
        after = yield from next_tag(cur, markup, key)
        if after is None:
            break
        kind, name = markup.kind(after, key)
        if kind != "param" or not markup.is_alien(name):
            ends = kind in ("call_close", "section_close", "stray_close")
            found = passed and (ends or (kind == "param" and markup.may_follow(name)))
            break
        if markup.distinct:
            found = True
            break
        element = _ELEMENT.match((yield from cur.peek(_ALIEN)))
        if element is None:
            break
        cur.pos += element.end()
        passed = True
    cur.back(start)
    cur.anchor = None
    return found


def next_tag(cur: Cursor, markup: Markup, key: str) -> Steps:
    """The tag that stands behind white space and stray markup, not consumed; None where text follows."""
    while True:
        yield from cur.ws()
        if (yield from cur.peek(1)) != "<":
            return None
        tag = yield from cur.tag()
        # Tags that models strew in without a meaning must not hide the one behind them.
        if tag is None or markup.kind(tag, key)[0] != "noise":
            return tag
        cur.pos += len(tag)


def text_follows(cur: Cursor, tag: str) -> Steps:
    """Whether words stand behind a tag, and no other tag or the end."""
    cur.anchor = start = cur.offset
    cur.pos += len(tag)
    yield from cur.ws()
    following = yield from cur.peek(1)
    cur.back(start)
    cur.anchor = None
    return following not in ("", "<")


def torn_opener_follows(cur: Cursor, markup: Markup, tag: str) -> Steps:
    """Whether what stands behind a closer is no opener, but names a parameter that may come next: `<paramter=path>`."""
    cur.anchor = start = cur.offset
    cur.pos += len(tag)
    yield from cur.ws()
    torn = _TORN_OPENER.match((yield from cur.peek(_OPENER)))
    cur.back(start)
    cur.anchor = None
    return torn is not None and any(map(markup.may_follow, _WORD.findall(torn.group())))


def ends_here(cur: Cursor, markup: Markup, key: str, tag: str) -> Steps:
    """Whether the call's closer inside a short value is its end: the value's own closer does not follow."""
    cur.anchor = start = cur.offset
    cur.pos += len(tag)
    yield from cur.ws()
    after = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    cur.back(start)
    cur.anchor = None
    return after is None or markup.kind(after, key)[0] != "close"


def opens_pair(cur: Cursor, markup: Markup, tag: str) -> Steps:
    """Whether a parameter opens here, and is not just mentioned: its name stands behind the opener."""
    if markup.pair is None:
        return True
    ahead = yield from cur.peek(len(tag) + _PAIR)
    return markup.pair.match(ahead[len(tag) :].lstrip()) is not None


def call_follows(cur: Cursor, markup: Markup, key: str, tag: str) -> Steps:
    """Whether another call opens right behind a call's closer: no value holds that, so its own closer is missing."""
    cur.anchor = start = cur.offset
    opens = False
    for _ in range(_BETWEEN):
        cur.pos += len(tag)
        yield from cur.ws()
        yield from cur.lit(_TYPE)
        tag = yield from next_tag(cur, markup, key)
        # The opener of another call decides only with a parameter behind it: tags alone may be mentioned.
        kind = markup.kind(tag, key)[0] if tag else "other"
        if kind in ("call_open", "next_call"):
            cur.pos += len(tag)
            opens = yield from _parameter_follows(cur, markup, key)
        if kind not in ("call_close", "section_close", "section_open", "stray_close"):
            break
    cur.back(start)
    cur.anchor = None
    return opens


def opens_call(cur: Cursor, markup: Markup, key: str, tag: str) -> Steps:
    """Whether a call opener is directly followed by a parameter opener."""
    cur.anchor = start = cur.offset
    cur.pos += len(tag)
    opens = yield from _parameter_follows(cur, markup, key)
    cur.back(start)
    cur.anchor = None
    return opens


def _parameter_follows(cur: Cursor, markup: Markup, key: str) -> Steps:
    """Whether a parameter opens behind a call's opener, or its name and the closer follow."""
    yield from cur.ws()
    kinds = ["param"]
    if markup.name_run is not None and (yield from cur.match(markup.name_run, 64)):
        kinds.append("call_close")
        yield from cur.ws()
    if (yield from cur.peek(1)) != "<":
        return False
    after = yield from cur.tag()
    return after is not None and markup.kind(after, key)[0] in kinds


# What closers come to where one of them is damaged

_PREFIX = r"(?:[A-Za-z][\w.-]{0,30}[:|]|\s?[|｜‖]{0,2}\s?(?:DSML|GCML)\s?[|｜‖]{0,2}\s?|__?)?"
_OF_VALUES = r"(?:parameter|param|(?:longcat_)?(?:arg|param)_(?:value|key))"
_OF_CALLS = r"(?:invoke|function|function_calls?|(?:iquest(?:coder)?_|longcat_)?tool_calls?|tool_use)"
PARAMETER_END = re.compile(rf"</{_PREFIX}{_OF_VALUES}\s*>\Z")
"""A parameter's closer in the spelling of any family."""
CALL_END = re.compile(rf"</{_PREFIX}{_OF_CALLS}\s*>\Z")
"""A call's or a section's closer in the spelling of any family."""
END_IN_TEXT = re.compile(rf"</{_PREFIX}(?:{_OF_VALUES}|{_OF_CALLS})\s*>")
"""Either, anywhere in a text."""
_TOKENS = (
    r"<\|close\|>\s*\w+\s*<\|sep\|>|\]<\]minimax\[>\[(?:</[^<>\n]*>)?|<｜tool[_▁]calls?[_▁]end｜"
    r">|<\|tool_(?:arg|call):end\|>"
)
_TOKEN_END = re.compile(rf"(?:{_TOKENS})\s*\Z")
_TOKEN_SIZE = 160
CLOSER_AT_END = re.compile(rf"(?:{END_IN_TEXT.pattern}|{_TOKENS})\Z")
"""The same, or a closer of a family that writes tokens, as a text's last."""
_TAG = re.compile(r"<[^<>\n]{1,198}>")
_NAME = re.compile(rf"<(/?)({_PREFIX})([A-Za-z_][\w.-]{{0,127}})")
_FAMILIES = frozenset(
    {
        *("parameter", "param", "argument", "arg", "arg_value", "arg_key", "invoke", "function", "function_call"),
        *("function_calls", "tool_call", "tool_calls", "tool_use", "tool", "param_value", "param_key"),
        *("iquest_tool_call", "iquestcoder_tool_call", "longcat_tool_call", "longcat_arg_value", "longcat_arg_key"),
    }
)
_OF_VALUE = frozenset({"close", "loose", "foreign", "other_close"})
_OF_CALL = frozenset({"call_close", "section_close", "stray_close"})
CLOSERS = _OF_VALUE | _OF_CALL
# Each look ahead starts at every closer again: without a bound a page of closers would cost its square.
_MAX_RUN = 8
"""How many closers are looked at together."""


@define
class Elements:
    """The openers that a value holds: one of those has a closer of its own, any other value needs none."""

    key: str
    counts: Callable[[str], bool] = lambda _name: False
    """What other elements count: the call's other parameters, where these are tags."""
    holds_opener: bool = False
    """Of the dialect, or of any family."""
    holds_own: bool = False
    """Of the dialect."""
    _open: dict[str, int] = field(factory=dict)

    def see(self, tag: str, *, is_opener: bool) -> None:
        """A tag that is part of the value."""
        self.holds_own = self.holds_own or is_opener
        self.holds_opener = self.holds_opener or is_opener
        closes, name = _parts(tag)
        # An element without content closes itself.
        if not name or tag.endswith("/>"):
            return
        if closes:
            if self._open.get(name):
                self._open[name] -= 1
        # Whatever prefix a family gives its tags (`antml:`, `minimax:`, the bars of DSML), the element is the same.
        elif name.rpartition(":")[2] in _FAMILIES or name == self.key or self.counts(name):
            self.holds_opener = True
            self._open[name] = self._open.get(name, 0) + 1

    def open(self, closer: str) -> int:
        """How many elements are open that this closer would close."""
        return self._open.get(_parts(closer)[1], 0)


def _parts(tag: str) -> tuple[bool, str]:
    """Whether a tag closes, and the element's name: with its prefix, which has one spelling where bars differ."""
    found = _NAME.match(tag)
    if found is None:
        return False, ""
    closes, prefix, name = found.groups()
    # Models mix the bars of both widths within one call.
    word = next((f"{word}:" for word in ("DSML", "GCML") if word in prefix), prefix.replace("|", ":"))
    return bool(closes), word + name


Follows = Literal["param", "alien", "call", "end", "text"]
"""`alien` is a parameter that the tool does not have: it goes on with the call, or is one more element of the text."""


def ends_with_closer(text: str, key: str) -> bool:
    """Whether the last that stands in a value closes what the value did not open."""
    rest = text.rstrip()
    found = CLOSER_AT_END.search(rest[-_TOKEN_SIZE:])
    if found is None and not rest.endswith(f"</{key}>"):
        return False
    elements = Elements(key)
    for tag in _TAG.finditer(rest):
        if tag.end() == len(rest):
            break
        elements.see(tag.group(), is_opener=False)
    return not elements.open(rest[rest.rfind("<") :])


def ends_with_token(text: str) -> bool:
    """Whether the last that stands in a value is a closer of a family that writes tokens."""
    return _TOKEN_END.search(text[-_TOKEN_SIZE:]) is not None


_HALF = re.compile(r"(?:</|<\|)[^\s<]{1,48}<?\Z|</[|｜‖]{1,2}[^\s<]{1,48} [^\s<]{1,24}\Z")
_LAST_TAG = re.compile(r"</([A-Za-z_][\w.:-]{0,127})\s*>\Z")


def closes_unopened(text: str) -> bool:
    """Whether the last tag closes what the text did not open."""
    # As much as the longest tag that counts (`_LAST_TAG`).
    found = _LAST_TAG.search(text.rstrip()[-140:])
    return found is not None and text.count(f"<{found.group(1)}") < text.count(f"</{found.group(1)}")


def ends_in_half_a_tag(text: str) -> bool:
    """Whether its last sign ends a tag, and not that of an element which the text opens."""
    end = text[-200:].rstrip()
    if not end.endswith(">"):
        return _HALF.search(end) is not None
    found = _LAST_TAG.search(end)
    return found is None or f"<{found.group(1)}" not in text


@frozen(kw_only=True)
class Run:
    """Closers that stand together, only white space between them, and what stands behind them."""

    kinds: tuple[Kind, ...]
    ends: tuple[int, ...]
    """Behind each of them, as an offset."""
    follows: Follows

    @property
    def may_be_damaged(self) -> bool:
        """Whether they are other than what the value needs, and the call and its section behind it."""
        own, *others = self.kinds
        return own not in ("close", "loose") or not {"call_close", "section_close"}.issuperset(others)


def read_run(cur: Cursor, markup: Markup, key: str, tag: str) -> Steps:
    """The closers from this one on; the cursor stays."""
    cur.anchor = start = cur.offset
    kinds: list[Kind] = []
    ends: list[int] = []
    follows: Follows = "text"
    following: str | None = tag
    while following and len(kinds) < _MAX_RUN:
        kind, name = markup.kind(following, key)
        if kind in _OF_VALUE or kind in _OF_CALL:
            kinds.append(kind)
            ends.append(cur.offset + len(following))
        elif kind != "noise":
            if kind == "param" and markup.may_follow(name):
                follows = "param"
            elif kind == "param" and markup.is_alien(name):
                follows = "alien"
            elif kind in ("call_open", "section_open", "next_call"):
                follows = "call"
            break
        cur.pos += len(following)
        yield from cur.ws()
        # The last token of an answer may have cost the closer its end: `</tool_cal` closes as well as the whole tag.
        if (yield from cur.at_stub(markup.ends)):
            follows = "text" if cur.cut else "end"
            break
        following = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    cur.back(start)
    cur.anchor = None
    return Run(kinds=tuple(kinds), ends=tuple(ends), follows=follows)


RunEnd = tuple[Literal["repeated", "foreign", "swapped", "doubt", "content"], int]
"""What a damaged run comes to, and the offset behind it where it ends the value."""


def end_of_run(run: Run, elements: Elements, tag: str) -> RunEnd | None:
    """What the run comes to if it is damaged; None where nothing is wrong with it.

    The value ends at the first of them: it has no opener that could need a closer. Where it has one, or opens what the
    closer closes, there is no telling.
    """
    leading = next((at for at, kind in enumerate(run.kinds) if kind not in _OF_VALUE), len(run.kinds))
    found = _values_first(run, leading) if leading else _calls_first(run)
    inner = elements.open(tag)
    if found is None and inner and leading and not _is_orderly(run.kinds[1:]):
        return "doubt", 0
    if found is None or found[0] == "content":
        return found
    # An element like it is open inside the value: that one's closer comes first.
    if inner and (run.kinds[0] != "close" or (leading == inner + 1 and not elements.holds_own)):
        return "content", 0
    is_other = "other_close" in run.kinds
    if is_other and run.kinds[:2] == ("other_close", "close"):
        return "content", 0
    # Never worse than without: where two readings stand, the text stays text.
    return ("doubt", 0) if elements.holds_opener or is_other else found


def _is_orderly(kinds: tuple[Kind, ...]) -> bool:
    """Whether these closers end one call, then its section."""
    return "call_close" not in kinds[1:] and not _OF_VALUE.intersection(kinds)


def _values_first(run: Run, leading: int) -> RunEnd | None:
    """One closer of a value too many, or one of another kind."""
    kinds = run.kinds
    is_damaged = leading > 1 or kinds[0] not in ("close", "loose") or (len(kinds) > 1 and run.follows == "param")
    if not is_damaged:
        return None
    goes_on = leading < len(kinds) or run.follows == "param"
    ends = run.follows != "text" and ("close" in kinds or leading > 1)
    if not goes_on and not ends:
        return "content", 0
    how: Literal["repeated", "foreign"] = "repeated" if set(kinds) <= {"close", "loose"} else "foreign"
    if leading < len(kinds) and run.follows != "param":
        how = "repeated" if set(kinds[:leading]) <= {"close", "loose"} else "foreign"
    return how, run.ends[-1 if run.follows == "param" else leading - 1]


def _calls_first(run: Run) -> RunEnd | None:
    """The call's closer before the value's, or in its place."""
    kinds = run.kinds
    if run.follows == "param":
        return "foreign", run.ends[-1]
    closer = next((at for at, kind in enumerate(kinds) if kind in _OF_VALUE), 0)
    if not closer:
        is_doubled = kinds[:2] == ("call_close", "call_close") and run.follows != "text"
        return ("foreign", run.ends[0]) if is_doubled else None
    while closer + 1 < len(kinds) and kinds[closer + 1] in _OF_VALUE:
        closer += 1
    behind = kinds[closer + 1 :]
    if not behind and run.follows == "text":
        return "content", 0
    is_swapped = "call_close" in kinds[:closer] and "call_close" not in behind
    return "swapped" if is_swapped else "foreign", run.ends[closer]
