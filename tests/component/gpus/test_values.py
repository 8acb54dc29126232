"""What is read of a GPU: every value, values that the driver lacks, and values that are false."""

import inspect
import itertools
import re
import time
from collections.abc import Iterator
from types import ModuleType

import pynvml
import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.contracts.gpus import FabricState, GpuProblem, RecoveryAction, XidCode
from libs.host.gpus import measuring, reading
from libs.testing.nvml import Return, library
from tests.component.gpus.machine import StandInMachine, let_work, with_machine
from tests.component.testing.nvml.client import Client
from tests.unit.host.gpus_suite import errors_of, is_measured

MIB = 1 << 20


def test_a_gpu_is_described_as_the_driver_knows_it(bench: StandInMachine) -> None:
    bench.gpus.open()
    gpu, stand_in = bench.gpus.describe()[1], bench.stand_in.gpus[1]
    identity = stand_in.state.identity
    assert gpu == Gpu(
        uuid=stand_in.uuid,
        index=1,
        minor=1,
        pci="00000000:43:00.0",
        name="NVIDIA H100 80GB HBM3",
        memory_mib=81559,
        compute_capability=(9, 0),
        serial=identity.serial.decode(),
        mig_capable=True,
        mig_mode=False,
        mig_pending=False,
        fabric_state=FabricState.COMPLETED,
        nvlinks=18,
        recovery=RecoveryAction.NONE,
    )


def test_the_cuda_version_needs_no_libcuda_that_a_loader_finds(bench: StandInMachine) -> None:
    """An agent opens the library of a driver container by its path, and has no libcuda."""
    assert bench.gpus.open().cuda == "13.0"


@with_machine(profile="GB200")
def test_a_gpu_of_a_fabric_of_several_machines_names_its_clique(bench: StandInMachine) -> None:
    bench.gpus.open()
    fabric = "6f1d2c3b-8a47-4e59-9b1e-0c5d7a2f4e61.32766"
    assert {gpu.fabric for gpu in bench.gpus.describe()} == {fabric}
    for state, status, expected in (
        (1, 0, FabricState.NOT_STARTED),
        (2, 0, FabricState.IN_PROGRESS),
        (3, Return.UNKNOWN, FabricState.FAILED),
    ):
        bench.stand_in.gpus[0].fabric.state = state
        bench.stand_in.gpus[0].fabric.status = status
        first, second, *_ = bench.gpus.describe()
        assert (first.fabric, first.fabric_state) == ("", expected)
        assert second.fabric == fabric


def test_links_that_are_down_and_a_recovery_are_described(bench: StandInMachine) -> None:
    bench.gpus.open()
    before = bench.gpus.describe()[0]
    for number in (3, 17):
        bench.stand_in.gpus[0].links.link[number].active = 0
    bench.stand_in.gpus[0].health.recovery_action = 4
    assert bench.gpus.describe()[0] == replace(
        before, nvlinks_down=(3, 17), recovery=RecoveryAction.DRAIN_AND_RESET
    )


def test_the_first_sample_has_no_rates(bench: StandInMachine) -> None:
    bench.gpus.open()
    first = bench.gpus.sample()[0]
    assert (first.nvlink_mb_per_s, first.graphics_active, first.pcie_tx_bytes_per_s) == (
        None,
        None,
        None,
    )


def test_what_the_links_carry_is_a_rate(bench: StandInMachine) -> None:
    bench.gpus.open()
    bench.gpus.sample()
    bench.stand_in.gpus[0].links.link[5].tx_kib += 1 << 40
    assert (bench.gpus.sample()[0].nvlink_mb_per_s or 0) > 1_000_000
    assert bench.gpus.sample()[0].nvlink_mb_per_s == 0
    bench.stand_in.gpus[0].links.link[5].tx_kib = 0
    assert bench.gpus.sample()[0].nvlink_mb_per_s is None, "the counter began anew"


@with_machine(profile="T4")
def test_an_older_gpu_has_retired_pages_and_no_profiling(bench: StandInMachine) -> None:
    gpu = bench.stand_in.gpus[0]
    gpu.health.retired_single_bit, gpu.health.retired_double_bit = 3, 4
    gpu.health.retirement_pending = 1
    gpu.readings.pcie_tx_kb_per_s, gpu.readings.pcie_rx_kb_per_s = 7, 9
    bench.gpus.open()
    bench.gpus.sample()
    (sample,) = bench.gpus.sample()
    assert (sample.retired_corrected, sample.retired_uncorrected) == (3, 4)
    assert (sample.retired_pending, sample.remapped_correctable) == (1, None)
    assert (sample.pcie_tx_bytes_per_s, sample.pcie_rx_bytes_per_s) == (7000, 9000)
    assert (sample.graphics_active, sample.nvlink_mb_per_s) == (None, None)


