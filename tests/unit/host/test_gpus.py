"""GPUs in memory, and an agent's handle of them."""

import pytest
from msgspec.structs import replace

from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.host.gpus.division import Activation
from libs.host.gpus.memory import MemoryGpus
from libs.host.gpus.memory_mig import MemoryMig
from libs.host.gpus.port import DriverLibrary, GpuHandle, GpusUnavailable
from libs.testing.nvml.products import A100, H100
from tests.builders.gpus import gpu, sample
from tests.unit.host.gpus_suite import GpusSuite
from tests.unit.host.mig_suite import MigSuite


class MemoryGpuFixture:
    """A machine with two simulated GPUs."""

    def __init__(self) -> None:
        self.driver: DriverLibrary | None = DriverLibrary(driver_version="570.86.15")
        self.holds = 0
        self._used = set[str]()
        self._mig = MemoryMig(["GPU-0", "GPU-1"], H100.mig, is_used=lambda uuid: uuid in self._used)
        self.gpus = MemoryGpus(
            [gpu(0), gpu(1)],
            driver=lambda: self.driver,
            samples=lambda gpu: sample(gpu.index, temperature_c=40),
            held=self._held,
            mig=self._mig,
        )

    def _held(self, held: bool) -> None:
        self.holds += 1 if held else -1

    def load(self, version: str) -> None:
        self.driver = DriverLibrary(driver_version=version)

    def unload(self) -> None:
        self.driver = None

    def held(self) -> bool:
        return self.holds > 0

    def fail(self, uuid: str, xid: int) -> None:
        self.gpus.fail(uuid, xid)

    def settle(self) -> None:
        pass

    def set_problem(self, index: int, problem: GpuProblem | None) -> None:
        gpus = [gpu(0), gpu(1)]
        gpus[index] = replace(gpus[index], problem=problem, hung=problem is GpuProblem.HUNG)
        self.gpus.change(gpus)

    def hold_back(self, *, stuck: bool) -> None:
        self.gpus.is_stuck = stuck

    def set_activation(self, activation: Activation) -> None:
        self._mig.activation = activation

    def use(self, index: int, *, used: bool) -> None:
        self._used = {f"GPU-{index}"} if used else set()

    def forbid(self) -> None:
        self._mig.is_permitted = False


@pytest.fixture
def bench() -> MemoryGpuFixture:
    return MemoryGpuFixture()


class TestMemoryGpus(GpusSuite, MigSuite):
    """The suites, in memory."""


def test_queries_fail_after_the_driver_is_unloaded_while_open(bench: MemoryGpuFixture) -> None:
    bench.gpus.open()
    bench.unload()
    with pytest.raises(GpusUnavailable, match="unloaded while"):
        bench.gpus.sample()


def test_is_open_follows_open_and_close(bench: MemoryGpuFixture) -> None:
    states = [bench.gpus.is_open]
    bench.gpus.open()
    states.append(bench.gpus.is_open)
    bench.gpus.close()
    assert [*states, bench.gpus.is_open] == [False, True, False]


def test_a_handle_keeps_the_reason_and_can_be_released(bench: MemoryGpuFixture) -> None:
    handle = GpuHandle(bench.gpus)
    bench.unload()
    assert handle.acquire() is None
    assert handle.unavailable_reason == REMEDIES[GpuProblem.DRIVER_NOT_LOADED]
    assert handle.problem is GpuProblem.DRIVER_NOT_LOADED
    bench.load("570.86.15")
    assert handle.acquire() is not None
    assert (handle.unavailable_reason, handle.problem) == ("", None)
    handle.release()
    assert not bench.held()
    assert handle.acquire() is None
    assert "released while the driver changes" in handle.unavailable_reason
    assert handle.problem is None


def test_a_handle_is_not_released_while_the_kernel_holds_a_device(bench: MemoryGpuFixture) -> None:
    handle = GpuHandle(bench.gpus)
    handle.acquire()
    bench.gpus.is_stuck = True
    with pytest.raises(GpusUnavailable, match="must be rebooted"):
        handle.release()
    assert handle.acquire() is None
    assert handle.problem is GpuProblem.DRIVER_HUNG
    bench.gpus.is_stuck = False
    assert handle.acquire() is None
    assert handle.problem is None
    assert not bench.held()


@pytest.mark.parametrize("persists", [True, False])
def test_a_pending_mode_takes_effect_at_a_reboot_if_it_outlives_the_driver(persists: bool) -> None:
    mig = MemoryMig(["GPU-0"], A100.mig, is_used=lambda _uuid: False, persists=persists)
    mig.activation = Activation.RESET_REQUIRED
    assert mig.set_mode("GPU-0", on=True) is Activation.RESET_REQUIRED
    mig.unload()
    assert (mig.division("GPU-0").mig, mig.division("GPU-0").pending) == (False, persists)
    mig.reboot()
    assert mig.division("GPU-0").mig is persists
