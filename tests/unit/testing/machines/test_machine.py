"""Boots of a simulated machine, and the containers that it starts."""

from pathlib import Path

import pytest

from libs.host import system
from libs.host.holders import holders
from libs.host.machine import InlineOffload
from libs.host.tree import Tree
from libs.testing.cluster.kubelet.container import ContainerProcess
from libs.testing.cluster.views import Pod
from libs.testing.errors import SimError
from libs.testing.machines.base_files import System
from libs.testing.machines.machine import SimulatedMachine, process_factory
from libs.testing.simulation import Sim, run
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.testing.machines.builders import FakeKubelet, driver_pod, job_pod, machine


def test_a_reboot_changes_the_boot_id_after_the_time_of_the_world_model(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        world, tree = machine(sim, tmp_path, model=SteadyWorld(boot_seconds=90.0)), Tree(tmp_path)
        before = world.boot_id
        assert system.boot_id(tree) == before
        (tmp_path / "run/sluice").mkdir()
        (tmp_path / "var/lib/journal").write_text("kept")
        assert await world.reboot(kernel="6.8.0-48-generic")
        assert sim.clock.monotonic() == 90.0
        assert system.boot_id(tree) == world.boot_id != before
        assert (tree.names("/run"), tree.text("/var/lib/journal")) == ((), "kept")
        kernel = system.kernel(tree)
        assert kernel is not None
        assert kernel.release == "6.8.0-48-generic"
        await world.reboot()
        assert tree.word(system.RELEASE) == "6.8.0-48-generic"

    run(main, seed=1)


def test_a_machine_that_is_off_has_nothing_on_it(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        world = machine(sim, tmp_path, system=System(driver="580.95.05"))
        world.start_process(0)
        world.power_off()
        world.power_off()
        assert holders(Tree(tmp_path)) == ()
        assert world.driver is None
        with pytest.raises(SimError, match="n1 is off"):
            world.host(InlineOffload())
        world.power_on()
        boot = world.boot_id
        world.power_on()
        assert world.boot_id == boot
        assert world.driver is not None

    run(main, seed=1)


def test_a_fleet_starts_containers_on_the_machine_of_the_node(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        world: dict[str, SimulatedMachine] = {}
        asked: list[str] = []

        def others(pod: Pod, container: str) -> ContainerProcess | None:
            asked.append(container)
            return None

        who = process_factory(world, others)
        assert who(driver_pod("new"), "gate") is None
        world["n1"] = machine(sim, tmp_path)
        assert who(driver_pod("new"), "gate") is not None
        assert who(job_pod("a"), "main") is not None
        assert who(job_pod("a"), "logs") is None
        assert asked == ["gate", "logs"]

    run(main, seed=1)


def contents(root: Path) -> dict[str, str]:
    """Of every file, by its path."""
    return {
        str(path.relative_to(root)): path.read_text(errors="replace")
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def story(root: Path, seed: int) -> dict[str, str]:
    """All files at its end, and what was measured."""

    async def main(sim: Sim) -> dict[str, str]:
        world = machine(sim, root, model=SteadyWorld(seed=seed, jitter=0.5))
        driver = FakeKubelet(world).start(driver_pod("new"), "nvidia-driver-ctr")
        await sim.clock.sleep(100)
        host = world.host(InlineOffload())
        host.gpus.open()
        world.start_process(3)
        samples = repr(host.gpus.sample())
        files = contents(root)
        driver.end()
        return {**files, "samples": samples, "oddities": repr(world.incidents)}

    return run(main, seed=seed)


def test_a_seed_repeats_its_run(tmp_path: Path) -> None:
    stories = [story(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    assert stories[0] == stories[1]
    assert {key for key in stories[0] if stories[0][key] != stories[2].get(key)} >= {
        "samples",
        "proc/sys/kernel/random/boot_id",
    }
