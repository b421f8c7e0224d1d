"""Raw values between tags: where they end, what of their white space is theirs, and how they flow.

Grammar of an end: the parameter's closer `C` counts only when, after white space, another parameter opens, the call's
closer `K` follows, or the answer ends there; any other `C` is content. A body parameter may hold whole documents, so

* inside a nested call (an opener directly followed by a parameter opener) `C` and `K` belong to that call;
* `C K` followed by more text is only provisional: what stands behind it is looked at in `strategies.grammar.value_end`;
* closers that stand together in any other way are damaged: what they come to is said in `strategies.grammar.closers`;
* a missing `C` is looked for last, or where another call opens behind a `K` that no opener in the value has.

Each of these readings is a pass of its own over the text, asked for by `Reject(again=True)`; there are at most four.
Bounds: work is linear per pass; in `incremental` mode a value flows as soon as it cannot be called back.
"""

import re
from collections.abc import Callable, Container

from attrs import define, evolve, field, frozen

from gateway.core.reasons import Reason
from strategies.grammar.closers import (
    CLOSERS,
    END_IN_TEXT,
    Elements,
    Kind,
    Markup,
    Run,
    alien_follows,
    call_follows,
    closed_by,
    closes_unopened,
    end_of_run,
    ends_here,
    ends_in_half_a_tag,
    ends_with_token,
    opens_call,
    opens_pair,
    read_run,
    text_follows,
    torn_opener_follows,
)
from strategies.grammar.dialect import Arguments
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.dumping import dumping, dumps
from strategies.text.tape import Taken, Tape
from strategies.text.turns import Turns

__all__ = [
    "MEND_OF_END",
    "Sink",
    "Way",
    "awaits_path",
    "decode_entities",
    "doubt",
    "last_tag",
    "read_cdata",
    "read_value",
    "refusal",
    "trimmed",
    "unwrap_cdata",
    "without_breaks",
    "without_fence",
]

CDATA_OPEN, CDATA_CLOSE = "<![CDATA[", "]]>"
_MAX_HELD = 1 << 16
_MAX_ALIENS = 8
"""How many closers of one value are looked behind for parameters that the tool does not have."""
_TORN = 120
"""How near behind a closer a call opens that shows the closer to be the value's, whatever is left between the two."""


@frozen(kw_only=True)
class Way:
    """How a pass reads: the lenient ones come later."""

    skip: int = 0
    """How many provisional ends of the last body value are known to be content."""
    flat: bool = False
    """Openers in values do not nest."""
    lenient: bool = False
    """The call's closer or the next parameter may end a value whose own closer is missing."""

    @classmethod
    def of(cls, hint: object) -> "Way":
        return hint if isinstance(hint, Way) else cls()


