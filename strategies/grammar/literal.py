"""Where markup is only being talked about: code fences, quotations, lead-ins that announce an example."""

import re

from strategies.grammar.dialect import Opening
from strategies.grammar.lexicon import END_TOKENS, line_of

__all__ = [
    "FenceMark",
    "closes_fence",
    "indents_code",
    "inside_word",
    "is_announced_example",
    "is_quoted",
    "last_sentence",
    "may_open_behind",
    "may_open_fence",
    "opens_fence",
    "shows_opener",
    "stands_in_words",
]

_QUOTES = "\"'“”‘’«»„「『`"
_OPENING_QUOTES = ("«", "„")
_OPENED_BY = {"“": "”„", "„": "", "«": "»", "「": "", "『": ""}
"""Marks that open a quotation, unless as many of those beside them show that they close one."""
_THIN_SPACES = " \u00a0\u202f"
_TAGS = re.compile(r"(?:<[A-Za-z][^<>\n]{0,80}>)+\Z")
"""Openers of a wrapper: what they stand in, the call inside stands in."""
_WRAPPERS = re.compile(r"(?:<[A-Za-z][^<>\n]{0,80}>\s*)+\Z")
_STRAIGHT = ('"', "'", "`")
_LONG = ('"""', "'''")
_IN_SIGHT = 400
"""How many characters of what stands before an opener are at hand."""
_BEFORE_QUOTES = "([{:=,"
"""What stands before a quotation mark that opens; before one that closes there are words."""
# https://spec.commonmark.org/0.31.2/#block-quotes
_BLOCKQUOTE = re.compile(r" {0,3}>[> \t]*")
_AHEAD = r"(?:(?:function|tools|\]<\]minimax\[>\[)?<[^/<>\n][^<>\n]{0,100}>\s*)"
_MARKERS = re.compile(_AHEAD + r"+\Z")
_SHOWING = re.compile(
    r"(?:<!--|<(?:pre|code|samp|kbd|blockquote|q|examples?|documentation)(?:\s[^<>\n]{0,80})?>)\s*"
    rf"{_AHEAD}*\Z",
    re.IGNORECASE,
)
"""A comment or an element in which markup is shown, and the openers that go ahead."""
_SENTENCE_ENDS = frozenset(".:;!?。：；！？…)]}")
_TAG_END = re.compile(r"<[^<>\n]{1,100}>\Z")
_BEFORE_FENCE = tuple(" :.!?：。！？")
_FENCE_INDENT = re.compile(r"[ \t]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)*\Z")
# Whatever a list or a quotation is indented by, a fence closes up to three columns further in:
# https://spec.commonmark.org/0.31.2/#fenced-code-blocks
_CLOSER = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t\r]*\Z")
_CLOSER_RUN = re.compile(r"[ \t]*(?:`{3,}|~{3,})")
_CLOSER_BEGUN = re.compile(r"[ \t]*+(?:`++|~++)?[ \t\r]*+\Z")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|[0-9]{1,9}[.)])\s*\Z")
_ENDS = ".!?。！？\n"
_EXAMPLE = (
    r"(?:examples?|beispiel\w*|ejemplos?|exemples?|exemplos?|esempi\w?|пример\w*|например|приклад\w*|наприклад"
    r"|przykład\w*|příklad\w*|například|voorbeeld\w*|bijvoorbeeld|exempel\w*|eksempel\w*|örne[kğ]\w*|contoh\w*|ví dụ)"
)
"""What an example is called, in languages that put spaces between words."""
_EXAMPLE_SIGN = (
    r"(?:例如|比如|示例|例子|範例|范例|举例|舉例|例えば|たとえば|예를 들|예시|예제|उदाहरण|مثال|مثلا"
    r"|(?<![比惯慣条條事案])例(?:です|だ)?\Z)"
)
"""The same in others."""
_LOOKS = (
    r"(?:(?:sieht|sähe|würde|könnte)\b.{0,80}\bso (?:aus|aussehen)|ressembl\w+ à|se ve(?:ría)? así|sería así"
    r"|seria assim|ficaria assim|sarebbe così|выгляд\w+ (?:бы )?(?:так|следующим образом)"
    r"|wygląda\w* (?:tak|następująco))"
)
_SO_DONE = (
    r"(?:(?:你|您|大家|用户|用戶)(?:就|也)?(?:可以|可|能|应该|應該|需要|要)(?:这样|這樣|这么|如下|像这样)(?:来|來)?(?:调用|調用|写|寫|使用|发送|输入)"
    r"|(?:次|以下)のように(?:呼び出|書|使)(?:い|き|し)ます|이렇게 (?:호출|사용|작성)(?:합니다|하면|할 수))"
)
"""How somebody is told what they can do, which is not what the writer does."""
# Markup that only explains itself was carried out elsewhere: https://github.com/AmanCode22/deeperseeker/issues/12
# https://github.com/agentscope-ai/QwenPaw/issues/4066
_ANNOUNCED = re.compile(
    r"\b(?:for instance|such as|(?:would|will|might|could) look like"
    r"|looks? like (?:the following|(?:this|so|that)(?=\W*+\Z| (?:when|in|for|if|with|once|as)\b))"
    r"|looks? like\Z|schema|response is|syntax|format|template"
    r"|sample|illustrat\w+|hypothetical\w*|etwa so|(?:every|each|any) (?:\w+ )?(?:call|request|message)"
    r" (?:is|has|holds|consists|contains|must|should|can|may|takes|needs|uses|looks)"
    r"|you(?:['’]d| (?:would|can|could|might|should))? (?:write|call|send|type|invoke|run)"
    r"|(?:how|what) (?:an?|such an?) (?:\w+ )?call looks?"
    rf"|{_EXAMPLE}|{_LOOKS})\b"
    rf"|{_EXAMPLE_SIGN}|格式|像这样|长这样|(?:次|以下|この)のようになります|다음과 같습니다"
    rf"|(?:调用|格式)[^。，]{{0,6}}的样子|{_SO_DONE}",
    re.IGNORECASE,
)
_QUOTING = re.compile(
    r"(?:\b(?:wrote|writes?|said|says?|replied|replies|answered|answers|responded|responds|printed|prints|logged|emitted"
    r"|returned|returns|showed|shows?|contained|contains?|schrieb|schreibt|sagte|sagt|antwortete?|meldete?|zeigte?"
    r"|enthielt|enthält|a écrit|a répondu|a affiché|affiche|contient|a renvoyé|renvoie|escribió|dijo|dice|respondió"
    r"|mostró|muestra|contiene|devolvió|devuelve|escreveu|disse|diz|respondeu|mostrou|mostra|contém|retornou|ha scritto"
    r"|ha risposto|ha restituito|написал\w?|сказал\w?|ответил\w?|показал\w?|показывает|содержит|вернул\w?|вывел\w?)"
    r"(?: (?:this|that|the following|back|exactly))?|写道|说道|回复了|返回了|输出了|显示|書いた|書きました|答えた"
    r"|答えました|返した|返しました|出力した|出力しました|表示された|表示されました)\W*+\Z",
    re.IGNORECASE,
)
"""How a sentence ends that says what somebody else wrote."""
_FOR_READER = re.compile(
    r"\b(?:add|put|save|paste|insert|append|copy|place|store)\s(?:this|these|the following)\b[^!?]{0,60}"
    r"\b(?:to|in|into|as|at|below|under)\b[^!?]{0,60}\Z"
    r"|\A\W*+(?:in |file:? |filename:? )?[`\"'*]{0,3}[\w./-]{1,60}"
    r"\.(?:py|[cm]?[jt]s|[jt]sx|jsonc?|ya?ml|toml|sh|md|txt|cfg|ini|html|css|go|rs|java|kt|rb|php|cs|cpp|[ch])\W*+\Z"
    r"|\A\W*+(?:the |your |an? )?(?:fixed|corrected|updated|complete|full|final|new|old|previous)\s"
    r"(?:version|script|snippet|code|config(?:uration)?)\W*+\Z"
    r"|\A\W*+here(?:['’]s| is) (?:an?|the|your)(?: \w+){0,2} (?:script|snippet|test data|config(?:uration)?)\W*+\Z",
    re.IGNORECASE,
)
"""A sentence that hands over what its reader is to put somewhere: a line of their script, a file by its name."""
_STOP = re.compile(r"[.!?]\s")
_ACTING = re.compile(r"\b(?:i|we|let|ich|wir|je|nous|vou|voy|vado|я|мы)\b|[我咱]", re.IGNORECASE)
"""Somebody who speaks of what they do themselves."""
_OUTRIGHT = re.compile(
    r"\A\W*+(?:(?:here(?:['’]s| is| are)|this is|that is|below is|hier(?: ist)?|voici|aquí(?: está| hay)?|aqui está"
    r"|ecco|вот)\s)?\W*+(?:(?:an?|another|one|some|ein(?:e|en)?|une?|uno?|uma?|een|ett)\s)?"
    r"(?:(?:quick|short|simple|minimal|typical|basic|complete|possible|valid)\s)?"
    rf"{_EXAMPLE}\b(?:\W*+\Z|\s(?:calls?|usage|of|for|how|de|d['’]|für|eine[sr]?|di|вызова)\b)"
    rf"|\b(?:for|by way of|zum|par|por|ad|per|na|till) {_EXAMPLE}\W*+\Z|\b(?:for instance|such as)\W*+\Z"
    r"|\A\W*+(?:(?:下面|以下|这|這)(?:就?是|は))?(?:一?[个個])?(?:简单的?)?(?:(?:工具|函数|函數)?(?:调用|調用|使用)的?)?"
    r"(?:例如|比如|示例|例子|举个例子|舉個例子|举例|舉例|例えば|たとえば|例|예를 들어|예시)(?:如下|です)?\W*+\Z"
    r"|\A\W*+(?:这|這)?(?:就?是)?(?:工具|函数|函數)?(?:调用|調用)的(?:格式|写法|寫法|样子|樣子)(?:是|如下|为|為)?\W*+\Z"
    r"|\A\W*+(?:here(?:['’]s| is) )?(?:how|what) (?:an?|the|such an?) (?:\w+ )?call looks?(?: like)?\W*+\Z"
    rf"|\b(?:would|might|could) look like(?: this| so| that)?\W*+\Z|\blooks? like (?:this|so|that)\W*+\Z"
    rf"|\b{_LOOKS}\W*+\Z|\A\W*+usage\W*+\Z"
    r"|\byou(?:['’]d| (?:would|can|could|might|should)) (?:call|write|invoke|use|send|type|run)\b[^.!?]{0,60}"
    r"\b(?:like (?:this|so|that)|as follows|this way)\W*+\Z"
    r"|\b(?:par exemple|zum beispiel|por ejemplo|per esempio|por exemplo|например)\b[^.!?]{0,60}"
    r"\b(?:ainsi|comme (?:ça|cela|suit)|so (?:auf)?(?:ge)?rufen|así|così|assim|так)\W*+\Z"
    rf"|{_SO_DONE}[^。！？]{{0,40}}\Z",
    re.IGNORECASE,
)
"""A sentence that says of what follows that it is an example, and has nothing else to say."""
_DENIED = re.compile(
    r"\b(?:do not|don['’]t|never|won['’]t|will not|wouldn['’]t|would not|refuse to|must not|should not|shouldn['’]t"
    r"|cannot|can['’]t)\s(?:ever\s|actually\s)?(?:run|execute|call|invoke|do|use|send|write)"
    r"(?:\s(?:this|that|these|it|the following|(?:any|some)thing like (?:this|that))\b[^.!?:,;—]{0,24})?\W*+\Z",
    re.IGNORECASE,
)
"""A sentence that says of what follows behind its colon that it is not to be done."""
_REPORTED = re.compile(
    r"\b(?:wrote|said|replied|answered|responded|printed|logged|emitted|returned|produced|output|sent|showed|contained)"
    r"\s(?:only\s|just\s|exactly\s)?(?:this|that|the following)(?:\s(?:text|block|markup|answer|message|output))?"
    r"(?:\s(?:instead|rather than|as)\b[^.!?:,;—]{0,60})?\W*+\Z",
    re.IGNORECASE,
)
"""A sentence that reports what follows behind its colon as what somebody wrote, as in threads about tool calls:
https://github.com/Augustas11/macprovider/issues/426"""
_DIALOGUE = re.compile(
    r"\S\s*\n[ \t]*\**(?:Human|User)\**:\**\s.*\n[ \t]*\**Assistant\**:\**\s", re.DOTALL | re.IGNORECASE
)
"""The turn of somebody else and then its own, written with their labels behind other text: what a model would do there
is made up, or shown (https://github.com/ggml-org/llama.cpp/issues/4072)."""
_SHORT_FORMS = re.compile(r"\b(?:e\. ?g|z\. ?B|p\. ?ej|p\. ?ex)\b\.?", re.IGNORECASE)
_BEHIND_COLON = " \t\r\n*_"
_COLONS = (":", "：")
_LEAD_IN = 240
# https://html.spec.whatwg.org/multipage/indices.html#elements-3, but for those that are parameters of tools as well
_ELEMENT = (
    r"(?:a|abbr|article|aside|b|blockquote|body|br|button|canvas|dd|div|dl|dt|em|fieldset|figure|footer|form|h[1-6]|head"
    r"|header|hr|html|i|iframe|img|label|legend|li|main|nav|ol|option|p|section|select|small|span|strong|style|sub|sup|svg"
    r"|table|tbody|td|textarea|tfoot|th|thead|tr|u|ul|video|[A-Z][\w.]*+|input(?=\s)|>)"
)
_MARKUP = re.compile(rf"\s*+</?{_ELEMENT}(?![\w:-])|.*</{_ELEMENT}>\s*+\Z")
"""A line of a page or of a component: the element that it begins with, or that it ends."""
_STATEMENT = re.compile(
    r"\s*+(?:async |export )?(?:class|def|elif|else|except|finally|func|function|try)\b"
    r"|\s*+(?:for|if|while|with)\b(?:[^=(\[<>_]*+[=(\[<>_]|\s(?:not\s)?\w++:\Z|\s\w++ in \w++:\Z)"
)
_OPENERS = ("{", "(", "[", ";", "=>", "&&", "||")
_CLOSERS = ("}", ")", "]")
_DATA = re.compile(r"""\s*+(?:"[^"]{0,80}"\s*+:|[\[{"].*,\s*+\Z|-?[0-9.]++,\s*+\Z)""")
"""A member of an object, or an entry of a list."""
_KEY = re.compile(r"[ \t]++(?:- )?[\w.-]++:\Z")
"""A key of YAML that stands in a deeper place than the first ones and has its value below."""
_DEEP = re.compile(r"(?: {4}|\t)")
_ENDS_WORDS = frozenset(".:!?。：！？")


