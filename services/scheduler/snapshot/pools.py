"""Assign nodes to pools, and build the views of pools from policies and DaemonSets. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from libs.contracts.identities import COMPONENTS, Writer
from libs.contracts.node import DRIVER_LABEL, MIG_STATE_LABEL, STATE_LABEL
from libs.contracts.words import excerpt
from libs.kube.resources import CustomObject
from libs.policy.artefacts import NO_ARTEFACTS, Artefacts, wanted_artefact
from libs.policy.digest import driver_identity, driver_label, target_digest
from libs.policy.images import image_path
from libs.policy.manifests import ParsedPolicy, parse_object
from libs.policy.owners import NodeLabels
from libs.policy.pool import Pool
from libs.policy.pools import assemble_pools
from libs.policy.render.agents import is_deployed
from libs.policy.render.rendered import (
    IMAGE_ANNOTATION,
    INSTALL_ANNOTATION,
    POOL_ANNOTATION,
    TARGET_ANNOTATION,
)
from libs.policy.variants import (
    Variant,
    known_variant,
    labels_of_key,
    system_key,
    variant_image,
    variant_key,
)
from libs.policy.wanted import InstallMethod, WantedDriver
from libs.rollout.views.pool import Build, PoolView, Readiness
from services.scheduler.resources import DaemonSet
from services.scheduler.snapshot.mig import MigSettings, mig_settings


class DriverDaemonSets:
    """The DaemonSets of drivers by driver label, and the targets that each pool has one for."""

    def __init__(self, daemon_sets: Iterable[DaemonSet]) -> None:
        self.by_label: dict[str, DaemonSet] = {}
        self.targets: dict[str, set[str]] = {}
        for daemon_set in daemon_sets:
            metadata = daemon_set.metadata
            label = metadata.labels.get(DRIVER_LABEL, "")
            pool = metadata.annotations.get(POOL_ANNOTATION, "")
            target = metadata.annotations.get(TARGET_ANNOTATION, "")
            if label and pool and target and not metadata.deletion_timestamp:
                self.by_label[label] = daemon_set
                self.targets.setdefault(pool, set()).add(target)

    def pool_and_target(self, label: str) -> tuple[str, str]:
        """Return pool and target of the DaemonSet with this label; empty: there is none."""
        daemon_set = self.by_label.get(label)
        if daemon_set is None:
            return "", ""
        annotations = daemon_set.metadata.annotations
        return annotations[POOL_ANNOTATION], annotations[TARGET_ANNOTATION]

    def build(self, label: str, install: str = "") -> Build:
        """Return the build with this label, and whether its DaemonSet is up to date."""
        daemon_set = self.by_label.get(label)
        if daemon_set is None:
            return Build(
                label=label,
                install_digest=install,
                readiness=Readiness.MISSING,
                detail=f"waiting for the DaemonSet of driver {label} to be created",
            )
        metadata = daemon_set.metadata
        install = install or metadata.annotations.get(INSTALL_ANNOTATION, "")
        annotated = metadata.annotations.get(DRIVER_LABEL, "")
        why = ""
        if annotated != label:
            why = f"DaemonSet {metadata.name} is annotated with driver {annotated or 'none'}"
        elif daemon_set.status.observed_generation < metadata.generation:
            why = f"waiting for the controller to observe the latest DaemonSet {metadata.name}"
        readiness = Readiness.UNSETTLED if why else Readiness.SETTLED
        return Build(
            label=label,
            install_digest=install,
            image=excerpt(metadata.annotations.get(IMAGE_ANNOTATION, "")),
            readiness=readiness,
            detail=why,
        )


OWN_LABELS: Final = frozenset({STATE_LABEL, DRIVER_LABEL, MIG_STATE_LABEL})
"""Labels that the scheduler writes; policies cannot select by them."""

_SHOWN_DIGEST: Final = len("sha256:") + 12

Builds = dict[str, dict[str, Build]]
"""Builds by target, then by variant."""


class PoolMember(msgspec.Struct, frozen=True, kw_only=True):
    """What assigns a Node to a pool, and to a build."""

    name: str
    labels: Mapping[str, str]
    """Without OWN_LABELS."""
    label: str = ""
    """The driver label."""
    record_pool: str = ""
    record_label: str = ""


class PoolAssignment(msgspec.Struct, frozen=True):
    pool: str = ""
    variant: str = ""


class PoolSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    assignments: Mapping[str, PoolAssignment] = {}
    """By node."""
    pools: Mapping[str, PoolView] = {}
    """Without their Rollouts."""
    wanted_drivers: Mapping[str, WantedDriver] = {}
    """The driver of each pool that has a policy."""
    absent_agents: frozenset[Writer] = frozenset()
    """The agents that are not deployed."""
    with_plugin_configs: frozenset[str] = frozenset()
    """The pools whose nodes choose a configuration of the device plugin by label."""
    artefacts: Artefacts = NO_ARTEFACTS
    """Of drivers on hosts."""
    mig: Mapping[str, MigSettings] = {}
    """By pool; a pool without an entry leaves the division of GPUs to others."""


UNASSIGNED: Final = PoolAssignment()


class PolicyReader:
    """Parses policies, each once per revision."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[str, str], tuple[str, ParsedPolicy]] = {}

    def read(self, policies: Mapping[str, Collection[CustomObject]]) -> list[ParsedPolicy]:
        """Parse the policies of each kind."""
        before, self._parsed = self._parsed, {}
        for kind, objects in policies.items():
            for policy in objects:
                metadata = policy.metadata
                key, revision = (kind, metadata.uid or metadata.name), metadata.resource_version
                entry = before.get(key)
                if entry is None or entry[0] != revision:
                    entry = (revision, parse_object(kind, metadata=metadata, spec=policy.spec))
                self._parsed[key] = entry
        return [parsed for _, parsed in self._parsed.values()]


