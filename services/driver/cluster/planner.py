"""One look at everything: what is wanted, what differs, and what keeps us from doing it.

It reads caches and remembers since when nothing has named a driver. It writes nothing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from libs.kube.gpu_operator import GpuOperatorDetector
from libs.kube.times import format_time
from libs.kube.views import Object
from libs.policy.observed import PodProblem
from libs.policy.pools import Pools
from libs.policy.render.settings import RenderSettings
from libs.runtime.clock import Clock
from services.driver.cluster import statuses
from services.driver.cluster.decide import (
    OperandAction,
    decide_operand,
    decide_unwanted,
    delete_operand,
    owner_change,
)
from services.driver.cluster.garbage_collection import (
    UnreferencedDrivers,
    is_driver_daemon_set,
    kept_because,
)
from services.driver.cluster.informers import Informers
from services.driver.cluster.plan import ClusterSnapshot, ObjectKey, OperandPlan, make_plan
from services.driver.cluster.resources import (
    DAEMON_SETS,
    NODES,
    RUNTIME_CLASSES,
    DaemonSet,
    is_ours,
)

RESYNC: Final = 300.0
"""Seconds until everything is looked at again, in case something was missed."""
MAX_LEASE_AGE: Final = 30.0
"""A Lease that was proved so long ago says nothing of who is at work now."""
RETRY_WHEN_BLIND: Final = 5.0

CommandedDrivers = Callable[[], Mapping[str, Collection[str]] | None]
"""By driver label, the uids of the nodes whose commands name it; None: it cannot be told now."""

EMPTY_PLAN: Final = OperandPlan(
    pools=Pools(
        pools=(), owners={}, unowned=(), undecided=(), owner_labels=None, cluster=None, verdicts=()
    ),
    objects={},
    statuses={},
    targets={},
)
"""Before the first look."""


class Planner:
    """What follows from the last look."""

    def __init__(
        self,
        informers: Informers,
        *,
        foreign: GpuOperatorDetector,
        commanded_drivers: CommandedDrivers,
        settings: RenderSettings,
        clock: Clock,
    ) -> None:
        self._sources = informers
        self._foreign = foreign
        self._slots = commanded_drivers
        self._settings = settings
        self._clock = clock
        self._unnamed = UnreferencedDrivers()
        self._blind = ""
        self._at_work = ""
        self.plan = EMPTY_PLAN

    async def refresh(
        self, *, pod_problems: tuple[PodProblem, ...], refused: Mapping[str, str]
    ) -> None:
        """Everything anew."""
        leases = self._sources.leases
        self._blind = await leases.verify_current() if leases.age > MAX_LEASE_AGE else ""
        self._at_work = self._foreign.active_holders(now=self._clock.monotonic())
        sources = self._sources
        sight = ClusterSnapshot(
            policies={kind: tuple(source) for kind, source in sources.policies.items()},
            nodes=tuple(sources.nodes),
            gpu_clusters=tuple(one.metadata.name for one in sources.gpu_clusters),
            config_maps={one.metadata.name: one.keys for one in sources.configs},
            daemon_sets=tuple(one for one in sources.daemon_sets if is_ours(one)),
            pod_problems=pod_problems,
            refused=refused,
        )
        self.plan = make_plan(sight, self._settings)
        self._look_for_names()

    @property
    def hold_reason(self) -> str:
        """Why nothing may be done to what an operator may own, in words; empty: it may."""
        return self._at_work or self._blind

    @property
    def next_refresh(self) -> float:
        """Seconds until the next look, if nothing changes."""
        now = self._clock.monotonic()
        due = [RESYNC, self._foreign.seconds_until_expiry(now=now), self._unnamed.next_due(now=now)]
        # What is due is being worked on: its failures have their own back-off.
        left = min((seconds for seconds in due if seconds), default=RESYNC)
        return min(left, RETRY_WHEN_BLIND) if self._blind else left

    def affected_keys(self) -> Iterator[ObjectKey]:
        """Of everything on which something is to be done, or may be soon."""
        yield from self.plan.objects
        for kind in (DAEMON_SETS.kind, RUNTIME_CLASSES.kind):
            for one in self._sources.operands[kind]:
                key = ObjectKey(kind, one.metadata.name)
                if key not in self.plan.objects and is_ours(one):
                    yield key
        for one in self._sources.nodes:
            if self.owner_label_change(one.metadata.name) is not None:
                yield ObjectKey(NODES.kind, one.metadata.name)
        for key in self.plan.statuses:
            if self.status_change(key) is not None:
                yield key

    def operand_action(self, key: ObjectKey) -> OperandAction | None:
        """What is to be done about an operand."""
        there = self.live_object(key)
        wanted = self.plan.objects.get(key)
        if wanted is not None:
            return decide_operand(wanted, there)
        if there is None or there.metadata.deletion_timestamp:
            return None
        if isinstance(there, DaemonSet) and is_driver_daemon_set(there):
            left = self._unnamed.seconds_left(there.metadata.uid, now=self._clock.monotonic())
            if left == 0:
                return delete_operand(
                    there, orphan=False, because="nothing has named it for an hour"
                )
            return None
        return decide_unwanted(there, kind=key.kind, decided=self.plan.decides)

    def live_object(self, key: ObjectKey) -> Object | None:
        """The operand as the server has it."""
        namespace = "" if key.kind == RUNTIME_CLASSES.kind else f"{self._settings.namespace}/"
        return self._sources.operands[key.kind].cache.get(f"{namespace}{key.name}")

    def owner_label_change(self, name: str) -> dict[str, str | None] | None:
        """The change of a node's labels that tells its owner; None: it is right, or left alone."""
        owners = self.plan.pools.owner_labels
        node = self._sources.nodes.cache.get(name)
        if owners is None or node is None or self.hold_reason:
            return None
        return owner_change(node.metadata.labels, owners.get(name))

    def status_change(self, key: ObjectKey) -> statuses.StatusChange | None:
        """What is to be written into the status of a policy."""
        status = self.plan.statuses.get(key)
        there = self._sources.policies[key.kind].cache.get(key.name)
        if status is None or there is None or self._blind:
            return None
        now = format_time(self._clock.now())
        namespace = self._settings.namespace
        return statuses.status_change(
            status, there, namespace=namespace, foreign=self._at_work, now=now
        )

    def unavailable_daemon_sets(self) -> Iterator[DaemonSet]:
        """Those of ours that lack pods."""
        for one in self._sources.daemon_sets:
            status = one.status
            if is_ours(one) and status.number_available < status.desired_number_scheduled:
                yield one

    def _look_for_names(self) -> None:
        commanded = self._slots()
        nodes, rollouts = tuple(self._sources.nodes), tuple(self._sources.rollouts)
        kept = {
            one.metadata.uid: kept_because(
                one, self.plan, nodes=nodes, rollouts=rollouts, commanded=commanded
            )
            for one in self._sources.daemon_sets
            if is_driver_daemon_set(one)
        }
        self._unnamed.update(kept, now=self._clock.monotonic())