class Sink:
    """Takes a value's text; passes it on, escaped, where the call is live and the parameter is a string."""

    def __init__(
        self,
        arguments: Arguments,
        key: str,
        *,
        body: bool,
        flows: bool,
        trim: bool = True,
        paired: bool = False,
        entities: bool = True,
        cur: Cursor | None = None,
    ) -> None:
        self._arguments = arguments
        # Not a string: adding to one copies it, and a file comes in thousands of events.
        self._pieces = Tape() if cur is None else Taken(cur)
        """With a cursor that hands all of it over, no more than where it stands."""
        self._flows = flows and arguments.live
        self._key = key
        self._body = body
        self._trim = trim
        self._paired = paired
        """Line breaks at the edges are markup only where both are there."""
        self._entities = entities
        self._opened = False
        self._sent = 0
        self._held = ""
        self._paused = False
        self.is_plain = True
        """The value is one line so far, without a tag."""

    def __call__(self, text: str) -> None:
        self._pieces.add(text)
        self.is_plain = self.is_plain and "\n" not in text and "<" not in text
        if self._flows:
            self._flow(text)

    def pause(self) -> None:
        """What comes may have to be read another way."""
        self._paused = True

    def value(self) -> str:
        """The value without the white space that is markup."""
        text = self._pieces.text()
        if not self._trim or (self._paired and not (_leading_size(text) and _trailing(text, body=True))):
            return text
        return trimmed(text, body=self._body)

    @property
    def raw(self) -> str:
        return self._pieces.text()

    def closing(self, value: object) -> Turns[None]:
        """The value is final: give what has not flowed yet."""
        if not self._arguments.live:
            return
        if not self._opened:
            encoded = yield from dumping(value)
            self._arguments.key(self._key)
            self._arguments.piece(encoded)
            return
        # What the client has cannot be taken back: such a call breaks off, and says so.
        if not isinstance(value, str) or len(value) < self._sent:
            raise Reject("value changed after it had begun")
        self._arguments.piece(dumps(value[self._sent :])[1:])

    def _flow(self, text: str) -> None:
        """Hold back what may be markup: leading and trailing white space, entities, a CDATA wrapper."""
        if self._paused:
            return
        text = self._held + text
        if not self._opened:
            whole = text
            if self._trim:
                text = _leading(text, body=self._body)
            # Both wrappers are told from content at their end alone, so the value waits for it.
            self._paused = text.startswith((CDATA_OPEN, "```")) or (self._paired and text != whole)
            if self._paused:
                return
            if not text or CDATA_OPEN.startswith(text[:9]) or "```".startswith(text[:3]) or text[0] == "\r":
                self._held = text
                return
        # White space at the end may be the line break in front of the closer.
        keep = len(text) - (_trailing(text, body=self._body) if self._trim and not self._paired else 0)
        # One entity that stands for itself means that none was meant as such: only the whole value can tell.
        amp = text.find("&") if self._entities else -1
        if 0 <= amp < keep:
            keep, self._paused = amp, True
        # The other half may come with the next chunk: alone it is no character, and cannot be sent.
        if keep and "\ud800" <= text[keep - 1] <= "\udbff":
            keep -= 1
        out, self._held = text[:keep], text[keep:]
        # Blanks without end: they are kept, but not looked at with every event again.
        self._paused = self._paused or len(self._held) > _MAX_HELD
        if out:
            if not self._opened:
                self._opened = True
                self._arguments.key(self._key)
                self._arguments.piece('"')
            self._sent += len(out)
            self._arguments.piece(dumps(out)[1:-1])


def trimmed(text: str, *, body: bool) -> str:
    """A value without the white space that belongs to the markup: one line break each side, or all around."""
    if not body:
        return text.strip()
    # One line break each side, as templates write values on lines of their own; a file's own last one stays.
    return text[_leading_size(text) : len(text) - _trailing(text, body=True)]


def _leading(text: str, *, body: bool) -> str:
    return text[_leading_size(text) :] if body else text.lstrip()


def _leading_size(text: str) -> int:
    return 2 if text.startswith("\r\n") else 1 if text.startswith("\n") else 0


def _trailing(text: str, *, body: bool) -> int:
    if not body:
        return len(text) - len(text.rstrip())
    return 2 if text.endswith("\r\n") else 1 if text.endswith(("\n", "\r")) else 0


def read_value(
    cur: Cursor, markup: Markup, key: str, *, body: bool, way: Way, sink: Sink, nests: bool = False
) -> Steps:
    """Read one value into `sink`; returns how it ended: `closed`, or what `MEND_OF_END` has a name for.

    In a value that is markup and `nests`, an opener like its own has a closer of its own.

    The cursor then stands behind the parameter's closer, or at the tag that ended the value in its place.
    """
    nests = nests and (yield from _begins_markup(cur))
    value = _Value(cur=cur, markup=markup, key=key, body=body, way=way, sink=sink, nests=nests)
    while True:
        if not (yield from cur.until("<", sink)):
            raise value.unclosed()
        tag = yield from _tag(cur, markup)
        kind = value.kind(tag) if tag else "other"
        ended = (yield from value.at(tag, kind)) if tag else ""
        if ended and ended != "content":
            yield from value.finish(ended)
            return ended
        if tag:
            value.see(tag, kind)
        size = len(tag) if tag and kind != "other" else 1
        sink(cur.text[cur.pos : cur.pos + size])
        cur.pos += size


def _tag(cur: Cursor, markup: Markup) -> Steps:
    """The tag that stands here, or a closer that counts although it lacks its end."""
    tag = yield from cur.tag()
    if tag is None and markup.stub and (yield from cur.starts(markup.stub)):
        return markup.stub
    return tag


