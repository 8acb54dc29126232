"""GPUs and drivers that fail."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.testing.errors import SimError
from libs.testing.nvml import Return, StandIn, profiles
from tests.component.testing.nvml.client import Client, refused


def hang(client: Client, stand_in: StandIn, gpu: int) -> None:
    """Let a call of the client hang, in a thread of its own."""
    handle = client.gpu(gpu)
    stand_in.gpus[gpu].hang()
    client.begin("nvmlDeviceGetTemperature", handle, 0)
    while stand_in.gpus[gpu].health.hung_calls != 1:
        time.sleep(0.001)


def test_a_process_that_ends_while_it_hangs_leaves_no_lock(
    h100: StandIn, client: Client, new_client: Callable[[], Client]
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


def test_a_reset_forgets_what_is_counted_since_the_driver_was_loaded(h100: StandIn) -> None:
    gpu = h100.gpus[0]
    gpu.health.ecc_volatile.uncorrected_dram = gpu.health.ecc_aggregate.uncorrected_dram = 1
    gpu.health.remap_pending = gpu.health.remapped_uncorrected = 1
    gpu.reset()
    assert gpu.health.ecc_volatile.uncorrected_dram == gpu.health.remap_pending == 0
    assert gpu.health.ecc_aggregate.uncorrected_dram == gpu.health.remapped_uncorrected == 1


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


def test_without_the_control_device_there_is_no_driver(
    tmp_path: Path, devices: Path, client: Client
) -> None:
    stand_in = StandIn.create(tmp_path / "state", profiles.L40S, device_folder=devices)
    (devices / "nvidiactl").unlink()
    with refused(Return.DRIVER_NOT_LOADED):
        client.open(stand_in)


def test_too_many_faults_are_refused(h100: StandIn) -> None:
    for _ in range(16):
        h100.fail("nvmlDeviceGetName", Return.UNKNOWN)
    with pytest.raises(SimError, match="restore"):
        h100.fail("nvmlDeviceGetName", Return.UNKNOWN)
