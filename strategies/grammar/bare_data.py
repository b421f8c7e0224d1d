"""What a call without any marker of its own must satisfy: it has to be the point of the message, not a part of it.

The name is declared, the arguments fit, nothing in them is a placeholder, no lead-in announces an example, and nothing
but end tokens follows. A grammar that finds text behind its calls gives them the form of calls inside prose.
"""

import re
from collections.abc import Collection, Iterable
from typing import Any

from attrs import evolve

from strategies.grammar.dialect import Context, Draft, Opening
from strategies.grammar.json_calls import CONTAINER_KEYS, EXTRAS, MOST_WORDS, NAME_KEYS
from strategies.grammar.lexicon import LEFTOVERS, REASONING_ENDS
from strategies.grammar.literal import is_announced_example
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.turns import Turns, at_once

__all__ = ["checked", "checking", "ends_message", "glance", "in_prose", "is_inside_data", "is_on", "may_stand"]

_TRAILERS = (*LEFTOVERS, "```", "~~~")
_INSIDE = ("[", "{", "(", ",", "=", "+", "&", "|", "\\")
_KEY = re.compile(r"""["'\w]["']\s*+:\Z""")
_BEHIND_MARKUP = re.compile(r"(?:<[^<>\n]{1,100}>|\[/?[A-Z_]{2,40}\])\Z")
"""A marker of another dialect: what it refused is not bare."""
_DROPPED = frozenset({"prototype_key", "argument_left_out"})
"""Mends that leave an argument out."""
_HEADS = (*REASONING_ENDS, "<|end_header_id|>")
"""What the message itself may begin behind."""
_DOTS = frozenset({"...", "…", "<...>", "[...]"})
_PLACEHOLDER = re.compile(
    r"<(?:your|the|some|my|path|file|dir|folder|name|command|pattern|query|value|content|text|string|url|args?|tool"
    r"|insert|replace)(?:[ _/-][a-z]++)*+>|\{\{[^{}]*\}\}"
    r"|(?:\./|/)?(?:absolute/)?path/to/(?:the/|your/)?file(?:\.\w+)?",
    re.IGNORECASE,
)
_MAX_PLACEHOLDER = 80
_LOOKED = 2_000
"""Values that are looked at in one turn."""
_CONTENT = "content"
"""The key of a message, which counts where its text begins as an object does."""
_ROLE = "role"
"""The key that the message of an assistant may begin with, all of which the model wrote as its text."""
_FIRST_KEYS = frozenset(
    {
        *NAME_KEYS,
        *CONTAINER_KEYS,
        *("tool_call", "function_call", "tool_calls", "function_calls", "calls", "tool_uses", "jsonrpc"),
        *EXTRAS,
        *("functionCall", "toolUse", "tool_use"),
        *("action", "command"),
        *(_CONTENT, _ROLE),
    }
)
_LISTS = ('"tool_calls"', '"function_calls"')
_HARD_BLANKS = re.compile(r"[\s\ufeff]*")
_BREAKS = ("\\n", "\\r\\n")
_MOST_BREAKS = 4
_ESCAPED_QUOTE = '\\"'
_QUOTES = {"&quot;": "&quot;", "&#34;": "&#34;", _ESCAPED_QUOTE: _ESCAPED_QUOTE, '"': '"', "'": "'", "“": "”", "‘": "’"}
_TYPES = frozenset(
    {
        *("function", "tool", "call", "tool-call"),
        *(f"{of}_{what}" for of in ("function", "tool") for what in ("call", "use")),
    }
)
_DIGITS = re.compile(r"[0-9]*")
"""Calls are counted from nought or one, records to thousands: two digits are enough."""
_WORD = re.compile(r"[\w.+-]*")
_PLAIN = re.compile(r'[^"\\]*')
_UP_TO_QUOTE = re.compile(r'[^"]*')
_KEY_RUN = re.compile(r"[\w.-]*")
_NAME_RUN = re.compile(r"[\w.:/ -]*")


