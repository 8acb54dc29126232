"""Driver variants: the differences between nodes that need other builds of one driver; images.

Variants are computed from the labels that describe a node's system.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from libs.policy.findings import Finding, quote_value
from libs.policy.images import LONGEST_TAG, image_path
from libs.policy.kinds.common import Image
from libs.policy.owners import NodeLabels
from libs.policy.pool import Pools
from libs.policy.wanted import InstallMethod, WantedDriver

OS_LABEL: Final = "feature.node.kubernetes.io/system-os_release.ID"
OS_VERSION_LABEL: Final = "feature.node.kubernetes.io/system-os_release.VERSION_ID"
OS_MAJOR_LABEL: Final = "feature.node.kubernetes.io/system-os_release.VERSION_ID.major"
KERNEL_LABEL: Final = "feature.node.kubernetes.io/kernel-version.full"
ARCHITECTURE_LABEL: Final = "kubernetes.io/arch"

_BY_MAJOR: Final = frozenset(("ol", "rhel", "rocky"))
"""Operating systems with one driver build per major version."""


class Variant(msgspec.Struct, frozen=True, kw_only=True, order=True, omit_defaults=True):
    """Nodes of one variant get the same driver pod, or the same driver artefact."""

    system: str = ""
    """The operating system's ID from /etc/os-release."""
    version: str = ""
    """The system's version; only the major version where drivers are built per major version."""
    kernel: str = ""
    """Set for precompiled drivers only."""
    architecture: str = ""
    """Set for the host method only: images cover every architecture."""

    @property
    def os_tag(self) -> str:
        """Return the suffix of driver image tags for the system."""
        return f"{self.system}{self.version}"


class NodeVariants(msgspec.Struct, frozen=True, kw_only=True):
    """The variants of nodes and pools."""

    nodes: Mapping[str, Variant]
    """Variants by node name, for nodes with a known system."""
    pools: Mapping[str, tuple[Variant, ...]]
    """The sorted variants of each pool, by pool key."""
    unknown: Mapping[str, str]
    """By node name, the missing label without which the variant is unknown."""


def variant_of(driver: WantedDriver, labels: Mapping[str, str]) -> Variant | str:
    """Return the variant of a node with these labels, or the name of a label that is missing."""
    if driver.method is InstallMethod.PRE_INSTALLED:
        return Variant()
    system = labels.get(OS_LABEL, "")
    version_label = OS_MAJOR_LABEL if system in _BY_MAJOR else OS_VERSION_LABEL
    version = labels.get(version_label, "")
    if not system or not version:
        return version_label if system else OS_LABEL
    if driver.method is InstallMethod.HOST:
        architecture = labels.get(ARCHITECTURE_LABEL, "")
        if not architecture:
            return ARCHITECTURE_LABEL
        return Variant(system=system, version=version, architecture=architecture)
    if not driver.use_precompiled:
        return Variant(system=system, version=version)
    kernel = labels.get(KERNEL_LABEL, "")
    return Variant(system=system, version=version, kernel=kernel) if kernel else KERNEL_LABEL


def assign_variants(pools: Pools, nodes: Iterable[NodeLabels]) -> NodeVariants:
    """Return the variants of all nodes that are in pools."""
    drivers = {pool.key: pool.driver for pool in pools.pools}
    variants: dict[str, Variant] = {}
    unknown: dict[str, str] = {}
    by_pool: dict[str, set[Variant]] = {key: set() for key in drivers}
    for node in nodes:
        key = pools.owners.get(node.name)
        if key is None:
            continue
        found = variant_of(drivers[key], node.labels)
        if isinstance(found, str):
            unknown[node.name] = found
        else:
            variants[node.name] = found
            by_pool[key].add(found)
    return NodeVariants(
        nodes=variants, pools={key: tuple(sorted(by_pool[key])) for key in by_pool}, unknown=unknown
    )


_SYSTEM_LABELS: Final = (OS_LABEL, OS_VERSION_LABEL, KERNEL_LABEL, ARCHITECTURE_LABEL)
_ANY: Final = "any"
"""The variant key of every node with a pre-installed driver."""


def variant_key(driver: WantedDriver, labels: Mapping[str, str]) -> str:
    """Return the variant of the node as a string; empty if its system is not known."""
    if driver.method is InstallMethod.PRE_INSTALLED:
        return _ANY
    return "" if known_variant(driver, labels) is None else system_key(labels)


def known_variant(driver: WantedDriver, labels: Mapping[str, str]) -> Variant | None:
    """Return the variant, or None if a label is missing."""
    found = variant_of(driver, labels)
    return None if isinstance(found, str) else found


def system_key(labels: Mapping[str, str]) -> str:
    """Return the labels on which the variants of any driver depend, as a string.

    The string therefore stays the same when the wanted driver changes.
    """
    if not labels.get(OS_LABEL):
        return ""
    return "/".join(labels.get(key, "") for key in _SYSTEM_LABELS)


def labels_of_key(word: str) -> Mapping[str, str]:
    """Return the labels that a variant key was made from, including the major version."""
    if word == _ANY:
        return {}
    labels: dict[str, str] = dict(zip(_SYSTEM_LABELS, word.split("/"), strict=False))
    labels[f"{OS_VERSION_LABEL}.major"] = labels.get(OS_VERSION_LABEL, "").partition(".")[0]
    return {key: value for key, value in labels.items() if value}


def variant_image(image: Image, variant: Variant) -> str | Finding:
    """Return the path for nodes of this variant, or why there is none.

    The tag ends with the operating system, after the kernel if the driver is precompiled. A digest
    has no suffix.
    """
    path = image_path(image)
    if not path:
        return Finding(
            field="image",
            problem="names no image to run",
            remedy="set repository, image and version, or a full path in image",
        )
    if "@" in path:
        if not variant.kernel:
            return path
        return Finding(
            field="image",
            value=quote_value(path),
            problem="is a digest, which names one image; precompiled drivers need one per kernel",
            remedy="set version to a tag",
        )
    if ":" not in path.rpartition("/")[2]:
        return Finding(
            field="image",
            value=quote_value(path),
            problem="has no tag: the tag determines the driver version",
            remedy="set repository, image and version, or a full path with a tag in image",
        )
    kernel = f"-{variant.kernel}" if variant.kernel else ""
    suffix = f"{kernel}-{variant.os_tag}"
    longest = LONGEST_TAG - len(suffix)
    if len(path.rpartition(":")[2]) > longest:
        return Finding(
            field="version" if image.version else "image",
            value=quote_value(path),
            problem=f"is too long: with {suffix!r} at its end, a tag may have {LONGEST_TAG}"
            " characters",
            remedy=f"use a tag of at most {longest} characters",
        )
    return f"{path}{suffix}"
