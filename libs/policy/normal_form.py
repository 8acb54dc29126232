"""The normal form of a wanted driver: equal drivers are equal in it, however they are written."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from libs.policy.driver_checks import MODULE_TYPE_VARIABLE
from libs.policy.images import image_path
from libs.policy.kinds.common import (
    ContainerSection,
    EnvVar,
    Image,
    Probe,
    ResourceRequirements,
    Toleration,
)
from libs.policy.kinds.driver import Gdrcopy, Gds, KernelModuleType, Rdma
from libs.policy.wanted import (
    DEFAULT_ARGUMENTS,
    DEFAULT_PRIORITY_CLASS,
    DEFAULT_PULL_POLICY,
    LIVENESS_PROBE,
    READINESS_PROBE,
    STARTUP_PROBE,
    InstallMethod,
    PodOverrides,
    WantedDriver,
)

DIGEST_VARIABLE: Final = "DRIVER_CONFIG_DIGEST"
"""The variable with the install digest, in driver container and gate; no policy overrides it."""

GPU_TAINT: Final = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
"""Tolerated by every pod that runs on GPU nodes."""

_RESERVED_LABELS: Final = frozenset(
    (
        "app",
        "app.kubernetes.io/component",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/part-of",
        "app.kubernetes.io/version",
        "helm.sh/chart",
        "nvidia.com/node.os-version",
        "nvidia.com/precompiled",
    )
)
"""Labels that Sluice sets itself, and those that a new version of a chart changes: a pod with them
would be replaced.
"""
_RESERVED_PREFIX: Final = "sluice.dev/"

SectionT = TypeVar("SectionT", bound=ContainerSection)


def normalize(driver: WantedDriver) -> WantedDriver:
    """Return the normal form of a driver."""
    if driver.method is InstallMethod.PRE_INSTALLED:
        return WantedDriver(method=driver.method)
    if driver.method is InstallMethod.HOST:
        return WantedDriver(method=driver.method, version=driver.version, cuda=driver.cuda)
    parts = [part for part in (driver.gds, driver.gdrcopy) if part.enabled]
    secrets = [name for section in (driver.image, *parts) for name in section.image_pull_secrets]
    module_type, env = _module_type(driver)
    return msgspec.structs.replace(
        driver,
        version="",
        cuda="",
        image=_image(driver.image, secrets),
        kernel_module_type=module_type,
        args=() if driver.args == DEFAULT_ARGUMENTS else driver.args,
        env=_without_defaults(env, driver_env(driver)),
        resources=normalize_quantities(driver.resources),
        host_network=driver.host_network or any(part.host_network for part in parts),
        startup_probe=_non_default_probe(driver.startup_probe, STARTUP_PROBE),
        liveness_probe=_optional_probe(driver.liveness_probe, LIVENESS_PROBE),
        readiness_probe=_optional_probe(driver.readiness_probe, READINESS_PROBE),
        rdma=driver.rdma if driver.rdma.enabled else Rdma(),
        gds=_module_container(driver.gds) if driver.gds.enabled else Gds(),
        gdrcopy=_module_container(driver.gdrcopy) if driver.gdrcopy.enabled else Gdrcopy(),
        pods=_pods(driver.pods),
    )


def rdma_env(driver: WantedDriver) -> tuple[EnvVar, ...]:
    """Return the RDMA defaults for the environment of the driver."""
    if not driver.rdma.enabled:
        return ()
    names = ["GPU_DIRECT_RDMA_ENABLED"]
    names += ["USE_HOST_MOFED"] if driver.rdma.use_host_mofed else []
    return tuple(EnvVar(name=name, value="true") for name in names)


def driver_env(driver: WantedDriver) -> tuple[EnvVar, ...]:
    """Return the defaults for the driver's environment."""
    parts = {"GDS_ENABLED": driver.gds.enabled, "GDRCOPY_ENABLED": driver.gdrcopy.enabled}
    flags = {name: "true" for name, enabled in parts.items() if enabled}
    if driver.kernel_module_type is not KernelModuleType.AUTO:
        flags[MODULE_TYPE_VARIABLE] = driver.kernel_module_type.value
    return (*rdma_env(driver), *(EnvVar(name=name, value=value) for name, value in flags.items()))


def driver_variables(driver: WantedDriver) -> tuple[EnvVar, ...]:
    """Return the driver's environment: the policy's variables over the defaults."""
    return merge_env(driver.env, below=driver_env(driver))


