"""What a strategy is: it prepares a request for its upstream and says how the answer is to be read.

A third-party strategy implements `ToolExecutionStrategy` and registers an entry point in `toolgate.strategies`,
exactly as the built-in ones do. It needs nothing but this module, `gateway.core` and `gateway.wire`.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from attrs import field, frozen
from msgspec import Struct

from gateway.core.client import Client
from gateway.core.events import Event, Note
from gateway.core.limits import Limits
from gateway.core.tools import ToolSet
from gateway.wire.calm import Blanks, Loud
from gateway.wire.chat_request import ChatRequest
from strategies.base.translation import CallBack, Refusal

__all__ = [
    "AnswerReader",
    "AsksAgain",
    "BrokenCall",
    "CallTerms",
    "FinishReason",
    "HearsReasoning",
    "InTurns",
    "KeepsText",
    "Kept",
    "Listener",
    "Options",
    "PassesText",
    "Prepared",
    "Shape",
    "ToolExecutionStrategy",
    "Translates",
]

FinishReason = str
"""The upstream's finish reason; `cut` stands for an answer that ended without one."""


@frozen(kw_only=True, cache_hash=True)
class Options:
    """The settings a strategy may look at; scores and thresholds are whole hundredths."""

    limits: Limits = field(factory=Limits)
    dialect: str | None = None
    """The dialect that a rule asked for (`xml_prompt:hermes`)."""
    min_confidence: int = 90
    confidence_json_block: int = 95
    confidence_shell: int = 80
    calls_per_message: Literal["auto", "first", "all"] = "auto"
    trailing_text: Literal["drop", "keep"] = "drop"
    duplicate_calls: Literal["drop", "keep"] = "drop"
    undeclared_tools: Literal["pass", "text"] = "pass"
    unfit_calls: Literal["pass", "text"] = "pass"
    native_leaks: bool = True
    """Answers of models that call natively are looked through for what their servers leak."""
    none_markup: Literal["keep", "drop"] = "keep"
    """What becomes of a call's markup in answers to requests that forbid calls."""
    reasoning_calls: bool = True
    """Reasoning that came in a field of its own is read where nothing else came."""
    stream_arguments: Literal["buffered", "incremental"] = "buffered"
    result_format: Literal["bracket", "plain"] = "bracket"
    recovery_json: bool = True
    recovery_shell: bool = False
    recovery_tools: tuple[str, ...] = ()
    """Globs of the only tools that may be recovered; empty means all known."""
    # None of these changes a file, whatever its arguments, unless a shell's operators are allowed with them.
    shell_allowlist: tuple[str, ...] = ("ls", "pwd", "cat", "head", "tail", "wc", "grep", "stat")
    shell_allow_operators: bool = False
    # Read all the same, so that their calls are counted and it can be seen when they fare better.
    dialects_off: frozenset[str] = frozenset()
    """Dialects whose calls stay text for now, because they fared worse than untouched answers."""
    client: Client = field(factory=Client)
    prompt_reminder: bool = False
    """Clients of tags get a reminder of the form at the end of their system prompt."""


class Shape(Struct, frozen=True, kw_only=True):
    """What becomes of the calls and of the text around them once they are read."""

    first_only: bool = False
    keep_trailing: bool = False
    keep_space: bool = False
    """White space before a call stays, so none is held back for one."""
    wait_for_finish: bool = False
    """Deliver calls only at the upstream's finish, and as their own text if native calls came after all."""


# What a reader can do beside reading is asked of the object: a third party's has to do none of it.
@runtime_checkable
class InTurns(Protocol):
    """A reader whose work can be done in bounded pieces, so that a long answer keeps nobody waiting."""

    @property
    def busy(self) -> bool:
        """More can be done with the text at hand."""
        ...

    def step(self, text: str = "", reason: FinishReason | None = None) -> list[Event]:
        """A piece of the work: with more text, with the end, or with neither while `busy`."""
        ...


class Listener(Protocol):
    """Tells text that stays text, whatever comes, from text that may begin something, without having it read."""

    @property
    def holds(self) -> bool:
        """All that it takes is undecided: something is open, and what it takes only goes on with that."""
        ...

    def hear(self, text: str, room: int) -> int:
        """How many characters at the end of this text are not decided yet, now that it has come behind all before.

        Below zero where something may begin in it, or where more than `room` characters are undecided: the text has
        then not been taken. White space at the end is undecided, as it may be dropped before a call.
        """
        ...

    @property
    def calm(self) -> Loud | None:
        """What finds in the JSON of a text, without its quotes, that it is to be heard; None while every one is.

        A text without that is decided whatever comes, and nothing begins in it; at its end, however, may be `blanks`.
        """
        ...

    @property
    def blanks(self) -> Blanks:
        """What becomes of a text without it that ends in a blank."""
        ...

    def overlook(self, text: str) -> None:
        """One or more texts are taken in which that has found nothing."""
        ...

    @property
    def begun(self) -> int:
        """In how many of the characters that were taken last something may have begun, decided or not."""
        ...

    def told(self) -> str:
        """All text that was taken; what reads is told of it later and at once."""
        ...


@runtime_checkable
class PassesText(Protocol):
    """A reader that knows which text it would only pass on, so that it can be told of such text later and at once."""

    def listen(self, *, keeps_space: bool) -> Listener | None:
        """What listens in its place from here on; None while something is open.

        With `keeps_space`, white space in front of a call stays, so that none is undecided for that.
        """
        ...

    def pass_by(self, text: str) -> int:
        """Text that its listener took, in which nothing has begun, stands behind all that was read: it went out.

        How much of it is taken; the rest comes once more, to be read.
        """
        ...


