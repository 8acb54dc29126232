"""Containers with GPUs hold their devices for the time of the world model."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from libs.forecast.world import NEVER, RUNS_FOREVER
from libs.host.holders import holders
from libs.host.tree import Tree
from libs.testing.machines.base_files import System
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.simulation import Sim, run
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.testing.machines.builders import (
    FakeKubelet,
    RunningContainer,
    job_pod,
    machine,
    uid,
)

Act = Callable[[Sim, SimulatedMachine, Callable[..., RunningContainer]], Coroutine[Any, Any, None]]


def run_scenario(
    root: Path, act: Act, *, model: SteadyWorld | None = None, driver: str = "580.95.05"
) -> None:
    async def main(sim: Sim) -> None:
        world = machine(sim, root, model=model, gpus=4, system=System(driver=driver))
        kubelet, running = FakeKubelet(world), list[RunningContainer]()

        def start(*args: Any, **more: Any) -> RunningContainer:
            running.append(kubelet.start(*args, **more))
            return running[-1]

        try:
            await act(sim, world, start)
        finally:
            for container in running:
                container.end()

    run(main, seed=1)


def devices(root: Path) -> dict[str, list[str]]:
    """Return the open GPUs by pod uid."""
    return {
        holder.pod_uid: [path for path in holder.devices if path[-1].isdigit()]
        for holder in holders(Tree(root))
    }


def test_a_job_holds_its_gpus_until_it_ends(tmp_path: Path) -> None:
    async def act(
        sim: Sim, world: SimulatedMachine, start: Callable[..., RunningContainer]
    ) -> None:
        first = start(job_pod("a", gpus=2), "main")
        second = start(job_pod("b"), "main")
        await sim.clock.sleep(2)
        assert devices(tmp_path) == {
            uid("a"): ["/dev/nvidia0", "/dev/nvidia1"],
            uid("b"): ["/dev/nvidia2"],
        }
        (holder, _) = holders(Tree(tmp_path))
        assert "/dev/nvidia-uvm" in holder.devices
        await sim.clock.sleep(57.9)
        assert (first.readiness, first.exits) == ([True], [])
        await sim.clock.sleep(0.2)
        assert (first.exits, second.exits) == ([0], [0])
        assert devices(tmp_path) == {}

    run_scenario(tmp_path, act, model=SteadyWorld(job_seconds=60.0))


def test_a_job_that_ignores_stop_holds_its_gpus_until_it_is_killed(tmp_path: Path) -> None:
    async def act(
        sim: Sim, world: SimulatedMachine, start: Callable[..., RunningContainer]
    ) -> None:
        job = start(job_pod("a"), "main")
        await sim.clock.sleep(5)
        job.stop()
        await sim.clock.sleep(30)
        assert devices(tmp_path) == {uid("a"): ["/dev/nvidia0"]}
        job.end()
        assert (job.exits, devices(tmp_path)) == ([], {})

    override = WorldOverride(stop=NEVER, job=RUNS_FOREVER)
    run_scenario(tmp_path, act, model=SteadyWorld(overrides=(override,)))
