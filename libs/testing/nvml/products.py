"""What each product is: figures of its data sheet and of what the driver reports about it.

Simulated machines and the stand-in for NVML are both made of these.
"""

from dataclasses import dataclass

from libs.host.gpus.division import InstanceProfile

MIB = 1 << 20


class MigKind(InstanceProfile, frozen=True, kw_only=True):
    """A kind of GPU instance, and what NVML says of it beside."""

    constant: int
    """The number by which NVML's callers ask for it."""
    memory_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int = 0
    jpeg_engines: int = 0
    ofa_engines: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class NvLinks:
    """`version` is NVML's number of the generation; `speed_mbps` that of one link, one way."""

    count: int
    version: int
    speed_mbps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    name: str
    pci_device_id: int
    pci_subsystem_id: int
    board_part: str
    vbios: str
    architecture: int
    compute_capability: tuple[int, int]
    cores: int
    memory_mib: int
    reserved_mib: int
    clock_mhz: int
    idle_clock_mhz: int
    memory_clock_mhz: int
    video_clock_mhz: int
    power_w: int
    least_power_w: int
    idle_power_w: int
    pcie_generation: int
    memory_temperature: bool = True
    page_retirement: bool = False
    """It retires pages; newer products remap rows."""
    profiling: bool = False
    fabric: bool = False
    nvlinks: NvLinks | None = None
    mig: tuple[MigKind, ...] = ()
    mig_mode_needs_reset: bool = False
    """A change of the MIG mode waits for a reset; it then outlives the driver."""

    @property
    def device(self) -> str:
        """The PCI id as in sysfs, hexadecimal without 0x."""
        return f"{self.pci_device_id >> 16:04x}"

    @property
    def subsystem(self) -> str:
        return f"{self.pci_subsystem_id >> 16:04x}"


def _mig_kinds(
    *rows: tuple[str, int, int, int, int, int, int, tuple[int, int, int]],
) -> tuple[MigKind, ...]:
    """Complete the rows of a GPU with eight memory slices: what all such GPUs share."""
    kinds: list[MigKind] = []
    for name, slices, instances, memory, multiprocessors, copies, size, engines in rows:
        constant, number = _NUMBERS[(slices, size, name.endswith("+me"))]
        kinds.append(
            MigKind(
                name=name,
                constant=constant,
                id=number,
                slices=slices,
                most=instances,
                memory_mib=memory,
                multiprocessors=multiprocessors,
                copy_engines=copies,
                decoders=engines[0],
                jpeg_engines=engines[1],
                ofa_engines=engines[2],
                size=size,
                starts=_STARTS[(slices, size)],
            )
        )
    return tuple(kinds)


_NUMBERS = {
    (1, 1, False): (0, 19),
    (1, 1, True): (7, 20),
    (1, 2, False): (9, 15),
    (2, 2, False): (1, 14),
    (3, 4, False): (2, 9),
    (4, 4, False): (3, 5),
    (7, 8, False): (4, 0),
}
"""Constant and id, by slices, size in memory, and whether it has the media extensions."""

_STARTS = {
    (1, 1): tuple(range(7)),
    (1, 2): (0, 2, 4, 6),
    (2, 2): (0, 2, 4),
    (3, 4): (0, 4),
    (4, 4): (0,),
    (7, 8): (0,),
}

# Name, slices, instances, MiB, multiprocessors, copy engines, size; decoders, JPEG, OFA.
_A100_MIG = _mig_kinds(
    ("1g.5gb", 1, 7, 4864, 14, 1, 1, (0, 0, 0)),
    ("1g.5gb+me", 1, 1, 4864, 14, 1, 1, (1, 1, 1)),
    ("1g.10gb", 1, 4, 9856, 14, 1, 2, (1, 0, 0)),
    ("2g.10gb", 2, 3, 9856, 28, 2, 2, (1, 0, 0)),
    ("3g.20gb", 3, 2, 19968, 42, 3, 4, (2, 0, 0)),
    ("4g.20gb", 4, 1, 19968, 56, 4, 4, (2, 0, 0)),
    ("7g.40gb", 7, 1, 40192, 98, 7, 8, (5, 1, 1)),
)

_H100_MIG = _mig_kinds(
    ("1g.10gb", 1, 7, 9984, 16, 1, 1, (1, 1, 0)),
    ("1g.10gb+me", 1, 1, 9984, 16, 1, 1, (1, 1, 1)),
    ("1g.20gb", 1, 4, 20096, 26, 1, 2, (1, 1, 0)),
    ("2g.20gb", 2, 3, 20096, 32, 2, 2, (2, 2, 0)),
    ("3g.40gb", 3, 2, 40448, 60, 3, 4, (3, 3, 0)),
    ("4g.40gb", 4, 1, 40448, 64, 4, 4, (4, 4, 0)),
    ("7g.80gb", 7, 1, 81152, 132, 8, 8, (7, 7, 1)),
)

