"""A wanted driver without what makes no difference: two of one normal form are the same wish.

Digests and rendering both begin here, so that what changes a pod changes its digest, and what does
not change the one does not change the other.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

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
from libs.policy.wanted import InstallMethod, PodOverrides, WantedDriver

DIGEST_VARIABLE: Final = "DRIVER_CONFIG_DIGEST"
"""The install digest, in the driver's container and at its gate; ours to say."""

GATE_VARIABLES: Final = frozenset(
    (DIGEST_VARIABLE, "NODE_NAME", "POD_NAME", "POD_UID", "SLUICE_DRIVER_LABEL")
)
"""What the gate is told by us, whatever people say."""

GPU_TAINT: Final = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
"""What every pod of a GPU node puts up with."""

_OURS: Final = frozenset(
    (
        "app",
        "app.kubernetes.io/component",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/part-of",
        "nvidia.com/node.os-version",
        "nvidia.com/precompiled",
    )
)
_PREFIX: Final = "sluice.dev/"
DEFAULT_PULL_POLICY: Final = "IfNotPresent"
"""When an image is pulled, where nobody says it."""

DEFAULT_PRIORITY_CLASS: Final = "system-node-critical"
"""Of pods, where nobody says it."""

DEFAULT_ARGUMENTS: Final = ("init",)
"""Of the driver's container, where nobody says it."""

STARTUP_PROBE: Final = Probe(
    initial_delay_seconds=60, timeout_seconds=60, period_seconds=10, failure_threshold=120
)
"""When a driver counts as started. What people do not say of a probe is as it is here."""
LIVENESS_PROBE: Final = Probe(
    initial_delay_seconds=30, timeout_seconds=10, period_seconds=30, failure_threshold=3
)
READINESS_PROBE: Final = Probe(timeout_seconds=5, period_seconds=10, failure_threshold=3)

_MODULE_TYPE: Final = "KERNEL_MODULE_TYPE"

O = TypeVar("O", bound=ContainerSection)  # noqa: E741 - of an operand


def normalize(driver: WantedDriver) -> WantedDriver:
    """The same wish, said in one way only."""
    if driver.method is InstallMethod.PRE_INSTALLED:
        return WantedDriver(method=driver.method, cuda=driver.cuda)
    if driver.method is InstallMethod.HOST:
        return WantedDriver(method=driver.method, version=driver.version, cuda=driver.cuda)
    parts = [part for part in (driver.gds, driver.gdrcopy) if part.enabled]
    secrets = [name for one in (driver.image, *parts) for name in one.image_pull_secrets]
    module_type, env = _module_type(driver)
    return msgspec.structs.replace(
        driver,
        version="",
        cuda="",
        image=_image(driver.image, secrets),
        kernel_module_type=module_type,
        args=() if driver.args == DEFAULT_ARGUMENTS else driver.args,
        env=_new(env, driver_env(driver)),
        manager_env=_new(merge_env(driver.manager_env, without=GATE_VARIABLES), rdma_env(driver)),
        resources=normalize_quantities(driver.resources),
        host_network=driver.host_network or any(part.host_network for part in parts),
        startup_probe=_without(driver.startup_probe, STARTUP_PROBE),
        liveness_probe=_with(driver.liveness_probe, LIVENESS_PROBE),
        readiness_probe=_with(driver.readiness_probe, READINESS_PROBE),
        rdma=driver.rdma if driver.rdma.enabled else Rdma(),
        gds=_part(driver.gds) if driver.gds.enabled else Gds(),
        gdrcopy=_part(driver.gdrcopy) if driver.gdrcopy.enabled else Gdrcopy(),
        pods=_pods(driver.pods),
    )


def rdma_env(driver: WantedDriver) -> tuple[EnvVar, ...]:
    """What the driver and its gate are told of RDMA, unless people say it themselves."""
    if not driver.rdma.enabled:
        return ()
    said = ["GPU_DIRECT_RDMA_ENABLED"]
    said += ["USE_HOST_MOFED"] if driver.rdma.use_host_mofed else []
    return tuple(EnvVar(name=name, value="true") for name in said)


def driver_env(driver: WantedDriver) -> tuple[EnvVar, ...]:
    """What the driver is told, unless people say it themselves."""
    parts = {"GDS_ENABLED": driver.gds.enabled, "GDRCOPY_ENABLED": driver.gdrcopy.enabled}
    said = {name: "true" for name, enabled in parts.items() if enabled}
    if driver.kernel_module_type is not KernelModuleType.AUTO:
        said[_MODULE_TYPE] = driver.kernel_module_type.value
    return (*rdma_env(driver), *(EnvVar(name=name, value=value) for name, value in said.items()))


