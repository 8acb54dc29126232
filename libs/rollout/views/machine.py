"""What goes on on one machine: its components, its driver pods, and the pods that compute there."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from libs.contracts.commands import Command, Order
from libs.contracts.reports import Preflight, Progress, Refusal, Result


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One of our components on a node, expected to be there. Reports of other boots are none."""

    last_beat: float | None = None
    """The last beat, by our clock; None: never."""
    silent_at: float = 0.0
    """When it counts as silent unless it is heard before."""
    capabilities: frozenset[str] = frozenset()
    """The kinds of command and check it can do."""
    slot: Command | None = None
    """What its slot tells it now."""
    result: Result | None = None
    """How the last op that it ended went, of this node uid; it may be from an earlier boot."""
    progress: Progress | None = None
    """The op under way, in this boot."""
    refusal: Refusal | None = None
    """The last command or check that it did not take."""
    highest_order: Order = Order(0, 0)
    """The highest order that it ever showed, in beats or reports."""

    def is_silent(self, now: float) -> bool:
        """Whether it has been quiet for too long to be waited for."""
        return now >= self.silent_at

    def result_of(self, order: Order) -> Result | None:
        """How this op ended, if it did."""
        return self.result if self.result and self.result.order == order else None


class DriverPod(msgspec.Struct, frozen=True, kw_only=True):
    """A driver pod on a node; while a label moves there are two."""

    namespace: str
    name: str
    uid: str
    label: str
    """The driver label that it was made for."""
    install_digest: str = ""
    deleting: bool = False
    """Its object is still there, and it has been told to go."""
    ready: bool = False
    started: float | None = None
    """Start of its driver container, as the kubelet has it; None: it does not run."""
    restarts: int = 0
    """Of its driver container."""
    trouble: str = ""
    """Why it does not run, in the kubelet's words: an image that is not there, a crash."""

    @property
    def instance(self) -> str:
        """This run of this pod's driver: what evidence is about."""
        return "" if self.started is None else f"{self.uid}/{self.started}"


class EvictionExemption(StrEnum):
    """Why a pod is left alone by an eviction."""

    NONE = ""
    OURS = "ours"
    """In our own namespace, or the driver's."""
    DRAIN_SKIP = "drain-skip"
    """A person labelled it."""
    DAEMON_SET = "daemon-set"
    """It would be made anew at once."""
    MIRROR = "mirror"
    """The kubelet's own."""
    OPERAND = "operand"
    """Selected by `nvidia.com/gpu.deploy.*`: it leaves by a pause."""


class WorkloadPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is not a driver, on a node in flight or next."""

    namespace: str
    name: str
    uid: str
    gpu: bool = False
    """It is pending or runs, and was given GPUs."""
    job: bool = False
    """The policy's `waitForCompletion` selects it, and it is pending or runs."""
    drained: bool = False
    """The policy's drain would have it leave."""
    exemption: EvictionExemption = EvictionExemption.NONE
    bare: bool = False
    """Nobody would make it anew."""
    empty_dir: bool = False
    deleting: bool = False
    gang: str = ""
    """The group that stops as a whole when one of it is lost; empty: it is in none."""
    budget: str = ""
    """The disruption budget that would refuse its eviction as things stand; empty: none known."""

    @property
    def display_name(self) -> str:
        """As people name it."""
        return f"{self.namespace}/{self.name}"


class PodEviction(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is being evicted, by a job of ours that is under way."""

    uid: str
    since: float
    refused: str = ""
    """Why the API server does not let it go now: a disruption budget, in its words."""
    by_force: bool = False
    """It is deleted, not evicted."""


class PreflightQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A preflight that was asked for in this boot, and its answer if there is one."""

    label: str
    asked_at: float
    removes: tuple[str, ...] | None = None
    """The pods of which it was said that they will be gone; None: nobody knows any more."""
    answered_at: float | None = None
    answer: Preflight | None = None


Components = Mapping[str, Component]
"""By the name of the component, those that belong on the node: `driver`, `validator`, …"""
