"""The incumbent's rules in Python (`bench.recreation`), played on the measured fleet and world."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.comparison import UpgradeFigures
from bench.incumbent.plan import SEED, Plan, stage_file
from bench.incumbent.world import WORK, ScaledWorld
from bench.recreation.machine import MANAGER_READS, MANAGER_WRITES
from bench.recreation.play import incumbent
from libs.forecast.world import NEVER, TimeSpan


class RecreatedWorld(ScaledWorld):
    """The measured world without scaling; the work ends only with an eviction."""

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        node = pod.partition("/")[2].rsplit("-", 2)[0]
        seconds = self.stop(node, "", WORK).seconds or 0.0
        return TimeSpan(min(grace, seconds))

    def remainder(self, pod: str, age: float, kind: str = "") -> TimeSpan:  # noqa: ARG002
        return NEVER


def recreate(
    plan: Plan,
    *,
    troubled: bool,
    folder: Path,
    order: Sequence[str] = (),
    request: float = 0.005,
) -> UpgradeFigures:
    """Return the figures, without the requests of the driver manager.

    `order` is that in which nodes start; `request` is the time of a request, which the factor of
    the measurement does not scale: played without scaling, it is that many times longer.

    The rules do not know people that act later: only the first cordon is played.
    """
    cordoned = frozenset({plan.cordoned_before} if troubled else ())
    fleet = msgspec.structs.replace(plan.fleet, cordoned=cordoned, request=request)
    world = RecreatedWorld(seed=SEED, factor=1.0, bad_node=plan.bad_node, stage=stage_file(folder))
    figures = incumbent(fleet, world, order=order)
    return msgspec.structs.replace(
        figures, reads=figures.reads - MANAGER_READS, writes=figures.writes - MANAGER_WRITES
    )
