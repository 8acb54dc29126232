"""What a run says while it goes, and at its end."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests import grounds
from tests.run.costs import Cost, lines, machine_seconds, short
from tests.run.forked import Observer, Worker
from tests.run.plan import GroundKind, Unit, ground_of

SAY_EVERY: Final = 30.0
"""Seconds between two lines where they are kept: on a terminal one line is written over."""
_LONGEST_NAME: Final = 70


@dataclass(slots=True)
class OfGround:
    """What became of the tests of a ground."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    reasons: Counter[str] = field(default_factory=Counter[str])
    """Why tests were skipped."""
    seconds: float = 0.0
    """How long they ran, on one worker or on several one after another."""


class Told(Observer):
    """Follows a run and tells of it."""

    def __init__(self, session: pytest.Session) -> None:
        plugin: Any = session.config.pluginmanager.getplugin("terminalreporter")
        self._terminal: pytest.TerminalReporter | None = plugin
        self._items = session.items
        self._grounds = {item.nodeid: ground_of(item) for item in session.items}
        self._of: dict[GroundKind | None, OfGround] = {}
        self._costs: list[Cost] = []
        """Of tests, and of the ends of grounds."""
        self._done = 0
        self._failed: dict[str, None] = {}
        self._started = time.monotonic()
        self._machine = machine_seconds()
        self._said = self._started
        self._standing: frozenset[str] = frozenset()

    def reported(self, report: pytest.TestReport) -> None:
        of = self._of.setdefault(self._grounds.get(report.nodeid), OfGround())
        if report.failed:
            first = report.nodeid not in self._failed
            self._failed[report.nodeid] = None
            of.outcomes["failed"] += first
            self._write(f"FAILED {short(report.nodeid)}: {_first_line(report)}")
        elif report.skipped:
            of.outcomes["skipped"] += 1
            of.reasons[_reason(report)] += 1
        elif report.when == "call":
            of.outcomes["passed"] += 1

    def done(self, place: int, cpu: float) -> None:
        item = self._items[place]
        marker = item.get_closest_marker("dear")
        reason = "" if marker is None else str(marker.args[0])
        self._done += 1
        self._costs.append(Cost(item.nodeid, cpu, self._grounds[item.nodeid] is not None, reason))

    def unit_done(self, unit: Unit, *, seconds: float, cpu: float) -> None:
        self._of.setdefault(unit.ground, OfGround()).seconds += seconds
        if unit.ground is not None:
            self._costs.append(
                Cost(f"{unit.name}: its end", cpu, on_ground=True, reason="a ground")
            )
            self._write(f"{self._clock()} {unit.name}: over after {_minutes(seconds)}")

    def looked(self, workers: Sequence[Worker]) -> None:
        now = time.monotonic()
        standing = frozenset(
            worker.unit.name for worker in workers if worker.unit is not None and worker.unit.ground
        )
        overwrite = sys.stdout.isatty()
        if standing != self._standing or now - self._said >= (1.0 if overwrite else SAY_EVERY):
            self._standing, self._said = standing, now
            self._write(self._status(workers, now), overwrite=overwrite)

    def _status(self, workers: Sequence[Worker], now: float) -> str:
        """Say what stands, what runs, and for how long."""
        counts = sum((of.outcomes for of in self._of.values()), Counter[str]())
        told = f"{self._clock()} {self._done:,} of {len(self._items):,} tests"
        if counts["failed"]:
            told += f", {counts['failed']} failed"
        grounds = [
            f"{worker.unit.name} ({_minutes(now - worker.since)})"
            for worker in workers
            if worker.unit is not None and worker.unit.ground is not None
        ]
        if grounds:
            told += f"; stands: {', '.join(grounds)}"
        running = [
            f"{short(self._items[test.place].nodeid, _LONGEST_NAME)} ({now - test.at:.0f} s)"
            for worker in workers
            if (test := worker.running) is not None
        ]
        return f"{told}; runs: {', '.join(running)}" if running else told

    def _clock(self) -> str:
        return f"[{_minutes(time.monotonic() - self._started):>5}]"

    def _write(self, line: str, *, overwrite: bool = False) -> None:
        if self._terminal is None:
            return
        if overwrite:
            self._terminal.rewrite(line[: self._terminal._tw.fullwidth - 1], erase=True)  # pyright: ignore[reportPrivateUsage]
        else:
            self._terminal.ensure_newline()
            self._terminal.write_line(line)

    def summary(self) -> Iterator[str]:
        """Yield the table of grounds, the costs, and how to run only what failed."""
        yield from lines(self._costs)
        tests = sum(cost.cpu for cost in self._costs)
        machine = machine_seconds() - self._machine
        yield (
            f"CPU: {tests / 60:.1f} minutes in tests, {machine / 60:.1f} minutes on this machine"
            f" in {_minutes(time.monotonic() - self._started)}"
        )
        yield from table(self._of)
        for nodeid in self._failed:
            yield f"only this: make test ARGS='{nodeid}'"


def table(of: Mapping[GroundKind | None, OfGround]) -> Iterator[str]:
    """Yield a line per ground: its tests, what became of them, and why it is not there."""
    yield f"{'ground':30} {'tests':>6} {'passed':>6} {'failed':>6} {'skipped':>7} {'seconds':>7}"
    for ground in (None, *GroundKind):
        told = of.get(ground)
        if told is None:
            continue
        counts = told.outcomes
        line = (
            f"{'simulated' if ground is None else ground.value:30} {counts.total():6}"
            f" {counts['passed']:6} {counts['failed']:6} {counts['skipped']:7} {told.seconds:7.0f}"
        )
        missing = ground is not None and counts["skipped"] == counts.total()
        reasons = told.reasons if missing else _not_run(told.reasons)
        yield f"{line}  {reasons.most_common(1)[0][0]}" if reasons else line


def _not_run(reasons: Counter[str]) -> Counter[str]:
    """Return those of tests whose ground had died."""
    return Counter({why: n for why, n in reasons.items() if why.startswith(grounds.NOT_RUN)})


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    return text.strip().partition("\n")[0][:200]


def _reason(report: pytest.TestReport) -> str:
    longrepr = report.longrepr
    reason = str(longrepr[2]) if isinstance(longrepr, tuple) else report.longreprtext
    return reason.removeprefix("Skipped: ")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