class Kept(Protocol):
    """The text of an answer that no event accounts for yet."""

    def __len__(self) -> int: ...

    def rest(self, size: int) -> str:
        """Its last characters."""
        ...


@runtime_checkable
class KeepsText(Protocol):
    """A reader that keeps what it has not accounted for, so that nobody else has to, in case it fails."""

    @property
    def tape(self) -> Kept:
        """Of a text with which a step has failed it holds all or nothing."""
        ...


class AnswerReader(Protocol):
    """Turns one choice's text into events, whatever the cuts; joined, their raw text is the input."""

    def feed(self, text: str) -> list[Event]: ...

    def finish(self, reason: FinishReason) -> list[Event]: ...

    @property
    def idle(self) -> bool:
        """Nothing is held: the next text decides for itself."""
        ...


@frozen(kw_only=True)
class BrokenCall:
    """An answer that meant a call, or had to hold one, and holds none that can be used."""

    content: str
    notes: tuple[Note, ...] = ()
    """The candidates that stayed text."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """Its structured calls, as they came, when none has arguments that can be used."""
    refusals: Mapping[str, str] = field(factory=dict)
    """By the id of a call, why it was not carried out, in words for the model."""
    faults: Mapping[str, str] = field(factory=dict)
    """By the id of a call, why its tool does not take it; each of these calls is asked for again by itself."""
    told: frozenset[str] = frozenset()
    """The ids of those whose names the client has: only their arguments may be others."""


@runtime_checkable
class HearsReasoning(Protocol):
    """A reader that asks whether an answer has reasoning in a field of its own: its text then holds no drafts."""

    def reasoned(self) -> list[Event]:
        """It has: what was held for that is returned."""
        ...


class AsksAgain(Protocol):
    """How a request is sent again after a broken call; the answer to it is read for its calls alone."""

    @property
    def required(self) -> bool:
        """An answer without a call cannot be used."""
        ...

    def satisfies(self, name: str) -> bool:
        """Whether a call of this tool is one that the request asks for."""
        ...

    def is_broken_call(self, note: Note) -> bool:
        """Whether a candidate that stayed text was plainly meant as a call that can be asked for again."""
        ...

    def is_usable(self, name: object, arguments: object) -> bool:
        """Whether a structured call can be delivered."""
        ...

    def is_echo(self, name: str, arguments: str, broken_calls: Sequence[BrokenCall]) -> bool:
        """Whether a call of the next answer only repeats the example it was shown."""
        ...

    def reason(self, broken_call: BrokenCall) -> str:
        """In a few words, without anything the model wrote, why it is asked again."""
        ...

    def body(self, broken_calls: Sequence[BrokenCall]) -> bytes:
        """The body of the request that asks again; its answer is wanted whole, not as a stream."""
        ...


class Translates(Protocol):
    """Turns a call of the tools that the model was shown into calls of the client's own."""

    def back(self, name: str, arguments: str) -> tuple[CallBack, ...] | Refusal:
        """The client's calls, or why there can be none, in words for the model."""
        ...


class CallTerms(Struct, frozen=True, kw_only=True):
    """What structured calls are held to, and what may become of them."""

    tools: ToolSet = ToolSet()
    """Those that the model was offered; with none, nothing is said of a call."""
    mends: bool = False
    """Arguments may be held, mended and asked for again; else they go out as they come, and are counted."""
    one_only: bool = False
    """The request takes one call in a message, no more."""
    drops_copies: Callable[[str], bool] | None = None
    """Whether an exact copy of the call before it is dropped, by the tool's name."""
    taken_ids: Container[str] = frozenset()
    """Ids that calls of the conversation have."""
    next_id: Callable[[str, str, int], str] | None = None
    """The id of a call whose own one is taken: from that, the tool's name, and how many calls came before it."""


class Prepared(Struct, frozen=True, kw_only=True):
    """A request ready to send, and the way to read its answer."""

    strategy: str
    body: bytes
    make_reader: Callable[[], AnswerReader] | None = None
    """One reader per choice; `None` reads nothing and relays the upstream's bytes."""
    reads_reasoning: bool = False
    """Where neither text nor calls came, reasoning in a field of its own is read by such a reader, too."""
    shape: Shape = Shape()
    # On unless a strategy says otherwise: these faults are certain, and every client breaks at them.
    mend_native: bool = True
    """Mend the certain wire faults of structured tool calls."""
    ask_again: AsksAgain | None = None
    """How a broken call is asked for again; `None` never asks."""
    asks_for_text: bool = True
    """Also one that was written as text; else structured ones alone, and no text ever waits for that."""
    calls: CallTerms = CallTerms()
    """What its structured calls are held to."""
    rename: Callable[[str], str | None] | None = None
    """The declared tool that another name in a structured call means, if it certainly means one."""
    mapping: Translates | None = None
    """What turns the model's calls into calls of the client's own tools."""
    warnings: tuple[str, ...] = ()
    """Facts for the log: a skipped tool, a mended message."""
    prompted_tools: int = 0
    """How many tools stand in the prompt."""


@runtime_checkable
class ToolExecutionStrategy(Protocol):
    """Prepares requests for one way of calling tools."""

    name: str

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """What goes upstream and how its answer is read; raises `ClientError` for a request it must refuse."""
        ...
