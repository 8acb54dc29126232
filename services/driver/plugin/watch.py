"""A node's GPUs as those who offer them see them: to the device plugin and for claims alike."""

from collections.abc import Mapping
from typing import Final

from libs.health.node import Sweep
from libs.host.gpus.port import GpuHandle
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.driver.plugin.inspection import Inspection, inspect_gpus
from services.driver.plugin.inventory import RELEASED
from services.driver.plugin.known_health import KnownHealth
from services.health_file import moment

NOT_READ: Final = Inspection(problem="the GPUs have not been read yet")

_log = logger()


class GpuWatch:
    """Reads the GPUs, and judges them with each reading, where the telemetry agent does not."""

    def __init__(
        self, *, machine: Machine, hold: GpuHandle, health: KnownHealth, clock: Clock
    ) -> None:
        self.machine = machine
        self.hold = hold
        self.health = health
        self.clock = clock
        self.found = NOT_READ
        """The last inspection that its owner has taken over."""

    def look(self, xids: Mapping[str, tuple[int, ...]]) -> Inspection:
        """Return what there is now; `xids` are those since the inspection `found`. It blocks."""
        found = inspect_gpus(
            self.machine,
            self.hold,
            xids,
            self.found,
            measures=not self.health.is_judged(moment(self.clock)),
        )
        sweep = Sweep(
            gpus=found.gpus, samples=found.samples, problem=self.hold.problem, xids=found.xids
        )
        self.health.judge(sweep, moment(self.clock), loaded_at=found.loaded_at)
        return found

    def withheld(self, problem: str) -> str:
        """Return why no GPU is offered; the command to release them goes before the problem."""
        return RELEASED if self.hold.is_quiesced else problem


def log_changes(
    before: Mapping[str, str], after: Mapping[str, str], *, lost: str, back: str
) -> None:
    """Log which devices cannot be had any more, by UUID with the reason, and which can again."""
    for uuid, reason in after.items():
        if before.get(uuid) != reason:
            _log.warning(lost, device=uuid, reason=reason)
    for uuid in before:
        if uuid not in after:
            _log.info(back, device=uuid)
