"""The containers of a driver pod: image pull, gate, driver and extra kernel modules."""

from collections.abc import Sequence
from typing import Final

import msgspec

from libs.policy.digest import DriverIdentity
from libs.policy.images import MissingImage, variant_image
from libs.policy.kinds.common import ContainerSection, Image
from libs.policy.normalize import (
    DEFAULT_ARGUMENTS,
    DEFAULT_PULL_POLICY,
    DIGEST_VARIABLE,
    driver_env,
    merge_env,
    rdma_env,
)
from libs.policy.render import probes
from libs.policy.render.files import ConfigFiles
from libs.policy.render.pod_fields import (
    JsonObject,
    downward_api_env,
    drop_empty,
    env_fields,
    resource_fields,
    volume_mount,
)
from libs.policy.render.settings import RenderSettings
from libs.policy.render.volumes import GATE_DIR, DriverVolumes
from libs.policy.wanted import WantedDriver

_PRIVILEGED: Final = {"privileged": True, "seLinuxOptions": {"level": "s0"}}
_UNPRIVILEGED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
_AFTER_DRIVER: Final = (
    "until [ -d /run/nvidia/driver/usr/src ] && [ -d /sys/module/nvidia ]; do"
    ' echo "waiting for the driver"; sleep 10; done; exec {command}'
)
_PRE_STOP: Final = f"rm -f {probes.READY_FILE} {probes.DAEMONS_FILE}"


class ResolvedImages(msgspec.Struct, frozen=True, kw_only=True):
    """Image paths of one driver on one variant; empty for containers that are not wanted."""

    driver: str
    gds: str = ""
    gdrcopy: str = ""


def resolve_images(
    driver: WantedDriver, identity: DriverIdentity
) -> ResolvedImages | tuple[str, Image, MissingImage]:
    """Return the images, or the part without an image and the reason."""
    found: dict[str, str] = {}
    images = {"driver": driver.image}
    images |= {"gds": driver.gds} if driver.gds.enabled else {}
    images |= {"gdrcopy": driver.gdrcopy} if driver.gdrcopy.enabled else {}
    for part, image in images.items():
        path = variant_image(image, identity.variant)
        if isinstance(path, MissingImage):
            return part, image, path
        found[part] = path
    return ResolvedImages(**found)


def init_containers(
    driver: WantedDriver, identity: DriverIdentity, settings: RenderSettings, image: str
) -> list[JsonObject]:
    """Return the init containers.

    The driver's image is pulled while the old driver still runs; then the gate waits.
    """
    pull = {
        "name": "image-pull",
        "image": image,
        "imagePullPolicy": driver.image.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["true"],
        "securityContext": _UNPRIVILEGED,
    }
    gate = {
        "name": "gate",
        "image": settings.images.driver,
        "imagePullPolicy": settings.pull_policy,
        "args": ["gate"],
        "env": [
            *env_fields(merge_env(driver.manager_env, below=rdma_env(driver))),
            *downward_api_env(
                NODE_NAME="spec.nodeName",
                POD_NAME="metadata.name",
                POD_UID="metadata.uid",
                SLUICE_DRIVER_LABEL="metadata.labels['sluice.dev/driver']",
            ),
            {"name": DIGEST_VARIABLE, "value": identity.install_digest},
        ],
        # The gate writes into a host directory owned by root, whatever the pod's security context.
        "securityContext": {
            **_UNPRIVILEGED,
            "runAsUser": 0,
            "runAsNonRoot": False,
            "seLinuxOptions": {"type": "spc_t"},
        },
        "volumeMounts": [volume_mount("gate", GATE_DIR)],
    }
    return [pull, gate]


def containers(
    driver: WantedDriver,
    identity: DriverIdentity,
    images: ResolvedImages,
    volumes: DriverVolumes,
    files: ConfigFiles,
) -> list[JsonObject]:
    """Return the containers that start once the gate is open."""
    mounts = [*volumes.driver, *files.mounts, *files.modules]
    result = [_driver(driver, identity, images.driver, mounts)]
    mounts = list(volumes.modules)
    if driver.rdma.enabled:
        result.append(_peermem(driver, images.driver, [*mounts, *files.modules]))
    if images.gds:
        result.append(_module_container(driver.gds, "nvidia-fs", "nvidia_fs", images.gds, mounts))
    if images.gdrcopy:
        result.append(
            _module_container(driver.gdrcopy, "nvidia-gdrcopy", "gdrdrv", images.gdrcopy, mounts)
        )
    return result


def _driver(
    driver: WantedDriver, identity: DriverIdentity, image: str, mounts: Sequence[JsonObject]
) -> JsonObject:
    container = {
        "name": "nvidia-driver-ctr",
        "image": image,
        "imagePullPolicy": driver.image.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["nvidia-driver"],
        "args": list(driver.args or DEFAULT_ARGUMENTS),
        "env": _environment(driver, identity),
        "envFrom": [{"secretRef": {"name": driver.secret_env}}] if driver.secret_env else [],
        "resources": resource_fields(driver.resources),
        "securityContext": _PRIVILEGED,
        "volumeMounts": list(mounts),
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _PRE_STOP]}}},
    }
    driver_probes = probes.driver_probes(
        driver.startup_probe, driver.liveness_probe, driver.readiness_probe
    )
    return drop_empty({**container, **driver_probes})


def _environment(driver: WantedDriver, identity: DriverIdentity) -> list[JsonObject]:
    """Return the driver's environment: the policy's variables over the defaults.

    The driver writes the digest into its state file.
    """
    variables = merge_env(driver.env, below=driver_env(driver))
    names = {variable.name for variable in variables}
    node = {"NODE_NAME": "spec.nodeName", "NODE_IP": "status.hostIP"}
    return [
        *downward_api_env(**{name: path for name, path in node.items() if name not in names}),
        {"name": DIGEST_VARIABLE, "value": identity.install_digest},
        *env_fields(variables),
    ]


def _peermem(driver: WantedDriver, image: str, mounts: list[JsonObject]) -> JsonObject:
    return {
        "name": "nvidia-peermem-ctr",
        "image": image,
        "imagePullPolicy": driver.image.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["nvidia-driver"],
        "args": ["reload_nvidia_peermem"],
        # These variables say where the network driver is that the container waits for.
        "env": env_fields(rdma_env(driver)),
        "securityContext": _PRIVILEGED,
        "volumeMounts": mounts,
        **probes.module_probes("nvidia_peermem"),
    }


def _module_container(
    part: ContainerSection, name: str, module: str, image: str, mounts: list[JsonObject]
) -> JsonObject:
    """Return a container that loads an extra module from its own image."""
    command = "nvidia-gds-driver" if module == "nvidia_fs" else "nvidia-gdrcopy-driver"
    script = _AFTER_DRIVER.format(command=f"{command} install")
    container = {
        "name": f"{name}-ctr",
        "image": image,
        "imagePullPolicy": part.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["bash", "-c"],
        "args": list(part.args) or [script],
        "env": env_fields(part.env),
        "resources": resource_fields(part.resources),
        "securityContext": _PRIVILEGED,
        "volumeMounts": mounts,
    }
    return drop_empty({**container, **probes.module_probes(module)})
