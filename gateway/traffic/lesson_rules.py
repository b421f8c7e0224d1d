"""What was learned of a model at its upstream: that it does not take native tools, or makes nothing usable of them.

A refusal teaches at once; calls that keep coming as text which cannot be recovered, or with arguments that are no JSON
object, teach when their share among the last answers with calls is too large. Such a lesson is forgotten after an hour,
as servers change; that a model does well as it is asked, seen in its answers or by a probe, after a week.
"""

import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

import msgspec
from attrs import define, field, frozen

from gateway.core.call_class import CallClass

__all__ = [
    "ABLE",
    "CLEAN_CALLS",
    "ENOUGH",
    "FOR_AN_HOUR",
    "LESSON_S",
    "PROBED",
    "PROMPTED",
    "TRIAL",
    "WEEK_S",
    "Abilities",
    "Fault",
    "KeepsLessons",
    "Lesson",
    "Lessons",
    "NativeEvidence",
    "NativeRecord",
    "Terms",
    "ValidCalls",
    "quotes_refusal",
    "refuses_tools",
]

LESSON_S = 3600.0
WEEK_S = 7 * 86_400.0
PROMPTED = "xml_prompt"
PROBED = "probed"
"""The reason of a lesson that a probe has left."""
MAX_PAIRS = 1024
"""Upstreams and models that something is kept of; a client chooses the model's name."""

CLEAN_CALLS = 500
"""So many calls in a row without a fault, and a model's calls need not be held any more."""
ENOUGH = 20
"""Native calls, none of them bad, that show a model to call well as it is asked."""
TRIAL = 50
"""Calls after that, among which one bad answer ends it; later two among so many answers do."""
MAX_BAD = 1
ABLE = 3
ABLE_OF = 20
"""So often, among so many, a server must have done as it was asked."""

Fault = Literal["as_text", "bad_arguments"]
Pair = tuple[str, str]

_ESCAPED = re.compile(rb"\\u00([0-7][0-9a-f])")
_BLANK = re.compile(rb"\\[nrt]")
"""White space and letters as JSON may write them."""
_STATUSES = frozenset({400, 404, 422, 500, 501})
"""Servers of llama.cpp answer 500."""
_MAX_CHARS = 2000
_MAX_DETAILS = 20

_TOOLS = (
    # `tool_choice is not supported` speaks of forcing a call and not of tools, `tools[0]` of one schema.
    r"(?:tools?|tool[ _-](?:use|usage|call(?:s|ing)?)|function[ _-]?call(?:s|ing)?)\b(?!\[|[ _-]?(?:choice|result))"
)
_IS_NOT = r"(?:(?:is|are) )?(?:currently )?(?:not (?:currently |yet )?(?:supported|enabled|available)|unsupported)"
_REFUSAL = re.compile(
    "|".join(
        (
            # Ollama, by the model's template: https://github.com/ollama/ollama/issues/14795
            rf"(?:does not|doesn't|do not|don't|cannot|can't) support (?:the |native )?(?:use of )?['\"`]?{_TOOLS}",
            # `streaming in tool calls is not supported` refuses something else beside them.
            rf"(?<!in )(?<!of )(?<!for )(?<!with )\b{_TOOLS}['\"`]?(?: with function calling)? {_IS_NOT}",
            # OpenRouter, where none of a model's hosts takes tools: https://openrouter.ai/docs/features/tool-calling
            r"no endpoints found that support tool use",
            # vLLM without its flags: https://github.com/vllm-project/vllm/issues/9986
            r"--enable-auto-tool-choice|requires --tool-call-parser",
            # llama.cpp without its flag: https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md
            r"tools param requires --jinja",
            # Servers that check the fields of a request, by the libraries that check them for Python and Go.
            r"(?:unsupported|unknown|unrecognized|unexpected) (?:request )?"
            r"(?:param(?:eter)?|name|field|argument|keyword argument)s?(?: supplied)?:? ['\"`]?tools\b(?![\[.])",
            r"\btools: extra (?:inputs|fields)",
        )
    )
)


def refuses_tools(status: int, payload: bytes | None) -> bool:
    """Whether an error of the upstream says that it takes no native tools, as far as its own words tell."""
    return bool(_refusals(status, payload))


