"""What a test sets is what the next call of any client returns."""

from typing import Any

import pynvml
import pytest

from libs.testing.nvml import EventType, Return, StandIn, profiles
from libs.testing.nvml.layout import NO_INSTANCE
from tests.component.testing.nvml.client import Client, refused
from tests.component.testing.nvml.client_process import Struct

SIMPLE = {
    "nvmlDeviceGetPowerUsage": "power_mw",
    "nvmlDeviceGetEnforcedPowerLimit": "power_limit_mw",
    "nvmlDeviceGetTotalEnergyConsumption": "energy_mj",
    "nvmlDeviceGetPerformanceState": "performance_state",
    "nvmlDeviceGetPersistenceMode": "persistence_mode",
    "nvmlDeviceGetCurrPcieLinkGeneration": "pcie_generation",
    "nvmlDeviceGetCurrPcieLinkWidth": "pcie_width",
    "nvmlDeviceGetPcieReplayCounter": "pcie_replays",
    "nvmlDeviceGetCurrentClocksEventReasons": "clock_reasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons": "clock_reasons",
}


def value(client: Client, gpu: object, field: int | tuple[int, int]) -> int:
    """Return the value of one field, or fail with its result."""
    found = client.nvmlDeviceGetFieldValues(gpu, [field])[0]
    assert Return(found["nvmlReturn"]) is Return.SUCCESS
    return found["value"]["ullVal"]


def result(client: Client, gpu: object, field: int) -> Return:
    return Return(client.nvmlDeviceGetFieldValues(gpu, [field])[0]["nvmlReturn"])


@pytest.mark.parametrize("function", SIMPLE)
def test_a_reading_changes_at_once(client: Client, h100: StandIn, function: str) -> None:
    gpu, call = client.gpu(3), getattr(client, function)
    for number in (17, 40):
        setattr(h100.gpus[3].readings, SIMPLE[function], number)
        assert call(gpu) == number


def test_temperature_in_all_ways(client: Client, h100: StandIn) -> None:
    gpu, readings = client.gpu(0), h100.gpus[0].readings
    readings.temperature_c, readings.memory_temperature_c = 83, 91
    assert client.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU) == 83
    assert client.nvmlDeviceGetTemperatureV(gpu, pynvml.NVML_TEMPERATURE_GPU) == 83
    assert value(client, gpu, pynvml.NVML_FI_DEV_MEMORY_TEMP) == 91
    with refused(Return.INVALID_ARGUMENT):
        client.nvmlDeviceGetTemperature(gpu, 7)


def test_clocks_and_their_limits(client: Client, h100: StandIn) -> None:
    gpu, readings = client.gpu(0), h100.gpus[0].readings
    readings.graphics_clock_mhz, readings.sm_clock_mhz = 1, 2
    readings.memory_clock_mhz, readings.video_clock_mhz = 3, 4
    assert [client.nvmlDeviceGetClockInfo(gpu, kind) for kind in range(4)] == [1, 2, 3, 4]
    most = [client.nvmlDeviceGetMaxClockInfo(gpu, kind) for kind in range(4)]
    assert most == [1980, 1980, 2619, 1545]


def test_utilization(client: Client, h100: StandIn) -> None:
    gpu, readings = client.gpu(0), h100.gpus[0].readings
    readings.gpu_utilization, readings.memory_utilization = 98, 45
    readings.encoder_utilization, readings.decoder_utilization = 12, 13
    assert client.nvmlDeviceGetUtilizationRates(gpu) == {"gpu": 98, "memory": 45}
    assert client.nvmlDeviceGetEncoderUtilization(gpu) == [12, 167000]
    assert client.nvmlDeviceGetDecoderUtilization(gpu) == [13, 167000]


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


def test_pcie(client: Client, h100: StandIn) -> None:
    gpu, readings = client.gpu(0), h100.gpus[0].readings
    readings.pcie_tx_kb_per_s, readings.pcie_rx_kb_per_s = 11, 22
    assert client.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_TX_BYTES) == 11
    assert client.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_RX_BYTES) == 22