@define(kw_only=True)
class _Value:
    """One value while it is read, and what was seen in it; each step says how it ended, or nothing."""

    cur: Cursor
    markup: Markup
    key: str
    body: bool
    way: Way
    sink: Sink
    nests: bool
    nested: int = 0
    """Calls that are open inside it."""
    _seen_nested: bool = False
    _owed: int = 0
    """Closers of calls that belong to openers inside it."""
    _skipped: int = 0
    """Ends that were passed over, as this way asks."""
    _inner: int = 0
    _inner_calls: int = 0
    """Openers inside markup that are like its own, or like its call's."""
    _next_opened: bool = False
    """A parameter that may follow was opened without an end before it."""
    _seen_close: bool = False
    _seen_call_close: bool = False
    _torn: bool = False
    """A call opens so near behind a closer that the closer was the value's."""
    _closed_at: int = -_TORN
    _name: str = ""
    """What the last tag carries."""
    _elements: Elements = field(init=False)
    _follows: str = ""
    """What stands behind the last run of closers."""
    _aliens: int = 0

    def __attrs_post_init__(self) -> None:
        self._elements = Elements(self.key, self.markup.counts)

    def see(self, tag: str, kind: Kind) -> None:
        """A tag that is part of the value."""
        opens = kind in ("call_open", "section_open", "next_call")
        opens = opens or (kind == "param" and self.markup.declares(self._name))
        self._elements.see(tag, is_opener=opens)

    def at(self, tag: str, kind: Kind) -> Steps:
        """What a tag comes to: how the value ended, `content` where that is known, or nothing."""
        known = (yield from self._at_run(tag)) if kind in CLOSERS and not self.nested else ""
        if known:
            return known
        if kind in ("close", "loose"):
            return (yield from self._at_closer(tag, kind))
        if kind == "call_open":
            return (yield from self._at_call(tag))
        if kind != "other" and not self.nested:
            return (yield from self._at_end_of_call(tag, kind))
        return ""

    def finish(self, how: str) -> Steps:
        """The value has ended so: it is in doubt behind a token, or where it is nothing but closers or holds more."""
        raw = self.sink.raw
        is_damaged = how in MENDED
        # Of closers that its text mentions, the one in front of its own may be mentioned as well.
        if ends_with_token(raw) or (is_damaged and (not raw.strip() or END_IN_TEXT.search(raw))):
            yield from doubt(self.cur)
        # What is left of its own closer may be the last of it: `a</paramter>`.
        if (how in _UNCLOSED and ends_in_half_a_tag(raw)) or self._begins_damaged(raw):
            yield from doubt(self.cur)

    def _begins_damaged(self, raw: str) -> bool:
        """Whether it begins with its own opener once more, or by its own name, or with another's closer."""
        # Tags are doubled now and then: https://github.com/vllm-project/vllm/issues/54971
        # https://github.com/stackblitz/bolt.new/issues/2119
        found = _FIRST_TAG.match(raw)
        if found is None:
            return False
        tag, name = found.groups()
        kind, opened = self.markup.kind(tag, self.key)
        if tag.startswith("</"):
            return kind in ("loose", "foreign", "other_close")
        if tag != f"<{self.key}>" and (kind != "param" or opened != self.key):
            return False
        # A page or a list that begins so closes what it opens, and a path holds no tags.
        return not (self.body or self.nests) or f"</{name}" not in raw or self._elements.open(f"</{name}>") > 0

    def _at_run(self, tag: str) -> Steps:
        """Closers that stand together: what they come to where one is damaged, nothing where none is."""
        run: Run = yield from read_run(self.cur, self.markup, self.key, tag)
        if run.follows == "alien":
            # `</content>` and `<parameter name="i">` behind a file's text are no part of it:
            # https://github.com/can1357/oh-my-pi/issues/8502
            damaged = run.may_be_damaged
            is_next = (yield from self._before_alien(tag, run.ends[-1] - self.cur.offset)) if damaged else None
            run = evolve(run, follows=is_next or "text")
        self._follows = run.follows
        found = end_of_run(run, self._elements, tag)
        if found is None:
            return ""
        how, end = found
        if how == "doubt":
            yield from doubt(self.cur)
        if how != "content":
            self.cur.back(end)
        elif run.kinds[0] == "close":
            self._seen_close, self._closed_at = True, self.cur.offset
        return how

    def kind(self, tag: str) -> Kind:
        """What the tag is here: in markup, the tags of openers inside it are none."""
        kind, self._name = self.markup.kind(tag, self.key)
        if not self.nests:
            return kind
        if tag == f"<{self.key}>":
            self._inner += 1
        elif self._inner and tag == f"</{self.key}>":
            self._inner -= 1
        elif kind == "call_open":
            self._inner_calls += 1
        elif self._inner_calls and kind == "call_close":
            self._inner_calls -= 1
        else:
            return kind
        return "other"

    def _at_closer(self, tag: str, kind: Kind) -> Steps:
        """The value's own closer, or one like it: its end if the call goes on or ends behind it."""
        end = yield from closed_by(self.cur, self.markup, self.key, tag, body=self.body)
        if kind == "loose" and end == "end":
            end = None
        if kind == "close" and end is None:
            end = yield from self._behind(tag)
        # Two parameters and one closer between them: the first of the two lacks its own.
        if end is not None and self._next_opened and not self.nested:
            raise self._not_closed(flat=self.way.flat)
        self._next_opened = False
        if not self.nested:
            self._seen_close = self._seen_close or kind == "close"
            self._closed_at = self.cur.offset if end is None else self._closed_at
        if end == "call_close" and self.nested:
            self.nested, self._owed = self.nested - 1, self._owed + 1
        # A pass before this one found words behind that end, so it was content: `value_end` has asked for the next.
        elif end == "call_close" and self.body and self._skipped < self.way.skip:
            self._skipped += 1
        elif end is not None and not (end == "param" and self.nested):
            if self._seen_nested and self.way.flat and self.way.lenient:
                yield from doubt(self.cur)
            self.cur.pos += len(tag)
            return "closed" if kind == "close" else "loose"
        return ""

    def _before_alien(self, tag: str, closers: int) -> Steps:
        """`param` where one that the tool does not have follows closers, and no element here needs the first."""
        if self.nested or self._elements.open(tag) or self._aliens >= _MAX_ALIENS:
            return None
        self._aliens += 1
        return "param" if (yield from alien_follows(self.cur, self.markup, self.key, closers)) else None

    def _behind(self, tag: str) -> Steps:
        """Whether a parameter follows a closer that nobody declared, or whose opener is damaged: that one is doubt."""
        end = yield from self._before_alien(tag, len(tag))
        if end is None and self.markup.distinct and not self.nested and not self._elements.open(tag):
            # With it the rest of the call would go into this value.
            if (yield from torn_opener_follows(self.cur, self.markup, tag)):
                yield from doubt(self.cur)
        return end

    def _at_call(self, tag: str) -> Steps:
        """An opener of a call: a document may hold calls, but none opens behind what may have been its end."""
        opens = yield from opens_call(self.cur, self.markup, self.key, tag)
        if opens and not self.way.flat:
            # A path or a number holds no call; what looks like one is the next, and its closer is lost.
            if not self.body:
                yield from doubt(self.cur)
            self.nested += 1
            self._seen_nested = True
            self._torn = self._torn or self.cur.offset - self._closed_at < _TORN
            self.sink.pause()
            return ""
        self._seen_nested = self._seen_nested or opens
        # What closed before may have been the end: both readings give a call, of which one would be made up.
        if opens and (self._seen_close or self._seen_call_close):
            raise Reject("another call inside a value", attempted=True, inside=self.body)
        self._owed += 1
        return ""

    def _at_end_of_call(self, tag: str, kind: Kind) -> Steps:
        """What ends the call or opens the next parameter, with no closer before it."""
        if kind == "param":
            is_opener = yield from opens_pair(self.cur, self.markup, tag)
            return (yield from self._at_parameter(tag)) if is_opener else ""
        if kind == "stray_close" and (yield from text_follows(self.cur, tag)):
            return ""
        if kind not in ("call_close", "section_close", "stray_close"):
            return ""
        self._seen_call_close = True
        if self.way.lenient:
            known = self._follows == "end" or (
                self._follows == "call" and (yield from call_follows(self.cur, self.markup, self.key, tag))
            )
            yield from self._certain(known=known)
            return "by_end" if self.markup.distinct else "by_call"
        if kind == "call_close" and self._owed:
            self._owed -= 1
        elif kind == "call_close":
            is_end = call_follows if self.body else ends_here
            if (yield from is_end(self.cur, self.markup, self.key, tag)):
                raise self._not_closed(flat=self.way.flat)
        return ""

    def _certain(self, *, known: bool = True) -> Steps:
        """A value without its closer is certain only where it has no opener, and no other closer at its end."""
        if not known or self._seen_close or self._elements.holds_opener or closes_unopened(self.sink.raw):
            yield from doubt(self.cur)

    def _at_parameter(self, tag: str) -> Steps:
        if not self.markup.may_follow(self._name):
            return ""
        if not self.way.lenient:
            # Documents hold elements with names of parameters (`<content>`); `<parameter=` they do not hold by chance.
            self._next_opened = self.markup.distinct
            return ""
        if not self.body and "</" in self.sink.raw:
            yield from doubt(self.cur)
        yield from self._certain()
        return "by_next"

    def unclosed(self) -> Reject:
        """The answer ended inside the value: which other way may still find its end."""
        if not self.cur.cut and self._seen_nested and not self.way.flat and not self._torn:
            return Reject("value not closed", again=True, hint=Way(flat=True, skip=self.way.skip), attempted=True)
        if not self.cur.cut and not self.way.lenient and self._seen_call_close and not self._seen_close:
            return self._not_closed(flat=not self._torn)
        return Reject("value not closed", attempted=True, inside=True)

    def _not_closed(self, *, flat: bool) -> Reject:
        """To be read again as a value whose closer is missing."""
        return Reject("value not closed", again=True, hint=Way(flat=flat, lenient=True), attempted=True)


