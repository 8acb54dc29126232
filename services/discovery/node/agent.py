"""The discovery agent of a node: reports the facts of its machine when they change."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import msgspec

from libs.bus.agent import AgentSettings
from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.bus.reporter import Reporter
from libs.contracts.commands import CommandKind
from libs.contracts.events import FactsEvent
from libs.contracts.facts import Facts, Gpu, LocalFeatures, PciDevice
from libs.contracts.gpus import GpuProblem
from libs.host import pci, system, vgpu
from libs.host.gpus.port import GpuHandle, GpusUnavailable
from libs.host.local_features import local_features
from libs.host.machine import Machine
from libs.host.next_kernel import next_kernel
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.agent_frame import Given
from services.discovery.node.mig_boards import MigBoards
from services.gpu_holders import let_go

MAX_MISSED: Final = 3
"""Consecutive scans without a device after which it is gone."""


_OF_ONE_SCAN: Final = frozenset(("nvml_problem",))
"""Sections of which None is a value, too."""


T = TypeVar("T")

_log = logger()


class KnownFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one boot, over scans of which each may lack something."""

    facts: Facts = Facts()
    missed: Mapping[str, int] = {}
    """By address of a known device: the number of latest scans without it."""
    missed_labels: Mapping[str, int] = {}
    """By key of a label of the feature files: the number of latest scans without it."""

    def after(self, scan: Facts) -> "KnownFacts":
        """Merge a scan; a section that it lacks keeps its value."""
        pci, missed = _merge_devices(self, scan.pci)
        features, missed_labels = _merge_features(self, scan.features)
        lacking = {
            name: getattr(self.facts, name)
            for name in Facts.__struct_fields__
            if name not in _OF_ONE_SCAN and getattr(scan, name) is None
        }
        facts = msgspec.structs.replace(scan, **{**lacking, "pci": pci, "features": features})
        return KnownFacts(facts=facts, missed=missed, missed_labels=missed_labels)


def _merge_devices(
    known: KnownFacts, scanned: tuple[PciDevice, ...] | None
) -> tuple[tuple[PciDevice, ...] | None, Mapping[str, int]]:
    if scanned is None:
        return known.facts.pci, known.missed
    before = {device.address: device for device in known.facts.pci or ()}
    found = {device.address: device for device in scanned}
    devices, missed = _with_missed(before, found, known.missed)
    return tuple(devices.values()), missed


def _merge_features(
    known: KnownFacts, scanned: LocalFeatures | None
) -> tuple[LocalFeatures | None, Mapping[str, int]]:
    before = known.facts.features
    if scanned is None or before is None:
        return scanned or before, known.missed_labels
    labels, missed = _with_missed(before.labels, scanned.labels, known.missed_labels)
    return msgspec.structs.replace(scanned, labels=labels), missed


def _with_missed(
    before: Mapping[str, T], scanned: Mapping[str, T], missed: Mapping[str, int]
) -> tuple[dict[str, T], dict[str, int]]:
    """Return what a scan found, with what it missed for the first times, and how often.

    A bus that is being rescanned, and a file that is being written, lack a part for a moment: if
    that were believed, the node would lose its labels, and its pods their places.
    """
    counts = {key: missed.get(key, 0) + 1 for key in before.keys() - scanned.keys()}
    counts = {key: count for key, count in counts.items() if count < MAX_MISSED}
    kept = {**scanned, **{key: before[key] for key in counts}}
    return dict(sorted(kept.items())), counts


INTERVAL: Final = 60.0
"""Seconds between two scans of the machine."""
GPU_INTERVAL: Final = 3.0
"""Seconds between two scans of its GPUs: one that fails is reported soon."""
_SCANS_OF_GPUS: Final = round(INTERVAL / GPU_INTERVAL) - 1
"""Those between two scans of the machine."""


class DiscoverySettings(AgentSettings, frozen=True, kw_only=True):
    """The fields are named as in the environment of the agent's rendered pod."""

    gpu_labels: bool = True
    """Report the GPUs as NVML describes them."""


