"""The compared fleet, and the accounting of its jobs."""

from bench.comparison import ComparedFleet, NodeJobs
from libs.forecast.world import NEVER, TimeSpan
from libs.testing.stage.worlds import SteadyWorld, WorldOverride

ONE = ComparedFleet(nodes=1, gpus=8, busy=1.0, jobs=2, age=100.0)


def _work(world: SteadyWorld, fleet: ComparedFleet = ONE) -> NodeJobs:
    return NodeJobs("node-00000", 0, fleet=fleet, world=world)


def test_busy_nodes_are_spread_over_the_list() -> None:
    fleet = ComparedFleet(nodes=10, busy=0.4)
    busy = [number for number in range(10) if fleet.is_busy(number)]
    assert busy == [2, 4, 7, 9]
    assert not any(ComparedFleet(nodes=10, busy=0.0).is_busy(number) for number in range(10))
    assert all(ComparedFleet(nodes=10, busy=1.0).is_busy(number) for number in range(10))


def test_jobs_follow_each_other_on_an_open_node() -> None:
    work = _work(SteadyWorld(job_seconds=150.0))
    assert [(job.pod, job.began, job.ends) for job in work.running] == [
        ("jobs/node-00000-0-0", -100.0, 50.0),
        ("jobs/node-00000-1-0", -100.0, 50.0),
    ]
    work.settle(210.0)
    assert [(job.began, job.ends) for job in work.running] == [(200.0, 350.0), (200.0, 350.0)]
    assert (work.idle, work.redone) == (0.0, 0.0)


def test_a_cordoned_node_empties_and_its_gpus_are_lost_until_it_is_open() -> None:
    work = _work(SteadyWorld(job_seconds=150.0))
    work.close(10.0)
    work.settle(30.0)
    assert work.idle == 0.0
    work.settle(80.0)
    assert (work.running, work.emptied) == ([], 50.0)
    assert work.idle == 8 * 30.0
    work.open(100.0)
    assert work.idle == 8 * 50.0
    assert [job.began for job in work.running] == [100.0, 100.0]
    work.settle(200.0)
    assert work.idle == 8 * 50.0


def test_an_evicted_job_loses_what_came_after_its_checkpoint() -> None:
    fleet = ComparedFleet(nodes=1, gpus=8, busy=1.0, jobs=2, age=100.0, checkpoint=60.0)
    work = _work(SteadyWorld(job_seconds=1e6), fleet)
    work.close(0.0)
    first = work.running[0]
    work.evict(first, 35.0)
    assert work.redone == 4 * 15.0
    work.evict(first, 36.0)
    assert work.redone == 4 * 15.0
    work.settle(45.0)
    assert work.idle == 4 * 10.0


def test_an_idle_node_is_lost_while_it_is_cordoned() -> None:
    work = _work(SteadyWorld(), ComparedFleet(nodes=1, gpus=8, busy=0.0))
    work.close(10.0)
    work.open(30.0)
    assert work.idle == 8 * 20.0
    assert work.running == []


def test_a_persons_cordon_is_not_counted_as_idle() -> None:
    fleet = ComparedFleet(nodes=1, busy=1.0, cordoned=frozenset({"node-00000"}))
    work = _work(SteadyWorld(), fleet)
    work.close(10.0)
    work.settle(1000.0)
    assert (work.running, work.idle) == ([], 0.0)


def test_a_job_may_have_no_end() -> None:
    world = SteadyWorld(overrides=(WorldOverride(pod="jobs/node-00000-1-0", remainder=NEVER),))
    work = _work(world)
    work.close(0.0)
    work.settle(1e6)
    assert [job.ends for job in work.running] == [None]
    assert work.idle == 4 * (1e6 - 60.0)


def test_a_job_is_named_by_its_slot_and_number() -> None:
    work = _work(
        SteadyWorld(overrides=(WorldOverride(pod="jobs/node-00000-0-1", remainder=TimeSpan(7.0)),))
    )
    work.settle(50.0)
    assert [(job.pod, job.began, job.ends) for job in work.running] == [
        ("jobs/node-00000-0-2", 7.0, 67.0),
        ("jobs/node-00000-1-1", 0.0, 60.0),
    ]
