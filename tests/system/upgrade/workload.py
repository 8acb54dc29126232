"""What people run on the nodes: a service with GPUs, of which one pod at a time may be missing."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from libs.testing.realnodes.build import BUSYBOX_IMAGE
from libs.testing.realnodes.machine import NodeMachine
from tests.system.nodes.device_plugin import RESOURCE, DevicePlugin

SERVICE: Final = "serve"
_LABELS: Final = {"app": SERVICE}
_DEVICE: Final = "/dev/nvidia0"
_PROGRAM: Final = f"exec 3<{_DEVICE}; trap 'exit 0' TERM; while :; do sleep 0.2; done"
_LOOK_EVERY: Final = 0.5


def service(replicas: int) -> list[dict[str, Any]]:
    """Return a Deployment with a pod per node that holds a GPU, and its disruption budget."""
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "command": ["sh", "-c", _PROGRAM],
        "imagePullPolicy": "Never",
        "resources": {"limits": {RESOURCE: 1}},
    }
    apart = {
        "labelSelector": {"matchLabels": _LABELS},
        "topologyKey": "kubernetes.io/hostname",
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 5,
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        },
    }
    metadata = {"name": SERVICE, "namespace": "default"}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": spec},
            },
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata,
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _LABELS}},
        },
    ]


@asynccontextmanager
async def device_plugins(machines: Sequence[NodeMachine]) -> AsyncGenerator[None]:
    """Serve the GPUs of all nodes, also to a kubelet that has started again."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_serve(machine), name="device plugin") for machine in machines]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _serve(machine: NodeMachine) -> None:
    folder = machine.node.folder / "disk/var-lib-kubelet/device-plugins"
    uuids = [gpu.uuid for gpu in machine.gpus.gpus]
    plugin: DevicePlugin | None = None
    try:
        while True:
            if plugin is None or not plugin.is_registered:
                if plugin:
                    await asyncio.to_thread(plugin.stop)
                plugin = DevicePlugin(folder, *uuids, files=[_DEVICE])
                with contextlib.suppress(grpc.RpcError):  # the next look repeats it
                    await asyncio.to_thread(plugin.start)
            await asyncio.sleep(_LOOK_EVERY)
    finally:
        if plugin:
            await asyncio.to_thread(plugin.stop)
