"""Calls that a model writes into a line of words without ending the sentence first.

Such an opener may as well be talked about, so more is asked of the call: every tag is there, one argument at least, and
nothing follows it in the answer. A sentence that speaks of writing, of tags or of calls makes it an example.
"""

import re
from collections.abc import Generator

from attrs import evolve

from strategies.cursor import Cursor, Reject, Steps
from strategies.dialect import Arguments, Context, Draft, Opening, Parse
from strategies.literals import is_announced_example, last_sentence, stands_in_words
from strategies.markerless import ends_message

__all__ = ["in_line"]

IN_WORDS = "in_line_of_words"
"""The mend of a call that stands in running text."""
_LEAD_IN = 160
_STRUCTURE = re.compile(r"\s*(?:[-*+•#|>]|[0-9]{1,9}[.)])")
_TALK = re.compile(
    r"\b(?:us(?:e[ds]?|ing|age)|calls?|called|calling|invok\w+|writ(?:e[sn]?|ing)|wrote|typ(?:e[ds]?|ing)|say(?:s|ing)?"
    r"|said|emit\w*|output\w*|print\w*|produc\w+|generat\w+|return\w*|contain\w*|show(?:s|n|ed|ing)?|mean(?:s|t|ing)?"
    r"|look(?:s|ed|ing)?|tags?|markup|xml|element\w*|prompt\w*|log|logs|logged|instead|like|as|is|was|are|were|had|has"
    r"|via|with|by|not|never|avoid|without|or|than|if|when|whether|would|could|should|might|may|must|can"
    r"|\w+n['’]t"
    r"|benutz\w*|verwend\w*|nutz\w*|schreib\w*|schrieb\w*|stand|steht|wie|als|mit|statt|aufruf\w*|hei(?:ß|ss)\w*"
    r"|nicht|nie|oder|wenn|ist|war|kann|sollte"
    r"|us[ao]\w*|utili[sz]\w*|escrib\w*|escrit\w*|escrev\w*|écri\w*|etiqueta\w*|balise\w*|llama\w*|appel\w*|chama\w*"
    r"|con|com|como|avec|comme|no|ne|pas|não|nunca|jamais|si|est|es|é|era|était|puede\w*|peut|pode"
    r"|usa\w*|scriv\w*|scritt\w*|chiam\w*|come|non|использ\w*|пиш\w*|напис\w*|тег\w*|вызов\w*|как|не|или|если)\b"
    r"|用|写|寫|标签|標籤|标记|调用|呼叫|像|如|是|不|有|使|書|タグ|呼|よう|という|쓰|사용|태그|호출",
    re.IGNORECASE,
)


def in_line(parse: Parse) -> Parse:
    """The same grammar, which asks for more where its opener stands in a line of words."""

    def parse_anywhere(
        cur: Cursor, context: Context, opening: Opening, arguments: Arguments
    ) -> Generator[Draft | None, None, None]:
        if not stands_in_words(opening):
            yield from parse(cur, context, opening, arguments)
            return
        if _is_talk(opening):
            raise Reject("in a line of words")
        yield from _demanding(parse, cur, context, opening)

    return parse_anywhere


def _is_talk(opening: Opening) -> bool:
    """Whether the words before the opener speak of calls, rather than lead to one."""
    is_glued = not opening.before[-1:].isspace()
    if is_glued or _STRUCTURE.match(opening.line) or is_announced_example(opening.before):
        return True
    return _TALK.search(last_sentence(opening.before[-_LEAD_IN:])) is not None


def _demanding(parse: Parse, cur: Cursor, context: Context, opening: Opening) -> Steps:
    """One call without a mend, behind which the answer ends."""
    for draft in parse(cur, context, opening, Arguments(None)):
        if draft is None:
            yield None
            continue
        is_whole = draft.tool is not None and not draft.tool.known and not draft.mends and draft.arguments
        if not is_whole:
            raise Reject("in a line of words")
        end = cur.offset if draft.end is None else draft.end
        is_last = cur.is_last if draft.end is not None else (yield from ends_message(cur))
        if not is_last:
            raise Reject("in a line of words")
        yield evolve(draft, mends=(IN_WORDS,), end=end)
        return
