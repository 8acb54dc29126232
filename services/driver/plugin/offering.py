"""Offer the GPUs of one machine to its kubelet, and withdraw them on command."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.contracts.commands import Idle
from libs.health.node import Sweep
from libs.host.deviceplugin.port import Offers
from libs.host.gpus.port import GpuHandle, GpusUnavailable
from libs.host.machine import Machine
from libs.policy.plugin_config.config import PluginConfig
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.driver.plugin.allocation import IMEX_CHANNEL
from services.driver.plugin.answers import Answers, Offered
from services.driver.plugin.claimed import ClaimedGpus
from services.driver.plugin.current_config import CurrentConfig
from services.driver.plugin.inspection import Inspection, inspect_gpus, is_computing_proven
from services.driver.plugin.inventory import RELEASED, Inventory, offers, unusable
from services.driver.plugin.known_health import KnownHealth, moment

if TYPE_CHECKING:
    from services.driver.plugin.places import Place

CHECK_EVERY: Final = 0.5
"""Seconds between two questions for XIDs; one leads to an inspection at once."""
INSPECT_EVERY: Final = 2.0
"""Seconds between two inspections of the GPUs."""

UNPROVEN: Final = (
    "NATS is away, and the GPUs are not proven in this boot: waiting for the validator of this node"
)
NO_IMEX: Final = (
    f"{IMEX_CHANNEL} is missing, which imex.required of the plugin's configuration file asks for:"
    " start nvidia-imex on the machine, or set imex.required to false"
)

_log = logger()


class Kubelet(Protocol):
    """Where the GPUs are offered."""

    @property
    def problem(self) -> str:
        """Why the kubelet does not know what is offered; empty if it does."""
        ...

    async def offer(self, offers: Offers) -> None:
        """Offer these resources and no others; return once the kubelet has the lists."""
        ...


class Offering:
    def __init__(
        self,
        *,
        machine: Machine,
        hold: GpuHandle,
        config: CurrentConfig,
        health: KnownHealth,
        kubelet: Kubelet,
        answers: Answers,
        claimed: ClaimedGpus,
        clock: Clock,
        is_told: Callable[[], bool],
    ) -> None:
        """`is_told` returns whether this process could read what the scheduler commands."""
        self._machine = machine
        self._hold = hold
        self._config = config
        self._health = health
        self._kubelet = kubelet
        self._answers = answers
        self._claimed = claimed
        self._clock = clock
        self._is_told = is_told
        self._may_offer = False
        self._inventory = Inventory()
        self._inspection = Inspection(problem="the GPUs have not been read yet")
        self._places: dict[str, Place] = {}
        self._inspected_at: float | None = None
        self._xids: dict[str, tuple[int, ...]] = {}
        # One inspection at a time.
        self._lock = asyncio.Lock()

    @property
    def problem(self) -> str:
        """Why not all GPUs are offered that could be; empty if they are."""
        return (
            self._config.problem
            or ("" if self._may_offer else UNPROVEN)
            or self._inspection.problem
            or self._claimed.problem
            or self._inventory.problem
            or self._imex_problem
            or self._kubelet.problem
        )

    @property
    def _imex_problem(self) -> str:
        """Why no GPU is offered to pods that would lack the IMEX channel that they need."""
        config, found = self._config.current, self._inspection
        if config is None or not config.imex_required or found.gpus is None or found.has_imex:
            return ""
        return NO_IMEX

    async def run(self) -> None:
        while True:
            await self.check()
            await self._clock.sleep(CHECK_EVERY)

    async def check(self) -> None:
        """Inspect the GPUs if that is due, or if an XID was reported."""
        if not self._may_offer and await self._is_released():
            self._may_offer = True
            self._inspected_at = None
        xids = await self._machine.offload.run(self._take_xids)
        for name, codes in xids.items():
            self._xids[name] = (*self._xids.get(name, ()), *codes)
        now = self._clock.monotonic()
        if xids or self._inspected_at is None or now - self._inspected_at >= INSPECT_EVERY:
            await self.inspect()

    def _take_xids(self) -> Mapping[str, tuple[int, ...]]:
        if self._inspected_at is None:
            self._hold.acquire()  # XIDs of the kernel log are read once their GPUs can be named
        return self._machine.gpus.errors()

    async def inspect(self) -> None:
        """Inspect the GPUs, and offer what they come to."""
        async with self._lock:
            self._inspected_at = self._clock.monotonic()
            xids, self._xids = self._xids, {}
            found = await self._machine.offload.run(lambda: self._look(xids))
            self._inspection = found
            config = self._config.current
            if found.gpus is not None and config is not None:
                self._inventory = self._inventory.after(found.gpus, config)
                self._places |= found.places
        await self._publish()

    def _look(self, xids: Mapping[str, tuple[int, ...]]) -> Inspection:
        found = inspect_gpus(
            self._machine,
            self._hold,
            xids,
            self._inspection,
            measures=not self._health.is_judged(moment(self._clock)),
        )
        sweep = Sweep(
            gpus=found.gpus, samples=found.samples, problem=self._hold.problem, xids=found.xids
        )
        self._health.judge(sweep, moment(self._clock), loaded_at=found.loaded_at)
        if found.gpus is not None:
            self._claimed.refresh(found.gpus)
        return found

    async def _is_released(self) -> bool:
        """Return whether the GPUs may be offered: by command, or else proven in this boot."""
        if self._is_told():
            return True
        tree = self._machine.tree
        return await self._machine.offload.run(lambda: is_computing_proven(tree))

    async def quiesce(self, _op: Op) -> OpDone | OpFailed:
        """Withdraw the devices from the kubelet, then release the GPUs."""
        self._may_offer = True
        self._hold.is_quiesced = True
        await self._publish()
        try:
            # This ends the calls of an inspection.
            await self._machine.offload.run(self._hold.release)
        except GpusUnavailable as error:
            return OpFailed("devices-open", str(error))
        finally:
            await self.inspect()
        return OpDone()

    async def idle(self, op: Op) -> OpDone:
        """Offer the GPUs again, by the configuration that the command names."""
        self._may_offer = True
        self._hold.resume()
        name = op.body.config if isinstance(op.body, Idle) else ""
        await self._config.choose(name)
        await self.inspect()
        if name:
            # For the next start of the agent, which may be during an outage of the bus.
            await op.checkpoint(name)
        return OpDone(self._config.problem)

    async def _publish(self) -> None:
        """Offer what is known now."""
        config = self._config.current
        if config is None or not self._may_offer:
            return
        offered = self._decide(config)
        _log_changes(self._answers.offered.reasons, offered.reasons)
        self._answers.offered = offered
        await self._kubelet.offer(
            offers(offered.inventory, offered.reasons, config, offered.places)
        )

    def _decide(self, config: PluginConfig) -> Offered:
        found = self._inspection
        problem = found.problem or self._claimed.problem or self._imex_problem
        withheld = RELEASED if self._hold.is_quiesced else problem
        in_specs = found.in_specs if config.uses_cdi else None
        sick = {**self._claimed.reasons, **self._health.reasons()}
        return Offered(
            config=config,
            inventory=self._inventory,
            reasons=unusable(self._inventory, found.gpus or (), sick, in_specs, withheld=withheld),
            places=dict(self._places),
            control_files=found.control_files,
            capabilities=found.capabilities,
            extras=found.extras,
        )


def _log_changes(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for uuid, reason in after.items():
        if before.get(uuid) != reason:
            _log.warning("device is not offered to pods", device=uuid, reason=reason)
    for uuid in before:
        if uuid not in after:
            _log.info("device is offered to pods again", device=uuid)
