"""The machines, as real pynvml sees them."""

from collections.abc import Callable
from uuid import UUID

import pynvml
import pytest

from libs.testing.nvml import Return, StandIn, profiles
from libs.testing.nvml.profiles import Profile
from tests.component.testing.nvml.client import Client, refused
from tests.component.testing.nvml.client_process import Handle, Struct

# What a product lacks, by the call that asks for it.
LACKS = {
    "H100-80GB": {"retired pages"},
    "A100-40GB": {"fabric", "profiling", "retired pages"},
    "T4": {"MIG", "NVLink", "fabric", "profiling", "remapped rows", "memory temperature"},
    "L40S": {"MIG", "NVLink", "fabric", "profiling", "retired pages", "memory temperature"},
    "GB200": {"retired pages"},
}


@pytest.fixture(params=LACKS)
def profile(
    request: pytest.FixtureRequest, machine: Callable[[Profile], StandIn], client: Client
) -> str:
    client.open(machine(profiles.ALL[request.param]))
    return request.param


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


def test_what_is_no_handle_is_refused(client: Client, h100: StandIn) -> None:
    for number in (0, 0xDEAD, 0x4E56_0100_0000_0000 + (8 << 32)):
        with refused(Return.INVALID_ARGUMENT):
            client.nvmlDeviceGetName(Handle("c_nvmlDevice_t", number))
