"""A node returns to service when its kubelet can give pods what the machine has, and not before."""

from libs.contracts.identities import Writer
from libs.contracts.journal import EntryPhase
from libs.contracts.node import MIG_CONFIG_LABEL, PLUGIN_CONFIG_LABEL
from libs.contracts.waits import WaitCode
from services.scheduler import resources
from tests.component.scheduler.world import NEW, POLICY, World, in_world

GPU = "nvidia.com/gpu"
SLICE = "nvidia.com/mig-1g.10gb"


async def allocatable_until_release(world: World) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return what the cordoned node offered in turn, and what it offered at its release."""

    async def is_cordoned() -> bool:
        return (await world.node("a")).spec.unschedulable

    await world.until_written(is_cordoned)
    seen: list[dict[str, str]] = []
    while (node := await world.node("a")).spec.unschedulable:
        if not seen or seen[-1] != node.status.allocatable:
            seen.append(node.status.allocatable)
        await world.sleep(0.25)
    return seen, node.status.allocatable


@in_world
async def test_an_upgraded_node_is_released_with_its_gpus(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    assert (await world.node("a")).status.allocatable == {GPU: "2"}
    await world.apply_policy(NEW)
    seen, released = await allocatable_until_release(world)
    assert {GPU: "0"} in seen
    assert seen[-1] == released == {GPU: "2"}
    await world.wait_until_done("a", before=target)
    chain = [(name, True) for name in ("driver", "gpus", "cuda", "plugin")]
    steps = (await world.evidence("a")).steps
    assert [(step.name, step.passed) for step in steps] == chain


@in_world
async def test_a_divided_node_is_released_with_its_slices(world: World) -> None:
    await world.complete_first_rollout("a")
    await world.label("a", {MIG_CONFIG_LABEL: "all-1g.10gb"})
    seen, released = await allocatable_until_release(world)
    assert {GPU: "0"} in seen
    assert released == {GPU: "0", SLICE: "14"}


@in_world
async def test_a_plugin_that_offers_nothing_fails_the_node_by_the_name_of_the_gpu(
    world: World,
) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.apply_policy(NEW)
    await world.until_state("a", "pod-restart-required")
    await world.kill_agents("a", Writer.PLUGIN)
    world.machines["a"].devices.boot()  # the kubelet knows of no plugin any more
    await world.until_state("a", "validation-required")
    await world.sleep(60)
    wait = await world.wait_of("a")
    assert wait.code is WaitCode.VALIDATION
    assert wait.detail.startswith("plugin: pods cannot have GPU-")
    await world.until_state("a", "upgrade-failed", within=900)
    record = await world.record("a")
    assert record.cause == f"validation: {wait.detail}"
    assert record.cause.endswith("has offered no GPU to the kubelet; its log says why")
    assert await world.target() != target


def told(world: World) -> list[tuple[str, str]]:
    """Return the commands that the device plugin began, with the configurations that it noted."""
    return [
        (entry.command, entry.detail if entry.phase is EntryPhase.STEP else "")
        for entry in world.journals["a", Writer.PLUGIN]
        if entry.phase is EntryPhase.STARTED or (entry.phase is EntryPhase.STEP and entry.detail)
    ]


@in_world
async def test_the_label_of_a_node_reaches_its_plugin_and_waits_for_an_upgrade(
    world: World,
) -> None:
    _, target = await world.complete_first_rollout("a")
    before = told(world)
    await world.label("a", {PLUGIN_CONFIG_LABEL: "shared"})
    await world.sleep(60)
    assert told(world) == before
    config = {"spec": {"devicePlugin": {"config": {"name": "configs"}}}}
    await world.patch(resources.POLICIES["ClusterPolicy"], POLICY, config, manager="person")

    async def is_told() -> bool:
        return told(world)[len(before) :] == [("idle", ""), ("idle", "shared")]

    await world.until(is_told)
    await world.apply_policy(NEW)
    await world.until_state("a", "pod-restart-required")
    await world.label("a", {PLUGIN_CONFIG_LABEL: "other"})
    await world.wait_until_done("a", before=target)
    await world.sleep(60)
    assert told(world)[len(before) + 2 :] == [("quiesce", ""), ("idle", ""), ("idle", "other")]
    await world.label("a", {PLUGIN_CONFIG_LABEL: None})
    await world.sleep(60)
    assert told(world)[len(before) + 5 :] == [("idle", "")]
