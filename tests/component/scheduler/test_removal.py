"""A node that is to have no driver loses the one that it has."""

from libs.contracts.node import DRIVER_LABEL, STATE_LABEL
from tests.component.scheduler.world import World, in_world


@in_world
async def test_a_driver_that_is_not_wanted_is_removed(world: World) -> None:
    """The agents on the node have its devices open, and close them on a command."""
    await world.complete_first_rollout("a", "b")
    await world.label("a", {"nvidia.com/gpu.deploy.driver": "false"})

    async def removed() -> bool:
        labels = (await world.node("a")).metadata.labels
        return not {STATE_LABEL, DRIVER_LABEL} & labels.keys()

    await world.until_written(removed)
    assert world.machines["a"].driver is None
    assert world.machines["b"].driver is not None
    assert not (await world.node("a")).spec.unschedulable