FenceMark = tuple[str, int, int]
"""The character of a code fence, how many there are, and the column where it opens."""


def may_open_fence(line: str) -> bool:
    """Whether a code fence may open behind this text on its line: indentation and list markers."""
    return _FENCE_INDENT.match(line) is not None


def may_open_behind(line: str) -> bool:
    """Whether a fence may open behind these words of its line, as models open them that go on without a line break."""
    return line[-1:] in _BEFORE_FENCE and bool(line.strip()) and "`" not in line


def opens_fence(info: str, mark: str) -> str | None:
    """The info word of a fence line, lower-cased; None when the line opens no fence."""
    # Else a code span at the start of a line would be a fence: https://spec.commonmark.org/0.31.2/#info-string
    if mark == "`" and "`" in info:
        return None
    words = info.split(None, 1)
    return words[0].lower() if words else ""


def closes_fence(line: str, fence: FenceMark, *, partial: bool = False) -> bool:
    """Whether a line closes the fence (`partial`: may still become one that does)."""
    mark, size, column = fence
    line, is_partial = _without_end_tokens(line) if mark in line else (line, False)
    if partial:
        return _CLOSER_BEGUN.match(line) is not None and (not line.strip() or mark in line)
    match = None if is_partial else _CLOSER.match(line)
    if match is None:
        return False
    indent, run = match.groups()
    return run[0] == mark and len(run) >= size and len(indent) <= column + 3


