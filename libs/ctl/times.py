"""Read the times that people give as options."""

import time

from libs.ctl.failures import ExitCode, Failure
from libs.ctl.text import parse_duration, parse_time


def parse_since(text: str) -> float | None:
    """Return Unix seconds of `--since`: a duration before now, or a time."""
    if not text:
        return None
    seconds = parse_duration(text)
    at = time.time() - seconds if seconds is not None else parse_time(text)
    if at is None:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"--since {text!r} is no time: write 90m, 2h or 2026-05-01T22:00",
        )
    return at


def parse_finish(text: str) -> float | None:
    """Return Unix seconds of `--finish-by`: a duration from now, or a time."""
    if not text:
        return None
    seconds = parse_duration(text)
    at = time.time() + seconds if seconds is not None else parse_time(text)
    if at is None or at <= time.time():
        problem = "is no time" if at is None else "is in the past"
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"--finish-by {text!r} {problem}: write 2h, or a time such as 2026-05-01T06:00",
        )
    return at
