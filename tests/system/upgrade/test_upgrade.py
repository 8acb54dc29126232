"""A driver upgrade on real nodes: users' pods with GPUs, a disruption budget, a person's cordon."""

import asyncio
import os
import time
from collections.abc import Callable

import pytest

from libs.contracts.node import UpgradeState
from tests.summary import FIGURE
from tests.system.upgrade.audit import audited
from tests.system.upgrade.kills import KILLS, Turn, plans
from tests.system.upgrade.offers import offered_gpus
from tests.system.upgrade.states import NodeStates, node_states
from tests.system.upgrade.workload import SERVICE
from tests.system.upgrade.world import NEW, World

UPGRADED_WITHIN = 360.0


@pytest.mark.dear(
    "the only driver upgrade of each run on kubelets, with all of Sluice and two kills"
)
@pytest.mark.parametrize("turns", plans(os.environ), ids=lambda turns: "; ".join(map(str, turns)))
async def test_an_upgrade_with_kills_completes_and_passes_the_audit(
    world: World, turns: tuple[Turn, Turn], record_property: Callable[[str, object], None]
) -> None:
    async with (
        audited(world),
        offered_gpus(world) as offered,
        node_states(world.ground.kube) as states,
    ):
        began = time.monotonic()
        await world.apply_policy(NEW)
        try:
            async with asyncio.timeout(UPGRADED_WITHIN), asyncio.TaskGroup() as group:
                cordon = group.create_task(cordon_the_other(world, states), name="cordon")
                group.create_task(kill_in_turn(world, states, turns), name="kills")
        except TimeoutError:
            raise AssertionError(await world.story()) from None
        await world.until_all_run(NEW, within=UPGRADED_WITHIN)
        seconds = time.monotonic() - began
        done = f"upgrade of two nodes: {'; '.join(map(str, turns))}: {seconds:.0f} s"
        record_property(FIGURE, done)
        assert offered.withdrawn == {machine.node.name for machine in world.machines}
        cordoned = await world.cordoned()
        assert cordoned == [cordon.result()]
        await world.kubectl.run("uncordon", *cordoned)
        await world.kubectl.wait("condition=Available", f"deployment/{SERVICE}")


async def cordon_the_other(world: World, states: NodeStates) -> str:
    """Cordon a node that has not started, while another is in flight; return its name."""
    first = await states.first(UpgradeState.POD_DELETION_REQUIRED)
    (other,) = (node.name for node in world.ground.nodes if node.name != first)
    await world.kubectl.run("cordon", other)
    return other


async def kill_in_turn(world: World, states: NodeStates, turns: tuple[Turn, Turn]) -> None:
    """Kill once for each node, in the phase of its turn."""
    done: list[str] = []
    for turn in turns:
        name = await states.first(turn.phase, besides=done)
        done.append(name)
        (machine,) = (each for each in world.machines if each.node.name == name)
        await KILLS[turn.what](world, machine)