def _without_end_tokens(line: str) -> tuple[str, bool]:
    """The line of a fence without the tokens behind it, and whether the last of them has only begun."""
    run = _CLOSER_RUN.match(line)
    if run is None:
        return line, False
    rest = line[run.end() :].strip()
    while rest:
        token = next((token for token in END_TOKENS if rest.startswith(token)), None)
        if token is None:
            is_begun = any(token.startswith(rest) for token in END_TOKENS)
            return (run.group(), True) if is_begun else (line, False)
        rest = rest[len(token) :].strip()
    return run.group(), False


def is_quoted(opening: Opening, level: str, *, inline: bool = False) -> bool:
    """Whether an opener of this evidence level stands in a quotation, or in running text unless `inline` allows it."""
    if _opens_quotation(opening.before) or _inside_call(opening.before) or _inside_string(opening.before):
        return True
    if level == "A":
        return False
    line = opening.line
    if line.lstrip().startswith((">", "|")):
        return True
    ahead = opening.before
    if _ends_in_tag(ahead):
        ahead = _TAGS.sub("", ahead[-_LEAD_IN:])
    last = ahead[-1:]
    if last and (last in _QUOTES or (last in _THIN_SPACES and ahead.rstrip(_THIN_SPACES)[-1:] in _OPENING_QUOTES)):
        return True
    if level not in "CD":
        return False
    if level == "C" and opening.fence is None and _inside_markup(opening):
        return True
    return _LIST_ITEM.match(line) is not None or (not inline and stands_in_words(opening))


