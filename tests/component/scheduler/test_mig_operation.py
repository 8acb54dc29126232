"""The GPUs of a node are divided as its label asks: the services, with the real agents."""

import msgspec
import pytest

from libs.contracts.events import RolloutEvent
from libs.contracts.facts import PciDevice
from libs.contracts.identities import Writer
from libs.contracts.journal import EntryPhase
from libs.contracts.node import MIG_STATE_LABEL
from libs.contracts.queries import PlanAnswer, PlanQuery
from libs.contracts.rollout import ConditionType, RolloutCondition
from libs.contracts.waits import WaitCode
from libs.policy.mig.defaults import default_config
from libs.policy.mig.geometry import expected_geometry, mig_digest
from libs.policy.mig.resolution import MigProblem, resolve
from libs.testing.machines.base_files import PLAIN, gpus
from libs.testing.nvml.products import A100, H100, Product
from services.scheduler import resources
from tests.component.scheduler.audited import in_audited_world
from tests.component.scheduler.test_mig import (
    configure,
    mig_state,
    set_manager,
    until_mig_state,
    why_mig,
)
from tests.component.scheduler.world import (
    CORDON,
    LABEL,
    NEW,
    POOL,
    World,
    most_cordoned,
)

MIG_STATE = f'metadata.labels["{MIG_STATE_LABEL}"]'
SEVEN, MIXED, NONE = "all-1g.10gb", "all-balanced", "all-disabled"


def digest(name: str, config: str, model: Product = H100) -> str:
    """Return the digest of a machine's geometry, divided as this configuration says."""
    found = gpus(name, 2, model)
    pci = [
        PciDevice(address=each.pci, vendor="10de", device=model.device, device_class="030200")
        for each in found
    ]
    geometry = resolve(default_config(), config, found, pci)
    assert not isinstance(geometry, MigProblem)
    return mig_digest(expected_geometry(geometry, found))


async def proven_digest(world: World, name: str) -> str:
    """Return the digest that the validator read when the node was released."""
    evidence = await world.evidence(name)
    assert evidence.passed
    return evidence.mig_digest


def ops(world: World, name: str, phase: EntryPhase = EntryPhase.STARTED) -> int:
    return world.journalled(name, "mig", phase)


async def phases_told(world: World) -> list[tuple[str, str]]:
    bodies = [event.open() for event in await world.bus_events()]
    return [(each.before, each.after) for each in bodies if isinstance(each, RolloutEvent)]


async def complete_condition(world: World) -> RolloutCondition:
    (found,) = (
        each
        for each in (await world.rollout()).status.conditions
        if each.type is ConditionType.COMPLETE
    )
    return found


async def settled(world: World, *nodes: str) -> int:
    """Bring up the nodes, and wait until their GPUs are reported; return the revision."""
    await world.complete_first_rollout(*nodes)
    await world.sleep(150)
    return max(each.revision for each in world.committed())


@in_audited_world
async def test_a_division_tells_no_version_as_complete_once_more(world: World) -> None:
    await settled(world, "a")
    told = await phases_told(world)
    assert told[-1][1] == "Complete"
    before = await complete_condition(world)
    assert before.status == "True"
    await configure(world, "a", SEVEN)
    await world.until_state("a", "validation-required")
    assert (await world.rollout()).status.phase == "Proven"
    during = await complete_condition(world)
    assert (during.status, during.last_transition_time) == ("True", before.last_transition_time)
    assert "of those in flight the GPUs are divided" in during.message
    await until_mig_state(world, "a", "success")
    await world.sleep(30)
    assert await complete_condition(world) == before
    assert await phases_told(world) == told
    await world.apply_policy(NEW)
    await world.wait_until_done("a")
    await world.sleep(30)
    assert (await phases_told(world))[len(told)][0] == "Complete"
    assert (await phases_told(world))[-1][1] == "Complete"