def snapshot_pools(
    policies: Iterable[ParsedPolicy],
    members: Collection[PoolMember],
    daemon_sets: Collection[DaemonSet],
    *,
    gpu_clusters: Collection[str] = (),
    artefacts: Artefacts = NO_ARTEFACTS,
    rollouts: Mapping[str, str],
    auto_upgrade_set_by: Mapping[tuple[str, str], str] = {},
) -> PoolSnapshot:
    """Assign `members` to pools. `rollouts` has the target of each pool's Rollout.

    `auto_upgrade_set_by` says by kind and name of a policy who wrote its `autoUpgrade`.
    """
    labels = [NodeLabels(name=member.name, labels=member.labels) for member in members]
    assembled = assemble_pools(policies, labels, gpu_clusters=sorted(gpu_clusters))
    sets = DriverDaemonSets(daemon_sets)
    by_key = {pool.key: pool for pool in assembled.pools}
    undecided = frozenset(assembled.undecided)
    assignments: dict[str, PoolAssignment] = {}
    for member in members:
        key = assembled.owners.get(member.name, "")
        if not key:
            # If its policy is gone or the owner is undecided, the node keeps the pool it had.
            before = member.record_pool or sets.pool_and_target(member.label)[0]
            if before not in by_key or member.name in undecided:
                key = before
        assignments[member.name] = _assignment(key, by_key.get(key), member.labels)
    variants = _variants(members, assignments)
    views = {
        key: _pool_view(
            pool, variants.get(key, {}), sets, recorded=rollouts.get(key, ""), artefacts=artefacts
        )
        for key, pool in by_key.items()
    }
    keys = {
        *rollouts,
        *(member.record_pool for member in members),
        *(assignment.pool for assignment in assignments.values()),
    }
    for key in sorted(keys - by_key.keys() - {""}):
        views[key] = PoolView(key=key, uid="", target=rollouts.get(key, ""), gone=True)
    for key, view in views.items():
        builds = _with_builds_in_use(view, members, assignments, sets)
        views[key] = msgspec.structs.replace(
            view, builds=builds, auto_upgrade_off_by=_off_by(by_key.get(key), auto_upgrade_set_by)
        )
    return PoolSnapshot(
        assignments=assignments,
        pools=views,
        wanted_drivers={pool.key: pool.driver for pool in assembled.pools},
        absent_agents=frozenset(
            component
            for component in COMPONENTS
            if not all(is_deployed(component, pool.operands) for pool in assembled.pools)
        ),
        with_plugin_configs=frozenset(
            pool.key for pool in assembled.pools if pool.operands.plugin_configs
        ),
        artefacts=artefacts,
        mig=mig_settings(assembled.pools),
    )


def _assignment(key: str, pool: Pool | None, labels: Mapping[str, str]) -> PoolAssignment:
    if pool is None:
        return PoolAssignment(key, system_key(labels))
    return PoolAssignment(key, variant_key(pool.driver, labels))


def _variants(
    members: Iterable[PoolMember], assignments: Mapping[str, PoolAssignment]
) -> dict[str, dict[str, Mapping[str, str]]]:
    """Return the variants of each pool's nodes, each with the labels that define it."""
    variants: dict[str, dict[str, Mapping[str, str]]] = {}
    for member in members:
        assignment = assignments[member.name]
        keys = {assignment.pool, member.record_pool} - {""}
        for key in keys if assignment.variant else ():
            variants.setdefault(key, {})[assignment.variant] = member.labels
    return variants


def _off_by(pool: Pool | None, authors: Mapping[tuple[str, str], str]) -> str:
    if pool is None or pool.upgrade.auto_upgrade:
        return ""
    return authors.get((pool.kind, pool.name), "")


