"""Hold the last plan: what is wanted, what differs, and why changes may be on hold.

It reads caches, remembers since when drivers have been unreferenced, and writes nothing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from libs.kube.lease.record import GpuOperatorDetector
from libs.kube.views import Object, format_time
from libs.policy.pool import Pools
from libs.policy.readiness import PodProblem
from libs.policy.render.rendered import RenderSettings
from libs.policy.validation import OWNER_LABEL
from libs.policy.wanted import operands_of
from libs.runtime.clock import Clock
from services.driver.cluster.decide import (
    OBSERVED,
    OperandAction,
    StatusChange,
    UnreferencedDrivers,
    decide_operand,
    decide_unwanted,
    delete_operand,
    is_driver_daemon_set,
    keep_reason,
    status_change,
    status_fields,
)
from services.driver.cluster.handlers import ReportedHandlers
from services.driver.cluster.plan import ClusterSnapshot, ObjectKey, OperandPlan, make_plan
from services.driver.cluster.resources import (
    NODES,
    OPERANDS,
    DaemonSet,
    Informers,
    PolicyObject,
    is_of_gpu_operator,
    is_ours,
)

RESYNC: Final = 300.0
"""Seconds until the next plan if nothing changes, in case a change was missed."""
RETRY_UNVERIFIED: Final = 5.0
"""Seconds until the next plan while it is unknown whether a GPU Operator is active: all waits."""
CLAIMS_EVERY: Final = 2.0
"""Seconds until the next plan while the plugin for claims stays until they end."""
RETRY_DEFINITION: Final = 30.0
"""Seconds until the next plan while a wanted kind is not installed."""

CommandedDrivers = Callable[[], Mapping[str, Collection[str]] | None]
"""Returns, by driver label, the uids of the nodes whose commands name it; None if unknown."""

ClaimedNodes = Callable[[], Collection[str] | None]
"""Returns the nodes with GPUs by claims; None if unknown."""

EMPTY_PLAN: Final = OperandPlan(
    pools=Pools(
        pools=(), owners={}, unowned=(), undecided=(), owner_labels=None, cluster=None, verdicts=()
    ),
    objects={},
    statuses={},
    targets={},
)


class Planner:
    def __init__(
        self,
        informers: Informers,
        *,
        foreign: GpuOperatorDetector,
        commanded_drivers: CommandedDrivers,
        claimed_nodes: ClaimedNodes,
        handlers: ReportedHandlers,
        settings: RenderSettings,
        clock: Clock,
    ) -> None:
        self._informers = informers
        self._foreign = foreign
        self._commanded_drivers = commanded_drivers
        self._claimed_nodes = claimed_nodes
        self._handlers = handlers
        self._settings = settings
        self._clock = clock
        self._unreferenced = UnreferencedDrivers()
        self._unverified = ""
        """Why it is unknown whether a GPU Operator is active."""
        self._active_operator = ""
        self._without_generation: set[str] = set()
        """Kinds whose definition in this cluster lacks `status.observedGeneration`."""
        self.plan = EMPTY_PLAN

    async def refresh(
        self, *, pod_problems: tuple[PodProblem, ...], refused: Mapping[str, str]
    ) -> None:
        informers = self._informers
        self._unverified = await informers.why_operator_unknown()
        self._active_operator = self._foreign.active_holders(now=self._clock.monotonic())
        rollouts = tuple(informers.rollouts)
        snapshot = ClusterSnapshot(
            policies={kind: tuple(policies) for kind, policies in informers.policies.items()},
            nodes=tuple(informers.nodes),
            gpu_clusters=tuple(each.metadata.name for each in informers.gpu_clusters),
            config_maps={each.metadata.name: each.keys for each in informers.configs},
            config_texts={each.metadata.name: each.data or {} for each in informers.configs},
            daemon_sets=tuple(each for each in informers.daemon_sets if is_ours(each)),
            rollouts=rollouts,
            foreign_operands=tuple(
                each.metadata.name
                for each in informers.daemon_sets
                if is_of_gpu_operator(each) and not is_ours(each)
            ),
            reported_handlers=self._handlers.by_node(),
            diagnoses=self._handlers.diagnoses(),
            next_kernels=self._handlers.next_kernels(),
            claimed_nodes=self._claimed_nodes(),
            has_monitors=informers.service_monitors.is_served,
            pod_problems=pod_problems,
            refused=refused,
        )
        self.plan = make_plan(snapshot, self._settings)
        commanded = self._commanded_drivers()
        kept = {
            each.metadata.uid: keep_reason(
                each, self.plan, nodes=snapshot.nodes, rollouts=rollouts, commanded=commanded
            )
            for each in informers.daemon_sets
            if is_driver_daemon_set(each)
        }
        self._unreferenced.update(kept, now=self._clock.monotonic())

    @property
    def serves_claims(self) -> bool:
        """Whether Sluice's plugin serves claims, be it only until they end."""
        is_decided = self.plan.decides and not self.hold_reason
        gives = operands_of(self.plan.pools.cluster).dra
        return is_decided and (gives or self.plan.claims_end)

    @property
    def hold_reason(self) -> str:
        """Why objects that a GPU Operator may own must not be written; empty if they may."""
        return self._active_operator or self._unverified

    @property
    def next_refresh(self) -> float:
        """Seconds until the next refresh if nothing changes."""
        now = self._clock.monotonic()
        due = [
            RESYNC,
            self._foreign.seconds_until_expiry(now=now),
            self._unreferenced.next_due(now=now),
        ]
        # 0 is skipped: what is due is in the queue, with its own back-off.
        left = min((seconds for seconds in due if seconds), default=RESYNC)
        left = min(left, CLAIMS_EVERY) if self.plan.claims_end else left
        left = min(left, RETRY_DEFINITION) if self.plan.lacks_monitors else left
        return min(left, RETRY_UNVERIFIED) if self._unverified else left

    def affected_keys(self) -> Iterator[ObjectKey]:
        """Yield every object that needs a change, or may soon."""
        yield from self.plan.objects
        for kind, operands in self._informers.operands.items():
            for live in operands:
                key = ObjectKey(kind, live.metadata.name)
                if key not in self.plan.objects and is_ours(live):
                    yield key
        for node in self._informers.nodes:
            if self.owner_label_change(node.metadata.name) is not None:
                yield ObjectKey(NODES.kind, node.metadata.name)
        for key in self.plan.statuses:
            if self.status_change(key) is not None:
                yield key

    def operand_action(self, key: ObjectKey) -> OperandAction | None:
        live = self.live_object(key)
        wanted = self.plan.objects.get(key)
        if wanted is not None:
            return decide_operand(wanted, live)
        if live is None or live.metadata.deletion_timestamp:
            return None
        if isinstance(live, DaemonSet) and is_driver_daemon_set(live):
            left = self._unreferenced.seconds_left(live.metadata.uid, now=self._clock.monotonic())
            if left == 0:
                return delete_operand(live, because="no reference to it for an hour")
            return None
        return decide_unwanted(live, self.plan, kind=key.kind)

    def live_object(self, key: ObjectKey) -> Object | None:
        """Return the cached operand."""
        is_namespaced = OPERANDS[key.kind].namespaced
        namespace = f"{self._settings.namespace}/" if is_namespaced else ""
        return self._informers.operands[key.kind].cache.get(f"{namespace}{key.name}")

    def owner_label_change(self, name: str) -> dict[str, str | None] | None:
        """Return the change of a node's owner label; None if it is right or on hold."""
        owners = self.plan.pools.owner_labels
        node = self._informers.nodes.cache.get(name)
        if owners is None or node is None or self.hold_reason:
            return None
        owner = owners.get(name)
        return None if node.metadata.labels.get(OWNER_LABEL) == owner else {OWNER_LABEL: owner}

    def status_change(self, key: ObjectKey) -> StatusChange | None:
        status = self.plan.statuses.get(key)
        policy = self._informers.policies[key.kind].cache.get(key.name)
        if status is None or policy is None or self._unverified:
            return None
        return status_change(
            status,
            policy,
            namespace=self._settings.namespace,
            foreign=self._active_operator,
            tells_generation=key.kind not in self._without_generation,
            now=format_time(self._clock.now()),
        )

    def note_status(self, kind: str, written: PolicyObject) -> None:
        """Take note of what the server keeps of a status: what it drops is not written again, as
        it would be missing at each look, for ever."""
        kept = OBSERVED in status_fields(written.status)
        (self._without_generation.discard if kept else self._without_generation.add)(kind)

    def unavailable_daemon_sets(self) -> Iterator[DaemonSet]:
        """Yield our DaemonSets that lack pods."""
        for daemon_set in self._informers.daemon_sets:
            status = daemon_set.status
            if is_ours(daemon_set) and status.number_available < status.desired_number_scheduled:
                yield daemon_set
