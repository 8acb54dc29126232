"""Which pool has each node, and what each pool brings up: policies and DaemonSets as the engine
sees them. Pure; where any of it comes from is not known here.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from libs.contracts.node import DRIVER_LABEL, STATE_LABEL
from libs.kube.custom_resources import CustomObject
from libs.policy.digest import driver_identity, driver_label, target_digest
from libs.policy.manifests import ParsedPolicy, parse_object
from libs.policy.owners import NodeLabels
from libs.policy.pools import Pool, Pools, assemble_pools
from libs.policy.render.rendered import INSTALL_ANNOTATION, POOL_ANNOTATION, TARGET_ANNOTATION
from libs.policy.variants import Variant, known_variant, labels_of_key, system_key, variant_key
from libs.policy.wanted import InstallMethod, WantedDriver
from libs.rollout.views.pool import Build, PoolView, Readiness
from services.scheduler.resources import DaemonSet


class DriverDaemonSets:
    """The drivers' DaemonSets that are there."""

    def __init__(self, found: Iterable[DaemonSet]) -> None:
        self.by_label: dict[str, DaemonSet] = {}
        self.targets: dict[str, set[str]] = {}
        for one in found:
            label = one.metadata.labels.get(DRIVER_LABEL, "")
            pool = one.metadata.annotations.get(POOL_ANNOTATION, "")
            wanted = one.metadata.annotations.get(TARGET_ANNOTATION, "")
            if label and pool and wanted and not one.metadata.deletion_timestamp:
                self.by_label[label] = one
                self.targets.setdefault(pool, set()).add(wanted)

    def pool_and_target(self, label: str) -> tuple[str, str]:
        """Pool and target of the one for this label; empty: there is none."""
        one = self.by_label.get(label)
        if one is None:
            return "", ""
        annotations = one.metadata.annotations
        return annotations[POOL_ANNOTATION], annotations[TARGET_ANNOTATION]

    def build(self, label: str, install: str = "") -> Build:
        """As it stands."""
        one = self.by_label.get(label)
        if one is None:
            return Build(
                label=label,
                install_digest=install,
                readiness=Readiness.MISSING,
                detail=f"there is no DaemonSet for driver {label} yet",
            )
        annotations = one.metadata.annotations
        install = install or annotations.get(INSTALL_ANNOTATION, "")
        said = annotations.get(DRIVER_LABEL, "")
        behind = one.status.observed_generation < one.metadata.generation
        why = ""
        if said != label:
            why = f"DaemonSet {one.metadata.name} says that it is of driver {said or 'none'}"
        elif behind:
            why = f"the controller has not seen DaemonSet {one.metadata.name} as it is"
        readiness = Readiness.UNSETTLED if why else Readiness.SETTLED
        return Build(label=label, install_digest=install, readiness=readiness, detail=why)


OWN_LABELS: Final = frozenset({STATE_LABEL, DRIVER_LABEL})
"""Labels that we write: no policy selects by them."""

Builds = dict[str, dict[str, Build]]
"""By target, then by variant."""


class PoolMember(msgspec.Struct, frozen=True, kw_only=True):
    """A Node, as far as it counts here."""

    name: str
    labels: Mapping[str, str]
    """Without ours."""
    label: str = ""
    """The driver label that it has."""
    record_pool: str = ""
    record_label: str = ""


class PoolAssignment(msgspec.Struct, frozen=True):
    """Of one node."""

    pool: str = ""
    variant: str = ""


class PoolSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, at one moment."""

    assignments: Mapping[str, PoolAssignment] = {}
    pools: Mapping[str, PoolView] = {}
    """Without their Rollouts."""
    wanted_drivers: Mapping[str, WantedDriver] = {}
    """What each living pool wants, for whoever asks what would be."""
    telemetry: bool = True
    """Whether the telemetry agent is wanted."""


UNASSIGNED: Final = PoolAssignment()


class PolicyReader:
    """Policies, each read once per revision."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], tuple[str, ParsedPolicy]] = {}

    def read(self, policies: Mapping[str, Collection[CustomObject]]) -> list[ParsedPolicy]:
        """By kind, as they are now."""
        before, self._read = self._read, {}
        for kind, found in policies.items():
            for one in found:
                metadata = one.metadata
                key, revision = (kind, metadata.uid or metadata.name), metadata.resource_version
                known = before.get(key)
                if known is None or known[0] != revision:
                    known = (revision, parse_object(kind, metadata=metadata, spec=one.spec))
                self._read[key] = known
        return [known for _, known in self._read.values()]


