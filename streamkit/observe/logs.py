"""Logs: structured lines on stderr, readable on a terminal and JSON elsewhere.

The command line calls `configure` once; a program that embeds a worker may set structlog up in its
own way instead. Lines of other libraries (their warnings) take the same form.
"""

import logging
import math
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, TextIO

import structlog

from streamkit.observe.frames import user_traceback
from streamkit.observe.redaction import redact, traceback_text
from streamkit.observe.repeats import EVERY_SECONDS

_FIRST = ("timestamp", "level", "event", "logger")
_LINES_MAX = 100
"""So many lines of other libraries are remembered, because their texts may have no end."""

FORMATS = ("auto", "console", "json")

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class _Named:
    """Make loggers that write to one stream and know their name."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, *names: Any) -> "_Logger":
        return _Logger(self._stream, str(names[0]) if names else "streamkit")


class _Logger(structlog.WriteLogger):
    def __init__(self, stream: TextIO, name: str) -> None:
        super().__init__(stream)
        self.name = name

    def msg(self, message: str) -> None:
        """Write a line, or drop it: a full disk, or a reader that has gone, must end no worker."""
        with suppress(OSError):
            super().msg(message)

    # structlog gives each level's method to the class as an attribute of its own.
    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def configure(
    format: str = "auto",  # noqa: A002 - the name of the setting
    level: str = "info",
    *,
    stream: TextIO | None = None,
    others: bool = True,
    besides: Collection[str] = (),
) -> None:
    """Set logging up for this process.

    Args:
        format: `console`, `json`, or `auto`: `console` if the stream is a terminal, else `json`.
        level: debug, info, warning or error.
        stream: where lines are written; stderr by default.
        others: whether lines of other libraries take the same form; else they are left alone.
        besides: names of events that are logged although their level is lower.

    Raises:
        ValueError: the format or the level is not one of these.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    if format not in FORMATS:
        raise ValueError(f"log format {format!r} is none of {', '.join(FORMATS)}")
    stream = stream or sys.stderr
    as_json = format == "json" or (format == "auto" and not stream.isatty())
    before: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _exception_text,
        redact,
    ]
    renderer = _json_renderer() if as_json else _console_renderer(stream)
    processors: list[Any] = [_name, *before, renderer]
    lowest = LEVELS[level]
    if besides:
        processors.insert(0, _from_level(lowest, besides))
        lowest = min(LEVELS.values())
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(lowest),
        logger_factory=_Named(stream),
        cache_logger_on_first_use=False,
    )
    if others:
        _take_in_other_libraries(before, renderer, stream, LEVELS[level])


def _from_level(lowest: int, besides: Collection[str]) -> Any:
    def kept(_logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
        if LEVELS.get(method, lowest) < lowest and event["event"] not in besides:
            raise structlog.DropEvent
        return event

    return kept


def _name(logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    event["logger"] = getattr(logger, "name", "streamkit")
    return event


def _exception_text(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Replace `exc_info` by a traceback, and `raised` by one of the user's frames alone."""
    raised = event.pop("raised", None)
    if isinstance(raised, BaseException):
        event["exception"] = user_traceback(raised)
    asked = event.pop("exc_info", None)
    error = asked if isinstance(asked, BaseException) else None
    if isinstance(asked, tuple):
        error = asked[1]
    elif asked and error is None:
        error = sys.exc_info()[1]
    if error is not None:
        event["exception"] = traceback_text(error)
    return event


def _json_renderer() -> Any:
    render = structlog.processors.JSONRenderer()

    def in_order(logger: Any, method: str, event: dict[str, Any]) -> str | bytes:
        """Put the fields that every line has first, so that lines can be compared."""
        first = {name: event.pop(name) for name in _FIRST if name in event}
        return render(logger, method, {**first, **event})

    return in_order


def _console_renderer(stream: TextIO) -> Any:
    return structlog.dev.ConsoleRenderer(colors=stream.isatty())


class OwnHandler(logging.StreamHandler[TextIO]):
    """Writes a line of another library once a minute at most, and then how often it came meanwhile.

    The SDK warns at each call while credentials cannot be refreshed, with a traceback: for minutes,
    and many times a second. A class of its own is recognised when logging is set up again.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._written: dict[tuple[str, str], tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        text, now = record.getMessage(), monotonic()
        at, more = self._written.get((record.name, text), (-math.inf, 0))
        if now < at + EVERY_SECONDS:
            self._written[record.name, text] = (at, more + 1)
            return
        if len(self._written) >= _LINES_MAX:
            self._written.clear()
        self._written[record.name, text] = (now, 0)
        if more:
            said = {"msg": f"{text} ({more} more since the line before)", "args": ()}
            record = logging.makeLogRecord({**vars(record), **said})
        super().emit(record)


def _take_in_other_libraries(
    before: Sequence[Any], renderer: Any, stream: TextIO, level: int
) -> None:
    handler = OwnHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *before],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old, OwnHandler):
            root.removeHandler(old)
    root.addHandler(handler)
    # The info lines of other libraries are noise (found credentials …); their warnings are not.
    root.setLevel(max(level, logging.WARNING))
