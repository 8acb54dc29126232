"""What NVIDIA's own modules and programs say of what is wrong, and what agents make of it."""

from typing import Final

import pytest

from libs.contracts.gpus import GpuProblem
from libs.host.diagnosing import Diagnosis
from libs.host.gpus.port import DriverLibrary
from libs.host.linux import KernelRefused, Loaded
from libs.testing.guest import actions as guest_actions
from libs.testing.guest.gpu import A100, H100, LOST, T4
from libs.testing.guest.guest import GPUS
from libs.testing.nvml.cuda import CudaResult
from libs.testing.vendor import actions
from tests.system.guest.test_pci import gpus
from tests.system.vendor import proofs
from tests.system.vendor.vendor_guest import VendorGuest

CUDA: Final = {"535": "12.2", "550": "12.4"}
"""By the driver's branch."""


@pytest.mark.parametrize("age", ["old", "new"])
async def test_a_driver_whose_gpus_do_not_start_counts_none_and_the_kernel_log_says_why(
    vendor: VendorGuest, age: str
) -> None:
    driver = {"old": vendor.old, "new": vendor.new}[age]
    await vendor.load(driver)
    assert await vendor.guest.call(actions.nvidia_smi, driver) == (6, "No devices were found")
    assert await vendor.guest.call(actions.nvidia_smi, driver, "-L") == (0, "No devices found.")
    assert "RmInitAdapter failed!" in await vendor.log()
    said = await vendor.guest.call(actions.unstarted_gpus)
    assert set(said) == {"0000:01:00", "0000:02:00"}
    assert all("RmInitAdapter failed!" in line for line in said.values())
    cuda = CUDA[driver.version.partition(".")[0]]
    library = DriverLibrary(driver_version=driver.version, cuda=cuda)
    assert await vendor.guest.call(actions.open_library, driver) == (library, 0)
    assert await vendor.guest.call(actions.cuda_result, driver) == CudaResult.UNKNOWN


async def test_a_library_of_another_version_is_refused_by_the_kernels_driver(
    vendor: VendorGuest,
) -> None:
    await vendor.load(vendor.old)
    code, said = await vendor.guest.call(actions.nvidia_smi, vendor.new)
    assert code == 18
    assert "Failed to initialize NVML: Driver/library version mismatch" in said
    log = await vendor.log()
    assert f"API mismatch: the client has the version {vendor.new.version}" in log
    proof = await vendor.guest.call(proofs.prove, vendor.new)
    assert proof.diagnosis is Diagnosis.VERSION_MISMATCH
    assert await vendor.guest.call(actions.cuda_result, vendor.new) == CudaResult.UNKNOWN


async def test_without_a_driver_the_program_says_so(vendor: VendorGuest) -> None:
    code, said = await vendor.guest.call(actions.nvidia_smi, vendor.old)
    assert code == 9
    assert "couldn't communicate with the NVIDIA driver" in said
    found = await vendor.guest.call(actions.open_library, vendor.old)
    assert found is GpuProblem.DRIVER_NOT_LOADED
    assert await vendor.guest.call(actions.cuda_result, vendor.old) == CudaResult.NO_DEVICE


async def test_without_a_gpu_the_driver_refuses_to_be_loaded(vendor: VendorGuest) -> None:
    async with vendor.with_gpus():
        for driver in (vendor.old, vendor.new):
            result = await vendor.guest.call(actions.load, driver.files("nvidia"))
            file = driver.modules / "nvidia.ko"
            assert result == KernelRefused(f"finit_module {file}: No such device")
            proof = await vendor.guest.call(proofs.prove, driver)
            assert proof.diagnosis is Diagnosis.NO_GPU
    assert "NVRM: No NVIDIA GPU found." in await vendor.log()


async def test_a_module_without_the_one_below_it_lacks_symbols(vendor: VendorGuest) -> None:
    result = await vendor.guest.call(actions.load, vendor.old.files("nvidia_uvm"))
    assert isinstance(result, KernelRefused)
    assert result.why.endswith("nvidia_uvm.ko: No such file or directory")
    assert "nvidia_uvm: Unknown symbol nvUvmInterface" in await vendor.log()
    assert await vendor.guest.call(actions.obstacle) is Diagnosis.MISSING_SYMBOL


async def test_a_module_of_another_version_is_refused_beside_the_one_below_it(
    vendor: VendorGuest,
) -> None:
    assert await vendor.guest.call(actions.load, vendor.old.files("nvidia")) == Loaded()
    result = await vendor.guest.call(actions.load, vendor.new.files("nvidia_uvm"))
    assert isinstance(result, KernelRefused)
    assert result.why.endswith("nvidia_uvm.ko: Invalid argument")
    assert "nvidia_uvm: disagrees about version of symbol nvUvmInterface" in await vendor.log()


async def test_the_driver_is_loaded_for_the_other_gpu_when_one_fell_off_the_bus(
    vendor: VendorGuest,
) -> None:
    async with vendor.with_gpus(A100, LOST):
        await vendor.load(vendor.old)
        found = {each.address: each.driver for each in await vendor.guest.call(gpus)}
        assert found == {GPUS[0]: "nvidia", GPUS[1]: ""}
        assert "fallen off the bus" in await vendor.log()
        proof = await vendor.guest.call(proofs.prove, vendor.old)
        assert proof.found["gpus"] == "0 of 2 GPUs work"
        assert "RmInitAdapter failed!" in proof.problem
        assert "has fallen off the bus and is not responding" in proof.problem


async def test_boards_of_other_kinds_are_taken_as_well(vendor: VendorGuest) -> None:
    async with vendor.with_gpus(H100, T4):
        for driver in (vendor.old, vendor.new):
            await vendor.load(driver)
            assert {each.driver for each in await vendor.guest.call(gpus)} == {"nvidia"}
            names = await vendor.guest.call(actions.board_names)
            assert names == {GPUS[0]: "NVIDIA H100 80GB HBM3", GPUS[1]: "Unknown"}
            await vendor.guest.call(guest_actions.reset)
