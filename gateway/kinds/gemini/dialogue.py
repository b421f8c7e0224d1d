"""The kind of Google's Gemini API: generateContent, and streamGenerateContent as events.

Every event is a whole response with the parts that are new; the last ones tell the finish reason and the usage, the end
of the stream is the end. Parts marked as thought become `reasoning_content`. Calls come whole; signatures of thoughts
are remembered for the turns to come. What the model wrote as a call that could not be read comes as text.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from attrs import field, frozen

from gateway.kinds.gemini.ask import KIND, GeminiOptions, content_request, function_name
from gateway.kinds.lowering.openapi import openapi_subset
from gateway.kinds.lowering.rooted import is_rooted
from gateway.kinds.shared.answer import Usage
from gateway.kinds.shared.ask_parts import Names, bounded_nesting
from gateway.kinds.shared.decoding import bad_reply, compact, count_of, decoded, dict_of, string_of
from gateway.kinds.shared.dialogue import PlacedDialogue
from gateway.kinds.shared.faults import Fault, fault_of_status, is_too_long
from gateway.kinds.shared.listing import listing
from gateway.kinds.shared.memory import Place, keys_of_history
from gateway.kinds.shared.port import Headers, HttpAsk, Situation

__all__ = ["GeminiKind"]

# https://ai.google.dev/api/generate-content#FinishReason
_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    # Whatever the server means to go on with, for the client it is cut off here.
    "CONTINUATION": "length",
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "ESCALATION",
            "PUP_LIMITED_DISABLED",
            "MODEL_ARMOR",
        ),
        "content_filter",
    ),
}
# The API's own parser has failed, and there is nothing else in the answer:
# https://github.com/googleapis/python-genai/issues/1836
# Taken for `stop` it is an empty answer that looks finished: https://github.com/NousResearch/hermes-agent/issues/83886
_BROKEN_CALL = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")
_UNSPECIFIED = ("", "FINISH_REASON_UNSPECIFIED")
_FAULTS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class _FunctionCall(msgspec.Struct):
    id: Any = None
    name: Any = None
    args: msgspec.Raw = msgspec.Raw()


class _Part(msgspec.Struct, rename="camel"):
    text: Any = None
    thought: Any = None
    thought_signature: Any = None
    function_call: _FunctionCall | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    index: Any = None
    content: _Content | None = None
    finish_reason: Any = None
    finish_message: Any = None


class _Response(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: Any = None
    usage_metadata: Any = None
    model_version: Any = None
    response_id: Any = None
    error: Any = None


_RESPONSE = msgspec.json.Decoder(_Response)


@frozen
class GeminiKind:
    """Gemini's generateContent."""

    options: GeminiOptions = field(factory=GeminiOptions)
    name: str = KIND

    def credentials(self, key: str | None, cookies: str | None = None) -> Headers:
        return (("x-goog-api-key", key),) if key else ()

    def keys(self, body: Mapping[str, Any], *, scope: str = "") -> tuple[str, ...]:
        return keys_of_history(KIND, body, scope=scope)

    def begin(
        self,
        body: Mapping[str, Any],
        raw: bytes,
        *,
        situation: Situation,
        known: Mapping[str, bytes],
        original: Mapping[str, Any] | None = None,
    ) -> "_Dialogue":
        names = Names(function_name)
        with bounded_nesting():
            request = content_request(body, known=known, scope=situation.scope, names=names, options=self.options)
            data = msgspec.json.encode(request)
        streams = body.get("stream") is True
        model = string_of(body.get("model"))
        verb = "streamGenerateContent" if streams else "generateContent"
        ask = HttpAsk(
            # Quoted: a model is the client's word, and a slash in it would lead to another path.
            # The model stands in the path and not in the body.
            path=f"/models/{quote(model.removeprefix('models/'), safe='')}:{verb}",
            query=(("alt", "sse"),) if streams else (),
            headers=(("Content-Type", "application/json"),),
            body=data,
            streams=streams,
        )
        place = Place.after((original or body).get("messages"))
        return _Dialogue(ask, body, place, situation, names, ttl_s=self.options.memory_ttl_s)

    def can_say(self, parameters: Mapping[str, Any]) -> bool:
        if self.options.schema_field == "parametersJsonSchema":
            return is_rooted(parameters)
        # A tool that could not be told whole is told in the prompt instead, where nothing of its schema is lost.
        return (openapi_subset(parameters) or {"type": "object", "properties": {}}) == parameters

    def models_ask(self) -> HttpAsk:
        # A page holds 50 by default, and clients of OpenAI's list know no pages:
        # https://ai.google.dev/api/models#method:-models.list
        return HttpAsk(method="GET", path="/models", query=(("pageSize", "1000"),))

    def models(self, body: bytes) -> bytes:
        return listing(body, "models", _listed)


def _listed(entry: dict[str, Any]) -> tuple[str, str]:
    methods = entry.get("supportedGenerationMethods")
    # Models for embeddings and pictures stand in the same list.
    talks = not isinstance(methods, list) or "generateContent" in methods
    return (string_of(entry.get("name")).removeprefix("models/") if talks else "", "google")


