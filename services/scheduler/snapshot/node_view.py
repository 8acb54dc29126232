"""One node as the engine sees it: what the API server, its agents and our memory say, in one view.

Nothing is remembered here, and nothing is decided.
"""

from collections.abc import Iterable, Mapping

import msgspec

from libs.bus.heartbeats import HeartbeatMonitor
from libs.bus.reports import ReportCache
from libs.bus.slot_cache import SlotCache
from libs.contracts import node as keys
from libs.contracts.node import DRIVER_LABEL, NodeRecord
from libs.contracts.rollout import FINALIZER
from libs.kube.times import parse_time
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.validation import PRESENT_LABEL
from libs.rollout.views.machine import PodEviction
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import RolloutView
from libs.runtime.clock import Clock
from services.scheduler.informers import Informers
from services.scheduler.node_state import NodeState, NodeStates
from services.scheduler.pod_cache import PodCache
from services.scheduler.resources import GPU, Node, Pod, Rollout
from services.scheduler.snapshot import annotations
from services.scheduler.snapshot.pods import driver_pod, is_of_daemon_set, is_over, work_pod
from services.scheduler.snapshot.pools import (
    OWN_LABELS,
    UNASSIGNED,
    PoolAssignment,
    PoolMember,
    PoolSnapshot,
)
from services.scheduler.snapshot.reports import (
    ComponentHeartbeat,
    NodeReports,
    expected_components,
    node_reports,
)


class NodeViews:
    """Makes views when it is asked for them."""

    def __init__(
        self,
        *,
        informers: Informers,
        reports: ReportCache,
        heartbeats: HeartbeatMonitor,
        slot_cache: SlotCache,
        pod_cache: PodCache,
        node_states: NodeStates,
        namespace: str,
        clock: Clock,
    ) -> None:
        self._sources = informers
        self._mirror = reports
        self._pulses = heartbeats
        self._slots = slot_cache
        self._tenants = pod_cache
        self._memory = node_states
        self._namespace = namespace
        self._clock = clock

    def view(self, name: str, pool_snapshot: PoolSnapshot) -> NodeView | None:
        """The node as it is now; None: there is none, or it does not count."""
        node = self._sources.nodes.cache.get(name)
        if node is None or not is_tracked(node):
            return None
        place = pool_snapshot.assignments.get(name, UNASSIGNED)
        around = NodeContext(
            assignment=place,
            upgrade=_upgrade(node, place.pool, pool_snapshot),
            namespace=self._namespace,
            driver_pods=tuple(self._sources.driver_pods.cache.by_index("node", name)),
            pods=self._tenants.of(name),
            runs_control_plane=any(
                not is_of_daemon_set(pod) and not is_over(pod)
                for pod in self._sources.other_pods.cache.by_index("node", name)
            ),
            reports=self._said(node, telemetry=pool_snapshot.telemetry),
            state=self._memory.of_uid(name, node.metadata.uid),
        )
        return node_view(node, around)

    def _said(self, node: Node, *, telemetry: bool) -> NodeReports:
        name = node.metadata.name
        names = list(expected_components(node.metadata.labels, telemetry=telemetry))
        slots = self._slots.of(name)
        if node.owned.owners:
            # Of a node that was ours, who lives there still is told to let go.
            names += [one for one in slots if one not in names and self._is_heard(name, one)]
        voices = {one: self._voice(name, one) for one in names}
        return node_reports(
            names,
            self._mirror.reports(name),
            voices,
            slots,
            uid=node.metadata.uid,
            boot_id=node.status.node_info.boot_id,
            now=self._clock.now(),
        )

    def _is_heard(self, name: str, component: str) -> bool:
        heard = self._pulses.last(name, component)
        return heard is not None and not self._pulses.is_silent(name, component)

    def _voice(self, name: str, component: str) -> ComponentHeartbeat:
        return ComponentHeartbeat(
            last=self._pulses.last(name, component), silent=self._pulses.is_silent(name, component)
        )


def is_tracked(node: Node) -> bool:
    """Whether it has GPUs, or was ours once."""
    labels = node.metadata.labels
    return (
        labels.get(PRESENT_LABEL) == "true"
        or bool(node.owned.owners)
        or bool(OWN_LABELS & labels.keys())
        or bool(node.metadata.annotations)
    )


def selectable_labels(node: Node) -> Mapping[str, str]:
    """The labels by which policies may select it."""
    labels = node.metadata.labels
    return {key: value for key, value in labels.items() if key not in OWN_LABELS}


def pool_member(node: Node) -> PoolMember:
    """As far as it counts for where it belongs."""
    record = annotations.record(node)
    known = record if isinstance(record, NodeRecord) else None
    return PoolMember(
        name=node.metadata.name,
        labels=selectable_labels(node),
        label=node.metadata.labels.get(DRIVER_LABEL, ""),
        record_pool="" if known is None else known.pool,
        record_label="" if known is None else known.label,
    )