@in_audited_world
async def test_a_label_divides_the_gpus_under_one_lease(world: World) -> None:
    before = await settled(world, "a")
    await world.start_job("train", "a")
    await configure(world, "a", SEVEN)
    await until_mig_state(world, "a", "success")
    written = world.committed("a", since=before)
    states = [each.changed[LABEL][1] for each in written if LABEL in each.changed]
    assert states == [
        "pod-deletion-required",
        "pod-restart-required",
        "validation-required",
        "upgrade-done",
    ]
    assert [each.changed[CORDON] for each in written if CORDON in each.changed] == [
        (None, True),
        (True, None),
    ]
    changes = [each.changed[MIG_STATE] for each in written if MIG_STATE in each.changed]
    assert changes == [(None, "pending"), ("pending", "success")]
    assert [each.verb for each in world.revisions("Pod")] == ["evict"]
    assert await proven_digest(world, "a") == digest("a", SEVEN)
    assert (ops(world, "a"), world.swaps("a")) == (1, 1)
    assert [each["message"] for each in await world.events_of("MIGConfig")] == [
        f"MIG configuration {SEVEN}: pending",
        f"MIG configuration {SEVEN}: success",
    ]
    await world.sleep(200)
    assert world.committed("a", since=max(each.revision for each in written)) == []
    assert (await world.why("a")).in_place


@in_audited_world
async def test_there_and_back_over_a_mixed_geometry(world: World) -> None:
    await settled(world, "a")
    for number, config in enumerate((SEVEN, MIXED, NONE, MIXED), start=1):
        await configure(world, "a", config)
        await until_mig_state(world, "a", "pending")
        await until_mig_state(world, "a", "success")
        assert await proven_digest(world, "a") == digest("a", config)
        assert ops(world, "a") == number
        await world.sleep(90)
        assert await mig_state(world, "a") == "success"


@in_audited_world
async def test_nodes_are_divided_one_after_the_other_within_the_budget(world: World) -> None:
    names = ("a", "b", "c")
    before = await settled(world, *names)
    for name in names:
        await configure(world, name, SEVEN)
    for name in names:
        await until_mig_state(world, name, "success", within=900.0)
    assert most_cordoned(world.committed(since=before)) == 1
    assert [ops(world, name) for name in names] == [1, 1, 1]


@in_audited_world
async def test_an_upgrade_makes_the_geometry_again_under_its_lease(world: World) -> None:
    await settled(world, "a")
    target = await world.target()
    await configure(world, "a", SEVEN)
    await until_mig_state(world, "a", "pending")
    await until_mig_state(world, "a", "success")
    token = (await world.record("a")).token
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target)
    assert (await world.record("a")).token == token + 1
    assert await proven_digest(world, "a") == digest("a", SEVEN)
    assert await mig_state(world, "a") == "success"
    assert (ops(world, "a"), world.swaps("a")) == (2, 2)
    await world.sleep(200)
    assert ops(world, "a") == 2


@in_audited_world
async def test_a_reboot_drops_the_geometry_and_the_node_gets_it_back(world: World) -> None:
    await settled(world, "a")
    await configure(world, "a", SEVEN)
    await until_mig_state(world, "a", "pending")
    await until_mig_state(world, "a", "success")
    await world.reboot("a")
    await until_mig_state(world, "a", "pending", within=900.0)
    await until_mig_state(world, "a", "success", within=900.0)
    assert await world.state("a") == "upgrade-done"
    assert not (await world.node("a")).spec.unschedulable
    assert await proven_digest(world, "a") == digest("a", SEVEN)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 9, 16])
@in_audited_world
async def test_a_killed_driver_agent_ends_the_operation_when_it_is_back(
    world: World, steps: int
) -> None:
    await settled(world, "a")
    await configure(world, "a", SEVEN)
    while ops(world, "a") == 0 or ops(world, "a", EntryPhase.STEP) < steps:
        await world.sleep(0.0005)
    await world.kill_agents("a", Writer.DRIVER)
    await world.sleep(20)
    assert await mig_state(world, "a") == "pending"
    assert (await world.node("a")).spec.unschedulable
    await world.start_agent("a", Writer.DRIVER)
    await until_mig_state(world, "a", "success")
    assert await proven_digest(world, "a") == digest("a", SEVEN)
    assert not (await world.node("a")).spec.unschedulable