def is_on(context: Context, dialect: str) -> bool:
    """Whether bare data is looked at: it can be switched off where the model was not asked for it."""
    return context.options.recovery_json or not context.restricted or context.prompted == dialect


def may_stand(opening: Opening) -> bool:
    """Whether bare data at this place may be a call: on a line of its own, not inside data, not an example."""
    if opening.fence is not None:
        return True
    if not opening.starts_line and not opening.starts_message:
        return False
    before = opening.before.rstrip()
    if not before:
        return True
    if is_inside_data(opening):
        return False
    # The last characters only: the pattern would else be tried at every `<` of a long answer.
    if before[-1] in ">]" and _BEHIND_MARKUP.search(before[-120:]) and not before.endswith(_HEADS):
        return False
    return not is_announced_example(before)


def is_inside_data(opening: Opening) -> bool:
    """Whether an object here is a part of another value: a member, or an entry of a list."""
    # Behind a bracket or a comma it is a part of somebody's data, however much it looks like a call by itself.
    before = opening.before.rstrip()
    return before[-1:] in _INSIDE or (before[-1:] == ":" and _KEY.search(before[-40:]) is not None)


def glance(cur: Cursor, context: Context, *, aliases: bool = False) -> Steps:
    """Refuse JSON at once that cannot be a call: by its first keys, or by the name that it gives.

    Returns the quotation mark of the first key; nothing is consumed.
    """
    cur.anchor = start = cur.offset
    in_list = yield from cur.lit("[")
    yield from _blanks(cur)
    if not (yield from cur.lit("{")):
        raise Reject("no object")
    yield from cur.lit("{")
    yield from _blanks(cur)
    quote: str | None = yield from cur.lits(tuple(_QUOTES))
    # The tools' own names too, as models write `{"read": {...}}`.
    keys = _FIRST_KEYS.union(context.tools.names)
    key: str = yield from _one_of(cur, keys)
    if key:
        # `{name: ...}` is taken, `{"name: ...}` is not: a quotation mark that is lost inside a key may be any key's.
        if quote and not (yield from cur.lit(_QUOTES[quote])):
            raise Reject("no call")
        yield from _blanks(cur)
        if not (yield from cur.lit(":")):
            raise Reject("no call")
        if key == _CONTENT:
            yield from _blanks(cur)
        if key == _ROLE and key not in context.tools.names:
            yield from _message(cur)
        # A message wrapped around the call. Without the quoted brace it is some page or file, of any length.
        if key == _CONTENT and key not in context.tools.names and not (yield from cur.lits(('"{', '"['))):
            yield from _envelope(cur)
        # In a list the name of the first entry decides nothing: those behind it may be of the request.
        if key in NAME_KEYS and quote in ('"', _ESCAPED_QUOTE) and not in_list:
            yield from _glance_at_name(cur, context, aliases=aliases, quote=quote)
        # An object inside a text begins as many do: of those one that is named first is looked at.
        elif quote == _ESCAPED_QUOTE:
            raise Reject("no call")
        elif key in EXTRAS and quote == '"':
            if in_list and key == "type":
                yield from _words_before(cur)
            yield from _glance_behind(cur, context, keys, key, aliases=aliases)
    elif not (yield from cur.starts("/")):
        raise Reject("no call")
    cur.back(start)
    cur.anchor = None
    return quote


def _message(cur: Cursor) -> Steps:
    """Refuse a message that is nobody's answer, or in which neither calls nor few words before them come next."""
    yield from _blanks(cur)
    if not (yield from cur.lit('"assistant"')):
        raise Reject("no call")
    yield from _blanks(cur)
    if not (yield from cur.lit(",")):
        raise Reject("no call")
    yield from _blanks(cur)
    found = yield from cur.lits((*_LISTS, f'"{_CONTENT}"'))
    if found is None:
        raise Reject("no call")
    if found not in _LISTS:
        yield from _blanks(cur)
        if not (yield from cur.lit(":")):
            raise Reject("no call")
        yield from _blanks(cur)
        yield from _envelope(cur)


