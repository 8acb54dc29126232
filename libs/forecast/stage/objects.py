"""What is on a stage: Nodes and Rollouts as the API server has them, and machines as they are.

Data that changes in place, and can be copied cheaply: whatever a field holds is either plain or
never changed itself. Must not know what makes it change.
"""

from collections.abc import Mapping
from copy import copy
from enum import StrEnum

import msgspec

from libs.contracts.commands import Command, CommandBody, Order, Proven
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.reports import Evidence, Finding, Progress, Refusal, Result, Usage
from libs.contracts.rollout import RolloutSpec, RolloutStatus
from libs.forecast.stage.managed_fields import Fields
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Wait
from libs.rollout.views.machine import EvictionExemption, PreflightQuery
from libs.rollout.views.pool import Build


class StageNode(msgspec.Struct, kw_only=True):
    """A Node object."""

    name: str
    uid: str
    revision: int
    created: float
    boot_id: str
    kernel: str
    pool: str = ""
    variant: str = ""
    excluded: bool = False
    upgrade_last: bool = False
    gpus: int = 8
    ready: bool = True
    taint: bool = False
    """The node lifecycle controller's, for a cordon."""
    operands_paused: bool = False
    """Discovery has written its values for operands that are not ours."""
    fields: Fields = {}
    writers: Mapping[str, str] = {}
    """Who wrote each of the shared fields last, also of those that are gone."""


class DriverPodPhase(StrEnum):
    """Where a driver pod is."""

    PULLING = "pulling"
    STUCK = "stuck"
    """Its image does not come."""
    AT_GATE = "at the gate"
    LOADING = "loading"
    RUNNING = "running"
    CRASHED = "crashed"
    """Its driver container will be started again in place."""
    ENDED = "ended"


class DriverContainerStatus(msgspec.Struct, frozen=True):
    """What a kubelet has said of a driver container."""

    ready: bool = False
    started: float | None = None
    restarts: int = 0
    trouble: str = ""


class StageDriverPod(msgspec.Struct, kw_only=True):
    """A driver pod: its object, and its containers."""

    uid: str
    name: str
    label: str
    install_digest: str
    in_api: bool = True
    deleting: bool = False
    on_machine: bool = False
    """The kubelet has taken it up, and its containers are not gone."""
    ending: bool = False
    """The kubelet is ending it."""
    phase: DriverPodPhase = DriverPodPhase.PULLING
    run: int = 0
    """Counts what its containers begin: what an earlier run would have brought about is void."""
    status: DriverContainerStatus = DriverContainerStatus()
    reported_status: DriverContainerStatus = DriverContainerStatus()
    """The status that the API server has."""


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Something that computes on a node, and what its pods are like."""

    name: str
    namespace: str = "work"
    gpus: int = 1
    job: bool = False
    """It comes to an end, and is what the policy's selector of jobs selects."""
    remaining: float | None = None
    """Seconds until it ends by itself; None: never."""
    eviction_refused_for: float | None = 0.0
    """For so long, from the first request on, a disruption budget refuses; None: for ever."""
    stop_seconds: float | None = 2.0
    """From an eviction until it is gone; None: never."""
    is_recreated: bool = True
    """Its controller fills the node again when it can."""
    exemption: EvictionExemption = EvictionExemption.NONE
    bare: bool = False
    empty_dir: bool = False


class TenantPod(msgspec.Struct, kw_only=True):
    """A pod of a tenant."""

    uid: str
    tenant: Tenant
    in_api: bool = True
    deleting: bool = False
    on_machine: bool = True
    first_refused: float | None = None


class AgentReports(msgspec.Struct, frozen=True, kw_only=True):
    """What a component's last reports say, as the bus has them."""

    result: Result | None = None
    progress: Progress | None = None
    refusal: Refusal | None = None
    evidence: Evidence | None = None
    highest_order: Order = Order(0, 0)


