"""What the scheduler learns of the lengths of jobs, from pods that have ended."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.lengths import JobLengths, KindLengths
from libs.contracts.message import encode
from libs.kube.client import Kube
from libs.kube.errors import Forbidden
from libs.kube.resources import NODES, PODS
from libs.kube.views import format_time
from libs.policy.kinds.upgrade_policy import WaitForCompletion
from libs.rollout.length_buckets import MOST_BUCKETS, bucket_of, start_of
from libs.rollout.views.pool import PoolView
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, run
from services.scheduler.job_lengths import FIRST, MOST_JOBS, MOST_KINDS, PERIOD, JobLengthsLearner
from tests.builders import objects
from tests.unit.rollout.builders import POOL, node, pool

if TYPE_CHECKING:
    from libs.bus.port import Bus
    from libs.rollout.views.node import NodeView

MINUTE = 60.0
OTHER = "nvidiadriver-other"
WAITING = WaitForCompletion(pod_selector="kind=job")


def waiting(view: PoolView) -> PoolView:
    return replace(view, upgrade=replace(view.upgrade, wait_for_completion=WAITING))


class Cluster:
    """A simulated API server with pods that have ended, and a bus."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("server"))
        self.kube = Kube(self.server.transport(user="kubelet"), manager="kubelet", clock=sim.clock)
        bus_server = LocalServer(env=sim.env("bus"))
        self.bus: Bus = bus_server.connect(Identity(writer=Writer.SCHEDULER))
        self.pools = {POOL: waiting(pool())}
        self.nodes: dict[str, NodeView] = {"n1": replace(node("n1"), pool=POOL)}
        self.count = 0

    async def open(self) -> None:
        await self.bus.ensure(subjects.STATE)
        for name in ("n1", "n2"):
            await self.kube.create(NODES, {"metadata": {"name": name}})

    def learner(self) -> JobLengthsLearner:
        return JobLengthsLearner(
            bus=self.bus, kube=self.kube, env=self.sim.env(), pools=self.pools, nodes=self.nodes
        )

    async def ended(
        self,
        minutes: float,
        *,
        ago: float = 0.0,
        owner: str = "Job",
        on: str = "n1",
        kind: str = "job",
        phase: str = "Succeeded",
        **status: Any,
    ) -> None:
        """Show a pod that ended some seconds ago."""
        self.count += 1
        name = f"pod-{self.count}"
        owners = [objects.owner(owner, version="v1")] if owner else []
        meta = {"labels": {"kind": kind}, "ownerReferences": owners}
        wanted = objects.pod(name, node=on, meta=meta, containers=[objects.container("c")])
        pod = await self.kube.create(PODS, wanted, namespace="default")
        end = self.sim.clock.now() - ago
        terminated = {
            "exitCode": 0,
            "startedAt": format_time(end - minutes * MINUTE),
            "finishedAt": format_time(end),
        }
        state = {"terminated": terminated} if phase != "Running" else {"running": {}}
        change: dict[str, Any] = {
            "status": {
                "phase": phase,
                "startTime": format_time(end - minutes * MINUTE),
                "containerStatuses": [
                    {"name": "c", "image": "i:1", "imageID": "i", "ready": False,
                     "restartCount": 0, "state": state}
                ],
                **status,
            }
        }  # fmt: skip
        await self.kube.merge(
            PODS, name, change, namespace="default",
            resource_version=pod.metadata.resource_version, subresource="status",
        )  # fmt: skip

    async def stored(self, key: str = POOL) -> bytes | None:
        subject = subjects.Lengths(cluster="default", pool=key)
        found = await self.bus.last(subjects.STATE, str(subject))
        return None if found is None else found.data


