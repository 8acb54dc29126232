"""GPUs and drivers that fail."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from libs.testing.errors import SimError
from libs.testing.nvml import RecoveryAction, Return, StandIn, profiles
from tests.component.testing.nvml.client import Client, refused, waits_for_a_lock

Clients = Callable[[], Client]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait as long as the test may take."""
    while not condition():
        time.sleep(0.001)


def hang(client: Client, stand_in: StandIn, gpu: int) -> None:
    """Let a call of the client hang, in a thread of its own."""
    handle = client.gpu(gpu)
    stand_in.gpus[gpu].hang()
    client.begin("nvmlDeviceGetTemperature", handle, 0)
    wait_for(lambda: stand_in.gpus[gpu].health.hung_calls == 1)


def test_a_hanging_gpu_blocks_its_own_calls_until_it_is_released(
    h100: StandIn, client: Client
) -> None:
    healthy = client.gpu(1)
    hang(client, h100, 0)
    assert client.nvmlDeviceGetTemperature(healthy, 0) == 30
    h100.gpus[0].readings.temperature_c = 88
    h100.gpus[0].release()
    assert client.finish() == 88
    assert h100.gpus[0].health.hung_calls == 1


def test_a_hang_ends_by_itself(h100: StandIn, client: Client) -> None:
    handle = client.gpu(0)
    h100.gpus[0].hang(0.02)
    assert client.nvmlDeviceGetTemperature(handle, 0) == 30
    assert h100.gpus[0].health.hung_calls == 1


def test_under_one_lock_a_hanging_gpu_blocks_every_process(
    h100: StandIn, client: Client, new_client: Clients
) -> None:
    other = new_client()
    other.open(h100)
    handle = other.gpu(1)
    h100.machine.one_lock = 1
    hang(client, h100, 0)
    other.send("nvmlDeviceGetTemperature", handle, 0)
    wait_for(lambda: waits_for_a_lock(h100))
    h100.gpus[1].readings.temperature_c = 55
    h100.gpus[0].release()
    assert other.receive() == 55
    assert client.finish() == 30


def test_a_process_that_ends_while_it_hangs_leaves_no_lock(
    h100: StandIn, client: Client, new_client: Clients
) -> None:
    other = new_client()
    other.open(h100)
    h100.machine.one_lock = 1
    hang(other, h100, 0)
    other.end()
    assert client.nvmlDeviceGetTemperature(client.gpu(1), 0) == 30


def test_shutdown_while_a_call_hangs(h100: StandIn, client: Client) -> None:
    hang(client, h100, 0)
    client.nvmlShutdown()
    with refused(Return.UNINITIALIZED):
        client.finish()
    h100.gpus[0].release()
    client.nvmlInit()
    assert client.nvmlDeviceGetTemperature(client.gpu(0), 0) == 30


def test_a_lost_gpu(h100: StandIn, client: Client) -> None:
    handle = client.gpu(0)
    h100.gpus[0].lose()
    with refused(Return.GPU_IS_LOST):
        client.nvmlDeviceGetUUID(handle)
    with refused(Return.GPU_IS_LOST):
        client.gpu(0)
    assert client.nvmlDeviceGetCount() == 8
    assert client.nvmlDeviceGetIndex(client.gpu(7)) == 7


def test_a_gpu_that_needs_a_reset_is_only_identified(h100: StandIn, client: Client) -> None:
    gpu = h100.gpus[0]
    gpu.require_reset()
    handle = client.gpu(0)
    assert client.nvmlDeviceGetUUID(handle) == gpu.uuid
    action = client.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[
        0
    ]
    assert action["value"]["uiVal"] == RecoveryAction.GPU_RESET
    with refused(Return.RESET_REQUIRED):
        client.nvmlDeviceGetTemperature(handle, 0)
    gpu.reset()
    assert client.nvmlDeviceGetTemperature(handle, 0) == 30
    assert gpu.health.recovery_action == RecoveryAction.NONE


def test_a_gpu_without_enough_power(h100: StandIn, client: Client) -> None:
    h100.gpus[2].health.condition = Return.INSUFFICIENT_POWER
    with refused(Return.INSUFFICIENT_POWER):
        client.gpu(2)


def test_a_reset_forgets_what_is_counted_since_the_driver_was_loaded(h100: StandIn) -> None:
    gpu = h100.gpus[0]
    gpu.health.ecc_volatile.uncorrected_dram = gpu.health.ecc_aggregate.uncorrected_dram = 1
    gpu.health.remap_pending = gpu.health.remapped_uncorrected = 1
    gpu.reset()
    assert gpu.health.ecc_volatile.uncorrected_dram == gpu.health.remap_pending == 0
    assert gpu.health.ecc_aggregate.uncorrected_dram == gpu.health.remapped_uncorrected == 1


