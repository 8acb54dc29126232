"""Read the GPUs of one machine, and decide what claims can have; withdraw all on command."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.contracts.facts import Gpu
from libs.health.node import Sweep
from libs.host.gpus.port import DriverLibrary, GpuHandle, GpusUnavailable
from libs.host.machine import Machine
from libs.host.podresources.assignments import DeviceList, pods_by_gpu
from libs.host.podresources.client import KubeletUnavailable
from libs.policy.plugin_config.config import MigStrategy, PluginConfig
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.driver.dra.claims import NodeClaims, Usable
from services.driver.dra.devices import ClaimDevice, devices_of
from services.driver.dra.publication import Publication
from services.driver.plugin.inspection import Inspection, inspect_gpus
from services.driver.plugin.inventory import RELEASED, Inventory, unusable
from services.driver.plugin.known_health import KnownHealth, moment

CHECK_EVERY: Final = 2.0
"""Seconds between two inspections of the GPUs."""
_ALL_PARTS: Final = PluginConfig(mig_strategy=MigStrategy.MIXED)

_log = logger()


class ClaimOffering:
    def __init__(
        self,
        *,
        machine: Machine,
        hold: GpuHandle,
        list_uses: Callable[[], DeviceList],
        claims: NodeClaims,
        publication: Publication,
        health: KnownHealth,
        is_registered: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._hold = hold
        self._list_uses = list_uses
        self._claims = claims
        self._publication = publication
        self._health = health
        self._is_registered = is_registered
        self._clock = clock
        self._inspection = Inspection(problem="the GPUs have not been read yet")
        self._library: DriverLibrary | None = None
        self._used: Mapping[str, str] | None = None
        """Why devices are the device plugin's, by UUID of the GPU; None: it is not known yet."""
        self._kubelet_problem = ""
        self._lock = asyncio.Lock()

    @property
    def problem(self) -> str:
        """Why not all GPUs can be claimed, or none of them; empty if some can."""
        return (
            self._inspection.problem
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
        self._hold.is_quiesced = True
        await self._publish()
        try:
            await self._machine.offload.run(self._hold.release)
        except GpusUnavailable as error:
            return OpFailed("devices-open", str(error))
        finally:
            await self.check()
        return OpDone()

    async def idle(self, _op: Op) -> OpDone:
        """Let the GPUs be claimed again."""
        self._hold.resume()
        await self.check()
        return OpDone()

    async def _inspect(self) -> None:
        found, library = await self._machine.offload.run(self._look)
        self._inspection, self._library = found, library
        await self._ask_kubelet(found.gpus or ())

    def _look(self) -> tuple[Inspection, DriverLibrary | None]:
        self._hold.acquire()  # XIDs of the kernel log are read once their GPUs can be named
        found = inspect_gpus(
            self._machine,
            self._hold,
            self._machine.gpus.errors(),
            measures=not self._health.is_judged(moment(self._clock)),
        )
        sweep = Sweep(
            gpus=found.gpus, samples=found.samples, problem=self._hold.problem, xids=found.xids
        )
        self._health.judge(sweep, moment(self._clock), loaded_at=found.loaded_at)
        return found, None if found.gpus is None else self._hold.acquire()

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
        _log_changes(self._claims.usable.reasons, usable.reasons)
        self._claims.usable = usable
        self._claims.version = self._publication.version or self._claims.version
        # A pod that is given a device before the kubelet knows the plugin waits for a minute.
        if usable.withheld == RELEASED or self._is_registered():
            await self._publication.put(_offered(usable))

    def _usable(self) -> Usable:
        found, library = self._inspection, self._library
        gpus = found.gpus
        unknown = self._kubelet_problem if self._used is None else ""
        withheld = RELEASED if self._hold.is_quiesced else found.problem or unknown
        if gpus is None or library is None:
            return Usable(withheld=withheld or "the GPUs cannot be read")
        inventory = Inventory().after(gpus, _ALL_PARTS)
        sick = {**(self._used or {}), **self._health.reasons()}
        return Usable(
            devices=devices_of(gpus, found.places, library),
            reasons=unusable(inventory, gpus, sick, found.in_specs),
            withheld=withheld,
        )


def _offered(usable: Usable) -> list[ClaimDevice]:
    if usable.withheld:
        return []
    return [device for device in usable.devices.values() if device.uuid not in usable.reasons]


def _log_changes(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for uuid, reason in after.items():
        if before.get(uuid) != reason:
            _log.warning("device cannot be claimed", device=uuid, reason=reason)
    for uuid in before:
        if uuid not in after:
            _log.info("device can be claimed again", device=uuid)
