"""The kind of Qwen's web chat, a server that keeps the conversation itself.

A conversation is a chat, made by a request of its own, in which every answer has an id; a new message names the answer
that it follows. So the first request carries all messages, a later one only what is new, with the chat and the answer
that were remembered for exactly this conversation: an edited history is another conversation and gets a chat of its
own, two ways to go on from one answer are two branches of one chat. A chat that the server no longer has is made again
with the whole history. The stream has no `[DONE]`: it is complete when the answer's status says so.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from attrs import field, frozen

from gateway.core.errors import UpstreamRejected
from gateway.kinds.qwen_web.session import conversation_key, last_answer
from gateway.kinds.shared.answer import Usage, gathered, is_stream
from gateway.kinds.shared.ask_parts import (
    bounded_nesting,
    functions_of,
    messages_of,
    nothing_to_answer,
    refuse_more_choices,
)
from gateway.kinds.shared.checks import above_zero, path
from gateway.kinds.shared.decoding import bad_reply, count_of, decoded, dict_of, read_json, string_of
from gateway.kinds.shared.dialogue import TranslatingDialogue
from gateway.kinds.shared.faults import Fault, fault_of_status, refused, reply_of
from gateway.kinds.shared.listing import listing
from gateway.kinds.shared.memory import value_in
from gateway.kinds.shared.port import Headers, HttpAsk, Reply, Situation

__all__ = ["KIND", "QwenWebKind", "QwenWebOptions"]

KIND = "qwen_web"
_STATUSES = {
    "bad_request": 400,
    "unauthorized": 401,
    "token_expired": 401,
    "forbidden": 403,
    "not_found": 404,
    "ratelimited": 429,
    "rate_limited": 429,
    "toomanyrequests": 429,
}
# None of it is documented: these are words that the site and wrappers of it have been seen to use, and an owner may
# name others.
_GONE_CODES = frozenset(
    {"not_found", "chat_not_found", "chat_not_exist", "chat_expired", "parent_not_found", "invalid_parent_id"}
)
_REASONS = {"length": "length", "max_tokens": "length", "content_filter": "content_filter"}


@frozen(kw_only=True)
class QwenWebOptions:
    """Paths and words of the wire, all of which its owner may change."""

    create_path: str = field(default="/api/v2/chats/new", validator=path)
    complete_path: str = field(default="/api/v2/chat/completions", validator=path)
    models_path: str = field(default="/api/models", validator=path)
    names: Mapping[str, str] = field(factory=dict)
    """Other names for fields, in requests and in answers alike: `{"parent_id": "parentId"}`."""
    create_fields: Mapping[str, Any] = field(
        factory=lambda: {"title": "New Chat", "chat_mode": "normal", "chat_type": "t2t"}
    )
    """What a request for a chat holds beside `models` and `timestamp`."""
    extra_fields: Mapping[str, Any] = field(factory=dict)
    """What every message holds beside the fields of its own."""
    chat_mode: str = "normal"
    think_phases: frozenset[str] = frozenset({"think", "thinking_summary"})
    answer_phases: frozenset[str] = frozenset({"answer"})
    finished: str = "finished"
    gone_codes: frozenset[str] = _GONE_CODES
    """In lower case: the faults that say the chat, or the answer in it, is no longer there."""
    session_ttl_s: float = field(default=7 * 86_400.0, validator=above_zero)


@frozen
class QwenWebKind:
    """Qwen's web chat."""

    options: QwenWebOptions = field(factory=QwenWebOptions)
    name: str = KIND

    def credentials(self, key: str | None, cookies: str | None = None) -> Headers:
        bearer = (("Authorization", f"Bearer {key}"),) if key else ()
        return (*bearer, ("Cookie", cookies)) if cookies else bearer

    def keys(self, body: Mapping[str, Any], *, scope: str = "") -> tuple[str, ...]:
        key = _key(body, scope)
        return (key,) if key else ()

    def begin(
        self,
        body: Mapping[str, Any],
        raw: bytes,
        *,
        situation: Situation,
        known: Mapping[str, bytes],
        original: Mapping[str, Any] | None = None,
    ) -> "_Dialogue":
        refuse_more_choices(body)
        # The chat is a page for people and takes no tools.
        if functions_of(body):
            raise _no_tools()
        messages = messages_of(body)
        if not messages:
            raise nothing_to_answer()
        client = original or body
        session = value_in(known, _key(client, situation.scope))
        return _Dialogue(body, client, _Session.read(session), situation, self.options)

    def can_say(self, parameters: Mapping[str, Any]) -> bool:
        return True

    def models_ask(self) -> HttpAsk:
        return HttpAsk(method="GET", path=self.options.models_path)

    def models(self, body: bytes) -> bytes:
        return listing(body, "data", lambda entry: (string_of(entry.get("id")), "qwen"))


