"""What the driver agent reports of its machine: the driver, the gate, and who computes.

Said when it changes, and before the result of the op that changed it.
"""

from collections import Counter
from typing import Final

from libs.bus.reporter import Reporter
from libs.contracts.facts import Facts, Gate, LoadedDriver
from libs.contracts.reports import PodUse, Usage
from libs.host import gate, modules
from libs.host.machine import Machine
from libs.host.tree import Tree
from libs.runtime.clock import Clock
from services.driver.node.keeper import Keeper
from services.driver.node.look import Look, look

EVERY: Final = 5.0
"""Seconds between two looks: an upgrade's order rests on them, never its safety."""


class Saying:
    """Keeps what was said true."""

    def __init__(
        self, *, machine: Machine, reporter: Reporter, keeper: Keeper, clock: Clock
    ) -> None:
        self._machine = machine
        self._reporter = reporter
        self._keeper = keeper
        self._clock = clock
        self._facts: Facts | None = None
        self._usage: Usage | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.say()
            await self._clock.sleep(EVERY)

    async def say(self) -> None:
        """Look, and report what is not as it was said last."""
        tree = self._machine.tree
        seen, loaded = await self._machine.access.do(lambda: (look(tree), driver_of(tree)))
        facts = Facts(driver=loaded, gate=gate_of(seen, self._keeper.why))
        if facts != self._facts:
            self._facts = facts
            self._reporter.report(facts)
        usage = usage_of(seen)
        if usage != self._usage:
            self._usage = usage
            self._reporter.report(usage)


def driver_of(tree: Tree) -> LoadedDriver | None:
    """The driver that is in the kernel now."""
    there = modules.loaded(tree)
    main = there.get(modules.DRIVER)
    if main is None:
        return None
    loaded = tuple(name for name in modules.UNLOADED if name in there)
    license_of = tree.word(f"/sys/module/{modules.DRIVER}/license") or ""
    return LoadedDriver(
        version=main.version,
        loaded_at=round(tree.made(f"/sys/module/{modules.DRIVER}") or 0.0, 3),
        modules=loaded,
        open_kernel_modules="MIT" in license_of or "GPL" in license_of,
    )


def gate_of(seen: Look, why: str) -> Gate:
    """Where the gate stands."""
    admitted = seen.answered[-1] if seen.answered else None
    waiting = gate.waiting(seen.asked, seen.answered)
    return Gate(
        admitted_pod_uid=admitted.pod_uid if admitted else "",
        admitted_label=admitted.label if admitted else "",
        waiting_pod_uid=waiting.pod_uid if waiting else "",
        waiting_label=waiting.label if waiting else "",
        why=why,
    )


def usage_of(seen: Look) -> Usage:
    """Who has the devices open, but for the driver's own pods."""
    drivers = {answer.pod_uid for answer in seen.answered}
    processes = Counter(holder.pod_uid for holder in seen.holders)
    pods = sorted(uid for uid in processes if uid and uid not in drivers)
    return Usage(
        pods=tuple(PodUse(pod_uid=uid, processes=processes[uid]) for uid in pods),
        host_processes=processes[""],
    )