def _pool_view(
    pool: Pool,
    variants: Mapping[str, Mapping[str, str]],
    sets: DriverDaemonSets,
    *,
    recorded: str,
    artefacts: Artefacts,
) -> PoolView:
    target = target_digest(pool.driver, artefacts)
    builds: Builds = {target: {}}
    for key, labels in variants.items():
        variant = known_variant(pool.driver, labels)
        if variant is not None:
            builds[target][key] = _target_build(pool, variant, sets, artefacts)
        for earlier in sorted(sets.targets.get(pool.key, set()) - {target}):
            if label := _earlier_label(pool, earlier, labels, sets):
                builds.setdefault(earlier, {})[key] = sets.build(label)
    return PoolView(
        key=pool.key,
        uid=pool.uid,
        # The target of a policy with errors cannot be trusted.
        target=(recorded or target) if pool.held else target,
        version=driver_version(pool.driver),
        method=pool.driver.method,
        builds=builds,
        upgrade=pool.upgrade,
        strategy=pool.strategy,
        validation_pod=pool.operands.validation_pod,
        errors=tuple(str(finding) for finding in pool.held),
    )


def driver_version(driver: WantedDriver) -> str:
    """Return the version of a driver as people know it: of an image, its tag or digest."""
    if driver.method is InstallMethod.PRE_INSTALLED:
        return driver.method.value
    if driver.version:
        return driver.version
    _, _, name = image_path(driver.image).rpartition("/")
    path, _, digest = name.partition("@")
    return digest[:_SHOWN_DIGEST] or path.partition(":")[2]


def _with_builds_in_use(
    view: PoolView,
    members: Iterable[PoolMember],
    assignments: Mapping[str, PoolAssignment],
    sets: DriverDaemonSets,
) -> Builds:
    """Add the builds that nodes run although the policy does not name them any more."""
    builds: Builds = {target: dict(by_variant) for target, by_variant in view.builds.items()}
    for member in members:
        variant = assignments[member.name].variant
        labels = dict.fromkeys((member.label, member.record_label))
        for label in labels if variant else ():
            pool, target = sets.pool_and_target(label)
            if pool == view.key and variant not in builds.get(target, {}):
                builds.setdefault(target, {})[variant] = sets.build(label)
    return builds


def _target_build(
    pool: Pool, variant: Variant, sets: DriverDaemonSets, artefacts: Artefacts
) -> Build:
    """Return the build of the pool's target for nodes of this variant."""
    identity = driver_identity(pool.key, pool.driver, variant, artefacts)
    match pool.driver.method:
        case InstallMethod.CONTAINER:
            return sets.build(identity.label, identity.install_digest)
        case InstallMethod.PRE_INSTALLED:
            return Build(label=identity.label, install_digest=identity.install_digest)
        case InstallMethod.HOST:
            found = wanted_artefact(artefacts, pool.driver, variant)
            missing = isinstance(found, str)
            return Build(
                label=identity.label,
                install_digest=identity.install_digest,
                artefact="" if missing else found.digest,
                readiness=Readiness.MISSING if missing else Readiness.SETTLED,
                detail=found if missing else "",
            )


def _earlier_label(
    pool: Pool, target: str, labels: Mapping[str, str], sets: DriverDaemonSets
) -> str:
    """Return the label of the earlier target's DaemonSet for such nodes; empty: there is none."""
    for precompiled in (False, True):
        driver = msgspec.structs.replace(pool.driver, use_precompiled=precompiled)
        variant = known_variant(driver, labels)
        if variant is not None:
            label = driver_label(pool.key, target, variant)
            if label in sets.by_label:
                return label
    return ""


def hypothetical_builds(
    pool: PoolView, driver: WantedDriver, variants: Iterable[str], artefacts: Artefacts
) -> Mapping[str, Build]:
    """Return the builds that nodes of these variants would get from this driver."""
    builds: dict[str, Build] = {}
    for key in variants:
        variant = known_variant(driver, labels_of_key(key))
        if variant is not None:
            identity = driver_identity(pool.key, driver, variant, artefacts)
            image = variant_image(driver.image, variant)
            has_image = driver.method is InstallMethod.CONTAINER and _brings_images(pool)
            builds[key] = Build(
                label=identity.label,
                install_digest=identity.install_digest,
                # Which artefact it will be is not known, only that there has to be one.
                artefact=identity.install_digest if driver.method is InstallMethod.HOST else "",
                image=image if has_image and isinstance(image, str) else "",
            )
    return builds


def _brings_images(pool: PoolView) -> bool:
    """Return whether the driver service brings the images of any build of the pool."""
    return any(build.image for builds in pool.builds.values() for build in builds.values())
