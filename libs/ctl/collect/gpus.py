"""Collect the GPUs of all nodes, or of one."""

import asyncio

from libs.contracts.device import UNKNOWN
from libs.contracts.health import HealthState
from libs.ctl.cluster import DEVICES, Cluster, Device, open_cluster
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.listed_nodes import LISTED_NODES, known_metadata
from libs.ctl.options import Access
from libs.fleet.gpus import FleetGpu
from libs.fleet.names import natural_order
from libs.fleet.node import DriverState, fleet_node
from libs.policy.validation import PRESENT_LABEL

_LACKING = {
    DriverState.CHANGING: "its driver is being changed",
    DriverState.NONE: "its driver was unloaded, and the next one does not start",
    DriverState.UNKNOWN: "its driver may have been unloaded by an upgrade that failed",
}


async def gather_gpus(access: Access, node: str) -> tuple[tuple[FleetGpu, ...], tuple[str, ...]]:
    """Return the GPUs of all nodes, or of one, and the nodes whose GPUs no driver has shown yet."""
    async with open_cluster(access) as cluster:
        devices, states = await asyncio.gather(cluster.list(DEVICES), _driver_states(cluster))
        if node and not any(each.spec.node == node for each in devices):
            await cluster.node(node)
    found = (
        gpu_of(each, states.get(each.spec.node, DriverState.RUNS))
        for each in devices
        if node in ("", each.spec.node)
    )
    without = states.keys() - {each.spec.node for each in devices}
    return (
        tuple(sorted(found, key=lambda gpu: (natural_order(gpu.node), gpu.index))),
        tuple(sorted((name for name in without if node in ("", name)), key=natural_order)),
    )


async def _driver_states(cluster: Cluster) -> dict[str, DriverState]:
    """Return what became of the driver of each node that has GPUs; nothing without that right."""
    try:
        nodes = await cluster.list(LISTED_NODES, labels=f"{PRESENT_LABEL}=true")
    except Failure as failure:
        if failure.code is not ExitCode.NOT_ALLOWED:
            raise
        return {}
    return {each.metadata.name: fleet_node(known_metadata(each)).driver_state for each in nodes}


def gpu_of(device: Device, driver_state: DriverState = DriverState.RUNS) -> FleetGpu:
    """Return a GPU as its `Device` shows it; without a driver, an earlier `ok` says nothing."""
    spec, status = device.spec, device.status
    health = status.health
    state = health.state if health else UNKNOWN
    because = (health.message or health.reason) if health else ""
    remedy = health.remedy if health else ""
    if driver_state is not DriverState.RUNS and state == HealthState.OK:
        state, because = UNKNOWN, _LACKING[driver_state]
        remedy = "" if driver_state is DriverState.CHANGING else f"sluice why {spec.node}"
    return FleetGpu(
        node=spec.node,
        index=spec.index,
        product=spec.product,
        memory_mib=spec.memory,
        health=state,
        because=because,
        remedy=remedy,
        uuid=status.uuid,
        driver=status.driver,
        driver_state=driver_state,
        mig=status.mig.mode if status.mig else "",
    )