MEND_OF_END = {
    "by_call": "value_closed_by_call",
    "by_end": "value_closed_by_end",
    "by_next": "value_closed_by_next",
    "loose": "value_closer_wrong",
    "repeated": "closer_repeated",
    "foreign": "closer_foreign",
    "swapped": "closer_foreign",
}
"""What it took to end a value."""
MENDED = MEND_OF_END.keys() - {"loose"}
"""Where a closer is damaged: a value that is nothing but closers is in doubt."""
_UNCLOSED = frozenset({"by_call", "by_end", "by_next"})
"""Where nothing stands that is a closer of the value."""
_FIRST_TAG = re.compile(r"\s*+(</?([A-Za-z_][\w.:-]{0,127}+)(?:[^<>]{0,200}[^<>/])?>)")


def last_tag(text: str) -> str:
    """The tag that a text ends with, if it does."""
    end = text[-200:].rstrip()
    return end[end.rfind("<") :] if end.endswith(">") and "<" in end else ""


def doubt(cur: Cursor, seen: str = "value not closed for certain") -> Steps:
    """There is no telling where a value ends: no call, and what follows may be part of it. `seen` says why."""
    # Read to the end: whoever stopped earlier would search the rest of the value for calls.
    while (yield from cur.until("<", _ignore)):
        cur.pos += 1
    raise Reject(seen, attempted=True, inside=True, refusal=Reason.NOT_CLOSED)