class StageAgent(msgspec.Struct, kw_only=True):
    """One of our components on a machine: its process, its journal, and what it has said."""

    part: str
    capabilities: frozenset[str]
    alive: bool = True
    hung: bool = False
    """It runs and holds what it holds, but neither hears nor speaks."""
    life: int = 0
    """Counts its processes: what an earlier one had under way is void."""
    holds_devices: bool = False
    """It has the devices open."""
    silent_at: float | None = None
    """None: it beats."""
    last_beat: float = 0.0

    # in its journal
    node_uid: str = ""
    epoch: int = 0
    highest_order: Order = Order(0, 0)
    current_op: Command | None = None
    """The op that was started and not finished."""
    last_result: Result | None = None

    # in its memory
    slot: Command | None = None
    """As it has read it since its own start."""
    body: CommandBody | None = None
    """Of the op under way."""
    running: bool = False
    """The op that was begun is under way in this process."""
    phase: str = ""
    since: float = 0.0
    proven: Proven | None = None
    attempt: int = 0
    """Counts what it has begun within ops."""
    instance: str = ""
    """Of the driver that is being validated."""

    # to be said, and said
    pending_reports: AgentReports = AgentReports()
    published_reports: AgentReports = AgentReports()


class KernelDriver(msgspec.Struct, frozen=True):
    """The driver in the kernel."""

    install_digest: str
    driver: LoadedDriver


class StageMachine(msgspec.Struct, kw_only=True):
    """A machine: what goes on there, whatever the API server believes."""

    name: str
    boot: int = 1
    boot_id: str
    kernel: str
    variant: str = ""
    up: bool = True
    kubelet_connected: bool = True
    """Its kubelet is connected to the API server."""
    connected: bool = True
    """Its agents are connected to the bus."""
    loaded: KernelDriver | None = None
    preinstalled: KernelDriver | None = None
    """What it loads by itself whenever it starts."""
    is_unloading: bool = False
    """A call that takes out the modules is in the kernel."""
    busy_since: float | None = None
    """Since when unloads of the present op were refused."""
    admitted: str = ""
    """Uid of the driver pod that was let through the gate in this boot."""
    drivers: dict[str, StageDriverPod] = {}
    tenant_pods: dict[str, TenantPod] = {}
    tenants: tuple[Tenant, ...] = ()
    agents: dict[str, StageAgent] = {}
    host_processes: int = 0
    """That have the devices open, and belong to no pod."""
    obstacles: tuple[Finding, ...] = ()
    """What a preflight finds on it."""
    counts: dict[str, int] = {}
    """How often each of the things was tried that worlds are asked about by attempt."""

    def attempt(self, what: str) -> int:
        """The number of this attempt, from 0 on."""
        number = self.counts.get(what, 0)
        self.counts[what] = number + 1
        return number


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver agent last said in this boot of its machine."""

    loaded: LoadedDriver | None = None
    gate: Gate | None = None
    usage: Usage | None = None


class StageSlot(msgspec.Struct, frozen=True):
    """A command slot, with the sequence by which it is compared."""

    sequence: int
    command: Command


class PendingEvictions(msgspec.Struct, kw_only=True):
    """Pods of a node that are being evicted."""

    pods: dict[str, float]
    """By uid: since when."""
    by_force: bool
    refused: dict[str, str]


class StageRollout(msgspec.Struct, kw_only=True):
    """A Rollout object."""

    uid: str
    revision: int
    generation: int = 1
    spec: RolloutSpec = RolloutSpec()
    status: RolloutStatus = RolloutStatus()
    finalized: bool = False


class StagePool(msgspec.Struct, kw_only=True):
    """A policy, with the Rollout of its pool."""

    key: str
    uid: str
    target: str
    method: InstallMethod
    builds: Mapping[str, Mapping[str, Build]]
    upgrade: UpgradePolicy
    strategy: StrategySpec
    held: tuple[str, ...] = ()
    gone: bool = False
    rollout: StageRollout | None = None


class NodeMemory(msgspec.Struct, kw_only=True):
    """What the scheduler remembers of a node between two decisions, and does about it."""

    waiting: Wait | None = None
    preflight: PreflightQuery | None = None
    preflight_boot: str = ""
    evictions: PendingEvictions | None = None
    writing: int = 0
    """Requests of its own that are not answered."""


def copy_machine(machine: StageMachine) -> StageMachine:
    """A machine of its own."""
    made = copy(machine)
    made.drivers = {uid: copy(each) for uid, each in machine.drivers.items()}
    made.tenant_pods = {uid: copy(each) for uid, each in machine.tenant_pods.items()}
    made.agents = {part: copy(each) for part, each in machine.agents.items()}
    made.counts = machine.counts.copy()
    return made
