"""Logs of a process: one line per event on stderr, JSON for machines or text for a terminal.

An event is a constant sentence; its variable parts are fields. Records of the standard `logging`
are rendered the same way. Only tracebacks, at level debug, span several lines.
"""

import json
import logging
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from functools import partial
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
    """Level and format of logs; `auto` is text on a terminal and JSON elsewhere."""

    format: Literal["auto", "json", "text"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


def logger() -> Logger:
    """Return a logger that follows the latest `configure`, so that a module may hold one."""
    return cast(Logger, structlog.get_logger())


def configure(settings: LogSettings, *, stream: TextIO, clock: Clock) -> None:
    """Send all logs of this process, of structlog and of `logging`, to `stream`."""
    level = _LEVELS[settings.level]
    as_text = settings.format == "text" or (settings.format == "auto" and stream.isatty())
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        partial(_add_time, clock),
        partial(_add_error, tracebacks=settings.level == "debug"),
        structlog.dev.ConsoleRenderer(
            colors=stream.isatty(),
            timestamp_key="time",
            exception_formatter=structlog.dev.plain_traceback,
        )
        if as_text
        else _json,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_StructlogHandler()]
    root.setLevel(level)
    logging.captureWarnings(True)


def _add_time(clock: Clock, _logger: object, _method: str, event: EventDict) -> EventDict:
    now = datetime.fromtimestamp(clock.now(), UTC)
    event["time"] = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


def _add_error(logger: Any, method: str, event: EventDict, *, tracebacks: bool) -> EventDict:
    """Render `exc_info` as the fields `error` and `at`, and at level debug as a traceback too."""
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
        if tracebacks:
            return structlog.processors.format_exc_info(logger, method, event)
    event.pop("exc_info", None)
    return event


class _StructlogHandler(logging.Handler):
    """Pass records of the standard `logging` on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger().log(
                record.levelno // 10 * 10,
                " ".join(record.getMessage().split()),
                logger=record.name,
                **({"exc_info": record.exc_info} if record.exc_info else {}),
            )
        except (TypeError, ValueError):
            # As `logging` itself does where a message does not fit its arguments.
            self.handleError(record)


def _json(_logger: object, _method: str, event: EventDict) -> str:
    ordered = {"time": event.pop("time"), "level": event.pop("level"), "event": event.pop("event")}
    ordered.update(event)
    try:
        return msgspec.json.encode(ordered, enc_hook=str).decode()
    except (UnicodeEncodeError, OverflowError, TypeError):
        # File names may hold bytes that are not UTF-8, and msgspec has no integers over 64 bits.
        return json.dumps(ordered, default=str, skipkeys=True)
