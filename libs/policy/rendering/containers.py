"""The containers of a driver pod: its image pulled, the gate, the driver, and extra modules."""

from collections.abc import Sequence
from typing import Final

import msgspec

from libs.policy.digest import DriverIdentity
from libs.policy.images import NoImage, image_for
from libs.policy.kinds.common import Image, Operand
from libs.policy.normal import (
    ARGUMENTS,
    DIGEST_VARIABLE,
    PULLED,
    of_driver,
    of_rdma,
    variables,
)
from libs.policy.rendering import probes
from libs.policy.rendering.files import Files
from libs.policy.rendering.parts import Part, literal, mount, needs, of_pod, some
from libs.policy.rendering.settings import Settings
from libs.policy.rendering.volumes import GATE_DIR, Volumes
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


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """The images of one driver on one variant; empty: that container is not wanted."""

    driver: str
    gds: str = ""
    gdrcopy: str = ""


def paths(wanted: WantedDriver, identity: DriverIdentity) -> Paths | tuple[str, Image, NoImage]:
    """All its images; else which part has none, and why."""
    found: dict[str, str] = {}
    images = {"driver": wanted.image}
    images |= {"gds": wanted.gds} if wanted.gds.enabled else {}
    images |= {"gdrcopy": wanted.gdrcopy} if wanted.gdrcopy.enabled else {}
    for part, image in images.items():
        path = image_for(image, identity.variant)
        if isinstance(path, NoImage):
            return part, image, path
        found[part] = path
    return Paths(**found)


def init_containers(
    wanted: WantedDriver, identity: DriverIdentity, settings: Settings, image: str
) -> list[Part]:
    """The driver's image is pulled while the old driver still runs; then the gate waits."""
    pull = {
        "name": "image-pull",
        "image": image,
        "imagePullPolicy": wanted.image.image_pull_policy or PULLED,
        "command": ["true"],
        "securityContext": _UNPRIVILEGED,
    }
    gate = {
        "name": "gate",
        "image": settings.images.driver,
        "imagePullPolicy": settings.pull_policy,
        "args": ["gate"],
        "env": [
            *literal(variables(wanted.manager_env, below=of_rdma(wanted))),
            *of_pod(
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
        "volumeMounts": [mount("gate", GATE_DIR)],
    }
    return [pull, gate]


def containers(
    wanted: WantedDriver,
    identity: DriverIdentity,
    images: Paths,
    volumes: Volumes,
    files: Files,
) -> list[Part]:
    """What runs once the gate is open."""
    mounts = [*volumes.driver, *files.places, *files.modules]
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
    wanted: WantedDriver, identity: DriverIdentity, image: str, mounts: Sequence[Part]
) -> Part:
    made = {
        "name": "nvidia-driver-ctr",
        "image": image,
        "imagePullPolicy": wanted.image.image_pull_policy or PULLED,
        "command": ["nvidia-driver"],
        "args": list(wanted.args or ARGUMENTS),
        "env": _environment(wanted, identity),
        "envFrom": [{"secretRef": {"name": wanted.secret_env}}] if wanted.secret_env else [],
        "resources": needs(wanted.resources),
        "securityContext": _PRIVILEGED,
        "volumeMounts": list(mounts),
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _PRE_STOP]}}},
    }
    driver_probes = probes.of_driver(
        wanted.startup_probe, wanted.liveness_probe, wanted.readiness_probe
    )
    return some({**made, **driver_probes})


def _environment(wanted: WantedDriver, identity: DriverIdentity) -> list[Part]:
    """Ours, with people's over it; the digest is what the driver writes into its state file."""
    said = variables(wanted.env, below=of_driver(wanted))
    given = {variable.name for variable in said}
    node = {"NODE_NAME": "spec.nodeName", "NODE_IP": "status.hostIP"}
    return [
        *of_pod(**{name: path for name, path in node.items() if name not in given}),
        {"name": DIGEST_VARIABLE, "value": identity.install_digest},
        *literal(said),
    ]


def _peermem(wanted: WantedDriver, image: str, mounts: list[Part]) -> Part:
    return {
        "name": "nvidia-peermem-ctr",
        "image": image,
        "imagePullPolicy": wanted.image.image_pull_policy or PULLED,
        "command": ["nvidia-driver"],
        "args": ["reload_nvidia_peermem"],
        # It waits for the network driver where these say that it is.
        "env": literal(of_rdma(wanted)),
        "securityContext": _PRIVILEGED,
        "volumeMounts": mounts,
        **probes.of_module("nvidia_peermem"),
    }


def _beside(part: Operand, name: str, module: str, image: str, mounts: list[Part]) -> Part:
    """A container that loads one module more, from an image of its own."""
    command = "nvidia-gds-driver" if module == "nvidia_fs" else "nvidia-gdrcopy-driver"
    waits = _AFTER_DRIVER.format(command=f"{command} install")
    made = {
        "name": f"{name}-ctr",
        "image": image,
        "imagePullPolicy": part.image_pull_policy or PULLED,
        "command": ["bash", "-c"],
        "args": list(part.args) or [waits],
        "env": literal(part.env),
        "resources": needs(part.resources),
        "securityContext": _PRIVILEGED,
        "volumeMounts": mounts,
    }
    return some({**made, **probes.of_module(module)})
