"""A driver that does not work harms one real node, and a person gets it going again."""

import asyncio
import json

import pytest

from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.contracts.rollout import RolloutPhase
from libs.testing.image.driver_settings import DriverSettings
from tests.system.upgrade.audit import assert_audit_passes, observe_driverless
from tests.system.upgrade.kills import SOAK_ONLY
from tests.system.upgrade.world import NEW, OLD, POOL, World

pytestmark = SOAK_ONLY

RUNS_WITHIN, HALTED_WITHIN = 240.0, 400.0
FAILED = UpgradeState.UPGRADE_FAILED
FORMAT = "insmod: ERROR: could not insert module nvidia.ko: Invalid module format"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "bad",
    [
        DriverSettings(failure=FORMAT),
        DriverSettings(loads="575.57.08"),
        DriverSettings(hangs=True),
    ],
    ids=["it does not load", "it loads other modules", "its installation never ends"],
)
async def test_a_bad_driver_harms_one_node(world: World, bad: DriverSettings) -> None:
    await world.apply_policy(OLD)
    async with observe_driverless(world) as observer:
        await world.until_all_run(OLD, within=RUNS_WITHIN)
        for machine in world.machines:
            machine.set_driver(NEW, bad)
        await world.apply_policy(NEW)
        target = await until_halted(world)
        (failed,) = [name for name, state in (await states(world)).items() if state == FAILED]
        assert await world.cordoned() == [failed]
        others = [each for each in world.machines if each.node.name != failed]
        assert [each.kernel.version() for each in others] == [OLD]
        for machine in world.machines:
            machine.set_driver(NEW, DriverSettings())
        await release(world, target, failed)
        await world.until_all_run(NEW, within=RUNS_WITHIN)
        assert await world.cordoned() == []
        await assert_audit_passes(world, observer)


async def until_halted(world: World) -> str:
    """Wait until the rollout is halted; return its target."""
    deadline = asyncio.get_running_loop().time() + HALTED_WITHIN
    while (status := await world.rollout()).get("phase") != RolloutPhase.HALTED:
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(await world.story())
        await asyncio.sleep(0.5)
    return status["target"]


async def release(world: World, target: str, failed: str) -> None:
    """Accept one failure of a target, and request another attempt on the node that failed."""
    accepted = {"spec": {"release": {"target": target, "failures": 1}}}
    patch = ("patch", f"rollout/{POOL}", "--type=merge", "--patch", json.dumps(accepted))
    await world.kubectl.run(*patch)
    label = f"{STATE_LABEL}={UpgradeState.UPGRADE_REQUIRED.value}"
    await world.kubectl.run("label", f"node/{failed}", label, "--overwrite")


async def states(world: World) -> dict[str, str]:
    nodes = (await world.kubectl.get("nodes"))["items"]
    return {
        node["metadata"]["name"]: node["metadata"]["labels"].get(STATE_LABEL, "") for node in nodes
    }
