"""Containers with GPUs hold their devices for the time of the world model."""

from pathlib import Path

from libs.forecast.world import NEVER, RUNS_FOREVER
from libs.host.holders import holders
from libs.host.tree import Tree
from libs.testing.cluster.views import Pod
from libs.testing.machines.base_files import System
from libs.testing.simulation import Sim
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.builders.objects import pod, seen
from tests.support import in_virtual_time
from tests.unit.testing.machines.builders import FakeKubelet, RunningContainer, machine, uid


def start(
    sim: Sim, root: Path, model: SteadyWorld, *names: str, gpus: int
) -> list[RunningContainer]:
    """Start pods of jobs with GPUs on a machine with four."""
    world = machine(sim, root, model=model, gpus=4, system=System(driver="580.95.05"))
    kubelet, meta = FakeKubelet(world), {"namespace": "default"}
    pods = [
        pod(name, node="n1", gpus=gpus, meta={**meta, "uid": uid(name)}, restartPolicy="Never")
        for name in names
    ]
    return [kubelet.start(seen(Pod, each), "main") for each in pods]


def held(root: Path) -> dict[str, list[str]]:
    """Return the open GPUs by pod uid."""
    return {
        holder.pod_uid: [path for path in holder.devices if path[-1].isdigit()]
        for holder in holders(Tree(root))
    }


@in_virtual_time
async def test_a_job_holds_its_gpus_until_it_ends(sim: Sim, tmp_path: Path) -> None:
    first, second = start(sim, tmp_path, SteadyWorld(job_seconds=60.0), "a", "b", gpus=2)
    await sim.clock.sleep(2)
    devices = [f"/dev/nvidia{number}" for number in range(4)]
    assert held(tmp_path) == {uid("a"): devices[:2], uid("b"): devices[2:]}
    await sim.clock.sleep(57.9)
    assert (first.readiness, first.exits) == ([True], [])
    await sim.clock.sleep(0.2)
    assert (first.exits, second.exits, held(tmp_path)) == ([0], [0], {})
    first.end()
    second.end()


@in_virtual_time
async def test_a_job_that_ignores_stop_holds_its_gpus_until_it_is_killed(
    sim: Sim, tmp_path: Path
) -> None:
    stubborn = SteadyWorld(overrides=(WorldOverride(stop=NEVER, job=RUNS_FOREVER),))
    (job,) = start(sim, tmp_path, stubborn, "a", gpus=1)
    await sim.clock.sleep(5)
    job.stop()
    await sim.clock.sleep(30)
    assert held(tmp_path) == {uid("a"): ["/dev/nvidia0"]}
    job.end()
    assert (job.exits, held(tmp_path)) == ([], {})
