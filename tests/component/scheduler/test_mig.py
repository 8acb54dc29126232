"""The label `nvidia.com/mig.config` of a node, from its edit to the state that answers it."""

from typing import Any

from libs.contracts.node import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from libs.contracts.waits import WaitCode
from libs.kube.resources import CONFIG_MAPS
from services.scheduler import resources
from tests.component.processes import NAMESPACE
from tests.component.scheduler.audited import in_audited_world
from tests.component.scheduler.world import CORDON, POLICY, World

STATE = f'metadata.labels["{MIG_STATE_LABEL}"]'
OURS = """
version: v1
mig-configs:
  ours:
  - devices: all
    mig-enabled: {mode}
"""


async def configure(world: World, name: str, config: str | None) -> None:
    await world.label(name, {MIG_CONFIG_LABEL: config})


async def set_manager(world: World, **section: Any) -> None:
    policies = resources.POLICIES["ClusterPolicy"]
    await world.patch(policies, POLICY, {"spec": {"migManager": section}})


async def apply_config_map(world: World, text: str) -> None:
    metadata = {"name": "layouts", "namespace": NAMESPACE}
    data = {"config.yaml": text}
    await world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


async def mig_state(world: World, name: str) -> str:
    node = await world.node(name)
    return node.metadata.labels.get(MIG_STATE_LABEL, "")


async def until_mig_state(world: World, name: str, state: str, *, within: float = 300.0) -> float:
    async def reached() -> bool:
        return await mig_state(world, name) == state

    return await world.until_written(reached, within=within)


async def why_mig(world: World, name: str) -> str:
    """Return what the node waits for, a configuration of its GPUs."""
    wait = await world.wait_of(name)
    assert wait.code is WaitCode.MIG
    assert wait.who == "an administrator, by another value of the label nvidia.com/mig.config"
    return wait.detail


async def mig_events(world: World) -> list[tuple[str, str]]:
    """Return type and message of the Events about MIG, in order."""
    found = await world.events_of("MIGConfig")
    return [(each["type"], each["message"]) for each in found]


def written_states(world: World, *, since: int) -> list[object]:
    """Return the states that were written, each without a cordon or another upgrade state."""
    writes = world.committed(since=since)
    assert not any(CORDON in each.changed for each in writes)
    assert all(STATE in each.changed for each in writes)
    return [each.changed[STATE][1] for each in writes]


def revision(world: World) -> int:
    return max(each.revision for each in world.committed())


@in_audited_world
async def test_gpus_that_are_divided_so_need_no_lease(world: World) -> None:
    await world.complete_first_rollout("a", "b")
    await world.sleep(90)
    before = revision(world)
    await configure(world, "a", "all-disabled")
    assert await until_mig_state(world, "a", "success") < 2.0
    await world.sleep(120)
    assert written_states(world, since=before) == ["success"]
    assert (await world.why("a")).in_place
    assert await mig_events(world) == [("Normal", "MIG configuration all-disabled: success")]
    await configure(world, "a", None)
    await until_mig_state(world, "a", "")
    await world.sleep(120)
    assert written_states(world, since=before) == ["success", None]


@in_audited_world
async def test_a_name_that_does_not_exist_is_failed_at_once_and_why_names_what_exists(
    world: World,
) -> None:
    await world.complete_first_rollout("a")
    await world.sleep(90)
    before = revision(world)
    await configure(world, "a", "all-9g.90gb")
    assert await until_mig_state(world, "a", "failed") < 2.0
    detail = await why_mig(world, "a")
    assert 'there is no MIG configuration "all-9g.90gb": use one of the file\'s' in detail
    assert "all-1g.10gb" in detail
    ((kind, message),) = await mig_events(world)
    assert (kind, message) == ("Warning", f"MIG configuration all-9g.90gb: failed; {detail}")
    await configure(world, "a", "all-1g.5gb")
    await world.sleep(30)
    assert "has no MIG profile 1g.5gb" in await why_mig(world, "a")
    await configure(world, "a", "all-disabled")
    await until_mig_state(world, "a", "success")
    assert written_states(world, since=before) == ["failed", "success"]


@in_audited_world
async def test_the_policy_names_a_config_map_that_comes_changes_and_goes(world: World) -> None:
    await world.complete_first_rollout("a")
    await world.sleep(90)
    before = revision(world)
    await configure(world, "a", "ours")
    await until_mig_state(world, "a", "failed")
    await set_manager(world, config={"name": "layouts"})
    await world.sleep(5)
    assert f"ConfigMap {NAMESPACE}/layouts does not exist" in await why_mig(world, "a")
    await apply_config_map(world, OURS.format(mode="perhaps"))
    await world.sleep(5)
    assert f"config.yaml of ConfigMap {NAMESPACE}/layouts" in await why_mig(world, "a")
    await apply_config_map(world, OURS.format(mode="false"))
    await until_mig_state(world, "a", "success")
    await world.remove(CONFIG_MAPS, "layouts")
    await until_mig_state(world, "a", "failed")
    await configure(world, "a", None)
    await until_mig_state(world, "a", "")
    assert written_states(world, since=before) == ["failed", "success", "failed", None]


@in_audited_world
async def test_where_the_mig_manager_is_off_labels_of_others_are_left_alone(world: World) -> None:
    await world.complete_first_rollout("a", "b")
    await configure(world, "a", "all-disabled")
    await until_mig_state(world, "a", "success")
    before = revision(world)
    await set_manager(world, enabled=False)
    await until_mig_state(world, "a", "")
    theirs = {MIG_CONFIG_LABEL: "all-1g.10gb", MIG_STATE_LABEL: "pending"}
    await world.label("b", theirs, manager="nvidia-mig-manager")
    await world.sleep(60)
    assert await mig_state(world, "b") == "pending"
    assert written_states(world, since=before) == [None]
    assert (await world.why("b")).in_place


@in_audited_world
async def test_a_restarted_scheduler_writes_nothing_again(world: World) -> None:
    scheduler, _ = await world.complete_first_rollout("a", "b")
    await configure(world, "a", "all-disabled")
    await configure(world, "b", "all-9g")
    await until_mig_state(world, "a", "success")
    await until_mig_state(world, "b", "failed")
    before, events = revision(world), len(await mig_events(world))
    await scheduler.kill()
    world.start()
    await world.sleep(120)
    assert written_states(world, since=before) == []
    assert len(await mig_events(world)) == events
    assert "all-9g" in await why_mig(world, "b")