def functions(*modules: ModuleType) -> list[str]:
    """Return the functions of NVML that are asked for one value."""
    text = "".join(map(inspect.getsource, modules or (reading, measuring)))
    used = set(re.findall(r"nvml\.(nvml(?:Device|Gpm)[A-Za-z]+)", text))
    return sorted(used - {"nvmlDeviceGetUUID"})


MISSING = [
    Return.NOT_SUPPORTED,
    Return.FUNCTION_NOT_FOUND,
    Return.NO_PERMISSION,
]
SYMBOLS = {
    "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetAttributes": "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlDeviceGetNvLinkRemotePciInfo_v2",
}
"""By function of pynvml: its symbol in the library."""


@pytest.mark.parametrize("result", MISSING)
def test_a_value_that_the_driver_lacks_is_absent_and_costs_no_other(
    bench: StandInMachine, result: Return
) -> None:
    bench.stand_in.machine.gpu_count = 2  # each is asked for everything
    for function in functions():
        bench.stand_in.fail(SYMBOLS.get(function, function), result)
        if "Gpm" in function:  # whether a GPU has it is asked once
            bench.gpus.close()
        bench.gpus.open()
        described = bench.gpus.describe()
        assert [gpu.problem for gpu in described] == [None] * 2, function
        assert [gpu.uuid for gpu in described] == [gpu.uuid for gpu in bench.stand_in.gpus[:2]]
        assert all(map(is_measured, bench.gpus.sample())), function
        bench.stand_in.restore()


def test_a_measurement_that_fails_is_absent_and_costs_no_other(bench: StandInMachine) -> None:
    bench.stand_in.machine.gpu_count = 2
    for function in sorted(set(functions(measuring)) - set(functions(reading))):
        bench.stand_in.fail(SYMBOLS.get(function, function), Return.UNKNOWN)
        bench.gpus.close()
        bench.gpus.open()
        assert all(map(is_measured, bench.gpus.sample())), function
        bench.stand_in.restore()
    assert [gpu.problem for gpu in bench.gpus.describe()] == [None] * 2


ERRORS = [Return.UNKNOWN, Return.TIMEOUT, Return.OPERATING_SYSTEM, Return.IN_USE]


@with_machine(profile="A100-40GB")
def test_a_value_that_cannot_be_read_now_is_what_was_read_last(bench: StandInMachine) -> None:
    bench.divide("1g.5gb", "2g.10gb")
    bench.stand_in.machine.gpu_count = 2
    bench.gpus.open()
    before = bench.gpus.describe()
    assert len(before[0].migs) == 2
    for error, function in itertools.product(ERRORS, functions(reading)):
        bench.stand_in.fail(SYMBOLS.get(function, function), error)
        assert bench.gpus.describe() == before, (function, error)
        bench.stand_in.restore()


@with_machine(profile="A100-40GB")
def test_a_value_that_was_never_read_is_a_problem_of_its_gpu_and_of_no_other(
    bench: StandInMachine,
) -> None:
    bench.divide("1g.5gb", "2g.10gb")
    bench.stand_in.machine.gpu_count = 2
    bench.gpus.open()
    before = bench.gpus.describe()
    for function in functions(reading):
        bench.gpus.close()
        bench.stand_in.fail(SYMBOLS.get(function, function), Return.UNKNOWN, gpu=0)
        bench.gpus.open()
        first, second = bench.gpus.describe()
        optional = ("serial", "recovery", "nvlinks", "fabric", "fabric_state")
        kept = {name: getattr(before[0], name) for name in optional}
        is_read = replace(first, **kept) == before[0]
        assert is_read or (first.problem, first.migs) == (GpuProblem.FAILED, ()), function
        assert second == before[1]
        bench.stand_in.restore()