def merge_env(
    given: Iterable[EnvVar], *, without: Iterable[str] = (), below: Iterable[EnvVar] = ()
) -> tuple[EnvVar, ...]:
    """Each name once, the last holds; `below` holds where nothing is given. By name, but where
    one value refers to another: then the order is theirs.
    """
    left = frozenset(without)
    said: dict[str, EnvVar] = {}
    for variable in (*below, *given):
        if variable.name and variable.name not in left:
            said.pop(variable.name, None)
            said[variable.name] = variable
    if _refers(said.values()):
        return tuple(said.values())
    return tuple(said[name] for name in sorted(said))


def normalize_quantities(resources: ResourceRequirements) -> ResourceRequirements:
    """Numbers as the texts that Kubernetes makes of them."""
    return ResourceRequirements(
        limits={name: str(amount) for name, amount in resources.limits.items()},
        requests={name: str(amount) for name, amount in resources.requests.items()},
    )


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, in order; no empty ones."""
    return tuple(dict.fromkeys(name for name in names if name))


def user_labels(words: Mapping[str, str]) -> dict[str, str]:
    """Those whose keys are not ours to say."""
    return {key: value for key, value in user_annotations(words).items() if key not in _OURS}


def user_annotations(words: Mapping[str, str]) -> dict[str, str]:
    """Those whose keys are not ours to say."""
    return {key: value for key, value in words.items() if not key.startswith(_PREFIX)}


def user_tolerations(given: Iterable[Toleration]) -> tuple[Toleration, ...]:
    """What people add to ours, each once."""
    said = (
        msgspec.structs.replace(one, operator="") if one.operator == "Equal" else one
        for one in given
    )
    return tuple(one for one in dict.fromkeys(said) if one != GPU_TAINT)


def _image(image: Image, secrets: Iterable[str]) -> Image:
    path = image_path(image)
    return Image(
        repository="" if path else image.repository,
        image=path or image.image,
        version="" if path else image.version,
        image_pull_policy=""
        if image.image_pull_policy == DEFAULT_PULL_POLICY
        else image.image_pull_policy,
        image_pull_secrets=unique(secrets),
    )


def _part(part: O) -> O:
    """A container beside the driver's; what it says of the whole pod is the driver's already."""
    image = _image(part, ())
    return msgspec.structs.replace(
        part,
        repository=image.repository,
        image=image.image,
        version=image.version,
        image_pull_policy=image.image_pull_policy,
        image_pull_secrets=(),
        resources=normalize_quantities(part.resources),
        env=merge_env(part.env, without=(DIGEST_VARIABLE,)),
        host_network=False,
    )


def _module_type(driver: WantedDriver) -> tuple[KernelModuleType, tuple[EnvVar, ...]]:
    """The field alone, where a variable says the same; the variable alone, where it says more."""
    env = merge_env(driver.env, without=(DIGEST_VARIABLE,))
    said = {one.name: one.value for one in env}.get(_MODULE_TYPE)
    if said is None:
        return driver.kernel_module_type, env
    if said in (KernelModuleType.OPEN, KernelModuleType.PROPRIETARY) and not _refers(env):
        return KernelModuleType(said), tuple(one for one in env if one.name != _MODULE_TYPE)
    return KernelModuleType.AUTO, env


def _new(env: tuple[EnvVar, ...], ours: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
    """Without what only repeats ours."""
    return env if _refers(env) else tuple(one for one in env if one not in ours)


def _refers(env: Iterable[EnvVar]) -> bool:
    """Whether one value refers to another: then the order matters."""
    return any("$(" in variable.value for variable in env)


def _with(probe: Probe | None, ours: Probe) -> Probe | None:
    """The same of a probe that is there only if people say anything of it: one number tells."""
    if probe in (None, Probe()):
        return None
    said = _without(probe, ours) or Probe()
    return msgspec.structs.replace(said, success_threshold=said.success_threshold or 1)


def _without(probe: Probe | None, ours: Probe) -> Probe | None:
    """What a probe says beyond ours, and beyond what Kubernetes takes anyway."""
    known = {**msgspec.structs.asdict(ours), "success_threshold": 1}
    made = Probe(**{name: value for name, value in _said(probe).items() if value != known[name]})
    return None if made == Probe() else made


def _said(probe: Probe | None) -> dict[str, int]:
    fields = msgspec.structs.asdict(probe) if probe else {}
    return {name: number for name, number in fields.items() if number is not None}


def _pods(pods: PodOverrides) -> PodOverrides:
    priority = pods.priority_class_name
    return msgspec.structs.replace(
        pods,
        labels=user_labels(pods.labels),
        annotations=user_annotations(pods.annotations),
        tolerations=user_tolerations(pods.tolerations),
        priority_class_name="" if priority == DEFAULT_PRIORITY_CLASS else priority,
    )
