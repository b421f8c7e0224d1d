"""Clients that read tags in the text: calls in any other form are told in the client's own, the rest is left alone.

The request goes up as it came, at most with a reminder of the form. A call that already stands in the client's tags
passes byte for byte, and so does everything behind it, for the client takes the first call only. A call that the
client's tags cannot say exactly stays what the model wrote.
"""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from gateway.core.client import Client
from gateway.core.events import Args, Broken, Drop, End, Event, Note, Said, Start, Text, Verdict, refused
from gateway.core.reasons import Reason
from gateway.wire.chat_request import ChatRequest, is_system
from strategies.base import AnswerReader, FinishReason, HearsReasoning, Listener, Options, PassesText, Prepared, Shape
from strategies.clients import TextClient, recognise
from strategies.grammar.dialect import TAGS
from strategies.reading.factory import reader_factory
from strategies.text.strict_json import loads_strict
from strategies.writing.prompt import SEPARATOR

__all__ = ["XmlTextStrategy"]

_IN_TAGS = frozenset({TAGS, "wrapped_xml", "prefixed_xml"})
_SAMPLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_file", {"path": "src/main.py"}),
    ("list_files", {"path": "src"}),
    ("execute_command", {"command": "ls", "requires_approval": False}),
    ("attempt_completion", {"result": "Done."}),
)


class XmlTextStrategy:
    """For clients whose tools live in their system prompt: calls in any other form arrive in the client's tags."""

    name = "xml_text"

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """The request as it came, with the reminder where it is asked for; a reader that retells calls."""
        client = recognise(request, options.client)
        if client is None:
            return Prepared(strategy=self.name, body=request.raw)
        make_inner = reader_factory(
            tools=client.tools,
            # Without the client: it has been told already, and readers are the same for all clients with these tools.
            options=evolve(options, stream_arguments="incremental", client=Client(), prompt_reminder=False),
            model=request.model,
            prompted=TAGS,
            restricted=True,
            messages=request.messages,
            flowing=frozenset(client.prompted),
        )
        return Prepared(
            strategy=self.name,
            body=_reminded(request, client) if options.prompt_reminder else request.raw,
            make_reader=_retelling(make_inner, client),
            # These clients run one tool a message and refuse the others: more would only be shown to the user.
            shape=Shape(first_only=True, keep_trailing=options.trailing_text == "keep", keep_space=True),
        )


def _retelling(make_inner: Callable[[], AnswerReader], client: TextClient) -> Callable[[], AnswerReader]:
    return lambda: _Retelling(make_inner(), client)


