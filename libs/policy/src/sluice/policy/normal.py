"""A wanted driver without what makes no difference: two of one normal form are the same wish.

Digests and rendering both begin here, so that what changes a pod changes its digest, and what does
not change the one does not change the other.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from sluice.policy.images import path_of
from sluice.policy.kinds.common import EnvVar, Image, Operand, Probe, Resources, Toleration
from sluice.policy.kinds.driver import Gdrcopy, Gds, Rdma
from sluice.policy.wanted import Method, PodWishes, WantedDriver

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
PULLED: Final = "IfNotPresent"
"""When an image is pulled, where nobody says it."""

O = TypeVar("O", bound=Operand)  # noqa: E741 - of an operand


def normal(driver: WantedDriver) -> WantedDriver:
    """The same wish, said in one way only."""
    if driver.method is Method.PRE_INSTALLED:
        return WantedDriver(method=driver.method, cuda=driver.cuda)
    if driver.method is Method.HOST:
        return WantedDriver(method=driver.method, version=driver.version, cuda=driver.cuda)
    parts = [part for part in (driver.gds, driver.gdrcopy) if part.enabled]
    secrets = [name for one in (driver.image, *parts) for name in one.image_pull_secrets]
    return msgspec.structs.replace(
        driver,
        version="",
        cuda="",
        image=_image(driver.image, secrets),
        env=variables(driver.env, without=(DIGEST_VARIABLE,)),
        manager_env=variables(driver.manager_env, without=GATE_VARIABLES),
        resources=amounts(driver.resources),
        host_network=driver.host_network or any(part.host_network for part in parts),
        startup_probe=_probe(driver.startup_probe),
        liveness_probe=_probe(driver.liveness_probe),
        readiness_probe=_probe(driver.readiness_probe),
        rdma=driver.rdma if driver.rdma.enabled else Rdma(),
        gds=_part(driver.gds) if driver.gds.enabled else Gds(),
        gdrcopy=_part(driver.gdrcopy) if driver.gdrcopy.enabled else Gdrcopy(),
        pods=_pods(driver.pods),
    )


def variables(
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
    if any("$(" in variable.value for variable in said.values()):
        return tuple(said.values())
    return tuple(said[name] for name in sorted(said))


def amounts(resources: Resources) -> Resources:
    """Numbers as the texts that Kubernetes makes of them."""
    return Resources(
        limits={name: str(amount) for name, amount in resources.limits.items()},
        requests={name: str(amount) for name, amount in resources.requests.items()},
    )


def once(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, in order; no empty ones."""
    return tuple(dict.fromkeys(name for name in names if name))


def not_ours(words: Mapping[str, str]) -> dict[str, str]:
    """Labels or annotations without the keys that are ours to say."""
    return {
        key: value
        for key, value in words.items()
        if key not in _OURS and not key.startswith(_PREFIX)
    }


def tolerations(given: Iterable[Toleration]) -> tuple[Toleration, ...]:
    """What people add to ours, each once."""
    said = (
        msgspec.structs.replace(one, operator="") if one.operator == "Equal" else one
        for one in given
    )
    return tuple(one for one in dict.fromkeys(said) if one != GPU_TAINT)


def _image(image: Image, secrets: Iterable[str]) -> Image:
    path = path_of(image)
    return Image(
        repository="" if path else image.repository,
        image=path or image.image,
        version="" if path else image.version,
        image_pull_policy="" if image.image_pull_policy == PULLED else image.image_pull_policy,
        image_pull_secrets=once(secrets),
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
        resources=amounts(part.resources),
        env=variables(part.env, without=(DIGEST_VARIABLE,)),
        host_network=False,
    )


def _probe(probe: Probe | None) -> Probe | None:
    return None if probe == Probe() else probe


def _pods(pods: PodWishes) -> PodWishes:
    return msgspec.structs.replace(
        pods,
        labels=not_ours(pods.labels),
        annotations=not_ours(pods.annotations),
        tolerations=tolerations(pods.tolerations),
    )
