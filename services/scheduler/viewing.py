"""One node as the engine sees it: what the API server, its agents and our memory say, in one view.

Nothing is remembered here, and nothing is decided.
"""

from collections.abc import Mapping

from libs.bus.mirror import Mirror
from libs.bus.pulse import Pulses
from libs.contracts.node import DRIVER_LABEL, Record
from libs.policy.checks import PRESENT_LABEL
from libs.policy.kinds.upgrades import UpgradePolicy
from libs.rollout.views.node import NodeView
from libs.runtime.clock import Clock
from services.scheduler import reading
from services.scheduler.hearing import Said, Voice, expected, said
from services.scheduler.memory import Memory
from services.scheduler.placing import NOWHERE, OURS, Member, Placement
from services.scheduler.pods import is_of_daemon_set, is_over
from services.scheduler.seeing import Around, node_view
from services.scheduler.slotbook import SlotBook
from services.scheduler.sources import Sources
from services.scheduler.tenants import Tenants
from services.scheduler.things import Node


class Viewing:
    """Makes views when it is asked for them."""

    def __init__(
        self,
        *,
        sources: Sources,
        mirror: Mirror,
        pulses: Pulses,
        slots: SlotBook,
        tenants: Tenants,
        memory: Memory,
        namespace: str,
        clock: Clock,
    ) -> None:
        self._sources = sources
        self._mirror = mirror
        self._pulses = pulses
        self._slots = slots
        self._tenants = tenants
        self._memory = memory
        self._namespace = namespace
        self._clock = clock

    def view(self, name: str, placement: Placement) -> NodeView | None:
        """The node as it is now; None: there is none, or it does not count."""
        node = self._sources.nodes.cache.get(name)
        if node is None or not counts(node):
            return None
        place = placement.nodes.get(name, NOWHERE)
        around = Around(
            place=place,
            upgrade=_upgrade(node, place.pool, placement),
            namespace=self._namespace,
            drivers=tuple(self._sources.drivers.cache.by("node", name)),
            tenants=self._tenants.of(name),
            carries=any(
                not is_of_daemon_set(pod) and not is_over(pod)
                for pod in self._sources.neighbours.cache.by("node", name)
            ),
            said=self._said(node, telemetry=placement.telemetry),
            known=self._memory.see(name, node.metadata.uid),
        )
        return node_view(node, around)

    def _said(self, node: Node, *, telemetry: bool) -> Said:
        name = node.metadata.name
        names = list(expected(node.metadata.labels, telemetry=telemetry))
        slots = self._slots.of(name)
        if node.owned.owners:
            # Of a node that was ours, who lives there still is told to let go.
            names += [one for one in slots if one not in names and self._is_heard(name, one)]
        voices = {one: self._voice(name, one) for one in names}
        return said(
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
        return heard is not None and not self._pulses.silent(name, component)

    def _voice(self, name: str, component: str) -> Voice:
        return Voice(
            heard=self._pulses.last(name, component), silent=self._pulses.silent(name, component)
        )


def counts(node: Node) -> bool:
    """Whether it has GPUs, or was ours once."""
    labels = node.metadata.labels
    return (
        labels.get(PRESENT_LABEL) == "true"
        or bool(node.owned.owners)
        or bool(OURS & labels.keys())
        or bool(node.metadata.annotations)
    )


def selecting(node: Node) -> Mapping[str, str]:
    """The labels by which policies may select it."""
    labels = node.metadata.labels
    return {key: value for key, value in labels.items() if key not in OURS}


def member(node: Node) -> Member:
    """As far as it counts for where it belongs."""
    record = reading.record(node)
    known = record if isinstance(record, Record) else None
    return Member(
        name=node.metadata.name,
        labels=selecting(node),
        label=node.metadata.labels.get(DRIVER_LABEL, ""),
        record_pool="" if known is None else known.pool,
        record_label="" if known is None else known.label,
    )


def _upgrade(node: Node, selected: str, placement: Placement) -> UpgradePolicy | None:
    record = reading.record(node)
    key = record.pool if isinstance(record, Record) and record.pool else selected
    pool = placement.pools.get(key)
    return None if pool is None else pool.upgrade