def _envelope(cur: Cursor) -> Steps:
    """Refuse a message whose few words, if it has any, are not followed by its calls."""
    # https://github.com/zeroclaw-labs/zeroclaw/blob/master/crates/zeroclaw-tool-call-parser/src/lib.rs
    if (yield from cur.lit('"')):
        words: str = yield from cur.match(_PLAIN, MOST_WORDS)
        if len(words) == MOST_WORDS or not (yield from cur.lit('"')):
            raise Reject("no call")
    elif not (yield from cur.lit("null")):
        raise Reject("no call")
    yield from _blanks(cur)
    if not (yield from cur.lit(",")):
        raise Reject("no call")
    yield from _blanks(cur)
    if (yield from cur.lits(_LISTS)) is None:
        raise Reject("no call")


def _words_before(cur: Cursor) -> Steps:
    """Skip few words that are a part of the message by themselves, and what the next part begins with."""
    # https://docs.anthropic.com/en/api/messages
    yield from _blanks(cur)
    if not (yield from cur.lit('"text"')):
        return
    for sign in (",", '"text"', ":", '"'):
        yield from _blanks(cur)
        if not (yield from cur.lit(sign)):
            raise Reject("no call")
    words: str = yield from cur.match(_UP_TO_QUOTE, MOST_WORDS)
    if len(words) == MOST_WORDS:
        raise Reject("no call")
    yield from cur.lit('"')
    for sign in ("}", ",", "{", '"type"', ":"):
        yield from _blanks(cur)
        if not (yield from cur.lit(sign)):
            raise Reject("no call")


def _one_of(cur: Cursor, keys: Collection[str]) -> Steps:
    """One of the keys, or nothing where there is none; refuses another as soon as it can become none of them."""
    while True:
        # A bound of what is waited for: a key that goes on behind it is asked about as it stands.
        match = _KEY_RUN.match(cur.text, cur.pos, cur.pos + 64)
        key = match.group() if match else ""
        is_whole = cur.eof or cur.pos + len(key) < len(cur.text) or len(key) == 64
        if key and not (key in keys if is_whole else any(known.startswith(key) for known in keys)):
            raise Reject("no call")
        if is_whole:
            cur.pos += len(key)
            return key
        yield


def _glance_behind(cur: Cursor, context: Context, keys: frozenset[str], key: str, *, aliases: bool) -> Steps:
    """Look on behind an `id`, a `type` or a thought, as any record may begin with one: what calls are not numbered or
    named by, or a key that is none of a call's and no tool's parameter, decides it. Other values than words and numbers
    are not looked behind."""
    keys = keys.union(*(context.schema(tool).properties for tool in context.tools))
    # Each of them once at most: who writes one twice writes a record.
    for _ in range(len(EXTRAS)):
        yield from cur.ws()
        if (yield from cur.lit('"')):
            yield from (_type(cur) if key == "type" else _string(cur))
        elif not (yield from _number(cur)):
            return
        yield from cur.ws()
        if not (yield from cur.lit(",")):
            return
        yield from cur.ws()
        if not (yield from cur.lit('"')):
            return
        key = yield from _one_of(cur, keys)
        if key in NAME_KEYS and (yield from cur.lit('":')):
            yield from _glance_at_name(cur, context, aliases=aliases)
        # The key that follows is one of a call: whether it is one is for the whole grammar to say.
        if key not in EXTRAS or not (yield from cur.lit('":')):
            return


def _number(cur: Cursor) -> Steps:
    """Skip a number or a word, but no number of two digits."""
    digits: str = yield from cur.match(_DIGITS, 2)
    if len(digits) == 2:
        raise Reject("no call")
    return bool((yield from cur.match(_WORD, 64)) or digits)