def _upgrade(node: Node, selected: str, placement: PoolSnapshot) -> UpgradePolicy | None:
    record = annotations.record(node)
    key = record.pool if isinstance(record, NodeRecord) and record.pool else selected
    pool = placement.pools.get(key)
    return None if pool is None else pool.upgrade


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node beside its object."""

    assignment: PoolAssignment = PoolAssignment()
    upgrade: UpgradePolicy | None = None
    """Of the pool whose rules it follows: which of its pods are jobs, and which are drained."""
    namespace: str = ""
    driver_pods: tuple[Pod, ...] = ()
    pods: tuple[Pod, ...] | None = None
    runs_control_plane: bool = False
    """NATS or a cluster role of ours runs on it."""
    reports: NodeReports = NodeReports()
    state: NodeState = msgspec.field(default_factory=NodeState)


def node_view(node: Node, context: NodeContext) -> NodeView:
    """All that a decision asks for."""
    metadata, said, known = node.metadata, context.reports, context.state
    boot_id = node.status.node_info.boot_id
    tenants = _tenants(context)
    asked = known.preflight
    return NodeView(
        name=metadata.name,
        uid=metadata.uid,
        revision=metadata.resource_version,
        boot_id=boot_id,
        kernel=node.status.node_info.kernel_version,
        created=parse_time(metadata.creation_timestamp) if metadata.creation_timestamp else 0.0,
        pool=context.assignment.pool,
        variant=context.assignment.variant,
        excluded=annotations.is_excluded(node),
        ready=annotations.is_ready(node),
        cordoned=node.spec.unschedulable,
        cordon_taint=any(taint.key == annotations.CORDON_TAINT for taint in node.spec.taints),
        gpus=_gpus(node),
        upgrade_last=context.runs_control_plane or annotations.is_control_plane(node),
        state=annotations.label(node, keys.STATE_LABEL),
        driver_label=annotations.label(node, keys.DRIVER_LABEL),
        lease=annotations.lease(node),
        record=annotations.record(node),
        initially_cordoned=annotations.annotation(node, keys.INITIALLY_CORDONED_ANNOTATION)
        == "true",
        field_managers=node.owned.owners,
        last_managers=node.owned.writers,
        skip=annotations.label(node, keys.SKIP_LABEL) == "true",
        keep_cordoned=annotations.label(node, keys.KEEP_CORDONED_LABEL) == "true",
        request=annotations.request(node),
        requested=bool(annotations.annotation(node, keys.REQUESTED_ANNOTATION)),
        safe_load=bool(annotations.annotation(node, keys.SAFE_LOAD_ANNOTATION)),
        components=said.components,
        driver_pods=tuple(driver_pod(pod) for pod in context.driver_pods),
        loaded=said.facts.driver if said.facts is not None else None,
        modules_reported=said.facts is not None,
        gate=said.facts.gate if said.facts is not None else None,
        evidence=said.evidence,
        usage=said.usage,
        pods=None
        if tenants is None
        else tuple(work_pod(pod, context.upgrade, namespace=context.namespace) for pod in tenants),
        preflight=asked.view() if asked is not None and asked.boot_id == boot_id else None,
        evictions=_leaving(known, tenants),
        write_pending=known.writing,
        unconfirmed_write_at=_unanswered(known, metadata.resource_version),
        last_wait=known.waiting,
    )


def _unanswered(known: NodeState, revision: str) -> float | None:
    sent = known.unconfirmed
    return sent.at if sent is not None and sent.revision == revision else None


def _gpus(node: Node) -> int:
    amount = node.status.capacity.get(GPU, "0")
    return int(amount) if amount.isdecimal() else 0


def _tenants(around: NodeContext) -> tuple[Pod, ...] | None:
    if around.pods is None:
        return None
    drivers = {pod.metadata.uid for pod in around.driver_pods}
    return tuple(
        pod
        for pod in around.pods
        if not is_over(pod)
        and pod.metadata.uid not in drivers
        and keys.DRIVER_LABEL not in pod.metadata.labels
    )


def _leaving(known: NodeState, tenants: Iterable[Pod] | None) -> tuple[PodEviction, ...]:
    there = None if tenants is None else {pod.metadata.uid for pod in tenants}
    return tuple(
        PodEviction(uid=uid, since=going.since, refused=going.refused, by_force=going.by_force)
        for uid, going in known.evictions.items()
        if there is None or uid in there
    )


def rollout_view(rollout: Rollout, *, writing: bool) -> RolloutView:
    """The record of a pool."""
    metadata = rollout.metadata
    return RolloutView(
        uid=metadata.uid,
        revision=metadata.resource_version,
        spec=rollout.spec,
        generation=metadata.generation,
        status=rollout.status,
        has_finalizer=FINALIZER in metadata.finalizers,
        write_pending=writing,
    )
