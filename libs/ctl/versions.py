"""Driver versions: what can be one, and those of digests, which people know by version. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from libs.contracts.node import DRIVER_LABEL
from libs.contracts.paths import DRIVER_CONTAINER
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.observe.objects import DaemonSet

TARGET_ANNOTATION: Final = "sluice.dev/target"
_OS_LABEL: Final = "nvidia.com/node.os-version"
_LONGEST: Final = 63
"""Characters of a version, as of a label's value; the tag of its image has the system after it."""
_VERSION: Final = re.compile(
    rf"(?=.{{1,{_LONGEST}}}$)v?[0-9]{{1,6}}(\.[0-9]{{1,6}})*(-[A-Za-z0-9._-]+)?"
    r"|sha256:[0-9a-f]{64}"
)
"""Of NVIDIA, of a branch, or with what a vendor adds (`580.95.05-grid`); or an image's digest."""


def check_version(version: str) -> None:
    """Refuse what a person cannot have meant as a driver version."""
    if not _VERSION.fullmatch(version):
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"{version!r} cannot be a driver version: name one in digits and dots, like"
            " 580.95.05, or a branch, like 580, if the policy uses precompiled drivers",
        )


def versions_of(
    named: Iterable[tuple[str, str]], daemon_sets: Iterable[DaemonSet]
) -> dict[str, str]:
    """Return versions by digest: as Rollouts name their targets, otherwise from the image's tag."""
    versions = {
        digest: version
        for each in daemon_sets
        if (version := version_in_image(each))
        for digest in _digests(each)
    }
    return versions | {target: version for target, version in named if target and version}


def _digests(daemon_set: DaemonSet) -> Iterator[str]:
    """Yield the target of a driver, and its build for one operating system and kernel."""
    metadata = daemon_set.metadata
    yield from (
        metadata.annotations.get(TARGET_ANNOTATION, ""),
        metadata.labels.get(DRIVER_LABEL, ""),
    )


def version_in_image(daemon_set: DaemonSet) -> str:
    """Return the tag of the driver's image without the operating system at its end."""
    system = daemon_set.metadata.labels.get(_OS_LABEL, "")
    for container in daemon_set.spec.template.spec.containers:
        path, _, tag = container.image.partition("@")[0].rpartition(":")
        if container.name == DRIVER_CONTAINER and path and "/" not in tag:
            return tag.removesuffix(f"-{system}") if system else tag
    return ""
