"""Boots of a simulated machine, and the containers that it starts."""

from pathlib import Path

import pytest

from libs.host import system
from libs.host.holders import holders
from libs.host.machine import InlineOffload
from libs.host.tree import Tree
from libs.testing.errors import SimError
from libs.testing.machines.base_files import System
from libs.testing.simulation import Sim, run
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.testing.machines.builders import machine


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
        assert (tree.names("/run"), tree.read_text("/var/lib/journal")) == ((), "kept")
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
