"""One fleet, two ways to upgrade it: the incumbent's rules beside ours, in the same worlds.

A simulation, which the output says. The figures of several seeds are their means.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

from bench.comparison import CALM, ComparedFleet, UpgradeFigures
from bench.ours import ours
from bench.recreation.play import incumbent
from bench.report import BenchReport
from libs.forecast.world import WorldModel
from libs.testing.stage.worlds import SeededFleet

TITLE = "the GPU Operator's upgrade rules beside ours, on simulated fleets (nothing is measured)"
SEEDS = {10: (7, 8, 9, 10, 11), 100: (7, 8, 9), 1_000: (7,)}
"""The number of worlds by number of nodes."""
HOUR = 3600.0

_BAD = "bad"
_Played = Callable[[int], WorldModel]


async def run(report: BenchReport) -> None:
    """Play three kinds of worlds: calm, with the usual failures, with a driver that never loads."""
    print("  Both are simulated: the incumbent by rules read from its source, ours by its engine.")
    calm = partial(SeededFleet, profile=CALM)
    bad = partial(SeededFleet, profile=CALM, bad_drivers=frozenset({_BAD}))
    for size in SEEDS:
        _compare(report, f"{size} nodes, one at a time, nothing goes wrong", _serial(size), calm)
    for size in SEEDS:
        _compare(report, f"{size} nodes, 25 % at a time, as usual", _quarter(size), SeededFleet)
    _compare(report, "100 nodes, one at a time, as usual", _serial(100), SeededFleet)
    _compare(report, "100 nodes, one at a time, a driver that never loads", _serial(100), bad, _BAD)
    _compare(
        report, "100 nodes, 25 % at a time, a driver that never loads", _quarter(100), bad, _BAD
    )


def _serial(nodes: int) -> ComparedFleet:
    return ComparedFleet(nodes=nodes)


def _quarter(nodes: int) -> ComparedFleet:
    return ComparedFleet(nodes=nodes, max_parallel=0)


def _compare(
    report: BenchReport, title: str, fleet: ComparedFleet, world: _Played, target: str = "new"
) -> None:
    seeds = SEEDS[fleet.nodes]
    started = time.process_time()
    theirs = [incumbent(fleet, world(seed), target=target) for seed in seeds]
    mine = [ours(fleet, world(seed), target=target) for seed in seeds]
    seconds = time.process_time() - started
    worlds = f"{len(seeds)} worlds" if len(seeds) > 1 else "1 world"
    report.compare(f"{title} ({worlds})", "incumbent", "ours")
    for name, unit, figure_of in _ROWS:
        their_mean, our_mean = _mean(figure_of, theirs), _mean(figure_of, mine)
        if their_mean is not None or our_mean is not None:
            report.compare(f"  {name}", _shown(their_mean), _shown(our_mean), unit)
    report.figure("  simulated in", seconds, "s CPU")


def _mean(
    figure_of: Callable[[UpgradeFigures], float | None], figures: Sequence[UpgradeFigures]
) -> float | None:
    """Return the mean of a figure over the worlds that have it."""
    found = [value for each in figures if (value := figure_of(each)) is not None]
    return statistics.fmean(found) if found else None


def _shown(figure: float | None) -> float | str:
    return "-" if figure is None else figure


def _bad(of: Callable[[UpgradeFigures], float | None]) -> Callable[[UpgradeFigures], float | None]:
    """Return the figure only where a started node failed."""
    return lambda each: None if each.named_after is None else of(each)


_ROWS: tuple[tuple[str, str, Callable[[UpgradeFigures], float | None]], ...] = (
    ("nodes done", "", lambda each: each.done),
    ("nodes failed", "", lambda each: each.failed),
    ("nodes that wait at the end", "", lambda each: each.waiting),
    ("in service without a passed validation", "nodes", lambda each: each.unproven),
    ("until the last change", "h", lambda each: each.lasted / HOUR),
    ("idle, per node that was started", "s", lambda each: each.idle),
    ("API reads per node", "", lambda each: each.reads),
    ("API writes per node", "", lambda each: each.writes),
    ("  of them refused evictions", "", lambda each: each.refusals / each.nodes),
    ("Events per node", "", lambda each: each.events),
    ("commands on the bus per node", "", lambda each: each.commands),
    ("evictions", "", lambda each: each.evictions),
    ("GPU-hours lost", "", lambda each: each.gpu_hours_lost),
    ("  of them computed twice", "", lambda each: each.gpu_hours_redone),
    ("nodes harmed", "", lambda each: each.harmed),
    ("first reported as failed after", "s", _bad(lambda each: each.named_after)),
    ("last start, after the first", "s", _bad(lambda each: each.started_for)),
)