class _Dialogue(PlacedDialogue):
    """One request for content."""

    kind = KIND

    def __init__(
        self, ask: HttpAsk, body: Mapping[str, Any], place: Place, situation: Situation, names: Names, *, ttl_s: float
    ) -> None:
        super().__init__(ask, body, place, situation, ttl_s=ttl_s)
        self._names = names
        self._usage: dict[str, Any] = {}
        self._signatures: dict[str, str] = {}
        self._text_signature = ""
        self._ids: set[str] = set()

    def _kept(self) -> bytes | None:
        if not (self._signatures or self._text_signature):
            return None
        return msgspec.json.encode({"model": self._model, "calls": self._signatures, "text": self._text_signature})

    def _whole(self, body: bytes) -> None:
        response = decoded(body, _RESPONSE)
        # A prompt that was blocked has no candidates at all, only feedback.
        if response.candidates is None and not dict_of(response.prompt_feedback):
            raise bad_reply()
        self._told(response)

    def _event(self, data: bytes) -> None:
        response = decoded(data, _RESPONSE)
        if response.error is not None:
            self._refuse(response.error)
        self._told(response)
        self._answer.open()

    def _told(self, response: _Response) -> None:
        self._answer.identify(response.response_id, response.model_version)
        self._usage.update(dict_of(response.usage_metadata))
        # Told with status 200; by an empty answer alone the client would ask again and again.
        if dict_of(response.prompt_feedback).get("blockReason"):
            self._answer.finish_reason = "content_filter"
        for candidate in response.candidates or ():
            # More than one was never asked for.
            if not count_of(candidate.index):
                self._candidate(candidate)

    def _candidate(self, candidate: _Candidate) -> None:
        for part in (candidate.content and candidate.content.parts) or ():
            self._part(part)
        reason = string_of(candidate.finish_reason)
        if reason in _UNSPECIFIED:
            return
        self._answer.finish_reason = _REASONS.get(reason, "stop")
        # The message quotes what the model wrote, so the recovery may still find the call in it.
        if reason in _BROKEN_CALL and not self._answer.content:
            self._answer.text(string_of(candidate.finish_message))

    def _part(self, part: _Part) -> None:
        signature = string_of(part.thought_signature)
        if part.function_call is not None:
            self._call(part.function_call, signature)
        elif part.thought is True:
            self._answer.reasoning(string_of(part.text))
        else:
            self._answer.text(string_of(part.text))
            # It comes with the last part, whose text is often empty.
            self._text_signature = signature or self._text_signature

    def _call(self, call: _FunctionCall, signature: str) -> None:
        call_id = string_of(call.id)
        # Gemini 2.5 gives no ids, and results could not be told apart without one.
        if not call_id or call_id in self._ids:
            call_id = self._situation.make_id("native")
        self._ids.add(call_id)
        if signature:
            self._signatures[call_id] = signature
        number = self._answer.call(call_id, self._names.meant(string_of(call.name)))
        given = bytes(call.args).strip() not in (b"", b"null")
        self._answer.arguments(number, compact(call.args) if given else "{}")

    def _complete(self) -> None:
        super()._complete()
        self._answer.usage = _usage(self._usage)

    def _fault(self, value: Mapping[str, Any], status: int) -> Fault | None:
        return _fault(dict_of(value.get("error")), status)


def _usage(told: dict[str, Any]) -> Usage | None:
    if not told:
        return None
    prompt, tools, candidates, thoughts = (
        count_of(told.get(name))
        for name in ("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    )
    return Usage(
        # OpenAI counts thoughts within the completion: https://ai.google.dev/api/generate-content#UsageMetadata
        prompt=(prompt or 0) + (tools or 0),
        completion=(candidates or 0) + (thoughts or 0),
        cached=count_of(told.get("cachedContentTokenCount")),
        reasoning=thoughts,
    )


def _fault(error: dict[str, Any], status: int) -> Fault | None:
    told, message = string_of(error.get("status")), string_of(error.get("message"))
    if not told and not message:
        return None
    code = count_of(error.get("code"))
    status = _FAULTS.get(told) or (code if code and 400 <= code < 600 else status)
    # A wrong key is told as INVALID_ARGUMENT, which a client would take for a fault of its request.
    if status == 400 and "api key not valid" in message[:200].lower():
        status = 401
    fault = fault_of_status(status, message)
    kind = "context_length_exceeded" if status == 400 and is_too_long(message) else fault.code
    return Fault(status=status, message=message or told, type=fault.type, code=kind, retry_after_s=_retry(error))


def _retry(error: dict[str, Any]) -> float | None:
    """How long a fault says to wait."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        # Gemini says it in the body alone: https://cloud.google.com/apis/design/errors#error_details
        delay = string_of(dict_of(detail).get("retryDelay")).removesuffix("s")
        whole = delay.partition(".")[0]
        if whole.isascii() and whole.isdigit() and len(whole) < 7:
            return float(whole) + (1.0 if "." in delay else 0.0)
    return None
