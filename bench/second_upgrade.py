"""How well a plan predicts the second upgrade of a fleet, from what the first one took.

Each fleet lives in a world of its own. Its durations are multiples of those that plans assume, a
slow node is slow again, and things go wrong at most as often as is assumed, which is more often
than in most fleets. Its first upgrade is played step by step; the plan of the
second one sees the fleet as that left it, the lengths of jobs that ended, and nothing else of the
world. A third of the fleets is idle, one has pods to evict, and one jobs that are waited for.
"""

from collections.abc import Sequence
from functools import partial
from math import ceil, inf
from random import Random
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from bench.plan import fleet_of
from bench.report import BenchReport
from libs.contracts.lengths import JobLengths, KindLengths
from libs.forecast import aggregate
from libs.forecast.plan import plan
from libs.forecast.play import play_to_end
from libs.forecast.seeded_world import MINUTE, FleetProfile, Lognormal, SeededWorld
from libs.forecast.world import ProcessEnd
from libs.policy.kinds.upgrade_policy import WaitForCompletion
from libs.rollout.length_buckets import MOST_BUCKETS, bucket_of
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.pool import Build

TITLE = "the second upgrade of a fleet, as predicted from its first"
FLEETS, PLAYS = 60, 9
SMALLEST, LARGEST = 12, 40
"""Nodes of a fleet."""
LONGER = 0.4, 4.0
"""Durations of a world as multiples of the assumed ones: the least and the greatest."""
ALIKE = 0.2, 0.8
"""How far durations spread within a fleet, as powers of the spread that is assumed for all fleets:
machines of one fleet are more alike than those of many.
"""
SLOWER = 0.15
"""Standard deviation of the logarithm of how much slower a node is than the others."""
PARALLEL = 1, 3, 0
"""maxParallelUpgrades of the fleets in turn; 0: a quarter of the nodes at once."""
RATES = tuple(
    name for name, assumed in asdict(FleetProfile()).items() if not isinstance(assumed, Lognormal)
)
JOB = 3 * MINUTE, 25 * MINUTE
"""Medians of the lengths of jobs."""
JOB_SPREAD = 1.5, 2.5
"""The p95 as a multiple of the median: jobs take some 1 to 60 minutes."""
JOBS_PER_NODE = 20
"""Jobs that have ended before the second upgrade."""
OWNER = "Job"
IDLE, BUSY, WITH_JOBS = range(3)
WORLDS = 2_000_000
OTHERS = 500
"""The first of the upgrades of a fleet that do not happen."""


class SecondUpgrade(msgspec.Struct, frozen=True):
    """A fleet before its second upgrade, and how long that takes then."""

    number: int
    fleet: Fleet
    now: Instant
    pool: str
    actual: float
    work: int
    job_lengths: JobLengths

    def error(self, predicted: float) -> float:
        return abs(predicted - self.actual) / self.actual

    def predicted(self, plays: int) -> float:
        """Return the makespan that a plan predicts from what the first upgrade took."""
        return self._makespan(self.fleet, plays, job_lengths=self.job_lengths)

    def unlearned(self, plays: int) -> float:
        """Return what a plan predicts without that."""
        return self._makespan(_forgetful(self.fleet), plays)

    def omniscient(self, plays: int) -> float:
        """Return what a plan predicts that knows the world: what it misses is chance."""
        worlds = partial(OtherWorld, self.number)
        return self._makespan(self.fleet, plays, seed=OTHERS, world_of=worlds)

    def _makespan(self, fleet: Fleet, plays: int, **options: Any) -> float:
        answer = plan(fleet, self.now, pool=self.pool, plays=plays, **options).answer
        return inf if answer.makespan_p50 is None else answer.makespan_p50


class OtherWorld(SeededWorld):
    """A fleet whose durations differ from the usual ones, and from node to node."""

    def __init__(self, fleet: int, upgrade: int) -> None:
        numbers = Random(WORLDS + fleet)
        assumed = FleetProfile()

        def differs(usual: Lognormal) -> Lognormal:
            low, high = LONGER
            factor = low * (high / low) ** numbers.random()
            spread = (usual.p95 / usual.median) ** numbers.uniform(*ALIKE)
            return Lognormal(usual.median * factor, usual.median * factor * spread)

        goes_wrong = numbers.random()
        profile = replace(
            assumed,
            **{rate: goes_wrong * getattr(assumed, rate) for rate in RATES},
            load=differs(assumed.load),
            validation=differs(assumed.validation),
            unload=differs(assumed.unload),
            stop=differs(assumed.stop),
            pull=differs(assumed.pull),
            job=job_lengths_of(numbers),
        )
        super().__init__(WORLDS + 1_000 * fleet + upgrade, profile=profile)
        self._fleet = fleet
        self.job = profile.job

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        end = super().load(node, driver, attempt)
        if end.after is None or end.exit_code:
            return end
        slower = Random(f"{self._fleet} {node}").lognormvariate(0.0, SLOWER)
        return ProcessEnd(end.after * slower)