def _no_tools() -> UpstreamRejected:
    """The refusal that makes the gateway tell the tools in words."""
    fault = fault_of_status(400, "this model server does not support tools")
    return UpstreamRejected(fault.message, status=400, payload=msgspec.json.encode(fault.body()))


def _key(client: Mapping[str, Any], scope: str) -> str | None:
    """The key of the conversation before the new messages; None where there is none."""
    messages = client.get("messages")
    place = last_answer(messages)
    if place < 0 or not isinstance(messages, list):
        return None
    return conversation_key(KIND, string_of(client.get("model")), messages[: place + 1], scope=scope)


@frozen(kw_only=True)
class _Session:
    chat_id: str
    parent_id: str

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "_Session | None":
        chat_id, parent_id = string_of(value.get("chat_id")), string_of(value.get("parent_id"))
        return cls(chat_id=chat_id, parent_id=parent_id) if chat_id and parent_id else None


_OBJECT = msgspec.json.Decoder(dict[str, Any])


class _Dialogue(TranslatingDialogue):
    """One message in a chat, and the chat before it where there is none yet."""

    def __init__(
        self,
        body: Mapping[str, Any],
        client: Mapping[str, Any],
        session: _Session | None,
        situation: Situation,
        options: QwenWebOptions,
    ) -> None:
        super().__init__(body, situation, ttl_s=options.session_ttl_s)
        self._client = client
        self._options = options
        self._model = string_of(body.get("model"))
        self._streams = body.get("stream") is True
        messages = body["messages"]
        # The server holds the rest already; sent again it would stand in the chat twice.
        news = messages[last_answer(messages) + 1 :]
        self._session = session if news else None
        with bounded_nesting():
            self._messages = msgspec.Raw(msgspec.json.encode(messages))
            self._news = msgspec.Raw(msgspec.json.encode(news))
        self._is_made = False
        """The chat was made by this dialogue."""
        self._has_begun = False
        """An event has come that was no fault."""
        self._answer_id = ""
        self.ask = self._create() if self._session is None else self._message(self._session, self._news)

    @property
    def may_be_void(self) -> bool:
        """A chat of an earlier request may be gone."""
        return not (self._is_made or self._has_begun)

    def answered(self, status: int, headers: Mapping[str, str], body: bytes) -> HttpAsk | Reply:
        if self._session is None:
            return self._created(status, body)
        if is_stream(body):
            return self._gathered(body)
        value = read_json(body)
        fault = self._fault(dict_of(value), status)
        if fault is None and not 200 <= status < 300:
            fault = fault_of_status(max(status, 400))
        if fault is not None:
            return self._create_again() if self._is_gone(fault) else fault.reply()
        return super().answered(200, headers, body)

    def feed(self, data: bytes) -> bytes:
        out = b"" if self.again is not None else super().feed(data)
        return b"" if self.again is not None else out

    def finish(self) -> bytes:
        out = b"" if self.again is not None else super().finish()
        return b"" if self.again is not None else out

    def _kept(self) -> bytes | None:
        if self._session is None or not self._answer_id:
            return None
        return msgspec.json.encode({"chat_id": self._session.chat_id, "parent_id": self._answer_id})

    def _key(self, message: Mapping[str, Any]) -> str | None:
        messages = [*self._client.get("messages", ()), message]
        return conversation_key(KIND, string_of(self._client.get("model")), messages, scope=self._situation.scope)

    def _create(self) -> HttpAsk:
        fields = {**self._options.create_fields, "models": [self._model], "timestamp": int(self._situation.now)}
        return HttpAsk(path=self._options.create_path, headers=_JSON, body=msgspec.json.encode(self._named(fields)))

    def _create_again(self) -> HttpAsk:
        self._session = None
        self._renew()
        return self._create()

    def _created(self, status: int, body: bytes) -> HttpAsk | Reply:
        self.again = None
        value = dict_of(read_json(body))
        fault = self._fault(value, status)
        if fault is not None:
            return fault.reply()
        if not 200 <= status < 300:
            return refused(status, body, self._fault)
        chat_id = string_of(dict_of(self._of(value, "data")).get(self._name("id")))
        if not chat_id:
            return reply_of(bad_reply())
        self._session, self._is_made = _Session(chat_id=chat_id, parent_id=""), True
        return self._message(self._session, self._messages)

    def _message(self, session: _Session, messages: msgspec.Raw) -> HttpAsk:
        fields = {
            **self._options.extra_fields,
            # It answers in no other form; whoever asked for a body gets it gathered.
            "stream": True,
            "incremental_output": True,
            "chat_id": session.chat_id,
            "chat_mode": self._options.chat_mode,
            "model": self._model,
            "parent_id": session.parent_id or None,
            "messages": messages,
            "timestamp": int(self._situation.now),
        }
        return HttpAsk(
            path=self._options.complete_path,
            query=((self._name("chat_id"), session.chat_id),),
            headers=(*_JSON, ("Accept", "text/event-stream")),
            body=msgspec.json.encode(self._named(fields)),
            streams=self._streams,
        )

    def _gathered(self, body: bytes) -> HttpAsk | Reply:
        """A stream that was read whole: the server knows no other form."""
        reply = gathered(self._feed, self._answer, body, self._stop)
        ask, self.again = self.again, None
        return ask or reply

    def _whole(self, body: bytes) -> None:
        value = dict_of(read_json(body))
        told = dict_of(self._of(value, "data")) or value
        choices = told.get("choices")
        choice = dict_of(choices[0]) if isinstance(choices, list) and choices else {}
        message = dict_of(choice.get("message"))
        if not message:
            raise bad_reply()
        self._learn(told)
        self._answer.reasoning(string_of(message.get("reasoning_content")))
        self._answer.text(string_of(message.get(self._name("content"))))
        self._answer.finish_reason = _REASONS.get(string_of(choice.get("finish_reason")), "stop")

    def _event(self, data: bytes) -> None:
        if self.again is not None:
            return
        event = decoded(data, _OBJECT)
        # Faults come with status 200, as a body or as the first event.
        fault = self._fault(event, 200)
        if fault is not None:
            # People delete chats on the site. Once something was told no other
            # answer may follow it.
            if self._is_gone(fault) and not self._answer.is_open:
                self.again = self._create_again()
                return
            raise fault.error()
        self._has_begun = True
        created = self._of(event, "response.created")
        self._learn(created if isinstance(created, dict) else event)
        choices = event.get(self._name("choices"))
        for choice in choices if isinstance(choices, list) else ():
            self._choice(dict_of(choice))

    def _learn(self, event: dict[str, Any]) -> None:
        told = string_of(self._of(event, "response_id")) or string_of(self._of(event, "message_id"))
        if told:
            self._answer_id = told
            self._answer.identify(told, None)
        if usage := dict_of(self._of(event, "usage")):
            self._answer.usage = self._usage(usage)

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = dict_of(self._of(choice, "delta"))
        named, text = self._of(delta, "phase"), string_of(self._of(delta, "content"))
        phase = None if named is None else string_of(named)
        if phase in self._options.think_phases:
            self._answer.reasoning(text)
            return
        reason = string_of(choice.get("finish_reason"))
        if phase is None or phase in self._options.answer_phases:
            self._answer.text(text)
            if self._of(delta, "status") == self._options.finished:
                reason = reason or "stop"
        if reason:
            self._answer.finish_reason = _REASONS.get(reason, "stop")

    def _usage(self, told: dict[str, Any]) -> Usage:
        details = dict_of(told.get("output_tokens_details"))
        return Usage(
            prompt=count_of(self._of(told, "input_tokens")) or 0,
            completion=count_of(self._of(told, "output_tokens")) or 0,
            reasoning=count_of(details.get("reasoning_tokens")),
        )

    def _fault(self, value: Mapping[str, Any], status: int) -> Fault | None:
        """The fault that an answer tells, whatever its status."""
        if self._of(value, "success") is not False and not value.get("error"):
            return None
        told = dict_of(self._of(value, "data")) or dict_of(value.get("error"))
        code = string_of(self._of(told, "code"))
        details = self._of(told, "details") or told.get("message") or code or string_of(value.get("error"))
        message = details if isinstance(details, str) else msgspec.json.encode(details).decode()
        own = _STATUSES.get(code.lower(), status if status >= 400 else 502)
        if code.lower() in self._options.gone_codes:
            own = 404
        plain = fault_of_status(own, message)
        return Fault(status=own, message=plain.message, type=plain.type, code=code or plain.code)

    def _is_gone(self, fault: Fault) -> bool:
        """Whether the chat is no longer there, and had been there before."""
        if self._is_made:
            return False
        return fault.status in (404, 410) or fault.code.lower() in self._options.gone_codes

    def _name(self, name: str) -> str:
        return self._options.names.get(name, name)

    def _of(self, value: Mapping[str, Any], name: str) -> Any:
        return value.get(self._name(name))

    def _named(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {self._name(name): value for name, value in fields.items()}


_JSON = (("Content-Type", "application/json"),)