@with_machine(profile="A100-40GB")
def test_the_mode_that_cannot_be_read_makes_no_whole_gpu_of_a_divided_one(
    bench: StandInMachine,
) -> None:
    bench.divide("1g.5gb", "2g.10gb")
    bench.gpus.open()
    bench.gpus.sample()
    bench.stand_in.fail("nvmlDeviceGetMigMode", Return.UNKNOWN, gpu=0)
    (described, *_), (sample, *_) = bench.gpus.sweep()
    assert (described.mig_mode, len(described.migs), len(sample.instances)) == (True, 2, 2)
    bench.gpus.close()
    bench.gpus.open()
    (described, *_), (sample, *_) = bench.gpus.sweep()
    assert (described.problem, described.mig_mode) == (GpuProblem.FAILED, False)
    assert not is_measured(sample)


def test_whether_a_gpu_has_performance_monitors_is_asked_again_after_an_error(
    bench: StandInMachine,
) -> None:
    bench.stand_in.machine.gpu_count = 1
    bench.stand_in.fail("nvmlGpmQueryDeviceSupport", Return.UNKNOWN)
    bench.gpus.open()
    bench.gpus.sample()
    bench.stand_in.restore()
    bench.gpus.sample()
    (sample,) = bench.gpus.sample()
    assert sample.sm_active is not None


def test_functions_of_nvml_are_found_in_the_source() -> None:
    assert len(functions()) > 25
    assert all(hasattr(pynvml, function) for function in functions())


# MIG.


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client(library())
    yield client
    client.end()


def test_mig_devices_are_described(bench: StandInMachine) -> None:
    bench.divide("1g.10gb", "3g.40gb", "1g.10gb+me")
    bench.gpus.open()
    gpu, other, *_ = bench.gpus.describe()
    assert (gpu.mig_mode, gpu.mig_pending, other.mig_mode, other.migs) == (True, True, False, ())
    assert {mig.profile for mig in gpu.migs} == {"1g.10gb", "3g.40gb", "1g.10gb+me"}
    assert len({mig.uuid for mig in gpu.migs}) == 3
    assert [mig.number for mig in gpu.migs] == [0, 1, 2]
    assert all(mig.uuid.startswith("MIG-") for mig in gpu.migs)
    half = next(mig for mig in gpu.migs if mig.profile == "3g.40gb")
    assert (half.gpu_slices, half.compute_slices, half.copy_engines) == (3, 3, 3)
    assert half.multiprocessors == 60
    assert half.memory_mib == 40448
    sample = bench.gpus.sample()[0]
    assert is_measured(sample)


def test_each_gpu_instance_is_measured(bench: StandInMachine) -> None:
    bench.divide("1g.10gb", "3g.40gb")
    stand_in = bench.stand_in.gpus[0]
    let_work(stand_in)
    for instance in stand_in.mig.gpu_instances:
        instance.memory_used = 1000 * MIB
    bench.gpus.open()
    assert [each.graphics_active for each in bench.gpus.sample()[0].instances] == [None, None]
    sample, other, *_ = bench.gpus.sample()
    migs = {mig.gpu_instance: mig for mig in bench.gpus.describe()[0].migs}
    assert [each.gpu_instance for each in sample.instances] == sorted(migs)
    for each in sample.instances:
        mig = migs[each.gpu_instance]
        assert each.profile == mig.profile
        assert (each.framebuffer_used_mib, each.framebuffer_reserved_mib) == (1000, 0)
        assert each.framebuffer_free_mib == mig.memory_mib - 1000
        assert (each.graphics_active, each.tensor_imma_active) == (0.5, 0.43)
    assert other.instances == ()


@with_machine(profile="A100-40GB")
def test_without_the_right_to_ask_for_profiles_their_names_are_read(bench: StandInMachine) -> None:
    bench.divide("1g.5gb+me", "2g.10gb")
    for function in ("nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo"):
        bench.stand_in.fail(function, Return.NO_PERMISSION)
    bench.gpus.open()
    assert {mig.profile for mig in bench.gpus.describe()[0].migs} == {"1g.5gb+me", "2g.10gb"}
    bench.stand_in.fail("nvmlDeviceGetAttributes_v2", Return.NOT_SUPPORTED)
    assert {mig.profile for mig in bench.gpus.describe()[0].migs} == {"1g.5gb+me", "2g.10gb"}


@with_machine(profile="A100-40GB")
def test_a_mode_that_waits_for_a_reset_is_pending(bench: StandInMachine, client: Client) -> None:
    client.open(bench.stand_in)
    client.nvmlDeviceSetMigMode(client.gpu(0), 1)
    bench.gpus.open()
    gpu = bench.gpus.describe()[0]
    assert (gpu.mig_mode, gpu.mig_pending) == (False, True)


