"""Partition GPUs through pynvml, and read how they are partitioned."""

from libs.testing.nvml import Return
from libs.testing.nvml.products import Product
from tests.component.testing.nvml.client import Client, Refused
from tests.component.testing.nvml.client_process import Handle

WHOLE = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""The compute profile of a whole GPU instance, by its slices."""


def profile_id(product: Product, name: str) -> int:
    return next(kind.id for kind in product.mig if kind.name == name)


def partition(client: Client, gpu: Handle, product: Product, *names: str) -> list[Handle]:
    """Create GPU instances, each with one compute instance, as operators do."""
    created: list[Handle] = []
    for name in names:
        instance = client.nvmlDeviceCreateGpuInstance(gpu, profile_id(product, name))
        client.nvmlGpuInstanceCreateComputeInstance(instance, WHOLE[int(name[0])])
        created.append(instance)
    return created


def mig_devices(client: Client, gpu: Handle) -> list[Handle]:
    """Return the MIG devices as clients enumerate them."""
    found: list[Handle] = []
    for index in range(client.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(client.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except Refused as refusal:
            assert refusal.code == Return.NOT_FOUND  # noqa: PT017
    return found


def layout(client: Client, instances: list[Handle]) -> list[tuple[int, int]]:
    placements = [client.nvmlGpuInstanceGetInfo(item)["placement"] for item in instances]
    return [(place["start"], place["size"]) for place in placements]