async def add_a100(world: World, *, reboots: str) -> None:
    """Bring up another node, whose GPUs have to be reset, and label it."""
    await settled(world, "a")
    await set_manager(world, env=[{"name": "WITH_REBOOT", "value": reboots}])
    await world.add_nodes("b", system=msgspec.structs.replace(PLAIN, gpu=A100))
    await world.until_state("b", "upgrade-done")
    await world.sleep(150)
    await configure(world, "b", "all-1g.5gb")


@pytest.mark.dear("two nodes wait, one is rebooted, and the audit reads it all")
@in_audited_world
async def test_a_reboot_that_the_policy_accepts_completes_the_geometry(world: World) -> None:
    await add_a100(world, reboots="true")
    await until_mig_state(world, "b", "rebooting", within=900.0)
    await world.sleep(300)
    wait = await world.wait_of("b")
    assert wait.code is WaitCode.REBOOT
    assert "the node must be rebooted, which Sluice does not do" in wait.detail
    await world.reboot("b")
    await until_mig_state(world, "b", "success", within=900.0)
    assert await proven_digest(world, "b") == digest("b", "all-1g.5gb", A100)
    assert await world.state("b") == "upgrade-done"
    messages = [each["message"] for each in await world.events_of("MIGConfig")]
    assert "a reset may concern all GPUs of the node" in messages[0]
    assert len(messages) == 3


@in_audited_world
async def test_without_the_policys_consent_the_old_geometry_stays(world: World) -> None:
    await add_a100(world, reboots="false")
    await until_mig_state(world, "b", "failed", within=900.0)
    await world.until_state("b", "upgrade-done")
    assert await proven_digest(world, "b") == digest("b", NONE, A100)
    assert not (await world.node("b")).spec.unschedulable
    assert "reboot-required" in (await why_mig(world, "b"))


@in_audited_world
async def test_a_process_that_holds_a_gpu_keeps_it_undivided_and_why_names_it(
    world: World,
) -> None:
    await settled(world, "a")
    await configure(world, "a", SEVEN)
    await until_mig_state(world, "a", "pending")
    pid = world.machines["a"].start_process(0, comm="nvsm_core")
    await until_mig_state(world, "a", "failed", within=3600.0)
    wait = await world.wait_of("a")
    assert "nvsm_core" in wait.detail
    world.machines["a"].end_process(pid)
    assert await proven_digest(world, "a") == digest("a", NONE)
    assert await world.state("a") == "upgrade-done"
    await configure(world, "a", MIXED)
    await until_mig_state(world, "a", "success")
    assert await proven_digest(world, "a") == digest("a", MIXED)


@in_audited_world
async def test_a_plan_names_the_nodes_whose_gpus_are_to_be_divided(world: World) -> None:
    await settled(world, "a", "b", "c")
    await world.patch(resources.ROLLOUTS, POOL, {"spec": {"brake": "Pause"}})
    for name, config in (("a", SEVEN), ("b", NONE), ("c", MIXED)):
        await configure(world, name, config)
    await until_mig_state(world, "c", "pending")
    answer = await world.ask(PlanQuery(pool=POOL))
    assert isinstance(answer, PlanAnswer)
    assert [each.node for each in answer.nodes] == ["a", "c"]
    assert all(each.end_p50 is not None for each in answer.nodes)


@in_audited_world
async def test_the_mig_manager_switched_off_ends_what_a_pause_holds_back(world: World) -> None:
    await settled(world, "a")
    await world.patch(resources.ROLLOUTS, POOL, {"spec": {"brake": "Pause"}})
    await configure(world, "a", SEVEN)
    await until_mig_state(world, "a", "pending")
    await world.sleep(60)
    wait = await world.wait_of("a")
    assert wait.code is WaitCode.PAUSED
    await set_manager(world, enabled=False)
    await until_mig_state(world, "a", "")
    await world.patch(resources.ROLLOUTS, POOL, {"spec": {"brake": "None"}})
    await world.sleep(120)
    assert (ops(world, "a"), await mig_state(world, "a")) == (0, "")
    await set_manager(world, enabled=True)
    await until_mig_state(world, "a", "success")
    assert await proven_digest(world, "a") == digest("a", SEVEN)
