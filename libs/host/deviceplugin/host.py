"""All resources that a machine offers, and their registration with its kubelet.

A kubelet that starts removes all sockets of its folder and knows of no resource, so everything is
served and registered anew when its socket is another one. gRPC takes memory: it is loaded with the
first resource.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Self

from libs.host.deviceplugin.port import Allocator, OfferedDevice, Offers
from libs.host.machine import Offload
from libs.runtime.clock import Clock
from libs.runtime.logs import logger

if TYPE_CHECKING:
    from libs.host.deviceplugin.server import ResourceServer

FOLDER: Final = "/var/lib/kubelet/device-plugins"
CHECK_EVERY: Final = 1.0
"""Seconds between two looks at the kubelet's socket."""
UNFOLLOWED: Final = 10.0
"""Seconds after a registration without a kubelet that follows the list, until the next one."""

_log = logger()


class PluginHost:
    """Serves what was offered last. `folder` is the kubelet's, in this process."""

    def __init__(
        self,
        folder: str,
        *,
        allocator_for: Callable[[str], Allocator],
        offload: Offload,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._allocator_for = allocator_for
        self._offload = offload
        self._clock = clock
        self._offers: Offers = {}
        self._servers: dict[str, ResourceServer] = {}
        self._registered_at: dict[str, float] = {}
        self._kubelet: tuple[int, ...] | None = None
        """The kubelet's socket at which the resources are registered."""
        self._lock = asyncio.Lock()
        self.problem = ""
        """Why the kubelet does not know what is offered; empty if it does."""

    async def offer(self, offers: Offers) -> None:
        """Offer these resources and no others.

        Return once the kubelet has the lists that it follows. One that does not read its list is
        disconnected: it then counts the devices as unhealthy.
        """
        async with self._lock:
            self._offers = dict(offers)
            for resource, server in list(self._servers.items()):
                was_read = await server.offer(self._offers.get(resource, ()))
                if resource not in self._offers or not was_read:
                    await self._stop(resource)
        await self.check()

    async def run(self) -> None:
        while True:
            await self.check()
            await self._clock.sleep(CHECK_EVERY)

    async def check(self) -> None:
        """Serve and register what is not; the reason of a failure is in `problem`."""
        async with self._lock:
            if not self._offers and not self._servers:
                self.problem = ""
                return
            try:
                await self._check()
            except OSError as error:
                self._set_problem(str(error))
            else:
                self._set_problem("")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        """Stop serving; the kubelet then counts the devices as unhealthy."""
        async with self._lock:
            for resource in list(self._servers):
                await self._stop(resource)

    async def _check(self) -> None:
        sockets = [server.socket for server in self._servers.values()]
        kubelet, are_there = await self._offload.run(
            lambda: (_identity(f"{self._folder}/kubelet.sock"), all(map(os.path.exists, sockets)))
        )
        if kubelet is None:
            self._kubelet = None
            raise FileNotFoundError(
                f"there is no socket {self._folder}/kubelet.sock: the kubelet is not running, or"
                " has another directory"
            )
        if kubelet != self._kubelet or not are_there:
            for resource in list(self._servers):
                await self._stop(resource)
        self._kubelet = kubelet
        for resource, devices in self._offers.items():
            await self._serve(resource, devices)

    async def _serve(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        # The library writes what it tries to standard error, beside what it raises.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from libs.host.deviceplugin.server import ResourceServer

        now = self._clock.monotonic()
        server = self._servers.get(resource)
        if server is None:
            server = ResourceServer(
                resource, folder=self._folder, allocator=self._allocator_for(resource)
            )
            await server.start()
            self._servers[resource] = server
            await server.offer(devices)
        registered_at = self._registered_at.get(resource)
        is_recent = registered_at is not None and now - registered_at < UNFOLLOWED
        if server.is_followed or is_recent:
            return
        await server.register()
        self._registered_at[resource] = now
        _log.info("resource registered", resource=resource, devices=len(devices))

    async def _stop(self, resource: str) -> None:
        self._registered_at.pop(resource, None)
        await self._servers.pop(resource).stop()

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.warning("the kubelet does not know the GPUs of this machine", problem=problem)
        self.problem = problem


def _identity(path: str) -> tuple[int, ...] | None:
    """Return what differs between two sockets that were made at one path."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
