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
from services.driver.node.gate_keeper import GateKeeper
from services.driver.node.inspection import Inspection, inspect_machine

INTERVAL: Final = 5.0
"""Seconds between two looks: an upgrade's order rests on them, never its safety."""


class DriverReporter:
    """Keeps what was said true."""

    def __init__(
        self, *, machine: Machine, reporter: Reporter, gate_keeper: GateKeeper, clock: Clock
    ) -> None:
        self._machine = machine
        self._reporter = reporter
        self._keeper = gate_keeper
        self._clock = clock
        self._facts: Facts | None = None
        self._usage: Usage | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.report()
            await self._clock.sleep(INTERVAL)

    async def report(self) -> None:
        """Look, and report what is not as it was said last."""
        tree = self._machine.tree
        seen, loaded = await self._machine.offload.do(
            lambda: (inspect_machine(tree), loaded_driver(tree))
        )
        facts = Facts(driver=loaded, gate=gate_facts(seen, self._keeper.shut_reason))
        if facts != self._facts:
            self._facts = facts
            self._reporter.report(facts)
        usage = device_usage(seen)
        if usage != self._usage:
            self._usage = usage
            self._reporter.report(usage)


def loaded_driver(tree: Tree) -> LoadedDriver | None:
    """The driver that is in the kernel now."""
    there = modules.loaded(tree)
    main = there.get(modules.DRIVER)
    if main is None:
        return None
    loaded = tuple(name for name in modules.UNLOAD_ORDER if name in there)
    license_of = tree.word(f"/sys/module/{modules.DRIVER}/license") or ""
    return LoadedDriver(
        version=main.version,
        loaded_at=round(tree.modified_at(f"/sys/module/{modules.DRIVER}") or 0.0, 3),
        modules=loaded,
        open_kernel_modules="MIT" in license_of or "GPL" in license_of,
    )


def gate_facts(seen: Inspection, why: str) -> Gate:
    """Where the gate stands."""
    admitted = seen.answered[-1] if seen.answered else None
    waiting = gate.waiting_request(seen.asked, seen.answered)
    return Gate(
        admitted_pod_uid=admitted.pod_uid if admitted else "",
        admitted_label=admitted.label if admitted else "",
        waiting_pod_uid=waiting.pod_uid if waiting else "",
        waiting_label=waiting.label if waiting else "",
        why=why,
    )


def device_usage(seen: Inspection) -> Usage:
    """Who has the devices open, but for the driver's own pods."""
    drivers = {answer.pod_uid for answer in seen.answered}
    processes = Counter(holder.pod_uid for holder in seen.holders)
    pods = sorted(uid for uid in processes if uid and uid not in drivers)
    return Usage(
        pods=tuple(PodUse(pod_uid=uid, processes=processes[uid]) for uid in pods),
        host_processes=processes[""],
    )
