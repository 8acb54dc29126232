"""The metrics of a node's state, with the names of the GPU Operator's node-status exporter.

They tell what the status files tell. No device is opened for them: a driver that is to be unloaded
would stay in use.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from libs.contracts.gpus import GPU_RESOURCES
from libs.host import pci
from libs.host.machine import Machine
from libs.host.podresources.allocatable import AllocatableDevices
from libs.host.podresources.client import KubeletUnavailable
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from libs.runtime.http import Page
from services.validator.node import status_files

INTERVAL: Final = 30.0
"""Seconds between two readings."""
UNKNOWN: Final = -1
"""The number of devices that cannot be counted."""

_MODULE: Final = "/sys/module/nvidia/refcnt"


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node at one moment."""

    driver_ready: bool = False
    toolkit_ready: bool = False
    cuda_ready: bool = False
    plugin_ready: bool = False
    driver_loaded: bool = False
    pci_devices: int = UNKNOWN
    devices: int = UNKNOWN
    """The devices of device plugins that pods can have."""


def read_state(tree: Tree, kubelet: AllocatableDevices) -> NodeState:
    """Read files and kubelet; blocks."""
    return NodeState(
        driver_ready=_exists(tree, status_files.DRIVER),
        toolkit_ready=_exists(tree, status_files.TOOLKIT),
        cuda_ready=_exists(tree, status_files.CUDA),
        plugin_ready=_exists(tree, status_files.PLUGIN),
        driver_loaded=_exists(tree, _MODULE),
        pci_devices=_pci_devices(tree),
        devices=_devices(kubelet),
    )


def _exists(tree: Tree, path: str) -> bool:
    try:
        return tree.exists(path)
    except Unreadable:
        return False


def _pci_devices(tree: Tree) -> int:
    try:
        devices = pci.devices(tree)
    except Unreadable:
        return UNKNOWN
    return UNKNOWN if devices is None else sum(each.vendor == pci.NVIDIA for each in devices)


def _devices(kubelet: AllocatableDevices) -> int:
    try:
        allocatable = kubelet.allocatable()
    except KubeletUnavailable:
        return UNKNOWN
    return sum(len(names) for name, names in allocatable.items() if name.startswith(GPU_RESOURCES))


class NodeStatus(Collector):
    """Reads the state of a node again and again, and renders its page."""

    def __init__(
        self, *, machine: Machine, node: str, clock: Clock, kubelet: AllocatableDevices
    ) -> None:
        self._machine = machine
        self._node = node
        self._clock = clock
        self._kubelet = kubelet
        self._started = clock.now()
        self._state = NodeState()
        self._driver_worked: float | None = None
        self._devices_seen: float | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def run(self) -> None:
        while True:
            await self.read()
            await self._clock.sleep(INTERVAL)

    async def read(self) -> None:
        tree, kubelet = self._machine.tree, self._kubelet
        state = await self._machine.offload.run(lambda: read_state(tree, kubelet))
        now, self._state = self._clock.now(), state
        if state.driver_ready and state.driver_loaded:
            self._driver_worked = now
        if state.devices > 0:
            self._devices_seen = now

    def page(self) -> Page:
        return Page(generate_latest(self._registry), content_type=CONTENT_TYPE_PLAIN_0_0_4)

    def collect(self) -> Iterator[Metric]:
        for name, text, value in self._rows():
            if value is not None:
                family = GaugeMetricFamily(name, text, labels=["node"])
                family.add_metric([self._node], value)
                yield family

    def _rows(self) -> Iterator[tuple[str, str, float | None]]:
        """Yield name, help and value of each metric; None: absent."""
        state, prefix = self._state, "gpu_operator_node"
        yield (
            f"{prefix}_metrics_ready_ts_seconds",
            "Timestamp (in seconds) of the start of these metrics",
            self._started,
        )
        for name, is_ready in (
            ("driver", state.driver_ready),
            ("toolkit", state.toolkit_ready),
            ("plugin", state.plugin_ready),
            ("cuda", state.cuda_ready),
        ):
            text = f"1 if the status file {name}-ready is there, 0 if not"
            yield f"{prefix}_{name}_ready", text, is_ready
        yield (
            f"{prefix}_driver_validation",
            "1 if the loaded driver was proven, 0 if not",
            state.driver_ready and state.driver_loaded,
        )
        yield (
            f"{prefix}_driver_validation_last_success_ts_seconds",
            "Timestamp (in seconds) at which the driver was last seen loaded and proven",
            self._driver_worked,
        )
        yield (
            f"{prefix}_device_plugin_devices_total",
            "GPUs and MIG devices that the kubelet can give to pods, -1 if it does not say",
            state.devices,
        )
        yield (
            f"{prefix}_device_plugin_validation_last_success_ts_seconds",
            "Timestamp (in seconds) at which the kubelet last had such a device",
            self._devices_seen,
        )
        yield (
            "gpu_operator_nvidia_pci_devices_total",
            "PCI devices of NVIDIA, -1 if they cannot be listed",
            state.pci_devices,
        )
