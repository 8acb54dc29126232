"""Machines: which GPUs they have, and where on the PCI bus."""

from dataclasses import dataclass

from libs.testing.nvml import products
from libs.testing.nvml.products import Product


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """A machine. `addresses`: domain and bus of each GPU, by index."""

    product: Product
    addresses: tuple[tuple[int, int], ...]
    cluster_uuid: str = ""
    """The NVLink fabric of several machines that the GPUs belong to."""
    clique: int = 0
    bridges: tuple[tuple[int, int], ...] = ()
    """The GPUs that all of their NVLinks join, by index; without any, NVSwitches join all."""


def _on_one_domain(*buses: int) -> tuple[tuple[int, int], ...]:
    return tuple((0, bus) for bus in buses)


H100_80GB = Profile(
    product=products.H100,
    addresses=_on_one_domain(0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF),
)
"""Eight GPUs, joined by NVSwitches inside the machine."""

A100_40GB = Profile(
    product=products.A100,
    addresses=_on_one_domain(0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD),
)

A100_PAIRS = Profile(
    product=products.A100,
    addresses=_on_one_domain(0x17, 0x31, 0xB1, 0xCA),
    bridges=((0, 2), (1, 3)),
)
"""Four GPUs, of which NVLink bridges join two each."""

T4 = Profile(product=products.T4, addresses=_on_one_domain(0x1E))

L40S = Profile(product=products.L40S, addresses=_on_one_domain(0x4A, 0x61, 0xCA, 0xE1))

GB200 = Profile(
    product=products.GB200,
    addresses=((8, 1), (9, 1), (0x18, 1), (0x19, 1)),
    cluster_uuid="6f1d2c3b-8a47-4e59-9b1e-0c5d7a2f4e61",
    clique=32766,
)

ALL = {
    "H100-80GB": H100_80GB,
    "A100-40GB": A100_40GB,
    "T4": T4,
    "L40S": L40S,
    "GB200": GB200,
    "A100-40GB-PAIRS": A100_PAIRS,
}