def _type(cur: Cursor) -> Steps:
    """What kind of thing the object is, by its own word: only that of a call may be one."""
    word: str = yield from cur.match(_KEY_RUN, 64)
    # Only a word that has ended: `func` may still become `function`.
    if (yield from cur.starts('"')) and word.lower() not in _TYPES:
        raise Reject("no call")
    yield from _string(cur)


def _string(cur: Cursor) -> Steps:
    """Skip the rest of a JSON string."""
    while True:
        if (yield from cur.lit("\\")):
            # The escaped character may come with the next piece; at the very end there is none.
            yield from cur.peek(1)
            cur.pos = min(cur.pos + 1, len(cur.text))
        elif not (yield from cur.match(_PLAIN, 256)):
            yield from cur.lit('"')
            return


def _blanks(cur: Cursor) -> Steps:
    """Skip white space, and what is none in JSON but is taken for some."""
    yield from cur.ws()
    yield from cur.match(_HARD_BLANKS, 64)
    for _ in range(_MOST_BREAKS):
        # A line break of JSON that was written as a text, where its quotes were not.
        if (yield from cur.lits(_BREAKS)) is None:
            return
        yield from cur.ws()


def _glance_at_name(cur: Cursor, context: Context, *, aliases: bool, quote: str = '"') -> Steps:
    """`"name": "Alice"` is decided before anything more of it is held."""
    yield from cur.ws()
    if not (yield from cur.lit(quote)):
        return
    name: str = yield from cur.match(_NAME_RUN, 128)
    ended = yield from cur.starts(quote)
    # The wrapper of several calls is no tool of the request, and its name is written with prefixes before it.
    if ended and not name.endswith("multi_tool_use.parallel") and not context.resolve(name, aliases=aliases):
        raise Reject("unknown_tool", name=name)


def checking(drafts: Iterable[Draft], context: Context) -> Turns[list[Draft]]:
    """The drafts, if every one of them is a call by itself; else `Reject`."""
    found = list(drafts)
    for draft in found:
        if draft.tool is None:
            raise Reject("unknown_tool", name=draft.name)
        schema = context.schema(draft.tool)
        # Without markup around it the arguments alone say that this is a call, so each of them has to.
        if not _DROPPED.isdisjoint(draft.mends) or not all(map(schema.takes, draft.arguments)):
            raise Reject("an argument that the schema does not know", attempted=True)
        # Filled as it would be sent: what a schema wants and allows to be null is not missing.
        fault = draft.fault or (yield from schema.checking(schema.fill_missing(draft.arguments).arguments))
        if fault is not None:
            raise Reject(fault, attempted=True)
        if (yield from _holding_placeholder(draft.arguments)):
            raise Reject("placeholder")
    return found


checked = at_once(checking)


def _holding_placeholder(arguments: dict[str, Any]) -> Turns[bool]:
    """Whether one of the texts in the arguments is none, without recursion."""
    # A list in place of recursion: values nest as deep as the reader lets them.
    left: list[Any] = [arguments]
    looked = 0
    while left:
        looked += 1
        if not looked % _LOOKED:
            yield
        held = left.pop()
        if isinstance(held, str) and _is_placeholder(held):
            return True
        if isinstance(held, dict):
            left += held.values()
        elif isinstance(held, list):
            left += held
    return False


def _is_placeholder(text: str) -> bool:
    if len(text) > _MAX_PLACEHOLDER:
        return False
    text = text.strip()
    return text in _DOTS or _PLACEHOLDER.fullmatch(text) is not None


def ends_message(cur: Cursor) -> Steps:
    """Whether nothing but end tokens and white space follows; what is read on the way is to be given back."""
    # Nothing of what is looked at here may be forgotten, as it is text or the next call.
    cur.floor = cur.offset
    while True:
        yield from cur.ws()
        if (yield from cur.at_end()):
            return True
        if not (yield from cur.lits(_TRAILERS)):
            return False


def in_prose(drafts: Iterable[Draft], end: int) -> list[Draft]:
    """The drafts as calls with text behind them; only an operator who accepts little takes those."""
    return [evolve(draft, form="in_prose", end=end) for draft in drafts]
