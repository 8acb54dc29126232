"""The writes to Devices: each is one request, and the response enters the cache at once."""

from typing import Any

from libs.kube.client import Kube
from libs.kube.errors import NotFound
from services.discovery.cluster.device_decide import (
    ApplyDevice,
    ChangeHealth,
    DeleteDevice,
    DeviceWrite,
    owner_of,
)
from services.discovery.cluster.devices import DEVICES, FULL_DEVICES, WantedDevice, wanted_from
from services.discovery.cluster.resources import Informers, Node
from services.discovery.cluster.writes import TIMEOUT, DiscoveryMetrics


class DeviceWrites:
    def __init__(self, kube: Kube, *, informers: Informers, metrics: DiscoveryMetrics) -> None:
        self._kube = kube
        self._devices = informers.devices.cache
        self._metrics = metrics

    async def write(self, node: Node, write: DeviceWrite) -> None:
        match write:
            case ApplyDevice(wanted):
                await self._apply(wanted)
            case ChangeHealth(name, health):
                # An apply carries everything that we own, so the description is read first.
                full = await self._kube.get(FULL_DEVICES, name, within=TIMEOUT)
                await self._apply(wanted_from(full, health, owner=owner_of(node)))
            case DeleteDevice(name, uid):
                await self._delete(name, uid)

    async def _apply(self, wanted: WantedDevice) -> None:
        body: dict[str, Any] = wanted.manifest()
        with self._metrics.count_device_write():
            view = await self._kube.apply(DEVICES, body, force=True, within=TIMEOUT)
        self._devices.record_write(view)

    async def _delete(self, name: str, uid: str) -> None:
        try:
            with self._metrics.count_device_write():
                await self._kube.delete(DEVICES, name, uid=uid, within=TIMEOUT)
        except NotFound:
            return  # the watch will deliver that it is gone
