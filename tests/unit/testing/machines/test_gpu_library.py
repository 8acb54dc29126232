"""Simulated GPUs pass the suite of GPU libraries; validations follow the world model."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from libs.contracts.gpus import GpuProblem
from libs.forecast.world import ValidationEnd
from libs.host.gpus.division import Activation
from libs.host.gpus.memory import MemoryGpus
from libs.host.gpus.port import GpusUnavailable
from libs.host.holders import holders
from libs.host.machine import InlineOffload
from libs.host.tree import Tree
from libs.testing.machines.base_files import System
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.machines.state import InstalledDriver
from libs.testing.simulation import Sim, run
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.support import in_virtual_time
from tests.unit.host.gpus_suite import GpusSuite
from tests.unit.host.mig_suite import MigSuite, create, with_mig
from tests.unit.testing.machines.builders import machine


class SimulatedBench:
    """A machine whose driver a test loads and removes."""

    def __init__(self, world: SimulatedMachine, *, proves: bool) -> None:
        self._machine = world
        self._state = world._state  # pyright: ignore[reportPrivateUsage]
        gpus = world.host(InlineOffload(), proves=proves).gpus
        assert isinstance(gpus, MemoryGpus)
        self.gpus = gpus
        self._user = 0

    def load(self, version: str) -> None:
        self._state.install(InstalledDriver(version=version))

    def unload(self) -> None:
        assert self._state.kernel.unload_all() == ""

    def held(self) -> bool:
        return holders(Tree(self._state.host_tree.root)) != ()

    def fail(self, uuid: str, xid: int) -> None:
        index = [gpu.uuid for gpu in self._state.gpus].index(uuid)
        self._machine.report(index, xid)

    def settle(self) -> None:
        pass

    def set_problem(self, index: int, problem: GpuProblem | None) -> None:
        gpus = list(self._state.gpus)
        gpus[index] = replace(gpus[index], problem=problem, hung=problem is GpuProblem.HUNG)
        self.gpus.change(gpus)

    def hold_back(self, *, stuck: bool) -> None:
        self.gpus.is_stuck = stuck

    def set_activation(self, activation: Activation) -> None:
        self._state.mig.activation = activation

    def use(self, index: int, *, used: bool) -> None:
        if used:
            self._user = self._machine.start_process(index)
        else:
            self._machine.end_process(self._user)

    def forbid(self) -> None:
        self._state.mig.is_permitted = False


@pytest.fixture(params=["agent", "validator"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> SimulatedBench:
    def now(sim: Sim) -> SimulatedMachine:
        return machine(sim, tmp_path, gpus=2, system=System(driver="570.86.15"))

    async def main(sim: Sim) -> SimulatedMachine:
        return now(sim)

    return SimulatedBench(run(main, seed=1), proves=request.param == "validator")


class TestSimulatedGpus(GpusSuite, MigSuite):
    """The suites, on a simulated machine."""


@pytest.mark.parametrize("by", ["unload", "reboot"])
@in_virtual_time
async def test_what_is_divided_is_gone_after_an_unload_and_after_a_reboot(
    sim: Sim, tmp_path: Path, by: str
) -> None:
    world = machine(sim, tmp_path, gpus=2, system=System(driver="580.95.05"))
    bench = SimulatedBench(world, proves=False)
    uuid = with_mig(bench)
    create(bench, uuid, "7g.80gb", 0)
    bench.gpus.close()
    if by == "unload":
        bench.unload()
        bench.load("580.95.05")
    else:
        assert await world.reboot()
        bench = SimulatedBench(world, proves=False)
    bench.gpus.open()
    found = bench.gpus.division(uuid)
    assert (found.mig, found.pending, found.instances) == (False, False, ())


async def describe(sim: Sim, root: Path, failed: str) -> tuple[list[bool] | str, list[bool]]:
    """Return which GPUs hang for a validator, or its error, and which for another agent."""
    ends = WorldOverride(validation=ValidationEnd(7.0, failed))
    world = machine(
        sim,
        root,
        model=SteadyWorld(overrides=(ends,)),
        gpus=2,
        system=System(driver="580.95.05"),
    )
    host, other = world.host(InlineOffload(), proves=True), world.host(InlineOffload())
    seen: list[bool] | str
    try:
        for _ in range(2):  # the second time takes no time
            await host.offload.run(host.gpus.open)
        seen = [gpu.hung for gpu in await host.offload.run(host.gpus.describe)]
    except GpusUnavailable as error:
        seen = str(error)
    await other.offload.run(other.gpus.open)
    assert sim.clock.monotonic() == 7.0
    return seen, [gpu.hung for gpu in other.gpus.describe()]


@in_virtual_time
async def test_only_the_validator_finds_a_driver_that_computes_wrongly(
    sim: Sim, tmp_path: Path
) -> None:
    assert await describe(sim, tmp_path, "cuda") == ([True, False], [False, False])


@in_virtual_time
async def test_only_the_validator_is_refused_a_library_of_another_version(
    sim: Sim, tmp_path: Path
) -> None:
    seen, others = await describe(sim, tmp_path, "driver")
    assert "NVML is of another version" in seen
    assert others == [False, False]
