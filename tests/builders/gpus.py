"""GPUs, as the discovery agent describes them."""

from typing import Any

from libs.contracts.facts import Gpu, Mig


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
