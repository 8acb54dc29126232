"""Which pool has each node, and what each pool brings up: policies and DaemonSets as the engine
sees them. Pure; where any of it comes from is not known here.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from sluice.contracts.node import DRIVER_LABEL, STATE_LABEL
from sluice.policy.digest import driver_label, identity, target
from sluice.policy.owners import NodeFacts
from sluice.policy.pools import Pool, Pools, pools
from sluice.policy.reading import Read, read
from sluice.policy.rendering.rendered import (
    INSTALL_ANNOTATION,
    POOL_ANNOTATION,
    TARGET_ANNOTATION,
)
from sluice.policy.variants import (
    ARCHITECTURE_LABEL,
    KERNEL_LABEL,
    OS_LABEL,
    OS_VERSION_LABEL,
    Variant,
    variant_of,
)
from sluice.policy.wanted import Method, WantedDriver
from sluice.rollout.views.pool import Build, PoolView, Readiness
from sluice.scheduler.things import DaemonSet, PolicyObject

OURS: Final = frozenset({STATE_LABEL, DRIVER_LABEL})
"""Labels that we write: no policy selects by them."""

_SYSTEM: Final = (OS_LABEL, OS_VERSION_LABEL, KERNEL_LABEL, ARCHITECTURE_LABEL)
_ALL: Final = "any"
"""The variant of every node where the driver is there already."""

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

    def all(self, policies: Mapping[str, Collection[PolicyObject]]) -> list[Read]:
        """By kind, as they are now."""
        before, self._read = self._read, {}
        for kind, found in policies.items():
            for one in found:
                metadata = one.metadata
                key, revision = (kind, metadata.uid or metadata.name), metadata.resource_version
                known = before.get(key)
                if known is None or known[0] != revision:
                    known = (revision, read(kind, _as_written(kind, one)))
                self._read[key] = known
        return [known for _, known in self._read.values()]


def _as_written(kind: str, one: PolicyObject) -> Mapping[str, object]:
    metadata = one.metadata
    told = {
        "name": metadata.name,
        "uid": metadata.uid,
        "generation": metadata.generation,
        "creationTimestamp": metadata.creation_timestamp,
        "deletionTimestamp": metadata.deletion_timestamp,
    }
    return {"kind": kind, "metadata": told, "spec": one.spec}


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
    sets = _Sets(daemon_sets)
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


def wished(
    pool: Pool | PoolView, driver: WantedDriver, variants: Iterable[str]
) -> Mapping[str, Build]:
    """What nodes of these variants would get if this driver were wanted."""
    made: dict[str, Build] = {}
    for shown in variants:
        variant = _variant(driver, _labels(shown))
        if variant is not None:
            known = identity(pool.uid, driver, variant)
            made[shown] = Build(label=known.label, install_digest=known.install_digest)
    return made


class _Sets:
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

    def of(self, label: str) -> tuple[str, str]:
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


def _placer(found: Pools, living: Mapping[str, Pool], sets: _Sets) -> Callable[[Member], Place]:
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
            return Place(key, _shown(one.labels))
        return Place(key, _of(pool.driver, one.labels))

    return place


def _of(driver: WantedDriver, labels: Mapping[str, str]) -> str:
    if driver.method is Method.PRE_INSTALLED:
        return _ALL
    return "" if _variant(driver, labels) is None else _shown(labels)


def _variant(driver: WantedDriver, labels: Mapping[str, str]) -> Variant | None:
    found = variant_of(driver, labels)
    return None if isinstance(found, str) else found


def _shown(labels: Mapping[str, str]) -> str:
    """All that any driver may tell nodes apart by: so it stays when another driver is wanted."""
    if not labels.get(OS_LABEL):
        return ""
    return "/".join(labels.get(key, "") for key in _SYSTEM)


def _labels(shown: str) -> Mapping[str, str]:
    """The way back; the major version is a part of the version."""
    if shown == _ALL:
        return {}
    labels: dict[str, str] = dict(zip(_SYSTEM, shown.split("/"), strict=False))
    labels[f"{OS_VERSION_LABEL}.major"] = labels.get(OS_VERSION_LABEL, "").partition(".")[0]
    return {key: value for key, value in labels.items() if value}


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
    pool: Pool, systems: Mapping[str, Mapping[str, str]], sets: _Sets, recorded: str
) -> PoolView:
    wanted = target(pool.driver)
    builds: Builds = {wanted: {}}
    for shown, labels in systems.items():
        variant = _variant(pool.driver, labels)
        if variant is not None:
            builds[wanted][shown] = _build(pool, variant, sets)
        for other in sorted(sets.targets.get(pool.key, set()) - {wanted}):
            if label := _earlier(pool, other, labels, sets):
                builds.setdefault(other, {})[shown] = sets.build(label)
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


def _build(pool: Pool, variant: Variant, sets: _Sets) -> Build:
    known = identity(pool.uid, pool.driver, variant)
    match pool.driver.method:
        case Method.CONTAINER:
            return sets.build(known.label, known.install_digest)
        case Method.PRE_INSTALLED:
            return Build(label=known.label, install_digest=known.install_digest)
        case Method.HOST:
            return Build(
                label=known.label,
                install_digest=known.install_digest,
                readiness=Readiness.MISSING,
                detail="no artefact is named: this version of Sluice installs nothing on hosts",
            )


def _earlier(pool: Pool, wanted: str, labels: Mapping[str, str], sets: _Sets) -> str:
    """The label of an earlier target for such nodes: precompiled or not, whichever is there."""
    for precompiled in (False, True):
        driver = msgspec.structs.replace(pool.driver, use_precompiled=precompiled)
        variant = _variant(driver, labels)
        if variant is not None:
            label = driver_label(pool.uid, wanted, variant)
            if label in sets.by_label:
                return label
    return ""


def _with_worn(
    view: PoolView,
    key: str,
    members: Iterable[Member],
    nodes: Mapping[str, Place],
    sets: _Sets,
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
