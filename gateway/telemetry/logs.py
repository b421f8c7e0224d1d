"""The log: one line per event, secrets taken out, written without ever holding up a request."""

import json
import logging
import os
import select
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.core.ports import Lines
from gateway.telemetry.redaction import SUSPECT_SMALL, Redactor
from gateway.telemetry.request_line import Paint, lasting_line, request_line

__all__ = ["LineWriter", "ReadyLines", "configure_logging", "ready_lines"]

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]
OnDrop = Callable[[str, int], None]

_MAX_QUEUED_LINES = 10_000
_MAX_BATCH_LINES = 1024
# PIPE_BUF of Linux: https://man7.org/linux/man-pages/man7/pipe.7.html
_MAX_BATCH_BYTES = 4096
"""What a pipe takes in one piece: the lines of several processes do not mix in it."""
_GATHER_S = 0.1
"""How long the first line of a batch waits for others: waking the thread for each would cost more than the line."""
_CLOSE_TIMEOUT_S = 2.0
_MOST_BEGUN = 512
"""Beginnings of lines that are remembered."""
_LONGEST_WORDS = 512
"""Of others, in one line, that are looked at together."""
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31"}
_PAINTS: dict[Paint, str] = {"good": "32", "bad": "31", "plain": "0"}
# A terminal obeys what it is shown: https://cwe.mitre.org/data/definitions/150.html
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


class LineWriter:
    """Writes lines to a file descriptor from a thread of its own; what finds the queue full is dropped and counted."""

    def __init__(self, fd: int, *, on_drop: OnDrop, max_lines: int = _MAX_QUEUED_LINES) -> None:
        self._fd = fd
        self._on_drop = on_drop
        self._is_file = _is_file(fd)
        """What is written to it stays in one piece, however long it is."""
        self._max_lines = max_lines
        self._lines: list[str] = []
        self.is_open = True
        """Lines are still taken."""
        self._sleeps = False
        """The thread waits, or is about to wait, to be woken."""
        # No queue of the library: its lock would be taken twice for each line.
        self._wake = threading.Semaphore(0)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue one line, never waiting."""
        if len(self._lines) >= self._max_lines:
            self._on_drop("queue_full", 1)
            return
        self._lines.append(line)
        if self._sleeps:
            self._sleeps = False
            self._wake.release()

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Write what is queued, as far as the time allows."""
        self.is_open = False
        self._ends.set()
        self._wake.release()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while self.is_open or self._lines:
            self._wait()
            # Lines are only ever added behind these, so that no lock is needed.
            batch = self._lines[:_MAX_BATCH_LINES]
            del self._lines[: len(batch)]
            if batch:
                self._write_all("\n".join((*batch, "")).encode("utf-8", "backslashreplace"))

    def _wait(self) -> None:
        """Until there are lines, and then for more of them."""
        self._sleeps = True
        if not self._lines and self.is_open:
            self._wake.acquire()
        self._sleeps = False
        if self.is_open and len(self._lines) < _MAX_BATCH_LINES:
            self._ends.wait(_GATHER_S)

    def _write_all(self, lines: bytes) -> None:
        # After each portion the thread has to ask for the interpreter again.
        for portion in (lines,) if self._is_file else _portions(lines):
            self._write(portion)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            # The descriptor may be shared with others who have set it so, such as a terminal.
            except BlockingIOError:
                select.select([], [self._fd], [])
            except OSError:
                self._on_drop("write_failed", data.count(b"\n"))
                return


