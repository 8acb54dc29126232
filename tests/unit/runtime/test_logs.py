"""One event is one line: JSON or text, from structlog or from the standard logging."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from libs.runtime.logs import LogSettings, configure, logger
from libs.runtime.values import Duration
from tests.builders.manual_clock import ManualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore the logging of the process."""
    root = logging.getLogger()
    before = root.handlers, root.level
    yield
    logging.captureWarnings(False)
    root.handlers, root.level = before
    structlog.reset_defaults()


def configured(settings: LogSettings, stream: io.StringIO | None = None) -> io.StringIO:
    stream = io.StringIO() if stream is None else stream
    configure(settings, stream=stream, clock=ManualClock(1_800_000_000.125))
    return stream


def entries(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_a_line_of_json_with_its_fields_and_context():
    stream = configured(LogSettings())
    with structlog.contextvars.bound_contextvars(node="n1"):
        logger().info("driver upgraded", took=Duration(90), text="a\nb")
    assert stream.getvalue() == (
        '{"time":"2027-01-15T08:00:00.125Z","level":"info","event":"driver upgraded",'
        '"took":"1m30s","text":"a\\nb","node":"n1"}\n'
    )


def test_a_level_hides_lower_events_of_structlog_and_logging():
    stream = configured(LogSettings(level="warning"))
    logger().info("hidden")
    logging.getLogger("library").info("hidden")
    logger().warning("shown")
    logging.getLogger("library").warning("shown %d", 2)
    assert [entry["event"] for entry in entries(stream)] == ["shown", "shown 2"]


def test_records_of_logging_and_warnings_are_rendered_as_events():
    stream = configured(LogSettings())
    logging.getLogger("asyncio").error("Task\nexception was never %s", "retrieved")
    logging.getLogger("odd").log(25, "between the levels")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    first, second, third = entries(stream)
    assert (first["level"], first["logger"]) == ("error", "asyncio")
    assert first["event"] == "Task exception was never retrieved"
    assert (second["level"], second["event"]) == ("info", "between the levels")
    assert third["logger"] == "py.warnings"
    assert "DeprecationWarning: old" in third["event"]


def fail() -> None:
    try:
        raise ConnectionError("refused")
    except ConnectionError as error:
        raise ExceptionGroup("two", [KeyError("x"), error]) from None


def test_an_error_is_logged_in_one_line_with_its_location():
    stream = configured(LogSettings())
    try:
        fail()
    except ExceptionGroup:
        logger().exception("probe failed")
        logging.getLogger("library").exception("library failed")
    first, second = entries(stream)
    assert first["error"] == second["error"] == "KeyError: 'x' (and 1 more)"
    assert "exception" not in first
    try:
        raise ConnectionError("refused")
    except ConnectionError as error:
        logger().warning("probe failed", exc_info=error)
    last = entries(stream)[-1]
    assert last["error"] == "ConnectionError: refused"
    assert last["at"].startswith("test_logs.py:")


def test_a_traceback_is_logged_at_level_debug():
    stream = configured(LogSettings(level="debug"))
    try:
        raise ConnectionError("refused")
    except ConnectionError:
        logger().exception("probe failed")
    (entry,) = entries(stream)
    assert entry["error"] == "ConnectionError: refused"
    assert entry["exception"].startswith("Traceback (most recent call last):")


def test_auto_is_text_on_a_terminal_and_json_elsewhere():
    terminal = configured(LogSettings(), Terminal())
    logger().info("driver upgraded", node="n1")
    assert "driver upgraded" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")
    forced = configured(LogSettings(format="json"), Terminal())
    logger().info("driver upgraded")
    assert entries(forced)[0]["event"] == "driver upgraded"


def test_text_without_colours_is_one_plain_line():
    stream = configured(LogSettings(format="text"))
    try:
        raise ConnectionError("refused")
    except ConnectionError as error:
        logger().critical("process failed", exc_info=error)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("2027-01-15T08:00:00.125Z [critical ] process failed ")
    assert "error='ConnectionError: refused'" in line
    assert "\x1b" not in line


@pytest.mark.parametrize(
    "value", ["\udcff", 2**70, {1.5: "x"}, {("a",): "b"}, {1, 2}, float("nan")]
)
def test_unencodable_values_are_logged(value: object):
    stream = configured(LogSettings())
    logger().info("file found", value=value)
    (entry,) = entries(stream)
    assert entry["event"] == "file found"
