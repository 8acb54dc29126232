"""Report by itself why no driver can be loaded: then no validation may ever be asked for.

Such evidence has no token, so it ends no operation; it is for people, metrics and conditions.
"""

from typing import Final

from libs.bus.reporter import Reporter
from libs.contracts.reports import Evidence, ValidationStep
from libs.host.machine import Machine
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from libs.runtime.pauses import Pauses
from services.validator.node.driver_check import probe_obstacle
from services.validator.node.probe import Probe

INTERVAL: Final = 10.0
"""Seconds between two looks at the kernel."""


class ObstacleWatch:
    """Follows what keeps the driver of one machine from being loaded, in one boot."""

    def __init__(
        self,
        *,
        machine: Machine,
        reporter: Reporter,
        node_uid: str,
        boot_id: str,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._reporter = reporter
        self._node_uid = node_uid
        self._boot_id = boot_id
        self._clock = clock
        self._last: Evidence | None = None
        """The last evidence of this process, asked for or not."""
        self.pauses = Pauses()
        """Nothing is reported while a validation goes on, which judges the same things."""

    def validated(self, evidence: Evidence) -> None:
        """Take note of evidence that was asked for."""
        self._last = evidence

    async def run(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(INTERVAL)

    async def look(self) -> None:
        """Report what is wrong, unless the last evidence says it, or a validation is going on."""
        if self.pauses:
            return
        tree = self._machine.tree
        probe = await self._machine.offload.run(lambda: _probe(tree))
        if probe is None or self.pauses or self._is_reported(probe):
            return
        self._last = self._evidence(probe)
        self._reporter.report(self._last)

    def _is_reported(self, probe: Probe) -> bool:
        last = self._last
        return last is not None and any(step.diagnosis is probe.diagnosis for step in last.steps)

    def _evidence(self, probe: Probe) -> Evidence:
        step = ValidationStep(
            name=probe.step, passed=False, message=probe.problem, diagnosis=probe.diagnosis
        )
        return Evidence(
            epoch=0,
            token=0,
            op=0,
            passed=False,
            label="",
            node_uid=self._node_uid,
            boot_id=self._boot_id,
            kernel=probe.kernel,
            steps=(step,),
            at=self._clock.now(),
        )


def _probe(tree: Tree) -> Probe | None:
    try:
        return probe_obstacle(tree)
    except Unreadable:
        return None
