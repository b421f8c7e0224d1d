"""Calls that a model writes into a line of words without ending the sentence first.

Such an opener may as well be talked about, so more is asked of it: the sentence says what the model does next and does
not speak of showing or of markup, every tag of the call is there, one argument at least, and nothing follows.
"""

import re
from collections.abc import Generator

from attrs import evolve

from strategies.grammar.bare_data import ends_message
from strategies.grammar.dialect import Arguments, Context, Draft, Opening, Parse
from strategies.grammar.literal import is_announced_example, last_sentence, stands_in_words
from strategies.text.cursor import Cursor, Reject, Steps

__all__ = ["in_line", "leads_to_call", "shows_example"]

IN_WORDS = "in_line_of_words"
"""The mend of a call that stands in running text."""
_LEAD_IN = 160
_STRUCTURE = re.compile(r"\s*(?:[-*+•#|>]|[0-9]{1,9}[.)])")
_INTENT = re.compile(
    r"\A\W*(?:(?:ok|okay|sure|great|good|right|alright|now|first|next|then|so|well|yes|and|but)\b\W*){0,3}"
    r"(?:i['’]ll|i will|i(?:['’]m| am) (?:now )?(?:going|about) to|i (?:now )?(?:need|have|want) to"
    r"|i['’]d like to|i shall|let me|let us|let['’]s"
    r"|here(?:['’]s| is| are) (?:a |the |my )?(?:(?:tool|function) )?calls?)\b"
    r"|\A\W*(?:(?:gut|also|nun|jetzt|zuerst|dann|als nächstes)\b\W*){0,2}"
    r"(?:ich (?:werde|will|muss|möchte)|(?:werde|will|muss|möchte) ich|lass(?:en sie)? mich)\b"
    r"|\A\W*(?:(?:bien|vale|bueno|ahora|primero|luego)\b\W*){0,2}(?:voy a|vamos a|déjame|permíteme|tengo que)\b"
    r"|\A\W*(?:(?:bien|bon|maintenant|d['’]abord|ensuite)\b\W*){0,2}(?:je vais|je dois|laisse[zs]?-moi|permettez-moi)\b"
    r"|\A\W*(?:(?:bem|certo|agora|primeiro|depois)\b\W*){0,2}(?:vou|deixe-me|deixa eu)\b"
    r"|\A\W*(?:(?:bene|ora|prima|poi)\b\W*){0,2}(?:vado a|devo|lasciami|fammi)\b"
    r"|\A\W*(?:(?:хорошо|сейчас|теперь|сначала)\b\W*){0,2}(?:я (?:сейчас )?\w+ю|давайте|позвольте)\b"
    r"|\A\W*+(?:好的?|现在|首先|接下来)?\W*+(?:我来|我将|我会|我先|我要|让我)",
    re.IGNORECASE,
)
"""How a sentence begins that says what is done next."""
_TALK = re.compile(
    r"\b(?:show\w*|explain\w*|demonstrat\w*|illustrat\w*|quot\w+|compar\w+|describ\w+|teach\w*|mean\w*|tell\w*"
    r"|tags?|markup|xml|element\w*|prompt\w*|look like|instead|not|never|if|would|could|such|e\.g"
    r"|\w+n['’]t|zeig\w*|erklär\w*|nicht|nie|statt|wenn|würde\w*|muestr\w*|mostr\w*|explic\w*|montr\w*|expliqu\w*"
    r"|spieg\w*|no|ne|pas|não|non|si|se|показ\w*|объясн\w*|не|если)\b|展示|说明|解释|示|标签|不|如果",
    re.IGNORECASE,
)


def shows_example(before: str) -> bool:
    """Whether the words before a call announce an example, rather than say what their writer does next."""
    sentence = last_sentence(before.rstrip()[-_LEAD_IN:])
    return is_announced_example(before) and not (_INTENT.match(sentence) and not _TALK.search(sentence))


def in_line(parse: Parse) -> Parse:
    """The same grammar, which asks for more where its opener stands in a line of words."""

    def parse_anywhere(
        cur: Cursor, context: Context, opening: Opening, arguments: Arguments
    ) -> Generator[Draft | None, None, None]:
        if not stands_in_words(opening):
            yield from parse(cur, context, opening, arguments)
            return
        if not opening.before[-1:].isspace() or not leads_to_call(opening):
            raise Reject("in a line of words")
        yield from _demanding(parse, cur, context, opening)

    return parse_anywhere


def leads_to_call(opening: Opening) -> bool:
    """Whether the words before an opener say what their writer does next, and do not speak of showing it."""
    if _STRUCTURE.match(opening.line) or is_announced_example(opening.before):
        return False
    sentence = last_sentence(opening.before[-_LEAD_IN:])
    return _INTENT.match(sentence) is not None and _TALK.search(sentence) is None


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
