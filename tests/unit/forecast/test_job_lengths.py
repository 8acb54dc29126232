"""How much longer jobs run, as learned from those that ended."""

from random import Random
from statistics import median

import pytest
from msgspec.structs import replace

from libs.contracts.lengths import JobLengths, KindLengths
from libs.contracts.queries import PlanAnswer
from libs.forecast.history import NOTHING
from libs.forecast.job_lengths import LearnedJobs
from libs.forecast.learned_world import LearnedWorld
from libs.forecast.plan import plan
from libs.forecast.seeded_world import FleetProfile, job_left
from libs.rollout.length_buckets import MOST_BUCKETS, bucket_of
from libs.rollout.views.fleet import Instant
from tests.unit.forecast.builders import (
    awaiting_jobs,
    gpu_pod,
    idle_nodes,
    pool_with_limits,
    remark_with,
)
from tests.unit.rollout.builders import NOW, POOL, fleet

HOUR, MINUTE = 3600.0, 60.0
TRAINING = "ml/Job"


def learned_from(*minutes: float, owner: str = "Job") -> KindLengths:
    counts = [0] * MOST_BUCKETS
    for each in minutes:
        counts[bucket_of(each * MINUTE)] += 1
    return KindLengths(namespace="ml", owner=owner, counts=tuple(counts))


def jobs_of(*kinds: KindLengths) -> LearnedJobs:
    return LearnedJobs(JobLengths(pool="p", kinds=kinds))


def uniform(low: float, high: float, count: int = 400) -> list[float]:
    numbers = Random(1)
    return [numbers.uniform(low, high) for _ in range(count)]


@pytest.mark.parametrize("age", [0.0, 20.0, 45.0])
def test_what_is_left_follows_from_the_jobs_that_ran_longer(age: float) -> None:
    minutes = uniform(5.0, 60.0, 2000)
    learned = jobs_of(learned_from(*minutes))
    longer = sorted(each - age for each in minutes if each > age)
    for share in (0.1, 0.5, 0.9):
        expected = longer[int(share * len(longer))]
        left = learned.left(TRAINING, age * MINUTE, share) / MINUTE
        assert left == pytest.approx(expected, rel=0.12, abs=1.0)


def test_kinds_are_told_apart_and_others_are_like_all() -> None:
    learned = jobs_of(learned_from(*[10.0] * 30), learned_from(*[600.0] * 10, owner="RayJob"))
    assert learned.jobs == 40
    assert learned.left(TRAINING, 0.0, 0.5) == pytest.approx(10 * MINUTE, rel=0.2)
    assert learned.left("ml/RayJob", 0.0, 0.5) == pytest.approx(600 * MINUTE, rel=0.2)
    assert learned.left("web/Job", 0.0, 0.5) == pytest.approx(10 * MINUTE, rel=0.2)
    assert learned.left("web/Job", 0.0, 0.9) == pytest.approx(600 * MINUTE, rel=0.2)


def test_lengths_are_assumed_until_enough_jobs_have_ended() -> None:
    assumed = job_left(FleetProfile().job, HOUR, 0.5)
    for few in (LearnedJobs(None), jobs_of(learned_from(*[10.0] * 9))):
        assert (few.jobs, few.left(TRAINING, HOUR, 0.5)) == (0, assumed)
    few_of_a_kind = jobs_of(learned_from(*[10.0] * 9), learned_from(*[30.0] * 21, owner="RayJob"))
    assert few_of_a_kind.left(TRAINING, 0.0, 0.5) == pytest.approx(30 * MINUTE, rel=0.2)


def test_a_job_that_outlasts_all_that_ended_goes_on_as_is_assumed() -> None:
    learned = jobs_of(learned_from(*[10.0] * 50))
    assert learned.left(TRAINING, HOUR, 0.5) == job_left(FleetProfile().job, HOUR, 0.5)
    assert learned.left(TRAINING, 1e12, 0.5) == float("inf")


def test_worlds_draw_from_what_was_learned_and_jobs_rarely_have_no_end() -> None:
    learned = jobs_of(learned_from(*uniform(1.0, 60.0)))

    def drawn(jobs: LearnedJobs) -> list[float | None]:
        worlds = (LearnedWorld(seed, history=NOTHING, jobs=jobs) for seed in range(2000))
        return [world.remainder("uid", 0.0, TRAINING).seconds for world in worlds]

    seconds = drawn(learned)
    ends = [each for each in seconds if each is not None]
    assert max(ends) <= 1.2 * HOUR
    assert median(ends) == pytest.approx(30 * MINUTE, rel=0.1)
    assert 40 * (len(seconds) - len(ends)) < drawn(LearnedJobs(None)).count(None) * 4


def test_a_plan_says_what_the_lengths_of_jobs_rest_on() -> None:
    job = gpu_pod("train", job=True, started=NOW - 60.0, owner="Job")
    nodes = [replace(idle_nodes(1)[0], pods=(job,))]
    found = fleet(pool_with_limits(**awaiting_jobs()), *nodes)
    lengths = JobLengths(pool=POOL, kinds=(learned_from(*uniform(20.0, 60.0, 40)),))

    def planned(learned: JobLengths | None) -> PlanAnswer:
        now = Instant(at=NOW, epoch=1)
        return plan(found, now, pool=POOL, plays=19, job_lengths=learned).answer

    before, after = planned(None), planned(lengths)
    assert remark_with(before, "assumed to go on for 1 h 59 min (p50)")
    assert "job 2 h-1 d" in remark_with(before, "simulated runs")
    assert remark_with(after, "train, likely to go on for 37 min (p50)")
    basis = remark_with(after, "simulated runs")
    assert "as 40 jobs of the pool took: 38-57 min; assumed" in basis
    assert "job 2 h" not in basis
    assert before.makespan_p50 is not None
    assert after.makespan_p50 is not None
    assert before.makespan_p50 > 1.5 * HOUR > 1.5 * after.makespan_p50
