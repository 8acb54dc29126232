"""Reports the driver, the gate and the use of the GPUs when they change."""

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
"""Seconds between two inspections: the order of upgrades depends on them, never their safety."""


class DriverReporter:
    def __init__(
        self, *, machine: Machine, reporter: Reporter, gate_keeper: GateKeeper, clock: Clock
    ) -> None:
        self._machine = machine
        self._reporter = reporter
        self._gate_keeper = gate_keeper
        self._clock = clock
        self._facts: Facts | None = None
        self._usage: Usage | None = None

    async def run(self) -> None:
        while True:
            await self.report()
            await self._clock.sleep(INTERVAL)

    async def report(self) -> None:
        """Inspect the machine, and report what differs from the last report."""
        tree = self._machine.tree
        seen, driver = await self._machine.offload.do(
            lambda: (inspect_machine(tree), loaded_driver(tree))
        )
        facts = Facts(driver=driver, gate=gate_facts(seen, self._gate_keeper.shut_reason))
        if facts != self._facts:
            self._facts = facts
            self._reporter.report(facts)
        usage = device_usage(seen)
        if usage != self._usage:
            self._usage = usage
            self._reporter.report(usage)


def loaded_driver(tree: Tree) -> LoadedDriver | None:
    """Return the driver in the kernel."""
    loaded = modules.loaded(tree)
    main = loaded.get(modules.DRIVER)
    if main is None:
        return None
    license_name = tree.word(f"/sys/module/{modules.DRIVER}/license") or ""
    return LoadedDriver(
        version=main.version,
        loaded_at=round(tree.modified_at(f"/sys/module/{modules.DRIVER}") or 0.0, 3),
        modules=tuple(name for name in modules.UNLOAD_ORDER if name in loaded),
        open_kernel_modules="MIT" in license_name or "GPL" in license_name,
    )


def gate_facts(seen: Inspection, shut_reason: str) -> Gate:
    admitted = seen.answers[-1] if seen.answers else None
    waiting = gate.waiting_request(seen.requests, seen.answers)
    return Gate(
        admitted_pod_uid=admitted.pod_uid if admitted else "",
        admitted_label=admitted.label if admitted else "",
        waiting_pod_uid=waiting.pod_uid if waiting else "",
        waiting_label=waiting.label if waiting else "",
        why=shut_reason,
    )


def device_usage(seen: Inspection) -> Usage:
    """Return the pods that have the devices open, without the driver's own."""
    drivers = {answer.pod_uid for answer in seen.answers}
    processes = Counter(holder.pod_uid for holder in seen.holders)
    pods = sorted(uid for uid in processes if uid and uid not in drivers)
    return Usage(
        pods=tuple(PodUse(pod_uid=uid, processes=processes[uid]) for uid in pods),
        host_processes=processes[""],
    )
