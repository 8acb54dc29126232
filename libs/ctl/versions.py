"""The driver versions of targets: a target is a digest, and people know versions. Pure."""

from collections.abc import Iterable
from typing import Final

from libs.kube import views

TARGET_ANNOTATION: Final = "sluice.dev/target"
_OS_LABEL: Final = "nvidia.com/node.os-version"
_DRIVER_CONTAINER: Final = "nvidia-driver-ctr"


class _Container(views.View, frozen=True, kw_only=True):
    name: str
    image: str = ""


class _PodSpec(views.View, frozen=True, kw_only=True):
    containers: tuple[_Container, ...] = ()


class _Template(views.View, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _DaemonSetSpec(views.View, frozen=True, kw_only=True):
    template: _Template = _Template()


class DriverDaemonSet(views.Object, frozen=True, kw_only=True):
    """The DaemonSet of a driver, by its target and its image."""

    spec: _DaemonSetSpec = _DaemonSetSpec()


def versions_of(
    named: Iterable[tuple[str, str]], daemon_sets: Iterable[DriverDaemonSet]
) -> dict[str, str]:
    """Return versions by target: as Rollouts name them, otherwise from the image's tag."""
    versions = {
        target: version
        for each in daemon_sets
        if (target := each.metadata.annotations.get(TARGET_ANNOTATION, ""))
        and (version := _version_in_image(each))
    }
    return versions | {target: version for target, version in named if target and version}


def _version_in_image(daemon_set: DriverDaemonSet) -> str:
    """Return the tag of the driver's image without the operating system at its end."""
    system = daemon_set.metadata.labels.get(_OS_LABEL, "")
    for container in daemon_set.spec.template.spec.containers:
        path, _, tag = container.image.partition("@")[0].rpartition(":")
        if container.name == _DRIVER_CONTAINER and path and "/" not in tag:
            return tag.removesuffix(f"-{system}") if system else tag
    return ""