def second_upgrade(number: int, *, largest: int = LARGEST) -> SecondUpgrade | None:
    """Upgrade a fleet twice; None: a person would have to help."""
    nodes = Random(number).randint(SMALLEST, largest)
    parallel, work = PARALLEL[number % len(PARALLEL)], number // len(PARALLEL) % 3
    at_first, now = fleet_of(nodes, parallel=parallel, busy=work == BUSY)
    at_first, pool = replace(at_first, budgets={}), next(iter(at_first.pools))
    world = OtherWorld(number, 0)
    if work == WITH_JOBS:
        at_first = _with_jobs(at_first, now, world.job, Random(f"first {number}"))
    first = play_to_end(at_first, now, pool=pool, world=world)
    fleet = _with_third_driver(first.fleet, at_first, pool)
    if work == WITH_JOBS:
        fleet = _with_jobs(fleet, first.instant, world.job, Random(f"second {number}"))
    second = play_to_end(fleet, first.instant, pool=pool, world=OtherWorld(number, 1))
    actual = aggregate.makespan([second.result]).p50
    if actual is None or first.result.halted_because:
        return None
    ended = _ended_jobs(world.job, nodes * JOBS_PER_NODE, Random(f"ended {number}"))
    lengths = JobLengths(pool=pool, kinds=(ended,) if work == WITH_JOBS else ())
    return SecondUpgrade(number, fleet, first.instant, pool, actual, work, lengths)


def job_lengths_of(numbers: Random) -> Lognormal:
    """Return the lengths of a fleet's jobs."""
    shortest, longest = JOB
    middle = shortest * (longest / shortest) ** numbers.random()
    return Lognormal(middle, middle * numbers.uniform(*JOB_SPREAD))


def _with_jobs(fleet: Fleet, now: Instant, job: Lognormal, numbers: Random) -> Fleet:
    """Return the fleet with a job on three of five nodes, as one follows another there."""
    nodes = dict(fleet.nodes)
    for number, (name, node) in enumerate(fleet.nodes.items()):
        pod = WorkloadPod(
            namespace="ml",
            name=f"train-{number}",
            uid=f"uid-{number}-{numbers.getrandbits(40)}",
            gpu=True,
            job=True,
            owner=OWNER,
            started=now.at - _age(job, numbers),
        )
        nodes[name] = replace(node, pods=(pod,) if number % 5 < 3 else ())
    waiting = WaitForCompletion(pod_selector="kind=job")
    pools = {
        key: replace(pool, upgrade=replace(pool.upgrade, wait_for_completion=waiting))
        for key, pool in fleet.pools.items()
    }
    return replace(fleet, pools=pools, nodes=nodes)


def _age(job: Lognormal, numbers: Random) -> float:
    """Return how long the job has run that is under way at some moment."""
    left = numbers.uniform(20.0, 40.0) * job.median
    while (length := job.quantile(numbers.random())) < left:
        left -= length
    return left


def _ended_jobs(job: Lognormal, count: int, numbers: Random) -> KindLengths:
    counts = [0] * MOST_BUCKETS
    for _ in range(count):
        counts[bucket_of(job.quantile(numbers.random()))] += 1
    return KindLengths(namespace="ml", owner=OWNER, counts=tuple(counts))


def _with_third_driver(fleet: Fleet, at_first: Fleet, key: str) -> Fleet:
    """Return the fleet with another driver to upgrade to, and with its pods back."""
    pool = fleet.pools[key]
    builds = {
        variant: Build(label="label-newer", install_digest="install-newer")
        for variant in pool.builds[pool.target]
    }
    changed = replace(pool, target="newer", builds={**pool.builds, "newer": builds})
    nodes = {
        name: replace(node, usage=at_first.nodes[name].usage, pods=at_first.nodes[name].pods)
        for name, node in fleet.nodes.items()
    }
    return replace(fleet, pools={key: changed}, nodes=nodes)


def _forgetful(fleet: Fleet) -> Fleet:
    """Return the fleet without what its first upgrade took."""
    nodes = {
        name: replace(node, record=msgspec.structs.replace(node.record, took={}))
        for name, node in fleet.nodes.items()
        if isinstance(node.record, msgspec.Struct)
    }
    return replace(fleet, nodes={**fleet.nodes, **nodes})


def quantile(errors: Sequence[float], share: float) -> float:
    """Return the error within which this share of the predictions lies."""
    return sorted(errors)[ceil(share * len(errors)) - 1]


async def run(report: BenchReport) -> None:
    found = [each for number in range(FLEETS) if (each := second_upgrade(number)) is not None]
    print(f"  {len(found)} rollouts that were not halted, of {FLEETS}", flush=True)
    errors = [each.error(each.predicted(PLAYS)) for each in found]
    with_jobs = [each.error(each.predicted(PLAYS)) for each in found if each.work == WITH_JOBS]
    report.at_most("median error", 100 * quantile(errors, 0.5), 10.0, "%")
    report.at_most("error of nine in ten", 100 * quantile(errors, 0.9), 20.0, "%")
    report.at_most("median error of those with jobs", 100 * quantile(with_jobs, 0.5), 10.0, "%")
    report.figure("error of nine in ten of them", 100 * quantile(with_jobs, 0.9), "%")
    for title, others in (
        ("without the first upgrade", [each.error(each.unlearned(PLAYS)) for each in found]),
        ("with the world's own durations", [each.error(each.omniscient(PLAYS)) for each in found]),
    ):
        report.figure(f"median error {title}", 100 * quantile(others, 0.5), "%")
        report.figure("error of nine in ten", 100 * quantile(others, 0.9), "%")
