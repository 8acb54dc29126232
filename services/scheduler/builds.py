"""What nodes get of a driver: the DaemonSet that is there for them, and how far it is. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.policy.digest import driver_label, identity
from libs.policy.pools import Pool
from libs.policy.rendering.rendered import (
    INSTALL_ANNOTATION,
    POOL_ANNOTATION,
    TARGET_ANNOTATION,
)
from libs.policy.variants import Variant
from libs.policy.wanted import Method, WantedDriver
from libs.rollout.views.pool import Build, PoolView, Readiness
from services.scheduler.systems import known_variant, labels_of
from services.scheduler.things import DaemonSet


class Sets:
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


def build(pool: Pool, variant: Variant, sets: Sets) -> Build:
    """What nodes of this variant get of what the pool wants."""
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


def earlier(pool: Pool, wanted: str, labels: Mapping[str, str], sets: Sets) -> str:
    """The label of an earlier target for such nodes: precompiled or not, whichever is there."""
    for precompiled in (False, True):
        driver = msgspec.structs.replace(pool.driver, use_precompiled=precompiled)
        variant = known_variant(driver, labels)
        if variant is not None:
            label = driver_label(pool.uid, wanted, variant)
            if label in sets.by_label:
                return label
    return ""


def wished(
    pool: Pool | PoolView, driver: WantedDriver, variants: Iterable[str]
) -> Mapping[str, Build]:
    """What nodes of these variants would get if this driver were wanted."""
    made: dict[str, Build] = {}
    for shown in variants:
        variant = known_variant(driver, labels_of(shown))
        if variant is not None:
            known = identity(pool.uid, driver, variant)
            made[shown] = Build(label=known.label, install_digest=known.install_digest)
    return made
