"""The machines, as real pynvml sees them."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pynvml
import pytest

from libs.testing.nvml import NAME, Return, StandIn, profiles
from libs.testing.nvml.profiles import Profile
from tests.component.testing.nvml.client import Client, refused
from tests.component.testing.nvml.client_process import Handle, Struct

# Name, count, compute capability, MiB, PCI id, address of the last GPU.
SEEN = {
    "H100-80GB": (
        "NVIDIA H100 80GB HBM3", 8, [9, 0], 81559, 0x233010DE, "00000000:DF:00.0",
    ),
    "A100-40GB": (
        "NVIDIA A100-SXM4-40GB", 8, [8, 0], 40960, 0x20B010DE, "00000000:BD:00.0",
    ),
    "T4": ("Tesla T4", 1, [7, 5], 15360, 0x1EB810DE, "00000000:1E:00.0"),
    "L40S": ("NVIDIA L40S", 4, [8, 9], 46068, 0x26B910DE, "00000000:E1:00.0"),
    "GB200": ("NVIDIA GB200", 4, [10, 0], 189471, 0x294110DE, "00000019:01:00.0"),
}  # fmt: skip

# What a product lacks, by the call that asks for it.
LACKS = {
    "H100-80GB": {"retired pages"},
    "A100-40GB": {"fabric", "profiling", "retired pages"},
    "T4": {"MIG", "NVLink", "fabric", "profiling", "remapped rows", "memory temperature"},
    "L40S": {"MIG", "NVLink", "fabric", "profiling", "retired pages", "memory temperature"},
    "GB200": {"retired pages"},
}


@pytest.fixture(params=SEEN)
def profile(
    request: pytest.FixtureRequest, machine: Callable[[Profile], StandIn], client: Client
) -> str:
    client.open(machine(profiles.ALL[request.param]))
    return request.param


def test_identity(profile: str, client: Client) -> None:
    name, count, capability, memory, pci_id, address = SEEN[profile]
    assert client.nvmlDeviceGetCount() == count
    gpu = client.gpu(count - 1)
    pci = client.nvmlDeviceGetPciInfo(gpu)
    assert client.nvmlDeviceGetName(gpu) == name
    assert client.nvmlDeviceGetCudaComputeCapability(gpu) == capability
    assert client.nvmlDeviceGetMemoryInfo(gpu)["total"] == memory << 20
    assert (pci["pciDeviceId"], pci["busId"]) == (pci_id, address)
    assert pci["busIdLegacy"] == address[4:]
    assert client.nvmlDeviceGetMinorNumber(gpu) == count - 1
    assert client.nvmlDeviceGetIndex(gpu) == count - 1


def test_all_ways_to_a_handle_lead_to_the_same_gpu(profile: str, client: Client) -> None:
    for index in range(client.nvmlDeviceGetCount()):
        gpu = client.gpu(index)
        uuid = client.nvmlDeviceGetUUID(gpu)
        assert UUID(uuid.removeprefix("GPU-")).version == 4
        assert client.nvmlDeviceGetHandleByUUID(uuid.encode()) == gpu
        address = client.nvmlDeviceGetPciInfo(gpu)["busId"]
        assert client.nvmlDeviceGetHandleByPciBusId(address.lower().encode()) == gpu
        serial = client.nvmlDeviceGetSerial(gpu)
        assert client.nvmlDeviceGetHandleBySerial(serial.encode()) == gpu
    with refused(Return.INVALID_ARGUMENT):
        client.gpu(client.nvmlDeviceGetCount())
    with refused(Return.NOT_FOUND):
        client.nvmlDeviceGetHandleByUUID(b"GPU-00000000-0000-0000-0000-000000000000")


def test_a_product_lacks_what_it_has_not(profile: str, client: Client) -> None:
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
    field = client.nvmlDeviceGetFieldValues(gpu, [pynvml.NVML_FI_DEV_MEMORY_TEMP])[0]
    lacks = {"memory temperature"} if field["nvmlReturn"] == Return.NOT_SUPPORTED else set[str]()
    for what, call in calls.items():
        if what in LACKS[profile]:
            with refused(Return.NOT_SUPPORTED):
                call()
            lacks.add(what)
        else:
            call()
    assert lacks == LACKS[profile]


def test_versions(client: Client, h100: StandIn) -> None:
    assert client.nvmlSystemGetDriverVersion() == "580.95.05"
    assert client.nvmlSystemGetNVMLVersion() == "13.580.95.05"
    assert client.nvmlSystemGetCudaDriverVersion() == 13000


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


def test_a_machine_of_an_nvlink_domain_names_it(
    machine: Callable[[Profile], StandIn], client: Client
) -> None:
    client.open(machine(profiles.GB200))
    for kind in ("c_nvmlGpuFabricInfo_v2_t", "c_nvmlGpuFabricInfo_v3_t"):
        info = client.filled("nvmlDeviceGetGpuFabricInfoV", client.gpu(1), Struct(kind, {}))
        assert str(UUID(bytes=bytes(info["clusterUuid"]))) == profiles.GB200.cluster_uuid
        assert (info["cliqueId"], info["state"], info["status"]) == (32766, 3, 0)


def test_what_is_no_handle_is_refused(client: Client, h100: StandIn) -> None:
    for number in (0, 0xDEAD, 0x4E56_0100_0000_0000 + (8 << 32)):
        with refused(Return.INVALID_ARGUMENT):
            client.nvmlDeviceGetName(Handle("c_nvmlDevice_t", number))
