"""What a test sets is what the next call of any client returns."""

import pynvml
import pytest

from libs.testing.nvml import EventType, Return, StandIn
from tests.component.testing.nvml.client import Client, refused
from tests.component.testing.nvml.client_process import Struct


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


@pytest.mark.parametrize(
    ("function", "structure", "fields"),
    [
        ("nvmlDeviceGetTemperatureV", "c_nvmlTemperature_v1_t", {"version": 0x200000C}),
        ("nvmlDeviceGetMemoryInfo_v2", "c_nvmlMemory_v2_t", {"version": 0x1000028}),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t", {"version": 0x4000028}),
        ("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", {"version": 1}),
    ],
)
def test_another_version_of_a_structure_is_refused(
    client: Client, h100: StandIn, function: str, structure: str, fields: dict[str, int]
) -> None:
    with refused(Return.ARGUMENT_VERSION_MISMATCH):
        client.raw(function, client.gpu(0), Struct(structure, fields))


def test_another_version_of_a_request_is_refused(client: Client, h100: StandIn) -> None:
    samples = [client.nvmlGpmSampleAlloc() for _ in range(2)]
    with refused(Return.ARGUMENT_VERSION_MISMATCH):
        client.measure(*samples, [1], 2)


def test_only_the_newest_events_are_kept(client: Client, h100: StandIn) -> None:
    events = client.nvmlEventSetCreate()
    client.nvmlDeviceRegisterEvents(client.gpu(0), EventType.XID, events)
    for number in range(100):
        h100.gpus[0].report_xid(number)
    assert client.nvmlEventSetWait_v2(events, 0)["eventData"] == 36
