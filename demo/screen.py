"""What a viewer of the demo sees: lines, with what is going on between them, or the live view.

On a terminal a bar at the end of the lines shows how far the set-up is. Without one, a line follows
after a short silence.
"""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TextIO

from demo.environment import DemoEnvironment, person_access
from libs.contracts.identities import Writer
from libs.ctl.views.frame.text import bar, cut
from libs.ctl.watch.program import LiveView, open_view
from libs.ctl.watch.screen import Guide
from libs.runtime.clock import Clock

SILENT_SECONDS = 2.0
"""Seconds without a line after which a line says what is going on."""
_TICK_SECONDS = 0.5
_BAR_CELLS = 24
_WHEN = re.compile(r"^\d+\.\d s (\S+) ")
"""The time before an action, which the live view shows by itself."""
_CLOSED = "The live view is closed; the demo goes on in lines."
_STAYS_UP = "Everything stays up until Ctrl-C."


def wants_view(environ: Mapping[str, str], *, no_tty: bool, is_terminal: bool) -> bool:
    """Return whether the live view is shown: on a terminal that can, unless it is not wanted."""
    capable = environ.get("TERM", "") not in ("", "dumb")
    return is_terminal and capable and not no_tty and not environ.get("CI")


class DemoScreen:
    """Standard output, or a terminal whose last line is a progress bar."""

    def __init__(
        self, *, clock: Clock, is_terminal: bool, width: int = 80, out: TextIO | None = None
    ) -> None:
        self._clock = clock
        self._is_terminal = is_terminal
        self._width = width
        self._out = out or sys.stdout
        self._printed_at = self._began = clock.monotonic()
        self._activity = ""
        self._done = self._total = 0
        self._has_bar = False
        self._view: LiveView | None = None
        self._kept: list[str] = []
        """Lines for when the live view is closed."""

    def line(self, text: str) -> None:
        """Print a line; while the live view is shown, list it among the events."""
        if self._view is not None:
            self._view.tell(_WHEN.sub(r"\1: ", " ".join(text.split())))
            return
        self._erase()
        print(text, file=self._out, flush=True)
        self._printed_at = self._clock.monotonic()

    def event(self, text: str) -> None:
        """Print an event of the bus, which the live view shows by itself."""
        if self._view is None:
            self.line(text)

    def report(self, lines: Iterable[str]) -> None:
        """Print lines; while the live view is shown, keep them until it is closed."""
        if self._view is not None:
            self._kept += lines
            return
        for line in lines:
            self.line(line)

    @property
    def is_silent(self) -> bool:
        """Whether what is going on is said now, and should be known."""
        silent = self._clock.monotonic() - self._printed_at >= SILENT_SECONDS / 2
        return self._view is None and (self._is_terminal or silent)

    def busy(self, activity: str, *, total: int = 0) -> None:
        """Set what is going on, and of how many steps it consists."""
        if activity != self._activity:
            self._began = self._clock.monotonic()
        self._activity, self._done, self._total = activity, 0, total
        self._tick()

    def step(self) -> None:
        """Count a step of what is going on."""
        self._done += 1
        self._tick()

    @asynccontextmanager
    async def kept_current(self) -> AsyncGenerator[None]:
        """Say during the block what is going on, as often as it needs."""

        async def run() -> None:
            while True:
                await self._clock.sleep(_TICK_SECONDS)
                self._tick()

        task = asyncio.create_task(run(), name="progress")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            self._erase()

    @asynccontextmanager
    async def live(
        self, up: DemoEnvironment, guide: Guide, *, stays_up: bool
    ) -> AsyncGenerator[None]:
        """Show the live view during the block, or until the viewer closes it."""
        telemetry = up.processes.processes[Writer.TELEMETRY_CLUSTER].exporter_url
        access = person_access(up)
        async with open_view(access, pool="", telemetry=telemetry, guide=guide) as view:
            self._erase()
            self._view = view
            task = asyncio.create_task(self._show(view, stays_up=stays_up), name="live view")
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    async def _show(self, view: LiveView, *, stays_up: bool) -> None:
        try:
            await view.run(owns_process=False)
        finally:
            self._view = None
            kept, self._kept = self._kept, []
            self.report(kept)
        self.line(f"{_CLOSED} {_STAYS_UP}" if stays_up else _CLOSED)

    def _tick(self) -> None:
        now = self._clock.monotonic()
        if not self._activity or self._view is not None:
            return
        if self._is_terminal:
            print(f"\r\x1b[2K{self._bar(now)}", end="", file=self._out, flush=True)
            self._has_bar = True
        elif now - self._printed_at >= SILENT_SECONDS:
            print(f"          … {self._text(now)}", file=self._out, flush=True)
            self._printed_at = now

    def _bar(self, now: float) -> str:
        share = f"{bar(self._done / self._total, _BAR_CELLS)}  " if self._total else ""
        return cut(f"{share}{self._text(now)}", self._width - 1)

    def _text(self, now: float) -> str:
        steps = f", {self._done} of {self._total}" if self._total else ""
        return f"{self._activity}{steps}, for {now - self._began:.0f} s"

    def _erase(self) -> None:
        if self._has_bar:
            print("\r\x1b[2K", end="", file=self._out, flush=True)
            self._has_bar = False