_FAMILY = r"(?:[A-Za-z][\w.-]{0,30}[:|]|[|｜‖]{1,2}\w{1,8}[|｜‖]{1,2}|__?)?"
_OPEN = re.compile(
    r"<\|tool_(?:arg:value|arg:start|call:start)\|>|<\|open\|>(?:argument|call)\s[^<>\n]{1,160}(?=<)|\]<\]minimax\[>\[<[\w-]{1,64}>"
    rf"|(?<![ \t`'\"“‘(\w])<{_FAMILY}"
    r"(?:(?:parameter|invoke|function(?:_call)?|call_record)(?:=|\s)[^<>\n]{1,160}|(?:longcat_)?arg_value)(?:>|(?=<))"
    r"|^BEGIN_ARG: [^\n]{1,160}\n",
    re.MULTILINE,
)
"""What opens a value, or a call, in the forms that write values as they are; in prose it is rather talked about."""
_ENDED = re.compile(
    r"</[^<>\n]{0,40}(?:parameter|arg_value|invoke|function|call_record)"
    r"|<\|close\|>(?:argument|call)|<\|tool_(?:arg|call):end|\]<\]minimax\[>\[</|^END_ARG",
    re.MULTILINE,
)
_MAY_OPEN = (
    "BEGIN_ARG",
    "parameter",
    "invoke",
    "function",
    "call_record",
    "arg_value",
    "<|open|>",
    "<|tool_",
    "minimax[",
)


