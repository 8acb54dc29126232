"""The objects of a stage: Nodes in the API server, and machines. A pool is a view.

They are mutable and cheap to copy: every field is plain or immutable.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from libs.contracts.commands import Command, CommandBody, Order, Proven
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.reports import Evidence, Finding, Progress, Refusal, Result, Usage
from libs.forecast.stage.fields import Fields, shown
from libs.policy.mig.geometry import NO_DIGEST
from libs.rollout.decision import Wait
from libs.rollout.views.machine import (
    EvictionExemption,
    FailedGpu,
    GpuVerdict,
    PodEviction,
    PreflightQuery,
)
from libs.rollout.views.node import NodeView

UNDIVIDED = NO_DIGEST
"""The digest of GPUs that are not divided."""


class StageNode(msgspec.Struct, kw_only=True):
    """A Node in the API server."""

    view: NodeView
    """The Node as the last one to read it saw it. What other objects of the stage show (machines,
    pods, the scheduler's memory) is not kept up to date here: `views` adds it."""
    fields: Fields = {}
    """The fields that we share with others; the view follows them."""
    writers: Mapping[str, str] = {}
    """The last writer of each shared field, also of removed ones."""
    operands_paused: bool = False
    """Discovery has written its values for foreign operands."""

    def store(self, fields: Fields, **changes: Any) -> None:
        """Store the fields, and other changes of the view."""
        self.fields = fields
        self.show(**shown(fields, self.writers, self.view.uid), **changes)

    def show(self, **changes: Any) -> None:
        """Change the view."""
        self.view = msgspec.structs.replace(self.view, **changes)


class DriverPodPhase(StrEnum):
    PULLING = "pulling"
    STUCK = "stuck"
    """The image cannot be pulled."""
    AT_GATE = "at the gate"
    LOADING = "loading"
    RUNNING = "running"
    CRASHED = "crashed"
    """The driver container restarts in place after a back-off."""
    ENDED = "ended"


class DriverContainerStatus(msgspec.Struct, frozen=True):
    """The status of a driver container, as posted by a kubelet."""

    ready: bool = False
    started: float | None = None
    restarts: int = 0
    trouble: str = ""


class StageDriverPod(msgspec.Struct, kw_only=True):
    uid: str
    name: str
    label: str
    install_digest: str
    in_api: bool = True
    deleting: bool = False
    on_machine: bool = False
    """The kubelet runs it, or its containers are not gone yet."""
    ending: bool = False
    """The kubelet is stopping it."""
    phase: DriverPodPhase = DriverPodPhase.PULLING
    run: int = 0
    """The number of the current run of its containers; callbacks of an earlier run are void."""
    status: DriverContainerStatus = DriverContainerStatus()
    reported_status: DriverContainerStatus = DriverContainerStatus()
    """The status that the API server has."""
    pulled: float | None = None
    """Seconds in which its image was pulled."""
    never_loads: bool = False
    """It fails whenever it loads its modules; another pod may not."""


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A workload on a node, and its pods."""

    name: str
    namespace: str = "work"
    gpus: int = 1
    job: bool = False
    """It completes, and matches the policy's job selector."""
    remaining: float | None = None
    """Seconds until it completes; None: never."""
    eviction_refused_for: float | None = 0.0
    """Seconds from the first request during which a disruption budget refuses; None: forever."""
    stop_seconds: float | None = 2.0
    """From an eviction until it is gone; None: never."""
    is_recreated: bool = True
    """Its controller recreates its pods when there is room."""
    exemption: EvictionExemption = EvictionExemption.NONE
    bare: bool = False
    empty_dir: bool = False
    gang: str = ""
    """The group that stops as a whole when one member is evicted."""
    budget: str = ""
    """The disruption budget that protects it."""


class TenantPod(msgspec.Struct, kw_only=True):
    uid: str
    tenant: Tenant
    in_api: bool = True
    deleting: bool = False
    on_machine: bool = True
    first_refused: float | None = None
    counted: bool = False
    """Its eviction counts against its disruption budget."""


class AgentReports(msgspec.Struct, frozen=True, kw_only=True):
    """The last reports of a component on the bus."""

    result: Result | None = None
    progress: Progress | None = None
    refusal: Refusal | None = None
    evidence: Evidence | None = None
    highest_order: Order = Order(0, 0)


class ProofOnDisk(msgspec.Struct, frozen=True):
    """What was last proven, and on which node."""

    node_uid: str
    proven: Proven


class StageAgent(msgspec.Struct, kw_only=True):
    """A component on a machine: its process, its journal, and its reports."""

    component: str
    capabilities: frozenset[str]
    alive: bool = True
    hung: bool = False
    """The process does nothing, but keeps its open devices."""
    process_number: int = 0
    """The number of the current process; callbacks of an earlier process are void."""
    holds_devices: bool = False
    silent_at: float | None = None
    """None: it sends heartbeats."""
    last_beat: float = 0.0

    # in its journal
    node_uid: str = ""
    epoch: int = 0
    highest_order: Order = Order(0, 0)
    current_op: Command | None = None
    """The op that was started and not finished."""
    last_result: Result | None = None

    # beside its journal
    disk: ProofOnDisk | None = None
    """Of the driver agent; it counts while the slot could not be read."""

    # in its memory
    has_read_slot: bool = False
    slot: Command | None = None
    """The slot as read by this process."""
    body: CommandBody | None = None
    """The body of the current op."""
    running: bool = False
    """This process runs the current op."""
    phase: str = ""
    found_phase: str = ""
    """The phase in which the op was when it was found: it goes on from there."""
    since: float = 0.0
    proven: Proven | None = None
    attempt: int = 0
    instance: str = ""
    """The driver instance that is being validated."""

    # its reports
    pending_reports: AgentReports = AgentReports()
    published_reports: AgentReports = AgentReports()


class KernelDriver(msgspec.Struct, frozen=True):
    install_digest: str
    driver: LoadedDriver


class GpuCure(StrEnum):
    """What a failed GPU needs in order to work again."""

    RELOAD = "reload"
    """Another load of the driver; a reboot cures it too."""
    REBOOT = "reboot"
    REPAIR = "repair"


class GpuFailure(msgspec.Struct, frozen=True):
    gpu: FailedGpu
    cure: GpuCure = GpuCure.REPAIR


class StageMachine(msgspec.Struct, kw_only=True):
    """A machine as it is, which its Node in the API server may not show."""

    name: str
    boot: int = 1
    boot_id: str
    kernel: str
    variant: str = ""
    up: bool = True
    kubelet_connected: bool = True
    """The kubelet reaches the API server."""
    connected: bool = True
    """The agents reach the bus."""
    loaded: KernelDriver | None = None
    preinstalled: KernelDriver | None = None
    """The driver that is loaded at each boot."""
    installed: str = ""
    """The install digest of the driver that the agent has put on the host; empty: none."""
    boot_tried: int = 0
    """The boot in which the agent last tried to load it again."""
    is_unloading: bool = False
    """A call that unloads the modules is in the kernel."""
    busy_since: float | None = None
    """When the first unload of the current op was refused."""
    layout: str = UNDIVIDED
    """The digest of how its GPUs are divided."""
    pending_layout: str = ""
    """The layout from the next boot on; empty: the GPUs are undivided then."""
    shown_layout: tuple[str, str] = ("", "")
    """The boot and the layout that the discovery agent reported last."""
    failed_gpus: tuple[GpuFailure, ...] = ()
    shown_verdict: tuple[str, GpuVerdict] | None = None
    """The node uid and the verdict that the telemetry agent reported last."""
    admitted: str = ""
    """Uid of the driver pod that passed the gate in this boot."""
    drivers: dict[str, StageDriverPod] = {}
    tenant_pods: dict[str, TenantPod] = {}
    tenants: tuple[Tenant, ...] = ()
    missing: dict[str, str] = {}
    """Evicted tenants without a replacement elsewhere: their disruption budgets."""
    agents: dict[str, StageAgent] = {}
    images: frozenset[str] = frozenset()
    """Labels of the drivers whose images are on the machine."""
    wanted_image: str = ""
    """The label of the driver whose image is brought before the node is drained."""
    image_trouble: str = ""
    """Why that image cannot be pulled."""
    host_processes: int = 0
    """Processes outside of pods that have the devices open."""
    obstacles: tuple[Finding, ...] = ()
    """Findings of a preflight."""
    counts: dict[str, int] = {}
    """Number of attempts of each operation, on which the answers of a world depend."""

    def attempt(self, operation: str) -> int:
        """Return the number of this attempt, from 0 on."""
        number = self.counts.get(operation, 0)
        self.counts[operation] = number + 1
        return number


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of the driver agent in this boot."""

    loaded: LoadedDriver | None = None
    gate: Gate | None = None
    usage: Usage | None = None


class StageSlot(msgspec.Struct, frozen=True):
    """A command slot with the sequence used for compare-and-set."""

    sequence: int
    command: Command


class NodeMemory(msgspec.Struct, kw_only=True):
    """The scheduler's memory of a node between two decisions."""

    waiting: Wait | None = None
    preflight: PreflightQuery | None = None
    preflight_boot: str = ""
    evictions: Mapping[str, PodEviction] = {}
    """The pods that are being evicted, by uid."""
    writing: int = 0
    """Number of unanswered requests."""