def merge_env(
    given: Iterable[EnvVar], *, without: Iterable[str] = (), below: Iterable[EnvVar] = ()
) -> tuple[EnvVar, ...]:
    """Merge variables so that each name occurs once; the last value wins, over those in `below`.

    The result is sorted by name, unless a value refers to another variable: then the given order
    is kept, because Kubernetes expands in order.
    """
    excluded = frozenset(without)
    merged: dict[str, EnvVar] = {}
    for variable in (*below, *given):
        if variable.name and variable.name not in excluded:
            merged.pop(variable.name, None)
            merged[variable.name] = variable
    if _has_references(merged.values()):
        return tuple(merged.values())
    return tuple(merged[name] for name in sorted(merged))


def normalize_quantities(resources: ResourceRequirements) -> ResourceRequirements:
    """Return the quantities as strings, as Kubernetes writes numbers."""
    return ResourceRequirements(
        limits={name: str(amount) for name, amount in resources.limits.items()},
        requests={name: str(amount) for name, amount in resources.requests.items()},
    )


def user_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels without reserved keys."""
    kept = user_annotations(labels)
    return {key: value for key, value in kept.items() if key not in _RESERVED_LABELS}


def user_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations without reserved keys."""
    return {
        key: value for key, value in annotations.items() if not key.startswith(_RESERVED_PREFIX)
    }


def user_tolerations(given: Iterable[Toleration]) -> tuple[Toleration, ...]:
    """Return the distinct tolerations that are added to `GPU_TAINT`."""
    normalized = (
        msgspec.structs.replace(toleration, operator="")
        if toleration.operator == "Equal"
        else toleration
        for toleration in given
    )
    return tuple(toleration for toleration in dict.fromkeys(normalized) if toleration != GPU_TAINT)


def _image(image: Image, secrets: Iterable[str]) -> Image:
    path = image_path(image)
    return Image(
        repository="" if path else image.repository,
        image=path or image.image,
        version="" if path else image.version,
        image_pull_policy=""
        if image.image_pull_policy == DEFAULT_PULL_POLICY
        else image.image_pull_policy,
        image_pull_secrets=tuple(dict.fromkeys(filter(None, secrets))),
    )


def _module_container(part: SectionT) -> SectionT:
    """Normalize a GDS or GDRCopy container; pod-wide fields are already part of the driver."""
    return msgspec.structs.replace(
        part,
        **msgspec.structs.asdict(_image(part, ())),
        resources=normalize_quantities(part.resources),
        env=merge_env(part.env, without=(DIGEST_VARIABLE,)),
        host_network=False,
    )


def _module_type(driver: WantedDriver) -> tuple[KernelModuleType, tuple[EnvVar, ...]]:
    """Return the kernel module type and the environment, with the type in only one of the two.

    A variable that equals a value of the field moves into the field; any other value stays a
    variable and overrides the field.
    """
    env = merge_env(driver.env, without=(DIGEST_VARIABLE,))
    value = {variable.name: variable.value for variable in env}.get(MODULE_TYPE_VARIABLE)
    if value is None:
        return driver.kernel_module_type, env
    if value in (KernelModuleType.OPEN, KernelModuleType.PROPRIETARY) and not _has_references(env):
        return KernelModuleType(value), tuple(
            variable for variable in env if variable.name != MODULE_TYPE_VARIABLE
        )
    return KernelModuleType.AUTO, env


def _without_defaults(env: tuple[EnvVar, ...], defaults: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
    """Drop variables that repeat a default, unless a value refers to another variable."""
    if _has_references(env):
        return env
    return tuple(variable for variable in env if variable not in defaults)


def _has_references(env: Iterable[EnvVar]) -> bool:
    """Report whether a value refers to another variable, so that the order matters."""
    return any("$(" in variable.value for variable in env)


def _optional_probe(probe: Probe | None, default: Probe) -> Probe | None:
    """Normalize a probe that exists only if a policy sets one of its fields.

    `success_threshold` is set in the result, so that it differs from no probe at all.
    """
    if probe in (None, Probe()):
        return None
    normalized = _non_default_probe(probe, default) or Probe()
    return msgspec.structs.replace(normalized, success_threshold=normalized.success_threshold or 1)


def _non_default_probe(probe: Probe | None, default: Probe) -> Probe | None:
    """Return the probe's fields that differ from Sluice's and from Kubernetes' defaults."""
    if probe is None:
        return None
    defaults = {**msgspec.structs.asdict(default), "success_threshold": 1}
    fields = msgspec.structs.asdict(probe)
    normalized = Probe(
        **{name: value for name, value in fields.items() if value not in (None, defaults[name])}
    )
    return None if normalized == Probe() else normalized


def _pods(pods: PodOverrides) -> PodOverrides:
    priority = pods.priority_class_name
    return msgspec.structs.replace(
        pods,
        labels=user_labels(pods.labels),
        annotations=user_annotations(pods.annotations),
        tolerations=user_tolerations(pods.tolerations),
        priority_class_name="" if priority == DEFAULT_PRIORITY_CLASS else priority,
    )
