"""Offer the GPUs of one machine to its kubelet, and withdraw them on command."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.contracts.commands import Idle
from libs.host.deviceplugin.port import Offers
from libs.policy.plugin_config.config import PluginConfig
from services.driver.plugin.allocation import IMEX_CHANNEL
from services.driver.plugin.answers import Answers, Offered
from services.driver.plugin.claimed import ClaimedGpus
from services.driver.plugin.current_config import CurrentConfig
from services.driver.plugin.inspection import Inspection, is_computing_proven
from services.driver.plugin.inventory import Inventory, offers, unusable
from services.driver.plugin.watch import GpuWatch, log_changes
from services.gpu_holders import let_go

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
    """Decides what the kubelet may give to pods, and tells it; runs as long as the agent."""

    def __init__(
        self,
        *,
        watch: GpuWatch,
        config: CurrentConfig,
        kubelet: Kubelet,
        answers: Answers,
        claimed: ClaimedGpus,
        is_told: Callable[[], bool],
    ) -> None:
        """`is_told` returns whether this process could read what the scheduler commands."""
        self._watch = watch
        self._machine, self._clock = watch.machine, watch.clock
        self._config = config
        self._kubelet = kubelet
        self._answers = answers
        self._claimed = claimed
        self._is_told = is_told
        self._may_offer = False
        self._inventory = Inventory()
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
            or self._watch.found.problem
            or self._claimed.problem
            or self._inventory.problem
            or self._imex_problem
            or self._kubelet.problem
        )

    @property
    def _imex_problem(self) -> str:
        """Why no GPU is offered to pods that would lack the IMEX channel that they need."""
        config, found = self._config.current, self._watch.found
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
            # XIDs of the kernel log are read once their GPUs can be named.
            self._watch.hold.acquire()
        return self._machine.gpus.errors()

    async def inspect(self) -> None:
        """Inspect the GPUs, and offer what they come to."""
        async with self._lock:
            self._inspected_at = self._clock.monotonic()
            xids, self._xids = self._xids, {}
            found = await self._machine.offload.run(lambda: self._look(xids))
            self._watch.found = found
            config = self._config.current
            if found.gpus is not None and config is not None:
                self._inventory = self._inventory.after(found.gpus, config)
                self._places |= found.places
        await self._publish()

    def _look(self, xids: Mapping[str, tuple[int, ...]]) -> Inspection:
        found = self._watch.look(xids)
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
        self._watch.hold.is_quiesced = True
        await self._publish()
        # This ends the calls of an inspection.
        return await let_go(self._machine.offload.run(self._watch.hold.release), self.inspect)

    async def idle(self, op: Op) -> OpDone:
        """Offer the GPUs again, by the configuration that the command names."""
        self._may_offer = True
        self._watch.hold.resume()
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
        log_changes(
            self._answers.offered.reasons,
            offered.reasons,
            lost="device is not offered to pods",
            back="device is offered to pods again",
        )
        self._answers.offered = offered
        await self._kubelet.offer(
            offers(offered.inventory, offered.reasons, config, offered.places)
        )

    def _decide(self, config: PluginConfig) -> Offered:
        """Return what is offered by what is known now; a reason withholds, and removes nothing."""
        found = self._watch.found
        problem = found.problem or self._claimed.problem or self._imex_problem
        withheld = self._watch.withheld(problem)
        in_specs = found.in_specs if config.uses_cdi else None
        sick = {**self._claimed.reasons, **self._watch.health.reasons()}
        return Offered(
            config=config,
            inventory=self._inventory,
            reasons=unusable(self._inventory, found.gpus or (), sick, in_specs, withheld=withheld),
            places=dict(self._places),
            control_files=found.control_files,
            capabilities=found.capabilities,
            extras=found.extras,
        )