def quotes_refusal(status: int, payload: bytes | None, asked: bytes) -> bool:
    """Whether what an error says of tools stands in the request, too.

    Servers quote what they refuse: one client's words must not decide how all others are answered for an hour.
    """
    found = _refusals(status, payload)
    if not found:
        return False
    # The request may have written the words with escapes, which the server has undone.
    text = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), asked.lower())
    text = b" ".join(_BLANK.sub(b" ", text).replace(b"\\", b"").split())
    return any(refusal.encode() in text for refusal in found)


def _refusals(status: int, payload: bytes | None) -> list[str]:
    """The words that say so."""
    if status not in _STATUSES or payload is None:
        return []
    try:
        body = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return []
    said = (_REFUSAL.search(" ".join(text[:_MAX_CHARS].lower().split())) for text in _words(body))
    return [match[0] for match in said if match]


def _words(body: Any) -> Iterator[str]:
    """What an error body says for itself; what it quotes of the request is none of it."""
    if not isinstance(body, dict):
        return
    for holder in (body, body.get("error")):
        if isinstance(holder, str):
            yield holder
        elif isinstance(holder, dict):
            yield from (holder[key] for key in ("message", "detail") if isinstance(holder.get(key), str))
            metadata = holder.get("metadata")
            # OpenRouter puts the host's own words there: https://openrouter.ai/docs/api-reference/errors
            if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
                yield metadata["raw"]
    # FastAPI's form of a field that does not fit: https://fastapi.tiangolo.com/tutorial/handling-errors/
    details = body.get("detail")
    for detail in details[:_MAX_DETAILS] if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("msg"), str):
            place = detail.get("loc")
            where = ".".join(map(str, place[:8])) if isinstance(place, list) else ""
            yield f"{where}: {detail['msg']}"


@frozen(kw_only=True)
class Lesson:
    """How a model at an upstream is to be asked until then, and why."""

    reason: str
    until: float
    rule: str = PROMPTED
    """A strategy, with its dialect behind a colon where one was learned, too."""
    since: float = 0.0
    able: frozenset[str] = frozenset()
    """Fields of requests that the server was seen to obey, as in `Abilities`."""

    @property
    def strategy(self) -> str:
        """The strategy alone."""
        return self.rule.partition(":")[0]

    @property
    def dialect(self) -> str | None:
        """The dialect that was learned with it."""
        return self.rule.partition(":")[2] or None

    @property
    def is_native(self) -> bool:
        """Its tools are left as they are."""
        return self.strategy != PROMPTED


@frozen(kw_only=True)
class Terms:
    """What is learned, and for how long."""

    rule: str = PROMPTED
    seconds: float = LESSON_S
    able: frozenset[str] = frozenset()


FOR_AN_HOUR = Terms()


class KeepsLessons(Protocol):
    """Where lessons are kept: in this process, or where all workers find them."""

    def learn(self, upstream: str, model: str, reason: str, now: float, terms: Terms = FOR_AN_HOUR) -> None: ...

    def forget(self, upstream: str, model: str, now: float) -> None: ...

    def recall(self, upstream: str, model: str, now: float) -> Lesson | None: ...


@define
class Lessons:
    """The lessons of one process, at most `MAX_PAIRS` of them."""

    _lessons: OrderedDict[Pair, Lesson] = field(factory=OrderedDict)

    def learn(self, upstream: str, model: str, reason: str, now: float, terms: Terms = FOR_AN_HOUR) -> None:
        """From now on, for so long."""
        until = now + terms.seconds
        self._lessons[upstream, model] = Lesson(reason=reason, until=until, rule=terms.rule, since=now, able=terms.able)
        self._lessons.move_to_end((upstream, model))
        if len(self._lessons) > MAX_PAIRS:
            self._lessons.popitem(last=False)

    def forget(self, upstream: str, model: str, now: float) -> None:
        """What was learned of it holds no longer."""
        del now
        self._lessons.pop((upstream, model), None)

    def recall(self, upstream: str, model: str, now: float) -> Lesson | None:
        """What holds now."""
        lesson = self._lessons.get((upstream, model))
        return lesson if lesson is not None and now < lesson.until else None


@define
class NativeRecord:
    """How the last answers with calls of each model fared, where it was given native tools."""

    _answers: OrderedDict[Pair, deque[tuple[float, Fault | None]]] = field(factory=OrderedDict)

    def observe(
        self, upstream: str, model: str, fault: Fault | None, now: float, *, window: int, percent: int
    ) -> Fault | None:
        """Take down one answer with calls; the commonest fault when `percent` of the last `window` had one."""
        pair = (upstream, model)
        answers = self._answers.setdefault(pair, deque())
        self._answers.move_to_end(pair)
        if len(self._answers) > MAX_PAIRS:
            self._answers.popitem(last=False)
        answers.append((now, fault))
        # A fault of yesterday says nothing of a server that was started anew since.
        while len(answers) > window or now - answers[0][0] >= LESSON_S:
            answers.popleft()
        faults = Counter(kind for _, kind in answers if kind is not None)
        if len(answers) < window or faults.total() * 100 < percent * window or not faults:
            return None
        del self._answers[pair]
        return faults.most_common(1)[0][0]


