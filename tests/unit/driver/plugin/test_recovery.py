"""While NATS is away, GPUs are offered once the validator proved in this boot that they compute."""

import pytest

from libs.contracts.commands import Idle, Quiesce
from libs.host import validations
from services.driver.plugin.offering import INSPECT_EVERY, UNPROVEN
from tests.builders.machine_files import put
from tests.unit.driver.plugin.world import BOTH, World, in_world


@in_world
async def test_gpus_are_offered_once_they_are_proven(world: World) -> None:
    world.server.stop()
    async with world.agent() as service:
        await world.clock.sleep(300)
        assert world.kubelet.lists == []
        assert any(UNPROVEN in reason for reason in service.unready_reasons())
        put(world.root, validations.CUDA, "")
        await world.clock.sleep(1.0)
        assert world.kubelet.last == BOTH
        # The next validation removes the file, and the GPUs stay in use.
        world.machine.tree.remove(validations.CUDA)
        await world.clock.sleep(INSPECT_EVERY + 1.0)
    assert [shown for _, _, shown in world.kubelet.lists] == [BOTH]


@pytest.mark.parametrize("is_idle", [True, False])
@in_world
async def test_a_command_counts_once_nats_is_back(world: World, is_idle: bool) -> None:
    await world.send_command(Idle() if is_idle else Quiesce())
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(60)
        assert world.kubelet.lists == []
        world.server.start()
        await world.clock.sleep(60)
        assert (world.kubelet.last == BOTH) is is_idle
