"""Collect the GPUs of all nodes, or of one."""

from libs.contracts.device import UNKNOWN
from libs.ctl.answers import Gpu
from libs.ctl.cluster import DEVICES, Device, open_cluster
from libs.ctl.options import Access
from libs.ctl.text import natural_order


async def gather_gpus(access: Access, node: str) -> tuple[Gpu, ...]:
    """Return the GPUs of all nodes, or of one."""
    async with open_cluster(access) as cluster:
        devices = await cluster.list(DEVICES)
        if node and not any(each.spec.node == node for each in devices):
            await cluster.node(node)
    found = (gpu_of(each) for each in devices if node in ("", each.spec.node))
    return tuple(sorted(found, key=lambda gpu: (natural_order(gpu.node), gpu.index)))


def gpu_of(device: Device) -> Gpu:
    """Return a GPU as its `Device` shows it."""
    spec, status = device.spec, device.status
    health = status.health
    return Gpu(
        node=spec.node,
        index=spec.index,
        product=spec.product,
        memory_mib=spec.memory,
        health=health.state if health else UNKNOWN,
        because=(health.message or health.reason) if health else "",
        remedy=health.remedy if health else "",
        uuid=status.uuid,
        driver=status.driver,
        mig=status.mig.mode if status.mig else "",
    )
