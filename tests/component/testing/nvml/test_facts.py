"""What NVIDIA's header and manual say of NVML, and agents rely on: the stand-in says it too.

That each reading, problem, event and change reaches an agent is shown where agents read them
(`tests/component/gpus`); here is what those tests take from the stand-in's word.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from libs.host.gpus.mig import instance_profile_name
from libs.testing.errors import SimError
from libs.testing.nvml import NAME, Return, StandIn, profiles
from libs.testing.nvml.products import A100, GB200, H100, MIB, Product
from libs.testing.nvml.profiles import Profile
from tests.component.testing.nvml.client import Client, Refused, refused
from tests.component.testing.nvml.client_process import Handle, Struct
from tests.component.testing.nvml.geometry import layout, mig_devices, partition, profile_id

NewMachine = Callable[[Profile], StandIn]

LACKS = {
    "H100-80GB": {"retired pages"},
    "A100-40GB": {"fabric", "profiling", "retired pages"},
    "T4": {"MIG", "NVLink", "fabric", "profiling", "remapped rows", "memory temperature"},
    "L40S": {"MIG", "NVLink", "fabric", "profiling", "retired pages", "memory temperature"},
    "GB200": {"retired pages"},
}
"""What a product lacks, by the call that asks for it."""


def value(client: Client, gpu: object, field: int) -> int:
    """Return the value of one field, or fail with its result."""
    found = client.nvmlDeviceGetFieldValues(gpu, [field])[0]
    assert Return(found["nvmlReturn"]) is Return.SUCCESS
    return found["value"]["ullVal"]


def result(client: Client, gpu: object, field: int) -> Return:
    return Return(client.nvmlDeviceGetFieldValues(gpu, [field])[0]["nvmlReturn"])


@pytest.mark.parametrize("name", LACKS)
def test_what_a_product_lacks_is_not_supported(
    machine: NewMachine, client: Client, name: str
) -> None:
    client.open(machine(profiles.ALL[name]))
    gpu = client.gpu(0)
    calls: dict[str, Callable[[], object]] = {
        "MIG": lambda: client.nvmlDeviceGetMigMode(gpu),
        "NVLink": lambda: client.nvmlDeviceGetNvLinkState(gpu, 0),
        "fabric": lambda: client.filled(
            "nvmlDeviceGetGpuFabricInfo", gpu, Struct("c_nvmlGpuFabricInfo_t", {})
        ),
        "profiling": lambda: client.nvmlGpmSampleGet(gpu, client.nvmlGpmSampleAlloc()),
        "retired pages": lambda: client.nvmlDeviceGetRetiredPages(gpu, 0),
        "remapped rows": lambda: client.nvmlDeviceGetRemappedRows(gpu),
    }
    field = result(client, gpu, pynvml.NVML_FI_DEV_MEMORY_TEMP)
    lacks = {"memory temperature"} if field is Return.NOT_SUPPORTED else set[str]()
    for what, call in calls.items():
        try:
            call()
        except Refused as refusal:
            assert refusal.code == Return.NOT_SUPPORTED  # noqa: PT017
            lacks.add(what)
    assert lacks == LACKS[name]


def test_the_older_memory_call_counts_what_is_reserved_as_used(
    client: Client, h100: StandIn
) -> None:
    gpu = client.gpu(0)
    h100.gpus[0].readings.memory_used = 1 << 30
    new = client.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2)
    old = client.nvmlDeviceGetMemoryInfo(gpu)
    assert (new["used"], new["reserved"]) == (1 << 30, 552 << 20)
    assert new["free"] == new["total"] - new["used"] - new["reserved"]
    assert old["used"] == new["used"] + new["reserved"]


def test_ecc_that_is_off_counts_nothing(client: Client, h100: StandIn) -> None:
    h100.gpus[0].health.ecc_mode = 0
    gpu = client.gpu(0)
    assert client.nvmlDeviceGetEccMode(gpu) == [0, 1]
    assert result(client, gpu, pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL) is Return.NOT_SUPPORTED


def test_the_recovery_action_needs_a_driver_that_knows_it(client: Client, h100: StandIn) -> None:
    field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    h100.gpus[0].health.recovery_action = pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET
    assert value(client, client.gpu(0), field) == 4
    client.close_library()
    h100.load("550.163.01")
    client.nvmlInit()
    assert client.nvmlSystemGetCudaDriverVersion() == 12040
    assert result(client, client.gpu(0), field) is Return.NOT_SUPPORTED


def test_newer_links_count_their_errors_otherwise(client: Client, machine: NewMachine) -> None:
    client.open(machine(profiles.GB200))
    gpu = client.gpu(0)
    assert client.nvmlDeviceGetNvLinkVersion(gpu, 0) == pynvml.NVML_NVLINK_VERSION_5_0
    old = pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    assert result(client, gpu, old) is Return.NOT_SUPPORTED
    assert value(client, gpu, pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS) == 0


def test_fields_fail_one_by_one(client: Client, machine: NewMachine) -> None:
    client.open(machine(profiles.L40S))
    asked = [pynvml.NVML_FI_DEV_MEMORY_TEMP, pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 9999]
    values = client.nvmlDeviceGetFieldValues(client.gpu(0), asked)
    assert [Return(item["nvmlReturn"]) for item in values] == [
        Return.NOT_SUPPORTED,
        Return.SUCCESS,
        Return.NOT_SUPPORTED,
    ]


@pytest.mark.parametrize(
    ("function", "structure", "version"),
    [
        ("nvmlDeviceGetTemperatureV", "c_nvmlTemperature_v1_t", 0x200000C),
        ("nvmlDeviceGetMemoryInfo_v2", "c_nvmlMemory_v2_t", 0x1000028),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t", 0x4000028),
        ("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", 1),
    ],
)
def test_another_version_of_a_structure_is_refused(
    client: Client, h100: StandIn, function: str, structure: str, version: int
) -> None:
    with refused(Return.ARGUMENT_VERSION_MISMATCH):
        client.raw(function, client.gpu(0), Struct(structure, {"version": version}))


def test_samples_of_performance_monitors_are_compared_in_their_order_and_version(
    client: Client, h100: StandIn
) -> None:
    samples = [client.nvmlGpmSampleAlloc() for _ in range(2)]
    for sample in samples:
        client.nvmlGpmSampleGet(client.gpu(0), sample)
    metrics = [pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, pynvml.NVML_GPM_METRIC_NVENC_0_UTIL]
    assert [each[0] for each in client.measure(*samples, metrics)] == [0, Return.NOT_SUPPORTED]
    with refused(Return.INVALID_ARGUMENT):
        client.measure(*reversed(samples), metrics)
    with refused(Return.ARGUMENT_VERSION_MISMATCH):
        client.measure(*samples, metrics, 2)


def test_only_the_first_form_of_the_cuda_version_answers_where_the_loader_has_no_libcuda(
    folder: Path, tmp_path: Path, h100: StandIn
) -> None:
    """As with the vendor's libraries 535 and 550: the second form opens libcuda by its name."""
    (tmp_path / NAME).symlink_to(folder / NAME)
    client = Client(tmp_path)
    try:
        client.open(h100)
        with refused(Return.NOT_FOUND):
            client.nvmlSystemGetCudaDriverVersion_v2()
        assert client.nvmlSystemGetCudaDriverVersion() == 13000
    finally:
        client.end()