def snapshot_pools(
    reads: Iterable[ParsedPolicy],
    members: Collection[PoolMember],
    daemon_sets: Collection[DaemonSet],
    *,
    gpu_clusters: Collection[str] = (),
    rollouts: Mapping[str, str],
) -> PoolSnapshot:
    """`rollouts` are the targets that each pool's Rollout names, by its key."""
    facts = [NodeLabels(name=one.name, labels=one.labels) for one in members]
    found = assemble_pools(reads, facts, gpu_clusters=sorted(gpu_clusters))
    sets = DriverDaemonSets(daemon_sets)
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
        builds = _with_builds_in_use(view, key, members, nodes, sets)
        views[key] = msgspec.structs.replace(view, builds=builds)
    return PoolSnapshot(
        assignments=nodes,
        pools=views,
        wanted_drivers={pool.key: pool.driver for pool in found.pools},
        telemetry=all(pool.operands.telemetry for pool in found.pools),
    )


def _placer(
    found: Pools, living: Mapping[str, Pool], sets: DriverDaemonSets
) -> Callable[[PoolMember], PoolAssignment]:
    undecided = frozenset(found.undecided)

    def place(one: PoolMember) -> PoolAssignment:
        key = found.owners.get(one.name, "")
        if not key:
            # Of a policy that is gone, or when nobody can tell, it stays where it was.
            before = one.record_pool or sets.pool_and_target(one.label)[0]
            if before not in living or one.name in undecided:
                key = before
        pool = living.get(key)
        if pool is None:
            return PoolAssignment(key, system_key(one.labels))
        return PoolAssignment(key, variant_key(pool.driver, one.labels))

    return place


def _systems(
    members: Iterable[PoolMember], nodes: Mapping[str, PoolAssignment]
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
    pool: Pool, systems: Mapping[str, Mapping[str, str]], sets: DriverDaemonSets, recorded: str
) -> PoolView:
    wanted = target_digest(pool.driver)
    builds: Builds = {wanted: {}}
    for word, labels in systems.items():
        variant = known_variant(pool.driver, labels)
        if variant is not None:
            builds[wanted][word] = wanted_build(pool, variant, sets)
        for other in sorted(sets.targets.get(pool.key, set()) - {wanted}):
            if label := earlier_label(pool, other, labels, sets):
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


def _with_builds_in_use(
    view: PoolView,
    key: str,
    members: Iterable[PoolMember],
    nodes: Mapping[str, PoolAssignment],
    sets: DriverDaemonSets,
) -> Builds:
    """With what nodes are told to run, where the policy does not say it any more."""
    builds: Builds = {wanted: dict(found) for wanted, found in view.builds.items()}
    for one in members:
        variant = nodes[one.name].variant
        for label in _labels_in_use(one) if variant else ():
            pool, wanted = sets.pool_and_target(label)
            if pool == key and variant not in builds.get(wanted, {}):
                builds.setdefault(wanted, {})[variant] = sets.build(label)
    return builds


def _labels_in_use(one: PoolMember) -> Iterator[str]:
    if one.label:
        yield one.label
    if one.record_label and one.record_label != one.label:
        yield one.record_label


def wanted_build(pool: Pool, variant: Variant, sets: DriverDaemonSets) -> Build:
    """What nodes of this variant get of what the pool wants."""
    known = driver_identity(pool.uid, pool.driver, variant)
    match pool.driver.method:
        case InstallMethod.CONTAINER:
            return sets.build(known.label, known.install_digest)
        case InstallMethod.PRE_INSTALLED:
            return Build(label=known.label, install_digest=known.install_digest)
        case InstallMethod.HOST:
            return Build(
                label=known.label,
                install_digest=known.install_digest,
                readiness=Readiness.MISSING,
                detail="no artefact is named: this version of Sluice installs nothing on hosts",
            )


def earlier_label(
    pool: Pool, wanted: str, labels: Mapping[str, str], sets: DriverDaemonSets
) -> str:
    """The label of an earlier target for such nodes: precompiled or not, whichever is there."""
    for precompiled in (False, True):
        driver = msgspec.structs.replace(pool.driver, use_precompiled=precompiled)
        variant = known_variant(driver, labels)
        if variant is not None:
            label = driver_label(pool.uid, wanted, variant)
            if label in sets.by_label:
                return label
    return ""


def hypothetical_builds(
    pool: Pool | PoolView, driver: WantedDriver, variants: Iterable[str]
) -> Mapping[str, Build]:
    """What nodes of these variants would get if this driver were wanted."""
    made: dict[str, Build] = {}
    for shown in variants:
        variant = known_variant(driver, labels_of_key(shown))
        if variant is not None:
            known = driver_identity(pool.uid, driver, variant)
            made[shown] = Build(label=known.label, install_digest=known.install_digest)
    return made