class MachineReporter:
    """Reports the facts of one machine during one boot."""

    def __init__(
        self,
        *,
        machine: Machine,
        hold: GpuHandle | None,
        reporter: Reporter,
        on_change: Callable[[tuple[str, ...]], None],
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._hold = hold
        self._reporter = reporter
        self._on_change = on_change
        self._clock = clock
        self._known = KnownFacts()
        self._boards = MigBoards()
        self._reported: Facts | None = None

    async def run(self) -> None:
        while True:
            await self.report()
            for _ in range(_SCANS_OF_GPUS):
                await self._clock.sleep(GPU_INTERVAL)
                await self._report_gpus()
            await self._clock.sleep(GPU_INTERVAL)

    async def report(self) -> None:
        """Scan the machine once, and report the facts if they changed."""
        self._add(await self._machine.offload.run(self._scan))

    async def _report_gpus(self) -> None:
        """Scan the GPUs alone, if NVML could be used last time."""
        if self._hold is not None and not self._known.facts.nvml_error:
            self._add(await self._machine.offload.run(self._scan_gpus))

    def _add(self, scan: Facts) -> None:
        """Take a scan, report what it changes, and tell which sections changed."""
        self._known = self._known.after(scan)
        before, facts = self._reported, self._known.facts
        if facts == before:
            return
        self._reported = facts
        self._reporter.report(facts)
        if before is not None:
            names = Facts.__struct_fields__
            self._on_change(
                tuple(name for name in names if getattr(facts, name) != getattr(before, name))
            )

    def _scan_gpus(self) -> Facts:
        gpus, error, problem = self._gpus()
        return Facts(gpus=gpus, nvml_error=error, nvml_problem=problem)

    def _scan(self) -> Facts:
        tree = self._machine.tree
        found = self._scan_gpus()
        return msgspec.structs.replace(
            found,
            mig_boards=self._boards.read(self._hold, found.gpus),
            pci=_readable(pci.devices, tree),
            kernel=_readable(system.kernel, tree),
            os=_readable(system.operating_system, tree),
            cpu=_readable(system.cpu, tree),
            memory=_readable(system.memory, tree),
            machine=_readable(system.machine, tree),
            vgpu=_readable(vgpu.vgpu, tree),
            next_kernel=_readable(next_kernel, tree),
            features=_readable(partial(local_features, now=self._clock.now()), tree),
        )

    def _gpus(self) -> tuple[tuple[Gpu, ...] | None, str, GpuProblem | None]:
        """Return the GPUs, or None and why NVML cannot be used."""
        hold = self._hold
        if hold is None:
            return None, "", None
        if hold.acquire() is None:
            return None, hold.unavailable_reason, hold.problem
        try:
            return hold.gpus.describe(), "", None
        except GpusUnavailable as error:
            hold.mark_lost(error)
            return None, hold.unavailable_reason, hold.problem


async def run(settings: DiscoverySettings, given: Given) -> None:
    """Start the agent for one boot of the machine."""
    host, env, service = given.host, given.env, given.service
    boot = await given.boot(settings)
    hold = GpuHandle(host.gpus)

    def publish_change(sections: tuple[str, ...]) -> None:
        agent.publish_event(
            FactsEvent(changed=sections),
            id=f"facts/{env.clock.now():.6f}",
            message=f"changed: {', '.join(sections)}",
        )

    async def quiesce(_op: Op) -> OpDone | OpFailed:
        return await let_go(host.offload.run(hold.release))

    async def idle(_op: Op) -> OpDone:
        hold.resume()
        await reporter.report()
        return OpDone()

    agent = boot.agent({CommandKind.QUIESCE: quiesce, CommandKind.IDLE: idle})
    hold.is_quiesced = await agent.open() is CommandKind.QUIESCE
    reporter = MachineReporter(
        machine=host,
        hold=hold if settings.gpu_labels else None,
        reporter=agent.reporter,
        on_change=publish_change,
        clock=env.clock,
    )
    agent.start(service)
    service.run_forever("facts", reporter.run())


def _readable(read: Callable[[Tree], T | None], tree: Tree) -> T | None:
    """Return None, after which the last known value stays, if the files are unreadable."""
    try:
        return read(tree)
    except Unreadable as error:
        _log.warning("facts cannot be read", why=str(error))
        return None