_STRING = re.compile(
    r"""(?:"[\w -]{1,64}+"[ \t]*+:|[\w)]=|--[\w-]{1,64}+)[ \t]*+(?:"(?:[^"\\\n]++|\\.)*+|'(?:[^'\\\n]++|\\.)*+)\Z"""
)
"""A value of data or of a call in Python that has begun on this line and not ended."""
_LONG_STRING = re.compile(r"""\w:<\|"\|>(?:(?!<\|"\|>).)*+\Z|<!\[CDATA\[(?:(?!\]\]>).)*+\Z""", re.DOTALL)
"""One of several lines: Gemma's, and XML's."""


def _inside_string(before: str) -> bool:
    """Whether a text of data stands open here, or of a call that nobody has taken: what it holds is shown, whatever it
    looks like."""
    if ('"' in before or "'" in before) and _STRING.search(before) is not None:
        return True
    return ('<|"|>' in before or "<![CDATA[" in before) and _LONG_STRING.search(before) is not None


def _inside_call(before: str) -> bool:
    """Whether a call stands open here that nobody has taken: what it holds is data, whatever broke it."""
    if not any(word in before for word in _MAY_OPEN):
        return False
    opened = [found.end() for found in _OPEN.finditer(before)]
    return bool(opened) and _ENDED.search(before, opened[-1]) is None


