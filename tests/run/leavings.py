"""What a test leaves behind is its failure: later it would be a fault of another's test.

Looked for are files, sockets, transports, loops and coroutines that nobody closed, as Python tells
of them when they are collected, and processes. A process may belong to what the tests of a unit
share: only when the unit is over is one that still runs told, of the test that came with it.
"""

import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.run.progress import children

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SHARED: Final[set[int]] = set()
"""Processes that serve all tests of a worker, and end with it: whoever starts one says so here."""


class Leavings:
    """Follows the tests of one unit, by their places in the collection."""

    def __init__(self) -> None:
        self._before = children()
        self._began: dict[int, int] = {}
        """Processes, each with the test that was over first while it ran."""
        self._last = 0

    def after(self, place: int) -> list[str]:
        """Return what a test left to be collected."""
        self._last = place
        for pid in children() - self._before:
            self._began.setdefault(pid, place)
        return list(collected())

    def after_all(self) -> Iterator[tuple[int, str]]:
        """Yield what is left of the unit, each with a test."""
        for text in collected():
            yield self._last, text
        for pid in sorted(children() - self._before - SHARED):
            if told := _told(pid):
                yield self._began.get(pid, self._last), f"left behind: process {pid}, {told}"
        # What is there now is shared by all that follow: they do not search it for their garbage.
        gc.freeze()


def collected() -> Iterator[str]:
    """Collect what nothing refers to; yield what it says of that."""
    said: list[str] = []

    def hear(failure: "UnraisableHookArgs") -> None:
        said.append(f"{failure.err_msg or 'raised when collected'}: {failure.exc_value!r}")

    hook, sys.unraisablehook = sys.unraisablehook, hear
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gc.collect()
    finally:
        sys.unraisablehook = hook
    for text in [*(str(each.message) for each in caught), *said]:
        yield f"left behind: {text}"


def _told(pid: int) -> str:
    """Return the words of a process; none if it has ended, and waits for its parent to ask how."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return words.replace(b"\0", b" ").decode(errors="replace").strip()
