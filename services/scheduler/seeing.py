"""One Node with its machine, as the engine sees it. Pure: a view of what it is given."""

from collections.abc import Iterable

import msgspec

from libs.contracts import node as keys
from libs.contracts.rollout import FINALIZER
from libs.kube.times import unix
from libs.policy.kinds.upgrades import UpgradePolicy
from libs.rollout.views.machine import Leaving
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import RolloutView
from services.scheduler import reading
from services.scheduler.hearing import Said
from services.scheduler.memory import Known
from services.scheduler.placing import Place
from services.scheduler.pods import driver_pod, is_over, work_pod
from services.scheduler.things import GPU, Node, Pod, Rollout


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node beside its object."""

    place: Place = Place()
    upgrade: UpgradePolicy | None = None
    """Of the pool whose rules it follows: which of its pods are jobs, and which are drained."""
    namespace: str = ""
    drivers: tuple[Pod, ...] = ()
    tenants: tuple[Pod, ...] | None = None
    carries: bool = False
    """NATS or a cluster role of ours runs on it."""
    said: Said = Said()
    known: Known = msgspec.field(default_factory=Known)


def node_view(node: Node, around: Around) -> NodeView:
    """All that a decision asks for."""
    metadata, said, known = node.metadata, around.said, around.known
    boot_id = node.status.node_info.boot_id
    tenants = _tenants(around)
    asked = known.asked
    return NodeView(
        name=metadata.name,
        uid=metadata.uid,
        revision=metadata.resource_version,
        boot_id=boot_id,
        kernel=node.status.node_info.kernel_version,
        created=unix(metadata.creation_timestamp) if metadata.creation_timestamp else 0.0,
        pool=around.place.pool,
        variant=around.place.variant,
        excluded=reading.excluded(node),
        ready=reading.is_ready(node),
        cordoned=node.spec.unschedulable,
        cordon_taint=any(taint.key == reading.CORDON_TAINT for taint in node.spec.taints),
        gpus=_gpus(node),
        last=around.carries or reading.steers(node),
        state=reading.label(node, keys.STATE_LABEL),
        driver_label=reading.label(node, keys.DRIVER_LABEL),
        lease=reading.lease(node),
        record=reading.record(node),
        initially_cordoned=reading.annotation(node, keys.INITIALLY_CORDONED_ANNOTATION) == "true",
        owners=node.owned.owners,
        writers=node.owned.writers,
        skip=reading.label(node, keys.SKIP_LABEL) == "true",
        keep_cordoned=reading.label(node, keys.KEEP_CORDONED_LABEL) == "true",
        request=reading.request(node),
        requested=bool(reading.annotation(node, keys.REQUESTED_ANNOTATION)),
        safe_load=bool(reading.annotation(node, keys.SAFE_LOAD_ANNOTATION)),
        components=said.components,
        driver_pods=tuple(driver_pod(pod) for pod in around.drivers),
        loaded=said.facts.driver if said.facts is not None else None,
        seen_by_agent=said.facts is not None,
        gate=said.facts.gate if said.facts is not None else None,
        evidence=said.evidence,
        usage=said.usage,
        pods=None
        if tenants is None
        else tuple(work_pod(pod, around.upgrade, namespace=around.namespace) for pod in tenants),
        preflight=asked.shown() if asked is not None and asked.boot_id == boot_id else None,
        leaving=_leaving(known, tenants),
        writing=known.writing,
        unanswered=_unanswered(known, metadata.resource_version),
        waiting=known.waiting,
    )


def _unanswered(known: Known, revision: str) -> float | None:
    sent = known.unanswered
    return sent.at if sent is not None and sent.revision == revision else None


def _gpus(node: Node) -> int:
    amount = node.status.capacity.get(GPU, "0")
    return int(amount) if amount.isdecimal() else 0


def _tenants(around: Around) -> tuple[Pod, ...] | None:
    if around.tenants is None:
        return None
    drivers = {pod.metadata.uid for pod in around.drivers}
    return tuple(
        pod
        for pod in around.tenants
        if not is_over(pod)
        and pod.metadata.uid not in drivers
        and keys.DRIVER_LABEL not in pod.metadata.labels
    )


def _leaving(known: Known, tenants: Iterable[Pod] | None) -> tuple[Leaving, ...]:
    there = None if tenants is None else {pod.metadata.uid for pod in tenants}
    return tuple(
        Leaving(uid=uid, since=going.since, refused=going.refused, by_force=going.by_force)
        for uid, going in known.going.items()
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
        finalized=FINALIZER in metadata.finalizers,
        writing=writing,
    )