# Of 3g, 4g and 7g only the names are published: their multiprocessors and MiB are estimates.
_GB200_MIG = _mig_kinds(
    ("1g.23gb", 1, 7, 21504, 18, 2, 1, (1, 1, 0)),
    ("1g.23gb+me", 1, 1, 21504, 18, 2, 1, (1, 1, 1)),
    ("1g.47gb", 1, 4, 46592, 32, 2, 2, (1, 1, 0)),
    ("2g.47gb", 2, 3, 46592, 38, 4, 2, (2, 2, 0)),
    ("3g.93gb", 3, 2, 94208, 70, 6, 4, (3, 3, 0)),
    ("4g.93gb", 4, 1, 94208, 76, 8, 4, (4, 4, 0)),
    ("7g.186gb", 7, 1, 189184, 152, 16, 8, (7, 7, 1)),
)

T4 = Product(
    name="Tesla T4",
    pci_device_id=0x1EB810DE,
    pci_subsystem_id=0x12A210DE,
    board_part="900-2G183-0000-001",
    vbios="90.04.96.00.9F",
    architecture=6,
    compute_capability=(7, 5),
    cores=2560,
    memory_mib=15360,
    reserved_mib=448,
    clock_mhz=1590,
    idle_clock_mhz=300,
    memory_clock_mhz=5001,
    video_clock_mhz=1470,
    power_w=70,
    least_power_w=60,
    idle_power_w=9,
    pcie_generation=3,
    memory_temperature=False,
    page_retirement=True,
)

A100 = Product(
    name="NVIDIA A100-SXM4-40GB",
    pci_device_id=0x20B010DE,
    pci_subsystem_id=0x134F10DE,
    board_part="692-2G506-0200-002",
    vbios="92.00.19.00.01",
    architecture=7,
    compute_capability=(8, 0),
    cores=6912,
    memory_mib=40960,
    reserved_mib=571,
    clock_mhz=1410,
    idle_clock_mhz=210,
    memory_clock_mhz=1215,
    video_clock_mhz=1290,
    power_w=400,
    least_power_w=100,
    idle_power_w=52,
    pcie_generation=4,
    nvlinks=NvLinks(count=12, version=4, speed_mbps=25781),
    mig=_A100_MIG,
    mig_mode_needs_reset=True,
)

L40S = Product(
    name="NVIDIA L40S",
    pci_device_id=0x26B910DE,
    pci_subsystem_id=0x185110DE,
    board_part="900-2G133-0080-000",
    vbios="95.02.66.00.02",
    architecture=8,
    compute_capability=(8, 9),
    cores=18176,
    memory_mib=46068,
    reserved_mib=610,
    clock_mhz=2520,
    idle_clock_mhz=210,
    memory_clock_mhz=9001,
    video_clock_mhz=1965,
    power_w=350,
    least_power_w=100,
    idle_power_w=35,
    pcie_generation=4,
    memory_temperature=False,
)

H100 = Product(
    name="NVIDIA H100 80GB HBM3",
    pci_device_id=0x233010DE,
    pci_subsystem_id=0x16C110DE,
    board_part="692-2G520-0200-000",
    vbios="96.00.89.00.01",
    architecture=9,
    compute_capability=(9, 0),
    cores=16896,
    memory_mib=81559,
    reserved_mib=552,
    clock_mhz=1980,
    idle_clock_mhz=345,
    memory_clock_mhz=2619,
    video_clock_mhz=1545,
    power_w=700,
    least_power_w=200,
    idle_power_w=70,
    pcie_generation=5,
    profiling=True,
    fabric=True,
    nvlinks=NvLinks(count=18, version=6, speed_mbps=26562),
    mig=_H100_MIG,
)

GB200 = Product(
    name="NVIDIA GB200",
    pci_device_id=0x294110DE,
    pci_subsystem_id=0x20D510DE,
    board_part="692-2G548-0210-000",
    vbios="97.00.82.00.28",
    architecture=10,
    compute_capability=(10, 0),
    cores=19456,
    memory_mib=189471,
    reserved_mib=764,
    clock_mhz=2062,
    idle_clock_mhz=120,
    memory_clock_mhz=3996,
    video_clock_mhz=1920,
    power_w=1200,
    least_power_w=200,
    idle_power_w=150,
    pcie_generation=6,
    profiling=True,
    fabric=True,
    nvlinks=NvLinks(count=18, version=7, speed_mbps=50000),
    mig=_GB200_MIG,
)

PRODUCTS = (T4, A100, L40S, H100, GB200)
