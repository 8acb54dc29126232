"""Keep the node's ResourceSlice at the API server as it is wanted.

The kubelet deletes it when the plugin is away for 30 seconds, and a person may at any time, so it
is followed, and applied again when it is not what was applied last.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from libs.kube.client import Kube
from libs.kube.errors import KubeError, UnknownKind
from libs.kube.informer import Informer
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.driver.dra.devices import ClaimDevice
from services.driver.dra.resources import DRIVER, VERSIONS, Node, slices
from services.driver.dra.slices import MAX_DEVICES, slice_name, slice_of

if TYPE_CHECKING:
    from libs.kube.views import Object

CHECK_EVERY: Final = 1.0
"""Seconds between two comparisons of the slice with what is wanted."""
RETRY_EVERY: Final = 10.0
"""Seconds until the API server is asked again which versions it has."""
WRITE_SECONDS: Final = 5.0
NOT_SERVED: Final = (
    "the API server does not serve resource.k8s.io: dynamic resource allocation needs Kubernetes"
    " 1.34, or 1.32 with the API group switched on"
)

_log = logger()


class Publication:
    """Begins with nothing wanted, and then leaves the slice alone."""

    def __init__(self, kube: Kube, *, node: Node, env: Env) -> None:
        self._kube = kube
        self._node = node
        self._env = env
        self._wanted: tuple[ClaimDevice, ...] | None = None
        self._applied: tuple[ClaimDevice, ...] | None = None
        self._applied_as: Object | None = None
        """The slice as it was after the last write."""
        self._informer: Informer[Object] | None = None
        self._lock = asyncio.Lock()
        self.version = ""
        """Of the API; empty as long as it is not known."""
        self.problem = "the API server has not been asked yet"
        """Why the slice is not what is wanted; empty if it is."""

    async def run(self) -> None:
        """Follow the slice, and keep it as it is wanted."""
        while not await self._find_version():
            await self._env.clock.sleep(RETRY_EVERY)
        node, resource = self._node, slices(self.version)
        fields = f"spec.driver={DRIVER},spec.nodeName={node.name}"
        self._informer = Informer(self._kube, resource, env=self._env, fields=fields)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            group.create_task(self._keep())

    async def put(self, devices: Iterable[ClaimDevice]) -> None:
        """Publish these devices and no others; try once, and later again if that fails."""
        listed = tuple(devices)
        if len(listed) > MAX_DEVICES:
            _log.warning("some devices are not published", most=MAX_DEVICES, found=len(listed))
        self._wanted = listed[:MAX_DEVICES]
        if self.version:
            await self._check()

    async def _keep(self) -> None:
        while True:
            await self._check()
            await self._env.clock.sleep(CHECK_EVERY)

    async def _find_version(self) -> bool:
        for version in VERSIONS:
            try:
                await self._kube.list_page(slices(version), limit=1, within=WRITE_SECONDS)
            except UnknownKind:
                continue
            except KubeError as error:
                self.problem = f"the slices cannot be listed: {error}"
                return False
            self.version, self.problem = version, ""
            return True
        self.problem = NOT_SERVED
        return False

    async def _check(self) -> None:
        async with self._lock:
            wanted = self._wanted
            if wanted is None or (wanted == self._applied and self._is_as_applied()):
                return
            body = slice_of(self._node, wanted, version=self.version)
            try:
                self._applied_as = await self._kube.apply(
                    slices(self.version), body, force=True, within=WRITE_SECONDS
                )
            except KubeError as error:
                self.problem = f"the slice of this node cannot be written: {error}"
                self._applied = None
                return
            if wanted != self._applied:
                _log.info("devices published", devices=len(wanted))
            self._applied, self.problem = wanted, ""

    def _is_as_applied(self) -> bool:
        """Return whether the slice is there as it was written, as far as is known."""
        written, informer = self._applied_as, self._informer
        if written is None:
            return False
        if informer is None or informer.why_not_synced:
            return True
        found = informer.cache.get(slice_name(self._node))
        return (
            found is not None
            and found.metadata.uid == written.metadata.uid
            and found.metadata.generation <= written.metadata.generation
        )
