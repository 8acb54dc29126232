"""GPUs with MIG, as the discovery agent describes them."""

from typing import Any

from libs.contracts.facts import Gpu, PciDevice
from tests.builders import gpus

H100 = "233010de"
A100 = "20b010de"
SEVEN = ("1g.10gb",) * 7
MIXED = ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")


def gpu(index: int = 0, /, *, profiles: tuple[str, ...] = (), **changed: Any) -> Gpu:
    """Return an H100 that is divided into these profiles."""
    capable = {"compute_capability": (9, 0), "mig_capable": True, **changed}
    return gpus.gpu(index, *profiles, **capable)


def pci(index: int = 0, device: str = H100) -> PciDevice:
    return PciDevice(
        address=f"0000:{index:02x}:00.0",
        vendor=device[4:],
        device=device[:4],
        device_class="030200",
        subsystem_vendor="10de",
        subsystem_device="16c1",
    )
