"""The containers of a driver pod: its image pulled, the gate, the driver, and extra modules."""

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
    """The images of one driver on one variant; empty: that container is not wanted."""

    driver: str
    gds: str = ""
    gdrcopy: str = ""


def resolve_images(
    wanted: WantedDriver, identity: DriverIdentity
) -> ResolvedImages | tuple[str, Image, MissingImage]:
    """All its images; else which part has none, and why."""
    found: dict[str, str] = {}
    images = {"driver": wanted.image}
    images |= {"gds": wanted.gds} if wanted.gds.enabled else {}
    images |= {"gdrcopy": wanted.gdrcopy} if wanted.gdrcopy.enabled else {}
    for part, image in images.items():
        path = variant_image(image, identity.variant)
        if isinstance(path, MissingImage):
            return part, image, path
        found[part] = path
    return ResolvedImages(**found)


def init_containers(
    wanted: WantedDriver, identity: DriverIdentity, settings: RenderSettings, image: str
) -> list[JsonObject]:
    """The driver's image is pulled while the old driver still runs; then the gate waits."""
    pull = {
        "name": "image-pull",
        "image": image,
        "imagePullPolicy": wanted.image.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["true"],
        "securityContext": _UNPRIVILEGED,
    }
    gate = {
        "name": "gate",
        "image": settings.images.driver,
        "imagePullPolicy": settings.pull_policy,
        "args": ["gate"],
        "env": [
            *env_fields(merge_env(wanted.manager_env, below=rdma_env(wanted))),
            *downward_api_env(
                NODE_NAME="spec.nodeName",
                POD_NAME="metadata.name",
                POD_UID="metadata.uid",
                SLUICE_DRIVER_LABEL="metadata.labels['sluice.dev/driver']",
            ),
            {"name": DIGEST_VARIABLE, "value": identity.install_digest},
        ],
        # Whatever people say of the pod, it writes into a directory of the host and root's.
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
    wanted: WantedDriver,
    identity: DriverIdentity,
    images: ResolvedImages,
    volumes: DriverVolumes,
    files: ConfigFiles,
) -> list[JsonObject]:
    """What runs once the gate is open."""
    mounts = [*volumes.driver, *files.mounts, *files.modules]
    made = [_driver(wanted, identity, images.driver, mounts)]
    mounts = list(volumes.beside)
    if wanted.rdma.enabled:
        made.append(_peermem(wanted, images.driver, [*mounts, *files.modules]))
    if images.gds:
        made.append(_beside(wanted.gds, "nvidia-fs", "nvidia_fs", images.gds, mounts))
    if images.gdrcopy:
        made.append(_beside(wanted.gdrcopy, "nvidia-gdrcopy", "gdrdrv", images.gdrcopy, mounts))
    return made


def _driver(
    wanted: WantedDriver, identity: DriverIdentity, image: str, mounts: Sequence[JsonObject]
) -> JsonObject:
    made = {
        "name": "nvidia-driver-ctr",
        "image": image,
        "imagePullPolicy": wanted.image.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["nvidia-driver"],
        "args": list(wanted.args or DEFAULT_ARGUMENTS),
        "env": _environment(wanted, identity),
        "envFrom": [{"secretRef": {"name": wanted.secret_env}}] if wanted.secret_env else [],
        "resources": resource_fields(wanted.resources),
        "securityContext": _PRIVILEGED,
        "volumeMounts": list(mounts),
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _PRE_STOP]}}},
    }
    driver_probes = probes.driver_probes(
        wanted.startup_probe, wanted.liveness_probe, wanted.readiness_probe
    )
    return drop_empty({**made, **driver_probes})


def _environment(wanted: WantedDriver, identity: DriverIdentity) -> list[JsonObject]:
    """Ours, with people's over it; the digest is what the driver writes into its state file."""
    said = merge_env(wanted.env, below=driver_env(wanted))
    given = {variable.name for variable in said}
    node = {"NODE_NAME": "spec.nodeName", "NODE_IP": "status.hostIP"}
    return [
        *downward_api_env(**{name: path for name, path in node.items() if name not in given}),
        {"name": DIGEST_VARIABLE, "value": identity.install_digest},
        *env_fields(said),
    ]


def _peermem(wanted: WantedDriver, image: str, mounts: list[JsonObject]) -> JsonObject:
    return {
        "name": "nvidia-peermem-ctr",
        "image": image,
        "imagePullPolicy": wanted.image.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["nvidia-driver"],
        "args": ["reload_nvidia_peermem"],
        # It waits for the network driver where these say that it is.
        "env": env_fields(rdma_env(wanted)),
        "securityContext": _PRIVILEGED,
        "volumeMounts": mounts,
        **probes.module_probes("nvidia_peermem"),
    }


def _beside(
    part: ContainerSection, name: str, module: str, image: str, mounts: list[JsonObject]
) -> JsonObject:
    """A container that loads one module more, from an image of its own."""
    command = "nvidia-gds-driver" if module == "nvidia_fs" else "nvidia-gdrcopy-driver"
    waits = _AFTER_DRIVER.format(command=f"{command} install")
    made = {
        "name": f"{name}-ctr",
        "image": image,
        "imagePullPolicy": part.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["bash", "-c"],
        "args": list(part.args) or [waits],
        "env": env_fields(part.env),
        "resources": resource_fields(part.resources),
        "securityContext": _PRIVILEGED,
        "volumeMounts": mounts,
    }
    return drop_empty({**made, **probes.module_probes(module)})
