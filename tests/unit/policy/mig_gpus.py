"""GPUs with MIG, as the discovery agent describes them."""

from libs.contracts.facts import Gpu, Mig, PciDevice
from tests.builders import gpus

H100 = "233010de"
A100 = "20b010de"
SEVEN = ("1g.10gb",) * 7
MIXED = ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")


def gpu(index: int = 0, *, profiles: tuple[str, ...] = (), mode: bool | None = None) -> Gpu:
    return gpus.gpu(
        index,
        compute_capability=(9, 0),
        mig_capable=True,
        mig_mode=bool(profiles) if mode is None else mode,
        migs=tuple(Mig(uuid=f"MIG-{n}", profile=name) for n, name in enumerate(profiles)),
    )


def pci(index: int = 0, device: str = H100) -> PciDevice:
    return PciDevice(
        address=f"0000:{index:02x}:00.0",
        vendor=device[4:],
        device=device[:4],
        device_class="030200",
        subsystem_vendor="10de",
        subsystem_device="16c1",
    )
