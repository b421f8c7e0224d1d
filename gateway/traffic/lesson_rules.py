"""What was learned of a model at its upstream: that it does not take native tools, or makes nothing usable of them.

A refusal teaches at once; calls that keep coming as text which cannot be recovered, or with arguments that are no JSON
object, teach when their share among the last answers with calls is too large. A lesson is forgotten after an hour, as
servers change.
"""

import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

import msgspec
from attrs import define, field, frozen

from gateway.core.call_class import CallClass

__all__ = [
    "CLEAN_CALLS",
    "LESSON_S",
    "Fault",
    "KeepsLessons",
    "Lesson",
    "Lessons",
    "NativeRecord",
    "ValidCalls",
    "refuses_tools",
]

LESSON_S = 3600.0
MAX_PAIRS = 1024
"""Upstreams and models that something is kept of; a client chooses the model's name."""

CLEAN_CALLS = 500
"""So many calls in a row without a fault, and a model's calls need not be held any more."""

Fault = Literal["as_text", "bad_arguments"]
Pair = tuple[str, str]

_STATUSES = frozenset({400, 404, 422, 500, 501})
"""Servers of llama.cpp answer 500."""
_MAX_CHARS = 2000
_MAX_DETAILS = 20

_TOOLS = (
    r"(?:tools?|tool[ _-](?:use|usage|call(?:s|ing)?)|function[ _-]?call(?:s|ing)?)\b(?!\[|[ _-]?(?:choice|result))"
)
_IS_NOT = r"(?:(?:is|are) )?(?:currently )?(?:not (?:currently |yet )?(?:supported|enabled|available)|unsupported)"
_REFUSAL = re.compile(
    "|".join(
        (
            # Ollama, by the model's template: https://github.com/ollama/ollama/issues/14795
            rf"(?:does not|doesn't|do not|don't|cannot|can't) support (?:the |native )?(?:use of )?['\"`]?{_TOOLS}",
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
    if status not in _STATUSES or payload is None:
        return False
    try:
        body = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return False
    return any(_REFUSAL.search(" ".join(text[:_MAX_CHARS].lower().split())) for text in _words(body))


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
            if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
                yield metadata["raw"]
    details = body.get("detail")
    for detail in details[:_MAX_DETAILS] if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("msg"), str):
            place = detail.get("loc")
            where = ".".join(map(str, place[:8])) if isinstance(place, list) else ""
            yield f"{where}: {detail['msg']}"


@frozen(kw_only=True)
class Lesson:
    """A model at an upstream is not to be given native tools until then, and why."""

    reason: str
    until: float


class KeepsLessons(Protocol):
    """Where lessons are kept: in this process, or where all workers find them."""

    def learn(self, upstream: str, model: str, reason: str, now: float) -> None: ...

    def recall(self, upstream: str, model: str, now: float) -> Lesson | None: ...


@define
class Lessons:
    """The lessons of one process, at most `MAX_PAIRS` of them."""

    _lessons: OrderedDict[Pair, Lesson] = field(factory=OrderedDict)

    def learn(self, upstream: str, model: str, reason: str, now: float) -> None:
        """From now on, for an hour."""
        self._lessons[upstream, model] = Lesson(reason=reason, until=now + LESSON_S)
        self._lessons.move_to_end((upstream, model))
        if len(self._lessons) > MAX_PAIRS:
            self._lessons.popitem(last=False)

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
