"""GPUs for tests of the device plugin."""

from typing import Any

from msgspec.structs import replace

from libs.contracts.facts import Gpu, Mig


def gpu(index: int, *profiles: str, **more: Any) -> Gpu:
    """Return a GPU; with profiles, its MIG mode is on."""
    described = Gpu(
        uuid=f"GPU-{index}",
        index=index,
        minor=index,
        pci=f"00000000:{index + 1:02X}:00.0",
        name="NVIDIA H100 80GB HBM3",
        memory_mib=81559,
        mig_mode=bool(profiles),
        migs=tuple(mig(index, number, profile) for number, profile in enumerate(profiles)),
    )
    return replace(described, **more)


def mig(index: int, number: int, profile: str) -> Mig:
    return Mig(uuid=f"MIG-{index}-{number}", profile=profile, gpu_instance=number + 7)
