"""GPUs as the discovery agent describes them, and what the telemetry agent reads of them."""

from typing import Any

from libs.contracts.facts import Gpu, Mig
from libs.contracts.message import MAJOR
from libs.contracts.telemetry import Batch, GpuSample


def gpu(index: int = 0, /, *profiles: str, **changed: Any) -> Gpu:
    """Return an H100; with profiles, its MIG mode is on and it has these MIG devices."""
    fields: dict[str, Any] = {
        "uuid": f"GPU-{index}",
        "index": index,
        "minor": index,
        "pci": f"00000000:{index:02X}:00.0",
        "name": "NVIDIA H100 80GB HBM3",
        "memory_mib": 81559,
        "mig_mode": bool(profiles),
        "migs": tuple(
            Mig(uuid=f"MIG-{index}-{number}", profile=profile, gpu_instance=number + 7)
            for number, profile in enumerate(profiles)
        ),
    }
    return Gpu(**(fields | changed))


def sample(index: int = 0, /, **read: Any) -> GpuSample:
    """Return one reading of the GPU with that index; a value that is not named was not read."""
    pci = f"00000000:{index:02X}:00.0"
    named: dict[str, Any] = {"uuid": f"GPU-{index}", "index": index, "pci": pci}
    return GpuSample(**(named | read))


def batch(*samples: GpuSample, **changed: Any) -> Batch:
    """Return the first batch that the telemetry agent of node `a` sends in a run."""
    fields: dict[str, Any] = {
        "v": MAJOR,
        "node": "a",
        "node_uid": "uid",
        "boot_id": "boot",
        "run": "one",
        "seq": 0,
        "at": 0.0,
        "driver_version": "580.95.05",
        "gpus": list(samples),
    }
    return Batch(**(fields | changed))