# What cannot be true.


def test_two_gpus_with_one_uuid_are_refused_and_a_changed_one_too(bench: StandInMachine) -> None:
    first, second, third, *_ = bench.stand_in.gpus
    uuids = [first.uuid, second.uuid, third.uuid]
    second.state.identity.uuid = first.state.identity.uuid
    bench.gpus.open()
    described = bench.gpus.describe()
    refused = GpuProblem.UNIDENTIFIED
    assert [gpu.problem for gpu in described] == [refused, refused, *[None] * 6]
    assert [gpu.uuid for gpu in described[:3]] == ["", "", uuids[2]]
    assert [is_measured(sample) for sample in bench.gpus.sample()] == [False] * 2 + [True] * 6
    second.state.identity.uuid = uuids[1].encode()
    third.state.identity.uuid = b"GPU-another"
    described = bench.gpus.describe()
    assert [gpu.problem for gpu in described] == [None, None, refused, *[None] * 5]
    assert [gpu.uuid for gpu in described[:3]] == uuids


def test_values_that_cannot_be_true_are_left_out(bench: StandInMachine) -> None:
    gpu = bench.stand_in.gpus[0]
    gpu.state.identity.name = b"NVIDIA \xff\x1b[31m"
    gpu.state.identity.minor = 0xFFFFFFFF
    gpu.readings.temperature_c = -1
    gpu.readings.gpu_utilization = 101
    gpu.readings.energy_mj = 1 << 63
    gpu.profiling.sm = float("nan")
    gpu.profiling.dram = float("inf")
    gpu.profiling.pcie_tx = float("inf")
    bench.gpus.open()
    described = bench.gpus.describe()[0]
    assert (described.name, described.problem) == ("NVIDIA \ufffd[31m", None)
    bench.gpus.sample()
    sample = bench.gpus.sample()[0]
    assert (sample.temperature_c, sample.gpu_utilization, sample.energy_mj) == (None, None, None)
    assert (sample.sm_active, sample.dram_active, sample.pcie_tx_bytes_per_s) == (None, None, None)
    assert (sample.graphics_active, sample.memory_utilization) == (0.0, 0)


def test_xids_in_a_row_keep_their_order(bench: StandInMachine) -> None:
    bench.gpus.open()
    uuid = bench.gpus.describe()[3].uuid
    for number in range(60):
        bench.stand_in.gpus[3].report_xid(31 + number % 3)
    found: tuple[int, ...] = ()
    while len(found) < 60:
        found += bench.gpus.errors().get(uuid, ())
        time.sleep(0.005)
    assert found == tuple(31 + number % 3 for number in range(60))


@with_machine(profile="A100-40GB-PAIRS")
def test_the_ends_of_links_are_other_gpus_or_switches(bench: StandInMachine) -> None:
    bench.gpus.open()
    first, second, third, fourth = bench.gpus.describe()
    bench.stand_in.gpus[3].links.link[0].active = 0
    assert bench.gpus.links() == {
        first.uuid: (third.pci,) * 12,
        second.uuid: (fourth.pci,) * 12,
        third.uuid: (first.pci,) * 12,
        fourth.uuid: (second.pci,) * 11,
    }
    for link in bench.stand_in.gpus[0].links.link:
        link.peer = 0
    ends = bench.gpus.links()[first.uuid]
    assert len(ends) == 12
    assert not {first.pci, second.pci, third.pci, fourth.pci} & set(ends)
    bench.stand_in.fail("nvmlDeviceGetNvLinkRemotePciInfo_v2", Return.NOT_SUPPORTED)
    assert set(bench.gpus.links().values()) == {()}


@with_machine(profile="A100-40GB")
def test_an_xid_names_the_instance_to_which_the_driver_attributes_it(bench: StandInMachine) -> None:
    bench.divide("1g.5gb", "2g.10gb")
    bench.gpus.open()
    gpu = bench.gpus.describe()[0]
    instance = gpu.migs[1].gpu_instance
    bench.stand_in.gpus[0].report_xid(48, gpu_instance=instance)
    bench.stand_in.gpus[0].report_xid(79)
    codes = errors_of(bench.gpus, count=2)[gpu.uuid]
    assert codes == (48, 79)
    assert [code.gpu_instance for code in codes if isinstance(code, XidCode)] == [instance, None]
