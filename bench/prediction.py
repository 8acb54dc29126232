"""How well plans predict rollouts, on seeded fleets.

Each fleet is played once, step by step, in a world of its own; its plan comes from other worlds of
the kind. Rollouts of equal fleets differ by chance: their own median misses some too, and no plan
can miss fewer.
"""

import statistics
from collections.abc import Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from bench.plan import HOUR, fleet_of
from bench.report import BenchReport
from libs.forecast import aggregate
from libs.forecast.plan import plan
from libs.forecast.play import play
from libs.forecast.seeded_world import FleetProfile, Lognormal, SeededWorld
from libs.policy.kinds.upgrade_policy import WaitForCompletion
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.machine import WorkloadPod

TITLE = "the durations that plans predict, against those of other seeded worlds"
FLEETS, NODES, PLAYS = 40, 12, 19
MISS = 0.15
OTHER_WORLD = 1_000_000
PROFILE = FleetProfile(job=Lognormal(0.5 * HOUR, 3 * HOUR), job_endless=0.0)


class Prediction(msgspec.Struct, frozen=True):
    actual: float
    p50: float
    p95: float | None

    @property
    def error(self) -> float:
        return (self.p50 - self.actual) / self.actual


async def run(report: BenchReport) -> None:
    for title, jobs, listed in (
        ("idle nodes", False, True),
        ("waitForCompletion, three of five nodes with a job", True, True),
        ("the same, if pods were not listed", True, False),
    ):
        found = [
            prediction
            for seed in range(FLEETS)
            if (prediction := _predict(seed, jobs=jobs, listed=listed)) is not None
        ]
        print(f"  {title}: {len(found)} rollouts that were not halted, of {FLEETS}", flush=True)
        _report(report, found, expected=listed)


def _predict(seed: int, *, jobs: bool, listed: bool) -> Prediction | None:
    """Return what was predicted and what happened; None: a person would have to help."""
    known, now = _fleet(seed, jobs=jobs)
    happened = play(
        known, now, pool=_pool(known), world=_world(OTHER_WORLD + seed), fast_forward=False
    )
    actual = aggregate.makespan([happened]).p50
    if not listed:
        unlisted = {name: replace(node, pods=None) for name, node in known.nodes.items()}
        known = replace(known, nodes=unlisted, budgets=None)
    predicted = plan(
        known, now, pool=_pool(known), plays=PLAYS, seed=seed * PLAYS, world_of=_world
    ).answer
    if actual is None or predicted.makespan_p50 is None:
        return None
    return Prediction(actual, predicted.makespan_p50, predicted.makespan_p95)


def _world(seed: int) -> SeededWorld:
    return SeededWorld(seed, profile=PROFILE)


def _pool(fleet: Fleet) -> str:
    return next(iter(fleet.pools))


def _fleet(seed: int, *, jobs: bool) -> tuple[Fleet, Instant]:
    """Return idle nodes, or some with jobs that began at different times; two are one gang."""
    fleet, now = fleet_of(NODES, parallel=0, busy=False)
    if not jobs:
        return replace(fleet, budgets={}), now
    numbers = Random(seed)
    nodes = dict(fleet.nodes)
    for number, (name, node) in enumerate(fleet.nodes.items()):
        pod = WorkloadPod(
            namespace="ml",
            name=f"train-{number}",
            uid=f"uid-{seed}-{number}",
            gpu=True,
            job=True,
            started=now.at - numbers.uniform(0.0, HOUR),
            gang=f"ml/ring-{seed}" if number < 2 else "",
        )
        nodes[name] = replace(node, pods=(pod,) if number % 5 < 3 else ())
    waiting = WaitForCompletion(pod_selector="kind=job")
    pools = {
        key: replace(pool, upgrade=replace(pool.upgrade, wait_for_completion=waiting))
        for key, pool in fleet.pools.items()
    }
    return replace(fleet, pools=pools, nodes=nodes, budgets={}), now


def _report(report: BenchReport, found: Sequence[Prediction], *, expected: bool) -> None:
    errors = [each.error for each in found]
    median = statistics.median(each.actual for each in found)
    covered = statistics.fmean(each.p95 is None or each.actual <= each.p95 for each in found)
    report.figure("p50 against what happened, on average", 100 * statistics.fmean(errors), "%")
    report.figure(f"missed by more than {MISS:.0%}", _share(errors), "%", note="of the rollouts")
    by_chance = [(median - each.actual) / each.actual for each in found]
    report.figure("missed by the median of all rollouts", _share(by_chance), "%")
    if expected:
        report.at_least("within the 95 % figure", 100 * covered, 88.0, "%")
    else:
        report.figure("within the 95 % figure", 100 * covered, "%")


def _share(errors: Sequence[float]) -> float:
    return 100 * statistics.fmean(abs(error) > MISS for error in errors)
