"""One look at everything: what is wanted, what differs, and what keeps us from doing it.

It reads caches and remembers since when nothing has named a driver. It writes nothing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from libs.kube.foreign import ForeignOperator
from libs.kube.times import to_second
from libs.kube.views import Object
from libs.policy.observed import Trouble
from libs.policy.pools import Pools
from libs.policy.rendering.settings import Settings
from libs.runtime.clock import Clock
from services.driver.cluster import statuses
from services.driver.cluster.collecting import Unnamed, is_drivers, kept_because
from services.driver.cluster.deciding import Action, delete, of_operand, of_unwanted, owner_change
from services.driver.cluster.plan import Key, Plan, Sight, planned
from services.driver.cluster.sources import Sources
from services.driver.cluster.things import DAEMON_SETS, NODES, RUNTIME_CLASSES, DaemonSet, is_ours

RESYNC: Final = 300.0
"""Seconds until everything is looked at again, in case something was missed."""
SEEN: Final = 30.0
"""A Lease that was proved so long ago says nothing of who is at work now."""
SOON: Final = 5.0

Slots = Callable[[], Mapping[str, Collection[str]] | None]
"""By driver label, the uids of the nodes whose commands name it; None: it cannot be told now."""

NOTHING: Final = Plan(
    pools=Pools(
        pools=(), owners={}, unowned=(), undecided=(), owner_labels=None, cluster=None, told=()
    ),
    objects={},
    statuses={},
    targets={},
)
"""Before the first look."""


class Survey:
    """What follows from the last look."""

    def __init__(
        self,
        sources: Sources,
        *,
        foreign: ForeignOperator,
        slots: Slots,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._sources = sources
        self._foreign = foreign
        self._slots = slots
        self._settings = settings
        self._clock = clock
        self._unnamed = Unnamed()
        self._blind = ""
        self._at_work = ""
        self.plan = NOTHING

    async def look(self, *, troubles: tuple[Trouble, ...], refused: Mapping[str, str]) -> None:
        """Everything anew."""
        leases = self._sources.leases
        self._blind = await leases.prove() if leases.age > SEEN else ""
        self._at_work = self._foreign.at_work(now=self._clock.monotonic())
        sources = self._sources
        sight = Sight(
            policies={kind: tuple(source) for kind, source in sources.policies.items()},
            nodes=tuple(sources.nodes),
            gpu_clusters=tuple(one.metadata.name for one in sources.gpu_clusters),
            config_maps={one.metadata.name: one.keys for one in sources.configs},
            daemon_sets=tuple(one for one in sources.daemon_sets if is_ours(one)),
            troubles=troubles,
            refused=refused,
        )
        self.plan = planned(sight, self._settings)
        self._look_for_names()

    @property
    def holding(self) -> str:
        """Why nothing may be done to what an operator may own, in words; empty: it may."""
        return self._at_work or self._blind

    @property
    def next(self) -> float:
        """Seconds until the next look, if nothing changes."""
        now = self._clock.monotonic()
        due = [RESYNC, self._foreign.until(now=now), self._unnamed.next(now=now)]
        # What is due is being worked on: its failures have their own back-off.
        left = min((seconds for seconds in due if seconds), default=RESYNC)
        return min(left, SOON) if self._blind else left

    def affected(self) -> Iterator[Key]:
        """Of everything on which something is to be done, or may be soon."""
        yield from self.plan.objects
        for kind in (DAEMON_SETS.kind, RUNTIME_CLASSES.kind):
            for one in self._sources.operands[kind]:
                key = Key(kind, one.metadata.name)
                if key not in self.plan.objects and is_ours(one):
                    yield key
        for one in self._sources.nodes:
            if self.owner(one.metadata.name) is not None:
                yield Key(NODES.kind, one.metadata.name)
        for key in self.plan.statuses:
            if self.status(key) is not None:
                yield key

    def operand(self, key: Key) -> Action | None:
        """What is to be done about an operand."""
        there = self.there(key)
        wanted = self.plan.objects.get(key)
        if wanted is not None:
            return of_operand(wanted, there)
        if there is None or there.metadata.deletion_timestamp:
            return None
        if isinstance(there, DaemonSet) and is_drivers(there):
            left = self._unnamed.left(there.metadata.uid, now=self._clock.monotonic())
            if left == 0:
                return delete(there, orphan=False, because="nothing has named it for an hour")
            return None
        return of_unwanted(there, kind=key.kind, decided=self.plan.decides)

    def there(self, key: Key) -> Object | None:
        """The operand as the server has it."""
        namespace = "" if key.kind == RUNTIME_CLASSES.kind else f"{self._settings.namespace}/"
        return self._sources.operands[key.kind].cache.get(f"{namespace}{key.name}")

    def owner(self, name: str) -> dict[str, str | None] | None:
        """The change of a node's labels that tells its owner; None: it is right, or left alone."""
        owners = self.plan.pools.owner_labels
        node = self._sources.nodes.cache.get(name)
        if owners is None or node is None or self.holding:
            return None
        return owner_change(node.metadata.labels, owners.get(name))

    def status(self, key: Key) -> statuses.Change | None:
        """What is to be written into the status of a policy."""
        status = self.plan.statuses.get(key)
        there = self._sources.policies[key.kind].cache.get(key.name)
        if status is None or there is None or self._blind:
            return None
        now = to_second(self._clock.now())
        namespace = self._settings.namespace
        return statuses.change(status, there, namespace=namespace, foreign=self._at_work, now=now)

    def lacking(self) -> Iterator[DaemonSet]:
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
            if is_drivers(one)
        }
        self._unnamed.look(kept, now=self._clock.monotonic())