def in_cluster(story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def main(sim: Sim) -> None:
            cluster = Cluster(sim)
            await cluster.open()
            await story(cluster)

        run(main, seed=1)

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


def lengths(learned: JobLengths | None) -> dict[str, dict[int, int]]:
    """Return the counts by kind and bucket."""
    return {
        f"{each.namespace}/{each.owner}": {
            bucket: count for bucket, count in enumerate(each.counts, each.first) if count
        }
        for each in (learned.kinds if learned is not None else ())
    }


@in_cluster
async def test_jobs_that_ended_are_counted_by_kind(cluster: Cluster) -> None:
    for minutes in (10, 10, 45):
        await cluster.ended(minutes)
    await cluster.ended(5, owner="PyTorchJob", phase="Failed")
    await cluster.ended(5, owner="")
    learner = cluster.learner()
    assert learner.of(POOL) is None
    await learner.learn()
    ten, forty_five, five = (bucket_of(minutes * MINUTE) for minutes in (10, 45, 5))
    assert lengths(learner.of(POOL)) == {
        "default/": {five: 1},
        "default/Job": {ten: 2, forty_five: 1},
        "default/PyTorchJob": {five: 1},
    }


@in_cluster
async def test_what_is_no_job_that_ended_by_itself_is_not_counted(cluster: Cluster) -> None:
    await cluster.ended(10, kind="web")
    await cluster.ended(10, on="n2")
    await cluster.ended(10, phase="Running")
    await cluster.ended(10, phase="Failed", reason="Evicted")
    await cluster.ended(10, ago=-600.0)
    learner = cluster.learner()
    await learner.learn()
    assert lengths(learner.of(POOL)) == {}
    assert await cluster.stored() is None


REFUSED = Fault(effect=RefuseRequest(403), kind="Pod", verbs=("list",))


@in_cluster
async def test_pools_that_wait_for_no_jobs_cost_no_request(cluster: Cluster) -> None:
    cluster.pools = {POOL: pool()}
    cluster.server.faults.add(REFUSED)
    await cluster.learner().learn()
    cluster.pools = {POOL: waiting(pool())}
    with pytest.raises(Forbidden):
        await cluster.learner().learn()


@in_cluster
async def test_a_list_that_fails_is_tried_again(cluster: Cluster) -> None:
    cluster.server.faults.add(REFUSED)
    learner = cluster.learner()
    async with learner.learning():
        await cluster.ended(10)
        await asyncio.sleep(FIRST + 1)
        cluster.server.faults.clear()
        assert lengths(learner.of(POOL)) == {}
        await asyncio.sleep(PERIOD)
    assert lengths(learner.of(POOL)) == {"default/Job": {bucket_of(600.0): 1}}


@in_cluster
async def test_each_job_is_counted_once_also_by_the_next_leader(cluster: Cluster) -> None:
    async with cluster.learner().learning():
        await cluster.ended(10, ago=30.0)
        await asyncio.sleep(FIRST + 1)
        first = await cluster.stored()
        await asyncio.sleep(PERIOD)
        assert await cluster.stored() == first
        await cluster.ended(10)
        await asyncio.sleep(PERIOD)
    later = cluster.learner()
    async with later.learning():
        await asyncio.sleep(1)
        assert lengths(later.of(POOL)) == {"default/Job": {bucket_of(600.0): 2}}
        await asyncio.sleep(FIRST)
        assert lengths(later.of(POOL)) == {"default/Job": {bucket_of(600.0): 2}}


@in_cluster
async def test_a_pool_that_is_gone_is_forgotten(cluster: Cluster) -> None:
    await cluster.ended(10)
    learner = cluster.learner()
    await learner.learn()
    assert await cluster.stored() is not None
    cluster.pools[OTHER] = waiting(replace(cluster.pools.pop(POOL), key=OTHER))
    await learner.learn()
    assert (await cluster.stored(), learner.of(POOL)) == (None, None)


@in_cluster
async def test_kinds_and_counts_are_bounded(cluster: Cluster) -> None:
    learner = cluster.learner()
    for number in range(MOST_KINDS + 3):
        await cluster.ended(1, owner=f"Kind{number:03}")
    await learner.learn()
    found = learner.of(POOL)
    assert found is not None
    assert (len(found.kinds), sum(lengths(found)["/"].values())) == (MOST_KINDS + 1, 3)
    full = replace(found.kinds[1], first=0, counts=(MOST_JOBS,) * MOST_BUCKETS)
    largest = replace(found, kinds=(full,) * (MOST_KINDS + 1))
    assert 4 * len(encode(largest)) < 3 * subjects.STATE.max_message


@in_cluster
async def test_older_jobs_weigh_less(cluster: Cluster) -> None:
    subject = str(subjects.Lengths(cluster="default", pool=POOL))
    kind = KindLengths(namespace="default", owner="Job", first=20, counts=(MOST_JOBS,))
    message = JobLengths(pool=POOL, until=1.0, kinds=(kind,))
    await cluster.bus.store(subjects.STATE, subject, encode(message))
    await cluster.bus.store(subjects.STATE, f"{subject}-x", b'{"v":9}')
    learner = cluster.learner()
    async with learner.learning():
        await cluster.ended(60)
        await asyncio.sleep(FIRST + 1)
    assert lengths(learner.of(POOL)) == {"default/Job": {20: MOST_JOBS // 2}}


def test_buckets_are_a_tenth_wide() -> None:
    for seconds in (1.5, 61.0, 3600.0, 86_400.0):
        bucket = bucket_of(seconds)
        assert start_of(bucket) <= seconds < start_of(bucket + 1) < 1.1 * start_of(bucket)
    assert (bucket_of(0.0), bucket_of(1e12)) == (0, MOST_BUCKETS - 1)