def _holds_markup(markup: Markup) -> bool:
    """Whether a value of the call has what may look like a call by itself."""
    return any("<" in text for given in markup.texts.values() for text in given)


def refusal(cur: Cursor, markup: Markup, reason: str) -> Steps:
    """Why a call does not end well; where its values hold markup, none of what follows may be a call."""
    if _holds_markup(markup):
        yield from doubt(cur)
    return Reject(reason, attempted=True)


def _ignore(_text: str) -> None:
    """What is read only to get behind it."""


def _begins_markup(cur: Cursor) -> Steps:
    """Whether a tag comes next."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    begins = (yield from cur.peek(1)) == "<"
    cur.back(start)
    cur.anchor = None
    return begins


_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}
_SURE = ("&lt;", "&gt;", "&amp;lt;", "&amp;gt;")
"""What is only written where everything is escaped; escaped twice it stands for itself."""
_ENTITY = re.compile("|".join(_ENTITIES))
_QUOTED_ENTITY = re.compile(r"""["'`]&[a-z]{2,4};["'`]""")
"""What code says of an entity."""
_DOCUMENT = re.compile(r"\s*&lt;(?:!doctype|\?xml|html|svg)\b", re.IGNORECASE)
"""How a whole document begins that was escaped: no markup file begins so, nor a text that only shows markup."""
_MARKDOWN_FILES = (".md", ".mdx", ".markdown")
_MARKUP_FILES = tuple(
    (
        ".html .htm .xhtml .xml .svg .jsx .tsx .vue .svelte .astro .marko .md .mdx .markdown .xsl .xslt .xsd "
        ".wsdl .dtd .rss .atom .rdf .kml .gpx .xlf .xliff .opf .ncx .csproj .vbproj .fsproj .vcxproj .props "
        ".targets .nuspec .resx .config .xaml .axaml .plist .xib .storyboard .fxml .jrxml .glade .ui .qrc .iml "
        ".pom .php .phtml .erb .jsp .jspx .cshtml .razor .aspx .ascx .cfm .ftl .twig .ejs .hbs .handlebars "
        ".mustache .njk .jinja .jinja2 .j2 .liquid .tpl .tmpl .gohtml"
    ).split()
)
"""Files in which an entity is written as one."""
_PATHS = ("path", "filePath", "file_path", "filename", "target_file", "absolutePath", "absolute_path")
_CONTENTS = frozenset({"content", "contents", "file_text", "code_edit"})
_FENCE = re.compile(r"```[ \t]*+[\w.+#-]*+[ \t\r]*+\Z")


def unwrap_cdata(text: str) -> str | None:
    """The content of a value that is entirely one CDATA section; None where it is not."""
    # The wrapper may stand on lines of its own.
    core = text.strip()
    if core.startswith(CDATA_OPEN) and core.endswith(CDATA_CLOSE):
        return core[len(CDATA_OPEN) : -len(CDATA_CLOSE)]
    return None


def read_cdata(cur: Cursor, sink: Sink, closers: tuple[str, ...]) -> Steps:
    """A value that is one CDATA section: it ends at the first `]]>` that the closer follows."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    if not (yield from cur.lit(CDATA_OPEN)):
        cur.back(start)
        cur.anchor = None
        return False
    cur.back(start)
    cur.anchor = None
    while (yield from cur.until("]]>", sink)):
        cur.anchor = start = cur.offset
        cur.pos += 3
        spaces = yield from cur.ws()
        closer = yield from cur.lits(closers)
        end = cur.offset
        cur.back(start)
        cur.anchor = None
        if closer:
            sink("]]>")
            cur.back(end)
            return True
        sink("]]>" + cur.text[cur.pos + 3 : cur.pos + 3 + spaces])
        cur.pos += 3 + spaces
    raise Reject("value not closed", attempted=True, inside=True)


def decode_entities(key: str, text: str, others: Callable[[str], object]) -> str:
    """Undo entities where the whole value was clearly escaped; of a markup file only where it is a whole document."""
    # A bare angle bracket shows that nothing was escaped: then each entity is what the file is to hold.
    if "&" not in text or "<" in text or ">" in text or _QUOTED_ENTITY.search(text):
        return text
    if not any(sign in text for sign in _SURE) and not (key == "command" and "&amp;&amp;" in text):
        return text
    # A page is full of entities that are meant; escaped as a whole, it begins with what no page begins with.
    if _path_ends(others, _MARKUP_FILES) and (_path_ends(others, _MARKDOWN_FILES) or not _DOCUMENT.match(text)):
        return text
    return _ENTITY.sub(lambda match: _ENTITIES[match.group()], text)


def without_breaks(cur: Cursor, text: str, *, is_text: bool = True) -> str:
    r"""The value of a call whose line breaks came as `\n`: without those that are markup; a text may hold no others."""
    if not cur.literal_breaks:
        return text
    text = text.removeprefix("\\n").removesuffix("\\n")
    # `\n` inside may be code's own escape as well as a line break.
    if is_text and "\\" in text:
        raise Reject("line breaks can be read in several ways", attempted=True)
    return text


def awaits_path(declared: Container[str], given: Container[str]) -> bool:
    """Whether the name of the file may still come: what it is decides how its content is read."""
    return any(name in declared and name not in given for name in _PATHS)


def without_fence(key: str, text: str, others: Callable[[str], object]) -> str:
    """A file's content without the one code fence that is wrapped around all of it, unless Markdown is written."""
    if key not in _CONTENTS or not text.startswith("```") or _path_ends(others, _MARKDOWN_FILES):
        return text
    opener, newline, inner = text.rstrip().partition("\n")
    inner, _, closer = inner.rpartition("\n")
    if not newline or not _FENCE.match(opener) or closer.strip() != "```":
        return text
    # A fence inside: the outer one may be the first of two, and the content a text with both.
    return text if any(line.startswith("```") for line in inner.split("\n")) else inner


def _path_ends(others: Callable[[str], object], endings: tuple[str, ...]) -> bool:
    paths = (others(name) for name in _PATHS)
    return any(isinstance(path, str) and path.strip().lower().endswith(endings) for path in paths)