@define
class _Calls:
    classes: Counter[CallClass] = field(factory=Counter)
    clean: int = 0
    """How many have been valid since the last that was not."""


@define
class ValidCalls:
    """The structured calls of every model at its upstream, by their classes."""

    _models: OrderedDict[tuple[str, str], _Calls] = field(factory=OrderedDict)

    def observe(self, upstream: str, model: str, classes: Mapping[CallClass, int]) -> None:
        """Take down the calls of one answer."""
        if not classes:
            return
        pair = (upstream, model)
        known = self._models.setdefault(pair, _Calls())
        self._models.move_to_end(pair)
        if len(self._models) > MAX_PAIRS:
            self._models.popitem(last=False)
        known.classes.update(classes)
        is_clean = set(classes) <= {CallClass.VALID}
        known.clean = known.clean + classes[CallClass.VALID] if is_clean else 0

    def is_clean(self, upstream: str, model: str) -> bool:
        """There was no fault in the last `CLEAN_CALLS` calls, and there have been so many."""
        known = self._models.get((upstream, model))
        return known is not None and known.clean >= CLEAN_CALLS

    def of(self, upstream: str, model: str) -> Mapping[CallClass, int]:
        """How many calls of each class this process has seen of a model."""
        known = self._models.get((upstream, model))
        return known.classes if known is not None else {}


@define
class _Known:
    """What one model's answers have shown."""

    good: int = 0
    """Native calls since the last bad answer."""
    tried: int = 0
    """Calls since it was learned."""
    lately: deque[bool] = field(factory=lambda: deque(maxlen=TRIAL))
    """Of the last answers, whether each was bad."""


@define
class NativeEvidence:
    """Whether models that would be told of their tools in the prompt call them natively all the same.

    Untouched answers are the evidence; of at most `MAX_PAIRS` models.
    """

    _known: OrderedDict[Pair, _Known] = field(factory=OrderedDict)

    def observe(
        self, upstream: str, model: str, *, calls: int, is_bad: bool, is_learned: bool
    ) -> Literal["learned", "ended"] | None:
        """An answer to native tools had so many native calls; what follows from it, if anything new does."""
        if not calls and not is_bad:
            return None
        pair = (upstream, model)
        known = self._known.setdefault(pair, _Known())
        self._known.move_to_end(pair)
        if len(self._known) > MAX_PAIRS:
            self._known.popitem(last=False)
        if is_learned:
            return self._tried(pair, known, calls, is_bad=is_bad)
        known.good = 0 if is_bad else known.good + calls
        if known.good < ENOUGH:
            return None
        self._known[pair] = _Known()
        return "learned"

    def _tried(self, pair: Pair, known: _Known, calls: int, *, is_bad: bool) -> Literal["ended"] | None:
        known.lately.append(is_bad)
        known.tried += calls
        is_over = is_bad and known.tried <= TRIAL
        if is_over or sum(known.lately) > MAX_BAD:
            del self._known[pair]
            return "ended"
        return None


@define
class Abilities:
    """Fields of requests that a model's server was seen to obey: `named` and `strict`, as clients have used them."""

    _seen: OrderedDict[tuple[str, str, str], deque[bool]] = field(factory=OrderedDict)
    is_empty: bool = True
    """No client has asked for any of it yet."""

    def observe(self, upstream: str, model: str, ability: str, *, worked: bool) -> None:
        """A client has asked for it, and the answer was as asked, or not."""
        self.is_empty = False
        key = (upstream, model, ability)
        seen = self._seen.setdefault(key, deque(maxlen=ABLE_OF))
        self._seen.move_to_end(key)
        if len(self._seen) > MAX_PAIRS:
            self._seen.popitem(last=False)
        seen.append(worked)

    def has(self, upstream: str, model: str, ability: str, *, is_learned: bool = False) -> bool:
        """It is known to work: three times, or learned from a probe, and never not."""
        seen = self._seen.get((upstream, model, ability), ())
        return (is_learned or len(seen) >= ABLE) and all(seen)