def test_processes(client: Client, h100: StandIn) -> None:
    gpu = client.gpu(0)
    assert client.nvmlDeviceGetComputeRunningProcesses(gpu) == []
    h100.gpus[0].add_process(4711, memory=5 << 20)
    h100.gpus[0].add_process(4712)
    assert [
        dict(zip(("pid", "memory", "instance"), fields, strict=True))
        for fields in client.processes(gpu)
    ] == [
        {"pid": 4711, "memory": 5 << 20, "instance": NO_INSTANCE},
        {"pid": 4712, "memory": 0, "instance": NO_INSTANCE},
    ]
    h100.gpus[0].end_processes()
    assert client.nvmlDeviceGetComputeRunningProcesses(gpu) == []


def test_ecc_counts(client: Client, h100: StandIn) -> None:
    gpu, health = client.gpu(0), h100.gpus[0].health
    health.ecc_volatile.uncorrected_dram, health.ecc_volatile.uncorrected_sram = 3, 4
    health.ecc_aggregate.corrected_dram = 50
    total = client.nvmlDeviceGetTotalEccErrors
    assert total(gpu, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC) == 7
    assert total(gpu, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_AGGREGATE_ECC) == 50
    assert total(gpu, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC) == 0
    assert value(client, gpu, pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL) == 7
    assert value(client, gpu, pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL) == 50
    sram = client.nvmlDeviceGetMemoryErrorCounter(
        gpu,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
        pynvml.NVML_MEMORY_LOCATION_SRAM,
    )
    assert sram == 4


def test_ecc_that_is_off_counts_nothing(client: Client, h100: StandIn) -> None:
    h100.gpus[0].health.ecc_mode = 0
    gpu = client.gpu(0)
    assert client.nvmlDeviceGetEccMode(gpu) == [0, 1]
    with refused(Return.NOT_SUPPORTED):
        client.nvmlDeviceGetTotalEccErrors(gpu, 0, 0)
    assert result(client, gpu, pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL) is Return.NOT_SUPPORTED


def test_row_remapping(client: Client, h100: StandIn) -> None:
    gpu, health = client.gpu(0), h100.gpus[0].health
    health.remapped_corrected, health.remapped_uncorrected = 5, 2
    health.remap_pending, health.remap_failure = 1, 1
    fields = [142, 143, 144, 145]
    assert client.nvmlDeviceGetRemappedRows(gpu) == [5, 2, 1, 1]
    assert [value(client, gpu, field) for field in fields] == [5, 2, 1, 1]


def test_retired_pages(client: Client, machine: Any) -> None:
    stand_in = machine(profiles.T4)
    client.open(stand_in)
    gpu, health = client.gpu(0), stand_in.gpus[0].health
    health.retired_double_bit, health.retirement_pending = 2, 1
    assert client.nvmlDeviceGetRetiredPages(gpu, 0) == []
    assert len(client.nvmlDeviceGetRetiredPages_v2(gpu, 1)) == 2
    assert client.nvmlDeviceGetRetiredPagesPendingStatus(gpu) == 1


def test_the_recovery_action_needs_a_driver_that_knows_it(client: Client, h100: StandIn) -> None:
    field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    h100.gpus[0].health.recovery_action = pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET
    assert value(client, client.gpu(0), field) == 4
    client.close_library()
    h100.load("550.163.01")
    client.nvmlInit()
    assert client.nvmlSystemGetCudaDriverVersion() == 12040
    assert result(client, client.gpu(0), field) is Return.NOT_SUPPORTED


def test_links(client: Client, h100: StandIn) -> None:
    gpu, links = client.gpu(0), h100.gpus[0].links
    links.link[4].active = 0
    links.link[4].replays, links.link[17].replays = 6, 1
    for number, link in enumerate(links.link):
        link.tx_kib = number
    states = [client.nvmlDeviceGetNvLinkState(gpu, number) for number in range(18)]
    assert states == [int(number != 4) for number in range(18)]
    counter = pynvml.NVML_NVLINK_ERROR_DL_REPLAY
    assert client.nvmlDeviceGetNvLinkErrorCounter(gpu, 4, counter) == 6
    assert value(client, gpu, pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L4) == 6
    assert value(client, gpu, pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL) == 7
    assert value(client, gpu, (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 3)) == 3
    assert value(client, gpu, (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0xFFFFFFFF)) == 153
    with refused(Return.INVALID_ARGUMENT):
        client.nvmlDeviceGetNvLinkState(gpu, 18)


