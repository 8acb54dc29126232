"""The device manager of a simulated kubelet: what it can give to pods."""

from collections.abc import Callable, Mapping

from libs.host.deviceplugin.port import Offers
from libs.host.podresources.allocatable import Allocatable


class SimulatedDevices:
    """The devices of one machine; those of a device plugin that ended are unhealthy."""

    def __init__(self) -> None:
        self._healthy: dict[str, frozenset[str]] = {}
        self._all: dict[str, int] = {}
        self._owner: object = None
        self.on_change: Callable[[], object] = lambda: None

    @property
    def allocatable(self) -> Allocatable:
        return dict(self._healthy)

    @property
    def counts(self) -> tuple[Mapping[str, int], Mapping[str, int]] | None:
        """How many devices of each resource there are, and how many a pod can get.

        None: no device plugin ever offered any.
        """
        if self._owner is None:
            return None
        return dict(self._all), {name: len(self._healthy.get(name, ())) for name in self._all}

    def take(self, owner: object, offers: Offers) -> None:
        """Take the list of each resource; a resource that is gone has no device left."""
        healthy = {
            name: frozenset(device.id for device in devices if device.healthy)
            for name, devices in offers.items()
        }
        counts = dict.fromkeys(self._all, 0) | {name: len(offers[name]) for name in offers}
        if (healthy, counts, owner) != (self._healthy, self._all, self._owner):
            self._healthy, self._all, self._owner = healthy, counts, owner
            self.on_change()

    def disconnect(self, owner: object) -> None:
        """Count the devices as unhealthy, if this is the device plugin that offers them."""
        if owner is self._owner:
            self._healthy = {}
            self.on_change()

    def boot(self) -> None:
        """Forget what was offered before: no device plugin has registered."""
        if self._owner is not None:
            self._healthy, self._all = {}, dict.fromkeys(self._all, 0)


class DeviceConnection:
    """The kubelet as one agent's process reaches it."""

    problem = ""

    def __init__(self, devices: SimulatedDevices) -> None:
        self._devices = devices

    async def offer(self, offers: Offers) -> None:
        self._devices.take(self, offers)

    def allocatable(self) -> Allocatable:
        return self._devices.allocatable

    def end(self) -> None:
        self._devices.disconnect(self)