class _Retelling:
    """Reads one choice and retells its calls, until one stands there that the client reads itself."""

    def __init__(self, inner: AnswerReader, client: TextClient) -> None:
        self._inner = inner
        self._client = client
        self._is_left_alone = False
        """A call of the client's own, or one that cannot be said, was there: nothing behind it is touched."""
        self._is_retold = False
        self._lead: list[Drop] = []
        """Markup whose call decides what becomes of it."""
        self._pieces: list[str] = []
        """The text of the call under way."""

    @property
    def idle(self) -> bool:
        return self._inner.idle and not self._lead and not self._pieces

    def listen(self, *, keeps_space: bool) -> Listener | None:
        """As the reader within does: text goes through this one, too."""
        inner = self._inner
        if self._lead or self._pieces or not isinstance(inner, PassesText):
            return None
        return inner.listen(keeps_space=keeps_space)

    def pass_by(self, text: str) -> int:
        return self._inner.pass_by(text) if isinstance(self._inner, PassesText) else 0

    def reasoned(self) -> list[Event]:
        """The answer has reasoning in a field of its own."""
        return _joined(self._told(self._inner.reasoned())) if isinstance(self._inner, HearsReasoning) else []

    def feed(self, text: str) -> list[Event]:
        return _joined(self._told(self._inner.feed(text)))

    def finish(self, reason: FinishReason) -> list[Event]:
        return _joined([*self._told(self._inner.finish(reason)), *self._let_go()])

    def _told(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            match event:
                case Text() | Said():
                    out += (*self._let_go(), event)
                case Note():
                    out.append(event)
                case Drop():
                    self._drop(event, out)
                case Start():
                    self._start(event, out)
                case Args():
                    self._go_on(event.raw, out)
                case Broken():
                    self._go_on(event.raw, out)
                    out += self._let_go()
                case End():
                    self._end(event, out)
        return out

    def _drop(self, event: Drop, out: list[Event]) -> None:
        if self._is_left_alone:
            out.append(Text(event.raw))
        elif self._is_retold:
            out.append(event)
        else:
            self._lead.append(event)

    def _start(self, event: Start, out: list[Event]) -> None:
        # Only of a first call: behind one that was retold the client is no more at the place where the model was.
        if event.raw and event.dialect == TAGS and not self._is_retold:
            # It began to flow, so the client's own reading takes it from here.
            self._is_left_alone = True
            out += self._let_go()
        self._go_on(event.raw, out)

    def _go_on(self, raw: str, out: list[Event]) -> None:
        if self._is_left_alone:
            out += [Text(raw)] if raw else []
        else:
            self._pieces.append(raw)

    def _end(self, event: End, out: list[Event]) -> None:
        self._go_on(event.raw, out)
        if self._is_left_alone:
            return
        raw = "".join(self._pieces)
        told = self._retold(event, raw)
        # As it stands, but in its place: the calls keep their order.
        if told is None and self._is_retold:
            told = Said(raw, raw, event.arguments, event.verdict)
        if told is not None:
            out += (*self._lead, told)
            self._lead, self._pieces = [], []
            self._is_retold = True
            return
        if event.verdict.dialect not in _IN_TAGS:
            out.append(Note(_unsayable(event.verdict)))
        self._is_left_alone = True
        out += self._let_go()

    def _retold(self, event: End, raw: str) -> Said | None:
        """The call in the client's tags; None where it stands there already, or cannot."""
        dialect, name = event.verdict.dialect, event.name
        # The form that the client reads itself: its own reading counts, whatever ours came to.
        if dialect == TAGS and name in self._client.prompted and not _is_mended(event.verdict):
            return None
        arguments = loads_strict(event.arguments)
        if dialect in _IN_TAGS and self._client.reads(raw, name, arguments):
            return None
        text = self._client.render(name, arguments)
        return Said(raw, text, event.arguments, event.verdict) if text is not None else None

    def _let_go(self) -> list[Event]:
        """What is held is text."""
        raws = [*(event.raw for event in self._lead), *self._pieces]
        self._lead, self._pieces = [], []
        return [Text(raw) for raw in raws if raw]


def _joined(events: list[Event]) -> list[Event]:
    """The same, with adjacent text in one piece."""
    out: list[Event] = []
    texts: list[str] = []
    for event in events:
        if isinstance(event, Text):
            texts.append(event.raw)
            continue
        if texts:
            out.append(Text("".join(texts)))
            texts = []
        out.append(event)
    return [*out, Text("".join(texts))] if texts else out


def _is_mended(verdict: Verdict) -> bool:
    return any(reason.rpartition(" -")[2].isdigit() for reason in verdict.reasons if " -" in reason)


def _unsayable(verdict: Verdict) -> Verdict:
    return refused(verdict, Reason.UNSAYABLE)


# The reminder


def _reminded(request: ChatRequest, client: TextClient) -> bytes:
    """The request with the reminder at the end of its first system prompt, once."""
    reminder = _reminder(client)
    # The system prompt stands first, or behind a message that a proxy has put there.
    for index, message in enumerate(request.messages[:2]):
        content = message.get("content")
        if not is_system(message):
            continue
        if isinstance(content, str):
            # Once, also where the client sends back what it was sent.
            added: Any = content if content.endswith(reminder) else content + SEPARATOR + reminder
        elif isinstance(content, list):
            part = {"type": "text", "text": SEPARATOR + reminder}
            added = content if part in content else [*content, part]
        else:
            break
        messages = [*request.messages[:index], {**message, "content": added}, *request.messages[index + 1 :]]
        return request.replace(messages=messages) if added is not content else request.raw
    return request.raw


def _reminder(client: TextClient) -> str:
    name, right = _sample(client)
    wrong = '```json\n{"name": "' + name + '", "arguments": {...}}\n```'
    return (
        "REMINDER: HOW A TOOL IS USED\n\n"
        "Use a tool only by writing its XML tags, as plain text, at the end of your message. The tool's name is the "
        "outer tag, every parameter has a tag of its own, and every tag is closed. No JSON, no code block, no other "
        f"form is understood.\n\nWrong:\n{wrong}\n\nRight:\n{right}"
    )


def _sample(client: TextClient) -> tuple[str, str]:
    for name, arguments in _SAMPLES:
        tool = client.prompted.get(name)
        if tool is None:
            continue
        # Cline's tool wants it, and Roo's has no such parameter.
        given = {key: value for key, value in arguments.items() if key != "requires_approval" or key in tool.parameters}
        text = client.render(name, given)
        if text is not None:
            return name, text
    return "tool_name", "<tool_name>\n<parameter>value</parameter>\n</tool_name>"
