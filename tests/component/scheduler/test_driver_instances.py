"""The run of the driver that is validated is the one that Kubernetes names, whatever clocks say."""

from typing import Any

from libs.contracts.identities import Writer
from libs.forecast.world import ProcessEnd
from libs.testing.apiserver.faults import Fault, Hang
from tests.component.scheduler.world import FAST, NEW, World, in_world
from tests.component.world import run_world

DRIVER = "nvidia-driver-ctr"


class CrashingModel:
    """Drivers end by themselves this often, some seconds after they are ready."""

    crashes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(FAST, name)

    def run(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        if container == DRIVER and self.crashes:
            self.crashes -= 1
            return ProcessEnd(5.0, 1)
        return FAST.run(node, workload, container, attempt)


@in_world
async def test_a_machine_whose_clock_was_set_is_upgraded(world: World) -> None:
    """The kernel derives its boot time from the present time."""
    _, target = await world.complete_first_rollout("a")
    world.machines["a"].set_clock(ahead=7)
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target, within=120)


def test_a_stale_pod_status_fails_no_driver() -> None:
    model: Any = CrashingModel()

    async def story(world: World) -> None:
        _, target = await world.complete_first_rollout("a")
        await world.kill_agents("a", Writer.VALIDATOR)
        model.crashes = 1
        await world.apply_policy(NEW)
        await world.until_state("a", "validation-required")
        world.server.faults.add(Fault(effect=Hang(), verbs=("patch", "update"), kind="Pod"))
        await world.sleep(10)  # the driver crashes and starts again, unseen by the API server
        await world.start_agent("a", Writer.VALIDATOR)
        await world.sleep(60)
        assert await world.state("a") == "validation-required"
        wait = await world.wait_of("a")
        assert "another container of the driver pod runs" in wait.detail
        world.server.faults.clear()
        await world.wait_until_done("a", before=target)

    run_world(story, lambda sim, folder: World(sim, folder, model))
