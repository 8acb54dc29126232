"""What a process has done with its time: it ran, it waited for a processor, or it rested.

Only what it does itself ends a wait for it: on a busy machine it waits long for a processor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOST_RUNNING: Final = 600.0
"""Seconds of a processor without an answer: the dearest call takes 20, a boot takes 10."""
MOST_RESTING: Final = 150.0
"""Seconds without an answer in which it did not even ask for a processor: no call rests for 3."""
_RESTS: Final = 0.1
"""The share of a processor below which it rests: a guest that waits has a clock that ticks."""


@dataclass(frozen=True, slots=True)
class _Thread:
    ran: float
    waited: float


class Effort:
    """Since the beginning."""

    def __init__(self, tasks: Path, *, now: float) -> None:
        """`tasks` is the folder of the process's threads in `/proc`."""
        self._tasks = tasks
        self._threads = _read(tasks)
        self._looked = now
        self.ran = 0.0
        self.rested = 0.0

    def look(self, *, now: float) -> None:
        """Count what was done since the last look."""
        threads, before = _read(self._tasks), self._threads
        new = _Thread(0.0, 0.0)
        ran = sum(each.ran - before.get(name, new).ran for name, each in threads.items())
        waited = sum(each.waited - before.get(name, new).waited for name, each in threads.items())
        seconds = now - self._looked
        if ran + waited < _RESTS * seconds:
            self.rested += seconds
        self.ran += ran
        self._threads, self._looked = threads, now

    def problem(self) -> str | None:
        """Return why nothing more is to be expected; nothing as long as something is."""
        if self.ran > MOST_RUNNING:
            return f"in {self.ran:.0f} s of a processor"
        if self.rested > MOST_RESTING:
            return f"and has rested for {self.rested:.0f} s"
        return None


def _read(tasks: Path) -> Mapping[str, _Thread]:
    """Return what each thread did since its start; none once the process has ended."""
    found: dict[str, _Thread] = {}
    for file in tasks.glob("*/schedstat"):
        try:
            ran, waited, _ = file.read_text().split()
        except OSError:  # the thread has ended
            continue
        found[file.parent.name] = _Thread(int(ran) / 1e9, int(waited) / 1e9)
    return found
