"""Checks across the fields of a driver in a container."""

import re
from collections.abc import Iterator
from typing import Final

from libs.contracts.numbers import parse_version
from libs.policy.findings import Finding, quote_value
from libs.policy.images import image_finding
from libs.policy.kinds.common import Image
from libs.policy.kinds.driver import DriverBase, Gdrcopy, Gds, KernelModuleType

_OPEN_ONLY_FROM: Final = (2, 17, 5)
"""From this version, GPUDirect Storage works with open kernel modules only."""
_BRANCH: Final = re.compile("v?[0-9]+", re.ASCII)
_FULL: Final = re.compile(r"v?[0-9]+(\.[0-9]+)+(-.*)?", re.ASCII)
MODULE_TYPE_VARIABLE: Final = "KERNEL_MODULE_TYPE"
"""What tells the driver's container which modules to load; without it, it chooses them itself."""


def check_driver(
    driver: DriverBase, gds: Gds, gdrcopy: Gdrcopy, *, path: str, parent: str
) -> Iterator[Finding]:
    """Yield what contradicts itself in a driver; `path` and `parent` are where its fields are."""
    yield from _image(driver, path)
    yield from _module_type(driver, path)
    yield from _probes(driver, path)
    for name, part in (("gds", gds), ("gdrcopy", gdrcopy)):
        if not part.enabled:
            continue
        yield from _image(part, f"{parent}.{name}")
        if driver.use_precompiled:
            yield Finding(
                field=f"{parent}.{name}.enabled",
                value="true",
                problem="cannot be combined with precompiled drivers",
                remedy=f"set it to false, or {path}.usePrecompiled",
            )
    needs_open = gds.enabled and _needs_open_modules(gds.version)
    if needs_open and driver.kernel_module_type is not KernelModuleType.OPEN:
        yield Finding(
            field=f"{parent}.gds.version",
            value=quote_value(gds.version),
            problem="of GPUDirect Storage works only with open kernel modules",
            remedy=f"set {path}.kernelModuleType to open, or use a version older than v2.17.5",
        )


def misnamed_version(version: str, before: str, *, precompiled: bool) -> str:
    """Return why a driver cannot be meant by this version; empty: it can.

    Images of precompiled drivers are named by their branch, the others by the full version. Where
    the version `before` is the other way, so are the images of the policy.
    """
    expected, other = (_BRANCH, _FULL) if precompiled else (_FULL, _BRANCH)
    if not other.fullmatch(version) or other.fullmatch(before):
        return ""
    like = f", like {before}" if expected.fullmatch(before) else ""
    if precompiled:
        return (
            f"{version} is a full version, and the policy uses precompiled drivers: name a"
            f" branch{like}"
        )
    return (
        f"{version} is a branch, and the policy does not use precompiled drivers: name a full"
        f" version{like}"
    )


def _module_type(driver: DriverBase, path: str) -> Iterator[Finding]:
    """Check the variable that overrides the field: a driver container refuses other values."""
    values = {variable.name: variable.value for variable in driver.env}
    value = values.get(MODULE_TYPE_VARIABLE, "")
    if not value or "$(" in value or value in tuple(KernelModuleType):
        return
    yield Finding(
        field=f"{path}.env[{MODULE_TYPE_VARIABLE}]",
        value=quote_value(value),
        problem="is no type of kernel modules: the driver's container would end with an error",
        remedy=f"write one of {', '.join(KernelModuleType)}, or set {path}.kernelModuleType",
    )


def _probes(driver: DriverBase, path: str) -> Iterator[Finding]:
    """Check for probes that the API server would refuse in a DaemonSet."""
    probes = {"startupProbe": driver.startup_probe, "livenessProbe": driver.liveness_probe}
    for name, probe in probes.items():
        if probe and probe.success_threshold not in (None, 1):
            yield Finding(
                field=f"{path}.{name}.successThreshold",
                value=quote_value(probe.success_threshold),
                problem="is not 1: Kubernetes takes nothing else for this probe",
                remedy="set it to 1, or leave it out",
            )


def _image(image: Image, path: str) -> Iterator[Finding]:
    """Check that an image has all three parts, or a full path in `image`, or nothing, and that the
    kubelet can take them for the name of an image.
    """
    parts = {"repository": image.repository, "image": image.image, "version": image.version}
    missing = [name for name, value in parts.items() if not value]
    if missing and (image.repository or image.version):
        yield Finding(
            field=f"{path}.{missing[0]}",
            problem=(
                "is missing: invalid image specification: repository, image and version must all"
                f' be set (repository "{image.repository}", image "{image.image}",'
                f' version "{image.version}")'
            ),
            remedy=f"set {' and '.join(f'{path}.{name}' for name in missing)}",
        )
    elif found := image_finding(image, path):
        yield found


def _needs_open_modules(version: str) -> bool:
    if version.startswith("sha256:"):
        return True
    numbers = parse_version(version)
    return len(numbers) > 1 and numbers >= _OPEN_ONLY_FROM
