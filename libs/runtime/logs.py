"""How a process logs: one line per event on stderr, JSON for machines or text for a terminal.

An event is a constant sentence; what varies are fields. What is logged by libraries through the
standard `logging` takes the same way. No event is chosen here, and none is ever split over lines,
but for tracebacks at level debug.
"""

import json
import logging
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger, Processor

from libs.runtime.clock import Clock
from libs.runtime.fatal import describe_error, raised_at

Logger = FilteringBoundLogger
EventDict = MutableMapping[str, Any]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is logged, and in which form; `auto` is text on a terminal and JSON elsewhere."""

    format: Literal["auto", "json", "text"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


def logger() -> Logger:
    """A logger that follows whatever `configure` says last; a module may hold one."""
    return cast(Logger, structlog.get_logger())


def configure(settings: LogSettings, *, stream: TextIO, clock: Clock) -> None:
    """Send all logs of this process, structlog's and the standard ones, to `stream`."""
    level = _LEVELS[settings.level]
    as_text = settings.format == "text" or (settings.format == "auto" and stream.isatty())
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _Stamp(clock),
        _Errors(tracebacks=settings.level == "debug"),
        _text(colors=stream.isatty()) if as_text else _json,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_Bridge()]
    root.setLevel(level)
    logging.captureWarnings(True)


class _Stamp:
    """Adds the time of the clock that the process was given."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        event["time"] = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return event


class _Errors:
    """Says an `exc_info` as one line, `error` and `at`; the traceback comes at level debug only."""

    def __init__(self, *, tracebacks: bool) -> None:
        self._tracebacks = tracebacks

    def __call__(self, logger: Any, method: str, event: EventDict) -> EventDict:
        info = event.get("exc_info")
        error: object = info
        if info is True:
            error = sys.exc_info()[1]
        elif isinstance(info, tuple):
            error = cast(tuple[object, object, object], info)[1]
        if isinstance(error, BaseException):
            event.setdefault("error", describe_error(error))
            if (where := raised_at(error)) is not None:
                event.setdefault("at", where)
            event["exc_info"] = error
        if self._tracebacks and isinstance(error, BaseException):
            return structlog.processors.format_exc_info(logger, method, event)
        event.pop("exc_info", None)
        return event


class _Bridge(logging.Handler):
    """Hands what libraries log through the standard `logging` to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger().log(
                record.levelno // 10 * 10,
                " ".join(record.getMessage().split()),
                logger=record.name,
                **({"exc_info": record.exc_info} if record.exc_info else {}),
            )
        except (TypeError, ValueError):
            # What `logging` itself does for a message that does not fit its arguments.
            self.handleError(record)


def _text(*, colors: bool) -> Processor:
    return structlog.dev.ConsoleRenderer(
        colors=colors, timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
    )


def _json(_logger: object, _method: str, event: EventDict) -> str:
    ordered = {"time": event.pop("time"), "level": event.pop("level"), "event": event.pop("event")}
    ordered.update(event)
    try:
        return msgspec.json.encode(ordered, enc_hook=str).decode()
    except (UnicodeEncodeError, OverflowError, TypeError):
        # File names may hold bytes that are no UTF-8, and msgspec knows no integer over 64 bits.
        return json.dumps(ordered, default=str, skipkeys=True)
