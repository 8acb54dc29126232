"""What runs on one machine: our components, driver pods, and workload pods."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from libs.contracts.commands import Command, GpuGeometry, Order
from libs.contracts.gpus import GpuIdentity
from libs.contracts.reports import Preflight, Progress, Refusal, Result
from libs.policy.kinds.upgrade_policy import PodDeletion


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One of our components that is deployed to a node. Reports of earlier boots are left out."""

    last_beat: float | None = None
    """The last heartbeat, by our clock; None: never."""
    silent_at: float = 0.0
    """When the component counts as silent unless a heartbeat arrives before."""
    flood: float = 0.0
    """Messages in a second that a silent component sent lately, so that it was cut off; 0: not."""
    capabilities: frozenset[str] = frozenset()
    """Kinds of commands and checks that it supports."""
    slot: Command | None = None
    """The command in its slot."""
    result: Result | None = None
    """Result of the last op that ended, of this node uid; it may be of an earlier boot."""
    progress: Progress | None = None
    """The op in progress, in this boot."""
    refusal: Refusal | None = None
    """The last command or check that it refused."""
    highest_order: Order = Order(0, 0)
    """The highest order that it ever reported."""

    def is_silent(self, now: float) -> bool:
        return now >= self.silent_at

    def result_of(self, order: Order) -> Result | None:
        return self.result if self.result and self.result.order == order else None


class DriverPod(msgspec.Struct, frozen=True, kw_only=True):
    """A driver pod on a node; while a label moves there are two."""

    namespace: str
    name: str
    uid: str
    label: str
    """The driver label that the pod was created for."""
    install_digest: str = ""
    deleting: bool = False
    """The pod is terminating; its object still exists."""
    ready: bool = False
    started: float | None = None
    """Start of the driver container according to the kubelet; None: it does not run."""
    container_id: str = ""
    """That container in the runtime; empty if the kubelet does not say."""
    restarts: int = 0
    """Restarts of the driver container."""
    trouble: str = ""
    """Why the driver container does not run, reported by the kubelet: a missing image, a crash."""
    last_exit: str = ""
    """How the last run of the driver container ended, without its subject; empty: none did."""
    latest_exit: str = ""
    """How its latest run that has ended did so, in short, also if none has followed yet."""
    pulled: float | None = None
    """Seconds from its creation until its image was on the node; None: not known."""

    @property
    def instance(self) -> str:
        """Identity of this run of the driver, which evidence refers to."""
        return "" if self.started is None else f"{self.uid}/{self.started}"

    def problem(self, container: str = "the driver container") -> str:
        """Return all that the kubelet says about why the driver does not run.

        `container` names the driver container: `it` where that has just been named.
        """
        ended = f"{container} {self.last_exit}" if self.last_exit else ""
        return "; ".join(filter(None, (self.trouble, ended)))

    @property
    def display_name(self) -> str:
        return f"{self.namespace}/{self.name}"


class EvictionExemption(StrEnum):
    """Why an eviction leaves a pod alone."""

    NONE = ""
    SLUICE = "ours"
    """In our own namespace, or the driver's."""
    DRAIN_SKIP = "drain-skip"
    """Labelled by a person."""
    DAEMON_SET = "daemon-set"
    """It would be created again at once."""
    MIRROR = "mirror"
    """A static pod of the kubelet."""
    OPERAND = "operand"
    """Selected by `nvidia.com/gpu.deploy.*`: a pause removes it."""


_NOT_PAUSED = frozenset(
    {EvictionExemption.NONE, EvictionExemption.DAEMON_SET, EvictionExemption.MIRROR}
)


class WorkloadPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is not a driver, on a node in flight or about to start."""

    namespace: str
    name: str
    uid: str
    gpu: bool = False
    """Pending or running, with GPUs assigned."""
    claims_unknown: bool = False
    """It may have GPUs by a resource claim that is not known yet: the node is not free of it, but
    it is not evicted for that."""
    job: bool = False
    """Pending or running, and selected by the policy's `waitForCompletion`."""
    drained: bool = False
    """The policy's drain would evict it."""
    exemption: EvictionExemption = EvictionExemption.NONE
    owner: str = ""
    """The kind of its controller."""
    bare: bool = False
    """Without a controller that would create it again."""
    empty_dir: bool = False
    deleting: bool = False
    started: float | None = None
    """When it started or was created; None: not known."""
    gang: str = ""
    """The group that ends together, and stops as a whole when one member is lost; empty: none."""
    budget: str = ""
    """The disruption budget that protects it; empty: none known."""
    no_place: str = ""
    """Why it would fit on no other node now, for plans; empty: it would, or that is not known."""

    @property
    def display_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def job_kind(self) -> str:
        """What its length is compared with: the jobs of its namespace with such a controller."""
        return f"{self.namespace}/{self.owner}"

    @property
    def is_of_sluice(self) -> bool:
        return self.exemption is EvictionExemption.SLUICE

    @property
    def may_hold_gpus(self) -> bool:
        """Whether it is unknown if the pod keeps the driver in use."""
        return self.claims_unknown and self.exemption in _NOT_PAUSED

    def is_evictable(self, rules: PodDeletion) -> bool:
        return (rules.force or not self.bare) and (rules.delete_empty_dir or not self.empty_dir)


class PodEviction(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that an eviction job of ours is removing."""

    uid: str
    since: float
    refused: str = ""
    """Why a disruption budget refuses the eviction now, in the words of the API server."""
    failed: str = ""
    """Why the last requests failed otherwise."""
    by_force: bool = False
    """The pod is deleted, not evicted."""


class PreflightQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A preflight check requested in this boot, and its answer if there is one."""

    label: str
    asked_at: float
    artefact: str = ""
    """With the host method: the digest that was looked at."""
    awaits_pods: bool = False
    """Nothing is sent before the pods of the node are listed."""
    removes: tuple[str, ...] | None = None
    """Uids of the pods announced as leaving; None: no longer known."""
    repeated: bool = False
    """The check before had findings too."""
    answered_at: float | None = None
    answer: Preflight | None = None


class ImagePull(msgspec.Struct, frozen=True, kw_only=True):
    """The pod that brings a driver's image to the node before the node is drained."""

    label: str
    """The driver label that the image belongs to."""
    present: bool = False
    """Everything that the pod brings is on the node, and stays there as long as the pod exists."""
    trouble: str = ""
    """Why it is not, as far as the kubelet says."""
    is_way_back: bool = False
    """The trouble is with the image of the driver to go back to."""


class FailedGpu(msgspec.Struct, frozen=True):
    """A GPU that may not be used before it is repaired."""

    gpu: GpuIdentity
    cause: str = ""
    """What is wrong and what to do, for people."""


class GpuVerdict(msgspec.Struct, frozen=True):
    """The last verdict on the health of a node's GPUs; it may be of an earlier boot."""

    boot_id: str
    failed: tuple[FailedGpu, ...] = ()


class WantedMig(msgspec.Struct, frozen=True, kw_only=True):
    """How the GPUs of a node are to be divided, by the configuration that its label names."""

    config: str
    digest: str = ""
    """Of the geometry of all GPUs once it is applied, as evidence names it; empty while the GPUs
    are not known."""
    gpus: tuple[GpuGeometry, ...] = ()
    applied: bool | None = None
    """Whether the GPUs are divided so already, as discovery reported in this boot; None: not known.
    """
    may_reboot: bool = False
    """The policy accepts a geometry that only a reboot of the node completes."""
    remark: str = ""
    """What people should know before it is applied."""
    error: str = ""
    """Why the configuration cannot be applied to the node, for people; empty: it can."""


Components = Mapping[str, Component]
"""By component name, those that are deployed to the node: `driver`, `validator`, …"""