def _is_file(fd: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        return False


def _portions(lines: bytes) -> Iterator[bytes]:
    """The lines in portions that are written in one piece, as far as single lines allow."""
    at = 0
    while at < len(lines):
        end = lines.rfind(b"\n", at, at + _MAX_BATCH_BYTES) + 1 or lines.find(b"\n", at) + 1
        yield lines[at:end]
        at = end


def configure_logging(
    *,
    level: Level = "info",
    form: Format = "json",
    secrets: Iterable[str] = (),
    fd: int | None = None,
    on_drop: OnDrop = lambda reason, lines: None,
    colours: bool | None = None,
    fields: Mapping[str, object] | None = None,
) -> LineWriter:
    """Send every log event, those of libraries too, through one pipeline; the writer is to be closed at the end.

    Every line says the `fields`, too.
    """
    target = sys.stderr.fileno() if fd is None else fd
    writer = LineWriter(target, on_drop=on_drop)
    # What many programs heed: https://github.com/jcs/no_color/blob/222a026065cff5fd66a381cbc423c63b28a50aff/index.md
    paint = os.isatty(target) and not os.environ.get("NO_COLOR") if colours is None else colours
    redactor, render = Redactor(secrets), _JsonLine() if form == "json" else _ConsoleLine(paint)
    own = dict(fields or {})
    processors: list[Processor] = [
        *([lambda logger, method, event: {**event, **own}] if own else ()),
        structlog.contextvars.merge_contextvars,
        _with_traceback,
        _Redaction(redactor),
        render,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _LineLogger(writer),
        # A logger may have been used before the settings are read, and tests configure more than once.
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    # Called once more by a test or a second start in the process, each line would come twice.
    for handler in [handler for handler in root.handlers if isinstance(handler, _Bridge)]:
        root.removeHandler(handler)
    root.addHandler(_Bridge())
    # Libraries tell everything at `debug`, bodies and keys among it.
    root.setLevel(max(_LEVELS[level], logging.INFO))
    _in_force.lines = None
    if isinstance(render, _JsonLine) and _LEVELS[level] <= logging.INFO:
        _in_force.lines = ReadyLines(writer, redactor, render, processors, own)
    return writer


class ReadyLines:
    """Lines of level `info` for machines that have much in common: their beginning is redacted and encoded once.

    What they say is what the pipeline would have said of the same fields.
    """

    __slots__ = ("_begun", "_own", "_redactor", "_signs", "_stamp", "processors", "render", "writer")

    def __init__(
        self,
        writer: LineWriter,
        redactor: Redactor,
        render: "_JsonLine",
        processors: list[Processor],
        own: Mapping[str, object],
    ) -> None:
        self.writer = writer
        self.render = render
        self.processors = processors
        self._redactor = redactor
        self._signs = redactor.signs
        self._stamp = render.stamp
        self._own = own
        self._begun: dict[Hashable, str] = {}

    def write(
        self,
        event: str,
        key: Hashable | None,
        begin: Callable[[], Mapping[str, Any]],
        told: Mapping[str, object],
        foreign: Sequence[str],
        rest: Mapping[str, object],
    ) -> None:
        """Write a line: what `key` stands for, which is asked for once, then what else is told, and the rest.

        Without a key the beginning is made anew.
        """
        begun = self._begun.get(key) or self._begin(event, key, begin)
        # Looked at together: most lines have nothing in them that could be a secret, or would have to be cut.
        words = "\n".join(foreign)
        if not words.isascii() or len(words) > _LONGEST_WORDS or self._signs(words) or SUSPECT_SMALL(words.lower()):
            told = self._redactor.fields(told)
        if rest:
            told = {**told, **self._redactor.fields(rest)}
        try:
            line = msgspec.json.encode(told).decode("ascii")
        except (ValueError, OverflowError):
            line = _ascii(told)
        second, part = divmod(time.time_ns(), 1_000_000_000)
        stamp = self._stamp
        written = stamp.written if second == stamp.second else stamp.at(second)
        self.writer.write(f'{{"timestamp":"{written}.{part // 1000:06d}Z",{begun},{line[1:]}')

    def _begin(self, event: str, key: Hashable | None, begin: Callable[[], Mapping[str, Any]]) -> str:
        begun = f'"level":"info","event":"{event}",{_ascii(self._redactor.fields({**begin(), **self._own}))[1:-1]}'
        if key is not None:
            if len(self._begun) >= _MOST_BEGUN:
                self._begun.clear()
            self._begun[key] = begun
        return begun


class _InForce:
    """What `configure_logging` has put in force last."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: ReadyLines | None = None


_in_force = _InForce()


def ready_lines() -> Lines | None:
    """Where lines go that have much in common; None where the log is not for machines, or says less."""
    lines = _in_force.lines
    # Somebody may have put the pipeline out of force, as tests do.
    if lines is None or not lines.writer.is_open or not lines.processors or lines.processors[-1] is not lines.render:
        return None
    return lines


class _LineLogger:
    """Where structlog hands over a finished line."""

    __slots__ = ("_writer",)

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def msg(self, line: str) -> None:
        self._writer.write(line)

    debug = info = warning = error = critical = exception = msg


class _Bridge(logging.Handler):
    """Hands the records of libraries that log the classic way to the same pipeline."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # a record that cannot be formatted must not harm who logged it
            method = getattr(structlog.get_logger(), _bridged_level(record.levelno))
            method("library_logged", logger=record.name, message=record.getMessage(), exc_info=record.exc_info)


def _bridged_level(number: int) -> str:
    return "error" if number >= logging.ERROR else "warning" if number >= logging.WARNING else "info"


class _Redaction:
    """Takes secrets out, after everything that adds text and before what renders it."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        return self._redactor.fields(event)


def _with_traceback(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    # Libraries hand over all three forms that `logging` takes.
    if isinstance(info, BaseException):
        info = (type(info), info, info.__traceback__)
    if isinstance(info, tuple) and info[0] is not None:
        event["exception"] = _formatted(*info)
    return event


def _formatted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str:
    try:
        return "".join(traceback.format_exception(kind, error, trace)).rstrip()
    except Exception:  # noqa: BLE001 - an exception that cannot be shown must not harm what is being logged
        return kind.__name__


class _Stamp:
    """The time of an event, in ISO's form; what a second has in common is written once."""

    __slots__ = ("second", "written")

    def __init__(self) -> None:
        self.second = -1
        self.written = ""

    def at(self, second: int) -> str:
        """What all of a second begin with."""
        self.second, self.written = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return self.written

    def now(self) -> str:
        second, part = divmod(time.time_ns(), 1_000_000_000)
        return f"{self.written if second == self.second else self.at(second)}.{part // 1000:06d}Z"


class _JsonLine:
    """A line for machines, in ASCII: no terminal or reader of lines can be led astray by what is in it."""

    def __init__(self) -> None:
        self.stamp = _Stamp()

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        whole = {"timestamp": "", "level": "", "event": "", **event}
        whole["timestamp"], whole["level"] = self.stamp.now(), _level(method)
        return _ascii(whole)


def _ascii(fields: Mapping[str, Any]) -> str:
    try:
        line = msgspec.json.encode(fields).decode()
    except (ValueError, OverflowError):  # lone surrogates; numbers of more than 64 bits
        return json.dumps(fields, separators=(",", ":"))
    if line.isascii() and "\x7f" not in line:
        return line
    return json.dumps(fields, separators=(",", ":"))


def _level(method: str) -> str:
    return "error" if method == "exception" else "warning" if method == "warn" else method


class _ConsoleLine:
    """A line for people: what a request came to in words; else time, level, event, fields, and a traceback below."""

    def __init__(self, paint: bool) -> None:
        self._paint = paint
        self._stamp = _Stamp()

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        time = self._stamp.now()[11:19]
        if event.get("event") == "request_ended":
            line, paint = request_line(event)
            return f"{time} {self._coloured(_escaped(line), _PAINTS[paint])}"
        if event.get("event") == "request_lasts":
            return f"{time} {self._coloured(_escaped(lasting_line(event)), _COLOURS['warning'])}"
        level = _level(method)
        name = _escaped(event.pop("event", ""))
        trace = event.pop("exception", None)
        fields = "".join(f" {_escaped(key)}={_console_value(value)}" for key, value in event.items())
        line = f"{time} {self._coloured(f'{level:<7}', _COLOURS.get(level, '0'))} {self._coloured(name, '1')}{fields}"
        if trace is not None:
            line += "".join(f"\n    {_escaped(part)}" for part in str(trace).split("\n"))
        return line

    def _coloured(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._paint else text


def _escaped(value: Any) -> str:
    return str(value).translate(_ESCAPES)


def _console_value(value: Any) -> str:
    if isinstance(value, str) and value and " " not in value and "=" not in value:
        return _escaped(value)
    return _escaped(json.dumps(value, ensure_ascii=False))
