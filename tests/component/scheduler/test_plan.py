"""Plans of the scheduler, and the rollouts that follow."""

import asyncio

import msgspec
import pytest

from libs.contracts.events import PlanEvent
from libs.contracts.queries import PlanAnswer, PlanQuery, QueryError
from libs.forecast.plan import plan
from libs.kube.resources import PODS
from libs.policy.kinds.common import EnvVar, Image
from libs.policy.wanted import InstallMethod, WantedDriver
from libs.rollout.length_buckets import start_of
from libs.testing.apiserver.faults import Fault, RefuseRequest
from services.scheduler.job_lengths import FIRST
from tests.builders.objects import owner, pod
from tests.component.scheduler.world import FAST, NEW, OLD, POOL, World, in_world

NODES = tuple(f"n{number:02}" for number in range(3))
JOBS = {"podSelector": "kind=job"}


async def start_job(world: World, node: str) -> None:
    """Start a pod with GPUs that completes, and that the policy waits for."""
    meta = {"labels": {"kind": "job"}, "ownerReferences": [owner("Workload", version="v1")]}
    body = pod(f"job-{node}", node=node, gpus=1, meta=meta, restartPolicy="Never")
    await world.kube.create(PODS, body, namespace="default")


async def settled_fleet(world: World) -> str:
    """Bring up the fleet; return its target."""
    _, target = await world.complete_first_rollout(*NODES)
    await world.apply_policy(OLD, waitForCompletion=JOBS, maxParallelUpgrades=0)
    await world.sleep(30)
    return target


def paired_plan(world: World) -> PlanAnswer:
    """Compute the last plan again, in the world of the machines."""
    request = world.plans[-1]
    return plan(
        request.fleet,
        request.now,
        pool=POOL,
        options=request.options,
        plays=1,
        world_of=lambda _seed: FAST,
    ).answer


@in_world
async def test_a_plan_knows_the_jobs_of_nodes_that_are_not_followed(world: World) -> None:
    target = await settled_fleet(world)
    for name in NODES:
        await start_job(world, name)
    await world.sleep(10)
    answer = await world.ask(PlanQuery(pool=POOL, driver_version=NEW))
    assert isinstance(answer, PlanAnswer)
    assert all(node.pods for node in world.plans[-1].fleet.nodes.values())
    (kept,) = [
        body for event in await world.bus_events() if isinstance(body := event.open(), PlanEvent)
    ]
    assert [each.node for each in kept.nodes] == [
        node.node for node in answer.nodes if node.start_p50 is not None
    ]
    assert (kept.pool, kept.makespan_p50) == (POOL, answer.makespan_p50)
    planned = paired_plan(world)
    began = world.sim.clock.monotonic()
    await world.apply_policy(NEW, waitForCompletion=JOBS, maxParallelUpgrades=0)
    await world.wait_until_done(*NODES, before=target)
    actual = world.sim.clock.monotonic() - began
    assert actual > FAST.job_seconds - 10
    assert planned.makespan_p50 == pytest.approx(actual, rel=0.15)


@in_world
async def test_a_plan_gets_the_lengths_of_jobs_that_ended(world: World) -> None:
    process, _ = await world.complete_first_rollout("a")
    await world.apply_policy(OLD, waitForCompletion=JOBS)
    await start_job(world, "a")
    await world.sleep(FAST.job_seconds + 20)
    await process.kill()
    world.start()
    await world.sleep(FIRST + 40)
    await world.ask(PlanQuery(pool=POOL, driver_version=NEW))
    learned = world.plans[-1].job_lengths
    assert learned is not None
    (kind,) = learned.kinds
    assert (kind.namespace, kind.owner, sum(kind.counts)) == ("default", "Workload", 1)
    assert start_of(kind.first) == pytest.approx(FAST.job_seconds, rel=0.15)


@in_world
async def test_a_driver_with_other_settings_is_planned_for_every_node(world: World) -> None:
    target = await settled_fleet(world)
    image = Image(repository="r.example", image="driver", version=OLD)
    other = WantedDriver(
        method=InstallMethod.CONTAINER, image=image, env=(EnvVar(name="A", value="1"),)
    )
    answer = await world.ask(PlanQuery(pool=POOL, driver=msgspec.json.encode(other).decode()))
    assert isinstance(answer, PlanAnswer)
    assert answer.target not in ("", target)
    assert answer.upgraded == len(answer.nodes) == len(NODES)
    host = msgspec.json.encode(WantedDriver(method=InstallMethod.HOST)).decode()
    for driver, problem in (
        ("{}", "the driver of the query cannot be read"),
        (host, "installed by the method host cannot be planned"),
    ):
        refused = await world.ask(PlanQuery(pool=POOL, driver=driver))
        assert isinstance(refused, QueryError)
        assert (refused.code, problem in refused.message) == ("unreadable", True)


@in_world
async def test_a_branch_is_not_planned_without_precompiled_drivers(world: World) -> None:
    await settled_fleet(world)
    answer = await world.ask(PlanQuery(pool=POOL, driver_version="999"))
    assert isinstance(answer, QueryError)
    assert "999 is a branch, and the policy does not use precompiled drivers" in answer.message
    assert world.plans == []


@in_world
async def test_a_second_plan_is_refused_while_one_is_computed(world: World) -> None:
    await settled_fleet(world)
    answers = await asyncio.gather(*(world.ask(PlanQuery(pool=POOL)) for _ in range(3)))
    refused = [answer for answer in answers if isinstance(answer, QueryError)]
    assert len(refused) == 2
    assert {error.code for error in refused} == {"not-ready"}
    assert "another plan is being computed" in refused[0].message
    assert isinstance(await world.ask(PlanQuery(pool=POOL)), PlanAnswer)


@in_world
async def test_a_plan_says_if_pods_cannot_be_listed(world: World) -> None:
    await settled_fleet(world)
    world.server.faults.add(Fault(effect=RefuseRequest(403), kind="PodDisruptionBudget"))
    answer = await world.ask(PlanQuery(pool=POOL, driver_version=NEW))
    assert isinstance(answer, PlanAnswer)
    assert any(
        f"The pods of {len(NODES)} nodes could not be listed" in each for each in answer.remarks
    )
