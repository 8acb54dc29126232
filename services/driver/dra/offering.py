"""Read the GPUs of one machine, and decide what claims can have; withdraw all on command."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.contracts.facts import Gpu
from libs.host.gpus.port import DriverLibrary
from libs.host.podresources.assignments import DeviceList, pods_by_gpu
from libs.host.podresources.client import KubeletUnavailable
from libs.policy.plugin_config.config import MigStrategy, PluginConfig
from services.driver.dra.claims import NodeClaims, Usable
from services.driver.dra.devices import ClaimDevice, devices_of
from services.driver.dra.publication import Publication
from services.driver.plugin.inspection import Inspection
from services.driver.plugin.inventory import RELEASED, Inventory, unusable
from services.driver.plugin.watch import GpuWatch, log_changes
from services.gpu_holders import let_go

CHECK_EVERY: Final = 2.0
"""Seconds between two inspections of the GPUs."""
_ALL_PARTS: Final = PluginConfig(mig_strategy=MigStrategy.MIXED)


class ClaimOffering:
    """Decides what claims can have of a node, publishes it, and tells those who prepare claims."""

    def __init__(
        self,
        *,
        watch: GpuWatch,
        list_uses: Callable[[], DeviceList],
        claims: NodeClaims,
        publication: Publication,
        is_registered: Callable[[], bool],
    ) -> None:
        self._watch = watch
        self._machine, self._clock = watch.machine, watch.clock
        self._list_uses = list_uses
        self._claims = claims
        self._publication = publication
        self._is_registered = is_registered
        self._library: DriverLibrary | None = None
        self._used: Mapping[str, str] | None = None
        """Why devices are the device plugin's, by UUID of the GPU; None: it is not known yet."""
        self._kubelet_problem = ""
        self._lock = asyncio.Lock()

    @property
    def problem(self) -> str:
        """Why not all GPUs can be claimed, or none of them; empty if some can."""
        return (
            self._watch.found.problem
            or self._kubelet_problem
            or self._publication.problem
            or self._nothing_to_claim
        )

    @property
    def _nothing_to_claim(self) -> str:
        """Why no pod of this node gets a GPU, although the GPUs could be read."""
        usable = self._claims.usable
        if usable.withheld or _offered(usable):
            return ""
        reason = next(iter(usable.reasons.values()), "the driver shows none")
        return f"no GPU of this node can be claimed: {reason}"

    async def run(self) -> None:
        while True:
            await self.check()
            await self._clock.sleep(CHECK_EVERY)

    async def check(self) -> None:
        """Inspect the GPUs, and publish what can be claimed."""
        async with self._lock:
            await self._inspect()
        await self._publish()

    async def quiesce(self, _op: Op) -> OpDone | OpFailed:
        """Withdraw the devices, then release the GPUs; what is prepared stays prepared."""
        self._watch.hold.is_quiesced = True
        await self._publish()
        return await let_go(self._machine.offload.run(self._watch.hold.release), self.check)

    async def idle(self, _op: Op) -> OpDone:
        """Let the GPUs be claimed again."""
        self._watch.hold.resume()
        await self.check()
        return OpDone()

    async def _inspect(self) -> None:
        found, library = await self._machine.offload.run(self._look)
        self._watch.found, self._library = found, library
        await self._ask_kubelet(found.gpus or ())

    def _look(self) -> tuple[Inspection, DriverLibrary | None]:
        hold = self._watch.hold
        hold.acquire()  # XIDs of the kernel log are read once their GPUs can be named
        found = self._watch.look(self._machine.gpus.errors())
        return found, None if found.gpus is None else hold.acquire()

    async def _ask_kubelet(self, gpus: Iterable[Gpu]) -> None:
        """Find the GPUs that containers have from a device plugin; without an answer, keep them."""
        try:
            answer = await self._machine.offload.run(self._list_uses)
        except KubeletUnavailable as error:
            self._kubelet_problem = f"which GPUs pods have is unknown: {error}"
            return
        self._kubelet_problem = ""
        uses = [use for use in answer.uses if not use.claimed]
        self._used = {
            uuid: f"the device plugin gave it to the pod {pods[0].namespace}/{pods[0].pod}"
            for (uuid, _), pods in pods_by_gpu(uses, tuple(gpus)).items()
        }

    async def _publish(self) -> None:
        usable = self._usable()
        log_changes(
            self._claims.usable.reasons,
            usable.reasons,
            lost="device cannot be claimed",
            back="device can be claimed again",
        )
        self._claims.usable = usable
        self._claims.version = self._publication.version or self._claims.version
        # A pod that is given a device before the kubelet knows the plugin waits for a minute.
        if usable.withheld == RELEASED or self._is_registered():
            await self._publication.put(_offered(usable))

    def _usable(self) -> Usable:
        found, library = self._watch.found, self._library
        gpus = found.gpus
        unknown = self._kubelet_problem if self._used is None else ""
        withheld = self._watch.withheld(found.problem or unknown)
        if gpus is None or library is None:
            return Usable(withheld=withheld or "the GPUs cannot be read")
        inventory = Inventory().after(gpus, _ALL_PARTS)
        sick = {**(self._used or {}), **self._watch.health.reasons()}
        return Usable(
            devices=devices_of(gpus, found.places, library),
            reasons=unusable(inventory, gpus, sick, found.in_specs),
            withheld=withheld,
        )


def _offered(usable: Usable) -> list[ClaimDevice]:
    if usable.withheld:
        return []
    return [device for device in usable.devices.values() if device.uuid not in usable.reasons]