def indents_code(before: str, *, below_keys: bool = True) -> bool:
    """Whether white space behind a line break here indents a line of code, of markup or of data: such text goes on in
    columns, so what indents its next line is no white space in front of a call."""
    line = before.rstrip().rpartition("\n")[2]
    if not line:
        return False
    if line.endswith(_OPENERS) or line.lstrip().startswith(_CLOSERS):
        return True
    if _MARKUP.match(line) or _DATA.match(line):
        return True
    if line[-1] in ":{" and (_STATEMENT.match(line) or (below_keys and _KEY.match(line))):
        return True
    # https://spec.commonmark.org/0.31.2/#indented-code-blocks
    return _DEEP.match(line) is not None and line[-1] not in _ENDS_WORDS


def _inside_markup(opening: Opening) -> bool:
    """Whether a tag stands inside code or a page, behind an element on its line or indented under one: it is a tag of
    that page, whatever its name is."""
    line = opening.line
    if line.strip():
        return _MARKUP.match(line) is not None
    if "<" in opening.before and _inside_page(opening.before):
        return True
    # What stands below a key may be a call: people do write "  call:" in front of one.
    return bool(line) and indents_code(opening.before[: len(opening.before) - len(line)], below_keys=False)


_PARAGRAPH = re.compile(r"\n[ \t\r]*+\n")
_PAGE = re.compile(
    r"^[ \t]*+<(?:\?xml\s|!doctype\s|(html|head|body|main|nav|header|footer|section|article|aside|div|form|table|ul|ol"
    r"|svg|soap(?:env)?:[a-z]+)\b)[^<>]{0,200}>",
    re.IGNORECASE | re.MULTILINE,
)
"""What a page begins with on a line of its own, or a part of one."""


def _inside_page(before: str) -> bool:
    """Whether a page has begun in this paragraph whose element is still open."""
    text = _PARAGRAPH.split(before)[-1]
    opener = _PAGE.search(text)
    if opener is None:
        return False
    name = opener[1]
    return name is None or f"</{name.lower()}" not in text[opener.end() :].lower()


def inside_word(opening: Opening) -> bool:
    """Whether an opener of letters goes on with a word: a part of a word opens nothing."""
    last = opening.before[-1:]
    return opening.marker[:1].isalpha() and last.isascii() and last.isalnum()


_TRIPLE = re.compile(r"""\"\"\"|'''""")
_BEFORE_STRING = re.compile(
    r"(?:[=(\[{,:+]|(?<!\w)(?:return|yield|in|and|or|not|assert))[ \t]{0,8}(?:[rbfuRBFU]{1,2})?\Z"
    r"|(?:\A|:[ \t]{0,8}\n)[ \t]{0,32}(?:[rbfuRBFU]{1,2})?\Z"
)
"""What stands before a long string of code; in prose such quotes are talked about."""
_PREFIXED = re.compile(r"""(?<!\w)[rbfuRBFU]{1,2}["']\Z""")
_MARK = re.compile(r"<(/?)([A-Za-z][\w.:-]{0,63})|<[|｜][^<>\n]{1,40}")


def _inside_long_string(before: str) -> bool:
    """Whether a string between triple quotes has been opened in this paragraph, and not closed."""
    text = before
    if len(_PARAGRAPH.findall(before)):
        text = _PARAGRAPH.split(before)[-1]
    elif len(before) >= _IN_SIGHT:
        return False  # what stands before its first quotes is not in sight
    opened, at = "", 0
    for quotes in _TRIPLE.finditer(text):
        if opened:
            opened, at = ("", 0) if quotes.group() == opened else (opened, at)
        elif text.count("`", text.rfind("\n", 0, quotes.start()) + 1, quotes.start()) % 2:
            continue  # in inline code they are talked about
        elif _BEFORE_STRING.search(text[max(0, quotes.start() - 48) : quotes.start()]):
            opened, at = quotes.group(), quotes.end()
    return bool(opened) and _is_balanced(text[at:])


def _is_balanced(text: str) -> bool:
    """Whether no markup ends here that has begun before: a string inside that has ended with it."""
    opened: set[str] = set()
    for mark in _MARK.finditer(text):
        closes, name = mark.groups()
        if name is None and "begin" not in mark.group() and "token" not in opened:
            return False
        if closes and name not in opened:
            return False
        opened.add(name or "token")
    return True