def test_a_gpu_that_needs_a_reset_is_only_identified(h100: StandIn, client: Client) -> None:
    gpu = h100.gpus[0]
    gpu.require_reset()
    handle = client.gpu(0)
    assert client.nvmlDeviceGetUUID(handle) == gpu.uuid
    assert value(client, handle, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION) == 1
    with refused(Return.RESET_REQUIRED):
        client.nvmlDeviceGetTemperature(handle, 0)
    gpu.health.ecc_volatile.uncorrected_dram = gpu.health.ecc_aggregate.uncorrected_dram = 1
    gpu.reset()
    assert client.nvmlDeviceGetTemperature(handle, 0) == 30
    assert value(client, handle, pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL) == 0
    assert value(client, handle, pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL) == 1


def test_a_lost_gpu_ends_each_wait_for_events_after_its_xid(client: Client, h100: StandIn) -> None:
    events = client.nvmlEventSetCreate()
    client.nvmlDeviceRegisterEvents(client.gpu(0), pynvml.nvmlEventTypeXidCriticalError, events)
    h100.gpus[0].lose()
    assert client.nvmlEventSetWait_v2(events, 0)["eventData"] == 79
    with refused(Return.GPU_IS_LOST):
        client.nvmlEventSetWait_v2(events, 60_000)


def test_the_library_closes_with_its_last_user_and_gives_back_the_devices(
    tmp_path: Path, client: Client
) -> None:
    devices = tmp_path / "dev"
    devices.mkdir()
    for name in ("nvidiactl", "nvidia0", "nvidia1", "nvidia2", "nvidia3"):
        (devices / name).touch()

    def held() -> list[str]:
        files = map(Path, client.open_files())
        return [file.name for file in files if file.parent == devices]

    stand_in = StandIn.create(tmp_path / "state", profiles.L40S, device_folder=devices)
    client.open(stand_in)
    client.nvmlInit()
    client.nvmlShutdown()
    assert held() == ["nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl"]
    client.nvmlShutdown()
    assert held() == []
    with refused(Return.UNINITIALIZED):
        client.nvmlDeviceGetCount()
    (devices / "nvidiactl").unlink()
    with refused(Return.DRIVER_NOT_LOADED):
        client.open(stand_in)


@pytest.mark.parametrize("content", [b"", b"no state", None])
def test_what_is_no_state_file_is_refused_on_both_sides(
    tmp_path: Path, client: Client, content: bytes | None
) -> None:
    file = tmp_path / "file"
    if content is None:
        StandIn.create(file, profiles.T4).machine.layout = 1
    else:
        file.write_bytes(content)
    client.use(str(file))
    with refused(Return.UNKNOWN):
        client.nvmlInit()
    with pytest.raises(SimError, match="create it anew"):
        StandIn(file)


