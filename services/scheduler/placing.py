"""Which pool has each node, and what each pool brings up: policies and DaemonSets as the engine
sees them. Pure; where any of it comes from is not known here.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from libs.contracts.node import DRIVER_LABEL, STATE_LABEL
from libs.kube.customs import Written
from libs.policy.digest import target
from libs.policy.owners import NodeFacts
from libs.policy.pools import Pool, Pools, pools
from libs.policy.reading import Read, read_object
from libs.policy.wanted import WantedDriver
from libs.rollout.views.pool import Build, PoolView
from services.scheduler.builds import Sets, build, earlier
from services.scheduler.systems import known_variant, shown, shown_for
from services.scheduler.things import DaemonSet

OURS: Final = frozenset({STATE_LABEL, DRIVER_LABEL})
"""Labels that we write: no policy selects by them."""

Builds = dict[str, dict[str, Build]]
"""By target, then by variant."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A Node, as far as it counts here."""

    name: str
    labels: Mapping[str, str]
    """Without ours."""
    label: str = ""
    """The driver label that it has."""
    record_pool: str = ""
    record_label: str = ""


class Place(msgspec.Struct, frozen=True):
    """Of one node."""

    pool: str = ""
    variant: str = ""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, at one moment."""

    nodes: Mapping[str, Place] = {}
    pools: Mapping[str, PoolView] = {}
    """Without their Rollouts."""
    drivers: Mapping[str, WantedDriver] = {}
    """What each living pool wants, for whoever asks what would be."""
    telemetry: bool = True
    """Whether the telemetry agent is wanted."""


NOWHERE: Final = Place()


class Reading:
    """Policies, each read once per revision."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], tuple[str, Read]] = {}

    def all(self, policies: Mapping[str, Collection[Written]]) -> list[Read]:
        """By kind, as they are now."""
        before, self._read = self._read, {}
        for kind, found in policies.items():
            for one in found:
                metadata = one.metadata
                key, revision = (kind, metadata.uid or metadata.name), metadata.resource_version
                known = before.get(key)
                if known is None or known[0] != revision:
                    known = (revision, read_object(kind, metadata=metadata, spec=one.spec))
                self._read[key] = known
        return [known for _, known in self._read.values()]


def placed(
    reads: Iterable[Read],
    members: Collection[Member],
    daemon_sets: Collection[DaemonSet],
    *,
    gpu_clusters: Collection[str] = (),
    rollouts: Mapping[str, str],
) -> Placement:
    """`rollouts` are the targets that each pool's Rollout names, by its key."""
    facts = [NodeFacts(name=one.name, labels=one.labels) for one in members]
    found = pools(reads, facts, gpu_clusters=sorted(gpu_clusters))
    sets = Sets(daemon_sets)
    living = {pool.key: pool for pool in found.pools}
    place = _placer(found, living, sets)
    nodes = {one.name: place(one) for one in members}
    systems = _systems(members, nodes)
    views = {
        key: _view(pool, systems.get(key, {}), sets, rollouts.get(key, ""))
        for key, pool in living.items()
    }
    named = {*rollouts, *(one.record_pool for one in members), *(at.pool for at in nodes.values())}
    for key in sorted(named - living.keys() - {""}):
        views[key] = PoolView(key=key, uid="", target=rollouts.get(key, ""), gone=True)
    for key, view in views.items():
        builds = _with_worn(view, key, members, nodes, sets)
        views[key] = msgspec.structs.replace(view, builds=builds)
    return Placement(
        nodes=nodes,
        pools=views,
        drivers={pool.key: pool.driver for pool in found.pools},
        telemetry=all(pool.operands.telemetry for pool in found.pools),
    )


def _placer(found: Pools, living: Mapping[str, Pool], sets: Sets) -> Callable[[Member], Place]:
    undecided = frozenset(found.undecided)

    def place(one: Member) -> Place:
        key = found.owners.get(one.name, "")
        if not key:
            # Of a policy that is gone, or when nobody can tell, it stays where it was.
            before = one.record_pool or sets.of(one.label)[0]
            if before not in living or one.name in undecided:
                key = before
        pool = living.get(key)
        if pool is None:
            return Place(key, shown(one.labels))
        return Place(key, shown_for(pool.driver, one.labels))

    return place


def _systems(
    members: Iterable[Member], nodes: Mapping[str, Place]
) -> dict[str, dict[str, Mapping[str, str]]]:
    """By pool, the variants of its nodes, each with the labels that make it."""
    found: dict[str, dict[str, Mapping[str, str]]] = {}
    for one in members:
        at = nodes[one.name]
        keys = {at.pool, one.record_pool} - {""}
        for key in keys if at.variant else ():
            found.setdefault(key, {})[at.variant] = one.labels
    return found


def _view(
    pool: Pool, systems: Mapping[str, Mapping[str, str]], sets: Sets, recorded: str
) -> PoolView:
    wanted = target(pool.driver)
    builds: Builds = {wanted: {}}
    for word, labels in systems.items():
        variant = known_variant(pool.driver, labels)
        if variant is not None:
            builds[wanted][word] = build(pool, variant, sets)
        for other in sorted(sets.targets.get(pool.key, set()) - {wanted}):
            if label := earlier(pool, other, labels, sets):
                builds.setdefault(other, {})[word] = sets.build(label)
    return PoolView(
        key=pool.key,
        uid=pool.uid,
        # What a policy with errors wants cannot be trusted.
        target=(recorded or wanted) if pool.held else wanted,
        method=pool.driver.method,
        builds=builds,
        upgrade=pool.upgrade,
        strategy=pool.strategy,
        held=tuple(str(finding) for finding in pool.held),
    )


def _with_worn(
    view: PoolView,
    key: str,
    members: Iterable[Member],
    nodes: Mapping[str, Place],
    sets: Sets,
) -> Builds:
    """With what nodes are told to run, where the policy does not say it any more."""
    builds: Builds = {wanted: dict(found) for wanted, found in view.builds.items()}
    for one in members:
        variant = nodes[one.name].variant
        for label in _worn(one) if variant else ():
            pool, wanted = sets.of(label)
            if pool == key and variant not in builds.get(wanted, {}):
                builds.setdefault(wanted, {})[variant] = sets.build(label)
    return builds


def _worn(one: Member) -> Iterator[str]:
    if one.label:
        yield one.label
    if one.record_label and one.record_label != one.label:
        yield one.record_label
