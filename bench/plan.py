"""CPU time of a forecast for a whole fleet, from a snapshot of it."""

import time

from bench.report import BenchReport
from libs.contracts.queries import PlanAnswer
from libs.forecast.forecast import Forecast
from libs.forecast.plan import plan
from libs.forecast.stage.objects import Tenant
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.pool import Build, PoolView, RolloutView
from libs.testing.stage import SimulatedStage, StageNodeSpec
from libs.testing.stage.worlds import SteadyWorld
from services.scheduler.plan_process import collect_rarely

TITLE = "the plan of a rollout of 1,000 and of 5,000 nodes, from a snapshot (CPU seconds)"
HOUR = 3600.0
BUSY = 3, 5
"""Share of nodes with two pods of four GPUs each."""

_POOL = "nvidiadriver-all"
_VARIANT = "ubuntu24.04"


async def run(report: BenchReport) -> None:
    collect_rarely()  # as in the process of a plan
    _measure(report, 1_000, parallel=0, budget=5.0)
    _measure(report, 1_000, parallel=1, budget=5.0)
    _measure(report, 5_000, parallel=0, budget=30.0)
    _measure_search(report, 30)


def _measure(report: BenchReport, nodes: int, *, parallel: int, budget: float) -> None:
    limits = "25 % at a time" if parallel == 0 else "one at a time"
    print(f"  {nodes} nodes, {limits}", flush=True)
    result, seconds = _timed_plan(nodes, parallel=parallel)
    report.at_most("planned in", seconds, budget, "s", note=f"{result.plays} plays")
    _report_plan(report, result.answer)


def _measure_search(report: BenchReport, nodes: int) -> None:
    """Search the maxUnavailable with which the rollout takes a third of the time."""
    serial, _ = _timed_plan(nodes, parallel=1)
    finish_within = (serial.answer.makespan_p95 or HOUR) / 3
    print(f"  {nodes} nodes one at a time, to finish in a third of the time", flush=True)
    result, seconds = _timed_plan(nodes, parallel=1, within=finish_within)
    report.figure("planned and searched in", seconds, "s", note=f"{result.plays} plays each")
    report.figure("maxUnavailable needed", result.answer.needed_max_unavailable or 0, "nodes")


def _timed_plan(
    nodes: int, *, parallel: int, within: float | None = None
) -> tuple[Forecast, float]:
    fleet, now = fleet_of(nodes, parallel=parallel)
    by = None if within is None else now.at + within
    started = time.process_time()
    result = plan(fleet, now, pool=_POOL, finish_by=by)
    return result, time.process_time() - started


def _report_plan(report: BenchReport, result: PlanAnswer) -> None:
    report.figure("until the last node", _hours(result.makespan_p50), "h", note="half of the plays")
    report.figure("most unavailable at one time", result.largest_loss, "nodes")
    report.figure("GPU-hours lost", result.gpu_hours_lost, "")


def _hours(seconds: float | None) -> float:
    return -1.0 if seconds is None else seconds / HOUR


def fleet_of(nodes: int, *, parallel: int, busy: bool = True) -> tuple[Fleet, Instant]:
    share, out_of = BUSY if busy else (0, 1)
    work = tuple(Tenant(name=f"train-{number}", gpus=4) for number in range(2))
    plans = [
        StageNodeSpec(
            name=f"gpu-{number:05}",
            pool=_POOL,
            target="old",
            tenants=work if number % out_of < share else (),
        )
        for number in range(nodes)
    ]
    pools = [_pool(parallel)]
    stage = SimulatedStage(pools, plans, world=SteadyWorld(), start=1.8e9, journalled=False)
    return stage.fleet(), stage.instant()


def _pool(parallel: int) -> PoolView:
    builds = {
        target: {_VARIANT: Build(label=f"label-{target}", install_digest=f"install-{target}")}
        for target in ("old", "new")
    }
    return PoolView(
        key=_POOL,
        uid="uid",
        target="new",
        builds=builds,
        upgrade=UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=parallel),
        rollout=RolloutView(uid="rollout", revision="1"),
    )