# MIG.


@pytest.fixture
def mig_gpu(h100: StandIn, client: Client) -> Handle:
    """An H100 in MIG mode, without instances."""
    gpu = client.gpu(0)
    assert client.nvmlDeviceSetMigMode(gpu, pynvml.NVML_DEVICE_MIG_ENABLE) == Return.SUCCESS
    return gpu


@pytest.mark.parametrize("product", [H100, A100, GB200], ids=lambda product: product.name)
def test_no_sequence_of_calls_gives_a_slice_twice(
    machine: NewMachine, client: Client, product: Product
) -> None:
    stand_in = machine(next(item for item in profiles.ALL.values() if item.product is product))
    stand_in.gpus[0].mig.mode = stand_in.gpus[0].mig.pending_mode = 1
    client.open(stand_in)
    gpu, chance = client.gpu(0), random.Random(1)
    instances: dict[Handle, str] = {}
    kinds = {kind.name: kind for kind in product.mig}
    refusals = 0
    for _ in range(300):
        if instances and chance.random() < 0.4:
            gone = chance.choice(sorted(instances, key=lambda item: item.number))
            client.nvmlGpuInstanceDestroy(gone)
            del instances[gone]
            continue
        kind = chance.choice(product.mig)
        room = client.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, kind.id)
        try:
            instances[client.nvmlDeviceCreateGpuInstance(gpu, kind.id)] = kind.name
            assert room > 0
        except Refused as refusal:
            assert (refusal.code, room) == (Return.INSUFFICIENT_RESOURCES, 0)  # noqa: PT017
            refusals += 1
        names, places = list(instances.values()), layout(client, list(instances))
        taken = [slot for start, size in places for slot in range(start, start + size)]
        assert len(taken) == len(set(taken))
        assert max(taken) < 8
        assert sum(kinds[name].slices for name in names) <= 7
        assert all(names.count(name) <= kinds[name].most for name in names)
    assert refusals > 20


@pytest.mark.parametrize("product", [H100, A100, GB200], ids=lambda product: product.name)
def test_a_profile_is_named_by_its_share_of_the_memory(product: Product) -> None:
    for kind in product.mig:
        memory = product.memory_mib * MIB
        found = instance_profile_name(
            kind.constant, kind.slices, kind.memory_mib, gpu_memory=memory
        )
        assert kind.name == found


def test_a_placement_that_the_product_has_not_is_refused(mig_gpu: Handle, client: Client) -> None:
    for start, size in ((1, 2), (6, 2), (0, 1)):
        with refused(Return.INVALID_ARGUMENT):
            client.create_at(mig_gpu, profile_id(H100, "2g.20gb"), start, size)


def test_a_mig_device_is_not_measured_as_a_gpu(mig_gpu: Handle, client: Client) -> None:
    partition(client, mig_gpu, H100, "7g.80gb")
    [device] = mig_devices(client, mig_gpu)
    for call, handle in (
        (client.nvmlDeviceGetPowerUsage, device),
        (client.nvmlDeviceGetUtilizationRates, mig_gpu),
        (client.nvmlDeviceGetAttributes, mig_gpu),
    ):
        with refused(Return.NOT_SUPPORTED):
            call(handle)
    assert client.nvmlDeviceGetTemperature(mig_gpu, 0) == 30


def test_instances_keep_the_mode(mig_gpu: Handle, client: Client) -> None:
    partition(client, mig_gpu, H100, "7g.80gb")
    assert client.nvmlDeviceSetMigMode(mig_gpu, 0) == Return.IN_USE
    assert client.nvmlDeviceGetMigMode(mig_gpu) == [1, 0]


def test_the_driver_takes_all_instances_with_it_and_an_a100_keeps_its_mode(
    machine: NewMachine, client: Client
) -> None:
    modes: dict[str, list[int]] = {}
    for name in ("H100-80GB", "A100-40GB"):
        product = profiles.ALL[name].product
        stand_in = machine(profiles.ALL[name])
        stand_in.gpus[0].mig.mode = stand_in.gpus[0].mig.pending_mode = 1
        client.open(stand_in)
        partition(client, client.gpu(0), product, product.mig[-1].name)
        client.close_library()
        stand_in.unload()
        stand_in.load()
        client.nvmlInit()
        assert mig_devices(client, client.gpu(0)) == []
        modes[name] = client.nvmlDeviceGetMigMode(client.gpu(0))
        client.close_library()
    assert modes == {"H100-80GB": [0, 0], "A100-40GB": [1, 1]}


def test_two_processes_share_the_slices_of_one_gpu(
    mig_gpu: Handle, h100: StandIn, client: Client, new_client: Callable[[], Client]
) -> None:
    other = new_client()
    other.open(h100)
    clients, wanted = [client, other], profile_id(H100, "1g.10gb")
    for each in clients:
        each.send("create_all", mig_gpu, wanted)
    assert sum(each.receive() for each in clients) == 7
