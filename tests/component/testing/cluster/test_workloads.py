"""Workloads of the simulated cluster: eviction, scheduling, jobs."""

from libs.forecast.world import ProcessEnd
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.cluster.cluster import INFORMERS_USER
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.cluster.views import JOBS, REPLICA_SETS, JobStatus
from libs.testing.simulation import Sim
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.builders.objects import Manifest, replica_set, template
from tests.component.testing.cluster.world import (
    NAMESPACE,
    ClusterWorld,
    cluster_world,
    in_cluster,
    run_world,
)


@in_cluster(gpus=1)
async def test_an_unschedulable_pod_is_pending_with_a_reason_until_there_is_room(
    world: ClusterWorld,
) -> None:
    await world.create(REPLICA_SETS, replica_set("w", replicas=2, gpus=1))
    await world.sleep(30)
    pods = await world.pods("w")
    (waiting,) = [pod for pod in pods if not pod.spec.node_name]
    condition = waiting.condition("PodScheduled")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    assert "1 Insufficient nvidia.com/gpu" in condition.message
    writes = world.journal(name=waiting.metadata.name, user="system:kube-scheduler")
    assert len(writes) == 1

    world.cluster.fleet.add("n2", Hardware(gpus=1))
    await world.ready("w", 2, within=10)
    await world.sleep(1)
    status = (await world.kube.get(REPLICA_SETS, "w", namespace=NAMESPACE)).status
    assert (status.replicas, status.ready_replicas) == (2, 2)
    assert status.observed_generation == 1


@in_cluster(gpus=3)
async def test_a_scheduler_with_a_stale_cache_assigns_no_device_twice(world: ClusterWorld) -> None:
    faults = world.server.faults
    no_reads = Fault(
        effect=RefuseRequest(500), verbs=("list", "watch"), kind="Pod", user=INFORMERS_USER
    )
    fault = faults.add(no_reads)
    faults.drop_watches(kind="Pod", user=INFORMERS_USER)
    await world.create(REPLICA_SETS, replica_set("w", replicas=5, gpus=1))
    await world.sleep(20)
    early = sum(bool(pod.spec.node_name) for pod in await world.pods("w"))
    faults.remove(fault)
    await world.sleep(120)
    assert sum(pod.ready for pod in await world.pods("w")) == 3
    assert early == 3


def job(name: str, *, completions: int) -> Manifest:
    """Return a Job whose pods are not started again by their kubelet."""
    spec = {"completions": completions, "template": template(name, restartPolicy="Never")}
    return {"metadata": {"name": name}, "spec": spec}


async def job_status(world: ClusterWorld) -> JobStatus:
    return (await world.kube.get(JOBS, "train", namespace=NAMESPACE)).status


def test_a_job_runs_one_pod_after_another_until_enough_have_succeeded() -> None:
    model = SteadyWorld(job_seconds=20.0)

    async def main(sim: Sim) -> None:
        async with cluster_world(sim, model=model) as world:
            await world.create(JOBS, job("train", completions=2))
            await world.ready("train", 1)
            await world.sleep(1)
            status = await job_status(world)
            assert (status.active, status.ready, status.succeeded) == (1, 1, 0)

            async def complete() -> bool:
                pods = await world.pods("train")
                assert sum(not pod.over for pod in pods) <= 1
                return any(each.type == "Complete" for each in (await job_status(world)).conditions)

            took = await world.until(complete)
            assert 35.0 < took < 50.0
            status = await job_status(world)
            assert (status.active, status.succeeded) == (0, 2)
            assert status.completion_time > status.start_time
            await world.sleep(60)
            assert len(await world.pods("train")) == 2

    run_world(main)


def test_a_failed_pod_of_a_job_is_replaced_after_a_while_and_an_evicted_one_at_once() -> None:
    failing = WorldOverride(job=ProcessEnd(5.0, exit_code=1), first_attempts=1)
    model = SteadyWorld(job_seconds=600.0, overrides=(failing,))

    async def main(sim: Sim) -> None:
        async with cluster_world(sim, model=model) as world:
            await world.create(JOBS, job("train", completions=1))

            async def failed() -> bool:
                return (await job_status(world)).failed == 1

            await world.until(failed)
            failed_at = world.now

            async def replaced() -> bool:
                return sum(pod.ready for pod in await world.pods("train")) == 1

            await world.until(replaced)
            assert 10.0 <= world.now - failed_at < 20.0
            (running,) = [pod for pod in await world.pods("train") if not pod.over]
            meta = running.metadata
            await world.kube.evict(meta.name, namespace=NAMESPACE, uid=meta.uid)

            async def another() -> bool:
                pods = await world.pods("train")
                return any(pod.ready and pod.metadata.uid != meta.uid for pod in pods)

            assert await world.until(another) < 10.0

    run_world(main)