def test_newer_links_count_their_errors_otherwise(client: Client, machine: Any) -> None:
    client.open(machine(profiles.GB200))
    gpu = client.gpu(0)
    assert client.nvmlDeviceGetNvLinkVersion(gpu, 0) == pynvml.NVML_NVLINK_VERSION_5_0
    old = pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    assert result(client, gpu, old) is Return.NOT_SUPPORTED
    assert value(client, gpu, pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS) == 0


def test_fields_fail_one_by_one(client: Client, machine: Any) -> None:
    client.open(machine(profiles.L40S))
    asked = [pynvml.NVML_FI_DEV_MEMORY_TEMP, pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 9999]
    values = client.nvmlDeviceGetFieldValues(client.gpu(0), asked)
    assert [Return(item["nvmlReturn"]) for item in values] == [
        Return.NOT_SUPPORTED,
        Return.SUCCESS,
        Return.NOT_SUPPORTED,
    ]


def test_profiling_between_two_samples(client: Client, h100: StandIn) -> None:
    gpu, profiling = client.gpu(0), h100.gpus[0].profiling
    samples = [client.nvmlGpmSampleAlloc() for _ in range(2)]
    client.nvmlGpmSampleGet(gpu, samples[0])
    profiling.tensor, profiling.dram, profiling.pcie_tx = 71.5, 40.25, 1200.0
    client.nvmlGpmSampleGet(gpu, samples[1])
    metrics = [
        pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
        pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
        pynvml.NVML_GPM_METRIC_NVENC_0_UTIL,
    ]
    found = client.measure(*samples, metrics)
    assert found[:3] == [[0, 71.5], [0, 40.25], [0, 1200.0]]
    assert found[3][0] == Return.NOT_SUPPORTED
    with refused(Return.INVALID_ARGUMENT):
        client.measure(samples[1], samples[0], metrics)
    for sample in samples:
        client.nvmlGpmSampleFree(sample)


def test_profiling_is_said_to_be_supported_or_not(client: Client, h100: StandIn) -> None:
    assert client.nvmlGpmQueryDeviceSupport(client.gpu(0))["isSupportedDevice"] == 1


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


def test_xid_events(client: Client, h100: StandIn) -> None:
    h100.gpus[1].report_xid(13)
    events = client.nvmlEventSetCreate()
    h100.gpus[2].report_xid(14)
    for index in (1, 2):
        client.nvmlDeviceRegisterEvents(client.gpu(index), EventType.XID, events)
    h100.gpus[2].report_xid(63)
    h100.gpus[3].report_xid(48)
    h100.gpus[1].report_event(EventType.PSTATE, 0)
    h100.gpus[1].report_xid(94, gpu_instance=9)
    seen = [client.nvmlEventSetWait_v2(events, 0) for _ in range(2)]
    assert [
        (event["device"], event["eventType"], event["eventData"], event["gpuInstanceId"])
        for event in seen
    ] == [
        (client.gpu(2), EventType.XID, 63, NO_INSTANCE),
        (client.gpu(1), EventType.XID, 94, 9),
    ]
    with refused(Return.TIMEOUT):
        client.nvmlEventSetWait_v2(events, 1)
    client.nvmlEventSetFree(events)


def test_an_event_ends_a_wait_that_is_under_way(client: Client, h100: StandIn) -> None:
    events = client.nvmlEventSetCreate()
    client.nvmlDeviceRegisterEvents(client.gpu(0), EventType.XID, events)
    client.send("nvmlEventSetWait_v2", events, 60_000)
    h100.gpus[0].report_xid(31)
    assert client.receive()["eventData"] == 31


def test_a_lost_gpu_is_reported_by_its_xid_then_by_each_wait(client: Client, h100: StandIn) -> None:
    events = client.nvmlEventSetCreate()
    client.nvmlDeviceRegisterEvents(client.gpu(0), EventType.XID, events)
    h100.gpus[0].lose()
    assert client.nvmlEventSetWait_v2(events, 0)["eventData"] == 79
    with refused(Return.GPU_IS_LOST):
        client.nvmlEventSetWait_v2(events, 60_000)


def test_only_the_newest_events_are_kept(client: Client, h100: StandIn) -> None:
    events = client.nvmlEventSetCreate()
    client.nvmlDeviceRegisterEvents(client.gpu(0), EventType.XID, events)
    for number in range(100):
        h100.gpus[0].report_xid(number)
    assert client.nvmlEventSetWait_v2(events, 0)["eventData"] == 36