def test_without_a_driver(h100: StandIn, client: Client, new_client: Clients) -> None:
    handle = client.gpu(0)
    h100.unload()
    with refused(Return.DRIVER_NOT_LOADED):
        client.nvmlDeviceGetUUID(handle)
    with refused(Return.DRIVER_NOT_LOADED):
        new_client().open(h100)


def test_a_library_that_saw_the_driver_go_must_initialise_again(
    h100: StandIn, client: Client
) -> None:
    h100.unload()
    h100.load("570.124.06")
    with refused(Return.DRIVER_NOT_LOADED):
        client.nvmlDeviceGetCount()
    client.nvmlShutdown()
    client.nvmlInit()
    assert client.nvmlSystemGetDriverVersion() == "570.124.06"
    assert client.nvmlSystemGetCudaDriverVersion() == 12080


def test_a_library_of_another_version_than_the_driver(h100: StandIn, new_client: Clients) -> None:
    h100.machine.library_version = b"570.124.06"
    with refused(Return.LIB_RM_VERSION_MISMATCH):
        new_client().open(h100)


def test_a_function_that_the_driver_lacks(h100: StandIn, client: Client) -> None:
    handle = client.gpu(0)
    h100.fail("nvmlDeviceGetTemperatureV", Return.FUNCTION_NOT_FOUND)
    with refused(Return.FUNCTION_NOT_FOUND):
        client.nvmlDeviceGetTemperatureV(handle, 0)
    with refused(Return.FUNCTION_NOT_FOUND):
        client.nvmlDeviceGetRemappedRows_v2(handle, None)  # absent from the library
    assert client.nvmlDeviceGetTemperature(handle, 0) == 30
    h100.restore()
    assert client.nvmlDeviceGetTemperatureV(handle, 0) == 30


def test_a_function_that_fails_for_one_gpu(h100: StandIn, client: Client) -> None:
    h100.fail("nvmlDeviceGetPowerUsage", Return.UNKNOWN, gpu=3)
    assert client.nvmlDeviceGetPowerUsage(client.gpu(2)) == 70_000
    with refused(Return.UNKNOWN):
        client.nvmlDeviceGetPowerUsage(client.gpu(3))


def test_initialisation_that_fails(h100: StandIn, new_client: Clients) -> None:
    h100.fail("nvmlInitWithFlags", Return.OPERATING_SYSTEM)
    with refused(Return.OPERATING_SYSTEM):
        new_client().open(h100)


def test_calls_need_as_many_initialisations_as_shutdowns(h100: StandIn, client: Client) -> None:
    client.nvmlInit()
    client.nvmlShutdown()
    assert client.nvmlDeviceGetCount() == 8
    client.nvmlShutdown()
    with refused(Return.UNINITIALIZED):
        client.nvmlDeviceGetCount()
    with refused(Return.UNINITIALIZED):
        client.nvmlShutdown()


@pytest.mark.parametrize("content", [b"", b"no state", None])
def test_what_is_no_state_file(tmp_path: Path, client: Client, content: bytes | None) -> None:
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


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidiactl", "nvidia0", "nvidia1", "nvidia2", "nvidia3"):
        (folder / name).touch()
    return folder


def held(client: Client, devices: Path) -> list[str]:
    names = [Path(file) for file in client.open_files()]
    return [file.name for file in names if file.parent == devices]


def test_the_devices_are_held_while_the_library_is_open(
    tmp_path: Path, devices: Path, client: Client
) -> None:
    stand_in = StandIn.create(tmp_path / "state", profiles.L40S, device_folder=devices)
    assert held(client, devices) == []
    client.open(stand_in)
    client.nvmlInit()
    assert held(client, devices) == ["nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl"]
    client.nvmlShutdown()
    assert len(held(client, devices)) == 5
    client.nvmlShutdown()
    assert held(client, devices) == []
    assert str(stand_in.path) not in client.open_files()


def test_without_the_control_device_there_is_no_driver(
    tmp_path: Path, devices: Path, client: Client
) -> None:
    stand_in = StandIn.create(tmp_path / "state", profiles.L40S, device_folder=devices)
    (devices / "nvidiactl").unlink()
    with refused(Return.DRIVER_NOT_LOADED):
        client.open(stand_in)
    assert held(client, devices) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
def test_devices_that_may_not_be_opened(tmp_path: Path, devices: Path, client: Client) -> None:
    stand_in = StandIn.create(tmp_path / "state", profiles.L40S, device_folder=devices)
    (devices / "nvidiactl").chmod(0)
    with refused(Return.NO_PERMISSION):
        client.open(stand_in)


def test_too_many_faults_are_refused(h100: StandIn) -> None:
    for _ in range(16):
        h100.fail("nvmlDeviceGetName", Return.UNKNOWN)
    with pytest.raises(SimError, match="restore"):
        h100.fail("nvmlDeviceGetName", Return.UNKNOWN)
