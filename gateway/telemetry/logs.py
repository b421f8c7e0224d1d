"""The log: one line per event, secrets taken out, written without ever holding up a request."""

import json
import logging
import os
import queue
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.telemetry.redaction import Redactor

__all__ = ["LineWriter", "configure_logging"]

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]
OnDrop = Callable[[str, int], None]

_MAX_QUEUED_LINES = 10_000
_MAX_BATCH_LINES = 256
_MAX_BATCH_BYTES = 4096
"""What a pipe takes in one piece: the lines of several processes do not mix in it."""
_GATHER_S = 0.02
"""How long the first line of a batch waits for others: waking the thread for each would cost more than the line."""
_CLOSE_TIMEOUT_S = 2.0
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31"}
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
        self._max_lines = max_lines
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue one line, never waiting."""
        if self._lines.qsize() >= self._max_lines:
            self._on_drop("queue_full", 1)
        else:
            self._lines.put(line.encode("utf-8", "backslashreplace") + b"\n")

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Write what is queued, as far as the time allows."""
        self._lines.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._batch()
            for lines in _portions(batch):
                self._write_all(b"".join(lines), len(lines))

    def _batch(self) -> tuple[list[bytes], bool]:
        """The lines that are there, at least one, and whether more may come."""
        batch: list[bytes] = []
        line = self._lines.get()
        if line is not None:
            time.sleep(_GATHER_S)
        while line is not None:
            batch.append(line)
            if len(batch) == _MAX_BATCH_LINES:
                return batch, True
            try:
                line = self._lines.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _write_all(self, data: bytes, lines: int) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                select.select([], [self._fd], [])
            except OSError:
                self._on_drop("write_failed", lines)
                return


def _portions(batch: list[bytes]) -> Iterator[list[bytes]]:
    """The lines in portions that are written in one piece, as far as single lines allow."""
    portion: list[bytes] = []
    size = 0
    for line in batch:
        if portion and size + len(line) > _MAX_BATCH_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(line)
        size += len(line)
    if portion:
        yield portion


def configure_logging(
    *,
    level: Level = "info",
    form: Format = "json",
    secrets: Iterable[str] = (),
    fd: int | None = None,
    on_drop: OnDrop = lambda reason, lines: None,
    colours: bool | None = None,
) -> LineWriter:
    """Send every log event, those of libraries too, through one pipeline; the writer is to be closed at the end."""
    target = sys.stderr.fileno() if fd is None else fd
    writer = LineWriter(target, on_drop=on_drop)
    paint = os.isatty(target) and not os.environ.get("NO_COLOR") if colours is None else colours
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _with_traceback,
        _Redaction(Redactor(secrets)),
        _json_line if form == "json" else _ConsoleLine(paint),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _LineLogger(writer),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Bridge)]:
        root.removeHandler(handler)
    root.addHandler(_Bridge())
    root.setLevel(max(_LEVELS[level], logging.INFO))
    return writer


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


def _json_line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    head = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return json.dumps({**head, **event}, separators=(",", ":"))


class _ConsoleLine:
    """A line for people: time, level, event, fields; a traceback follows, indented."""

    def __init__(self, paint: bool) -> None:
        self._paint = paint

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        time = str(event.pop("timestamp", ""))[11:19]
        level = str(event.pop("level", method))
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