def shows_opener(before: str, opener: str, closer: str) -> bool:
    """Whether this paragraph quotes an opener, and no closer behind it: what follows may be the rest of it."""
    at = before.rfind(opener)
    if at < 0 or before.find(closer, at) >= 0 or _PARAGRAPH.search(before, at):
        return False
    return before[at - 1 : at] in tuple(_QUOTES)


def _opens_quotation(before: str) -> bool:
    """Whether a quotation begins here, or before the openers that go ahead; one that has ended may precede a call."""
    ends = before.rstrip()
    if (_ends_in_tag(ends) or ends.endswith("<!--")) and _SHOWING.search(before):
        return True
    if _ends_in_tag(ends):
        before = _MARKERS.sub("", before)
    if ('"""' in before or "'''" in before) and _inside_long_string(before):
        return True
    line = line_of(before)
    if _BLOCKQUOTE.fullmatch(line):
        return True
    told = line.rstrip(_THIN_SPACES)
    last = told[-1:]
    if last in _OPENED_BY and (told == line or last in _OPENING_QUOTES):
        return told.count(last) > sum(map(told.count, _OPENED_BY[last]))
    if line.endswith(_LONG):
        # The first of them opens, the second closes.
        return _PARAGRAPH.split(before)[-1].count(line[-3:]) % 2 == 1
    if line.endswith(_STRAIGHT[:2]) and _PREFIXED.search(line[-5:]):
        return True
    return line.endswith(_STRAIGHT) and (line[-2:-1].isspace() or line[-2:-1] in _BEFORE_QUOTES)


def _ends_in_tag(text: str) -> bool:
    """Whether the text may end in a tag; its patterns, which go over all of it, are asked only then."""
    return text.endswith(">") and "\n" not in (tag := text[text.rfind("<") + 1 :]) and tag.find(">") == len(tag) - 1


def stands_in_words(opening: Opening) -> bool:
    """Whether an opener stands in a line of words that does not end a sentence before it."""
    told = opening.line.rstrip()
    if told.endswith(">"):
        return _TAG_END.search(told) is None
    plain = told.rstrip("*_ ")
    return bool(told) and plain[-1:] not in _SENTENCE_ENDS


def is_announced_example(before: str) -> bool:
    """Whether the last sentence before a block announces an example, a quotation or a schema."""
    sentence = _announcing(before)
    if _ANNOUNCED.search(sentence):
        return True
    if not before.rstrip(_BEHIND_COLON).endswith(_COLONS):
        return False
    # The name of a file has a point in it that ends no sentence.
    line = _STOP.split(before.rstrip()[-_LEAD_IN:].rsplit("\n", 1)[-1])[-1]
    if _FOR_READER.search(line) is not None and _ACTING.search(line) is None:
        return True
    return _is_reported(sentence, _QUOTING) or _is_reported(sentence, _REPORTED) or _DENIED.search(sentence) is not None


def _is_reported(sentence: str, reporting: re.Pattern[str]) -> bool:
    """Whether a sentence in front of a colon says what somebody else wrote."""
    return reporting.search(sentence) is not None and _ACTING.search(sentence) is None


def _announcing(before: str) -> str:
    """The last sentence, without the signs that end it; short forms of "for example" are written out."""
    text = before.rstrip()[-_LEAD_IN:].rstrip(":：.。")
    if "." in text:
        text = _SHORT_FORMS.sub("such as", text).rstrip()
    return last_sentence(text)


def says_example(before: str) -> bool:
    """Whether the last sentence before markup says outright that it is an example, a report, or not to be done.

    Or it stands in a dialogue of others.
    """
    lead = _WRAPPERS.sub("", before[-_LEAD_IN:])
    sentence = _announcing(lead)
    if lead.rstrip(_BEHIND_COLON).endswith(_COLONS):
        if _DENIED.search(sentence) is not None or _is_reported(sentence, _REPORTED):
            return True
    if _OUTRIGHT.search(sentence) is not None and _ACTING.search(sentence) is None:
        return True
    return "ssistant" in before and _DIALOGUE.search(before) is not None


def last_sentence(text: str) -> str:
    """What stands behind the last end of a sentence."""
    return text[max(map(text.rfind, _ENDS)) + 1 :]
