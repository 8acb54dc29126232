"""Helpers that build the fields of pods."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from libs.policy.digest import (
    DEFAULT_ARGUMENTS,
    DEFAULT_PULL_POLICY,
    DIGEST_VARIABLE,
    GPU_TAINT,
    LIVENESS_PROBE,
    READINESS_PROBE,
    STARTUP_PROBE,
    DriverIdentity,
    driver_env,
    merge_env,
    normalize_quantities,
    rdma_env,
    user_tolerations,
)
from libs.policy.kinds.common import (
    ContainerSection,
    EnvVar,
    Image,
    Probe,
    ResourceRequirements,
    Toleration,
)
from libs.policy.render.rendered import MANAGED_BY, RenderSettings
from libs.policy.variants import MissingImage, variant_image
from libs.policy.wanted import INSTALL_DIR, WantedDriver

JsonObject = dict[str, Any]

COMMON_LABELS: Final = {
    "app.kubernetes.io/managed-by": MANAGED_BY,
    "app.kubernetes.io/part-of": "gpu-operator",
}
"""Labels of every rendered object; scripts select operands by `part-of`."""


def drop_empty(entries: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in entries.items() if value not in (None, "", {}, [], ())}


def env_fields(variables: Iterable[EnvVar]) -> list[JsonObject]:
    return [{"name": variable.name, "value": variable.value} for variable in variables]


def downward_api_env(**fields: str) -> list[JsonObject]:
    """Return variables that hold pod fields through the downward API."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]


def name_references(secrets: Iterable[str]) -> list[JsonObject]:
    return [{"name": name} for name in secrets]


def host_volume(name: str, path: str, kind: str = "") -> JsonObject:
    return {"name": name, "hostPath": drop_empty({"path": path, "type": kind})}


def volume_mount(
    name: str, path: str, *, propagation: str = "", read_only: bool = False
) -> JsonObject:
    part = drop_empty({"name": name, "mountPath": path, "mountPropagation": propagation})
    return {**part, "readOnly": True} if read_only else part


def resource_fields(resources: ResourceRequirements) -> JsonObject:
    quantities = normalize_quantities(resources)
    return drop_empty({"limits": quantities.limits, "requests": quantities.requests})


def pod_tolerations(tolerations: Iterable[Toleration]) -> list[JsonObject]:
    """Return the GPU taint's toleration and the given ones."""
    return [
        msgspec.to_builtins(toleration)
        for toleration in (GPU_TAINT, *user_tolerations(tolerations))
    ]


def path_under(root: str, path: str) -> str:
    """Return an absolute host path as seen where the host's root is `root`."""
    return f"{root.rstrip('/')}{path}"


SCRIPT: Final = "/usr/local/bin/startup-probe.sh"
SCRIPT_CONFIG_MAP: Final = "nvidia-driver-startup-probe"
READY_FILE: Final = "/run/nvidia/validations/.driver-ctr-ready"
DAEMONS_FILE: Final = "/run/nvidia/validations/.driver-daemons-status"

SCRIPT_TEXT: Final = f"""#!/bin/sh
# The driver has started once its kernel module, its daemons and nvidia-smi say so. What the
# validator reads of the driver's extra modules is written then.
if [ ! -f /sys/module/nvidia/refcnt ]; then
  echo "the kernel module nvidia is not loaded yet"
  exit 1
fi
if [ -f {DAEMONS_FILE} ]; then
  status=$(cat {DAEMONS_FILE})
  if [ "$status" != Ready ]; then
    echo "the driver's daemons say '$status', not Ready"
    exit 1
  fi
fi
if ! nvidia-smi; then
  echo "nvidia-smi failed"
  exit 1
fi
mkdir -p /run/nvidia/validations
cat > {READY_FILE}.new <<END
GDRCOPY_ENABLED: ${{GDRCOPY_ENABLED:-false}}
GDS_ENABLED: ${{GDS_ENABLED:-false}}
GPU_DIRECT_RDMA_ENABLED: ${{GPU_DIRECT_RDMA_ENABLED:-false}}
END
mv {READY_FILE}.new {READY_FILE}
"""

_MODULE_PROBE: Final = Probe(
    initial_delay_seconds=10, timeout_seconds=10, period_seconds=10, failure_threshold=120
)


def driver_probes(
    startup: Probe | None, liveness: Probe | None, readiness: Probe | None
) -> JsonObject:
    """Return the probes of the driver container.

    Liveness and readiness probes exist only if the policy sets them: restarting a driver
    interrupts its users.
    """
    probes = {"startupProbe": _probe(["sh", "-c", SCRIPT], STARTUP_PROBE, startup)}
    if liveness:
        probes["livenessProbe"] = _probe(
            ["test", "-f", "/sys/module/nvidia/refcnt"], LIVENESS_PROBE, liveness
        )
    if readiness:
        probes["readinessProbe"] = _probe(["test", "-f", READY_FILE], READINESS_PROBE, readiness)
    return probes


def module_probes(module: str) -> JsonObject:
    """Return the probes of a container that loads an extra module."""
    command = ["test", "-d", f"/sys/module/{module}"]
    return {
        "startupProbe": _probe(command, _MODULE_PROBE, None),
        "livenessProbe": _probe(command, LIVENESS_PROBE, None),
    }


def _probe(command: list[str], defaults: Probe, given: Probe | None) -> JsonObject:
    fields: JsonObject = {**msgspec.to_builtins(defaults)}
    if given:
        fields |= msgspec.to_builtins(given)
    return {"exec": {"command": command}, **fields}


BOTH_WAYS: Final = "Bidirectional"
FROM_HOST: Final = "HostToContainer"
GATE_DIR: Final = "/run/sluice/gate"
_MOFED: Final = "/run/mellanox/drivers"

_DRIVER_MOUNTS: Final = (
    volume_mount("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager"),
    volume_mount("run-nvidia-topologyd", "/run/nvidia-topologyd"),
    volume_mount("host-os-release", "/host-etc/os-release", read_only=True),
    volume_mount("sysfs-memory-online", "/sys/devices/system/memory/auto_online_blocks"),
    volume_mount("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
    volume_mount("nv-firmware", "/lib/firmware"),
    {
        "name": "driver-startup-probe-script",
        "mountPath": SCRIPT,
        "subPath": SCRIPT.rpartition("/")[2],
        "readOnly": True,
    },
)
"""Mounts of the driver container only."""


class ConfigFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes and one mount per file: mounting a directory would hide the image's files there."""

    volumes: tuple[JsonObject, ...]
    mounts: tuple[JsonObject, ...]
    """Mounts of the driver container only."""
    modules: tuple[JsonObject, ...]
    """Module parameters, mounted by every container that loads one of the driver's modules."""


class DriverVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """The pod's volumes and each container's mounts."""

    pod: tuple[JsonObject, ...]
    driver: tuple[JsonObject, ...]
    modules: tuple[JsonObject, ...]
    """Mounts of the containers that load extra modules."""


def driver_volumes(driver: WantedDriver) -> DriverVolumes:
    """Return the volumes that do not come from the policy's ConfigMaps."""
    root = driver.host_root
    script = {"name": SCRIPT_CONFIG_MAP, "defaultMode": 0o755}
    pod = [
        host_volume("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
        host_volume("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager", "DirectoryOrCreate"),
        host_volume("run-nvidia-topologyd", "/run/nvidia-topologyd", "DirectoryOrCreate"),
        host_volume("var-log", "/var/log"),
        host_volume("dev-log", "/dev/log"),
        host_volume("host-os-release", path_under(root, "/etc/os-release")),
        host_volume("sysfs-memory-online", "/sys/devices/system/memory/auto_online_blocks"),
        host_volume("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
        host_volume(
            "nv-firmware", path_under(driver.install_dir, "/lib/firmware"), "DirectoryOrCreate"
        ),
        host_volume("gate", GATE_DIR, "DirectoryOrCreate"),
        {"name": "driver-startup-probe-script", "configMap": script},
    ]
    shared = [volume_mount("run-nvidia", "/run/nvidia", propagation=BOTH_WAYS)]
    if driver.install_dir != INSTALL_DIR:
        pod.append(host_volume("driver-install-dir", driver.install_dir, "DirectoryOrCreate"))
        shared.append(volume_mount("driver-install-dir", INSTALL_DIR, propagation=BOTH_WAYS))
    logs = [volume_mount("var-log", "/var/log"), volume_mount("dev-log", "/dev/log")]
    mofed_volumes, mofed = _mofed(driver)
    return DriverVolumes(
        pod=(*pod, *mofed_volumes),
        driver=(*shared, *logs, *_DRIVER_MOUNTS, *mofed),
        modules=(*shared, *logs, *mofed),
    )


def _mofed(driver: WantedDriver) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return volumes and mounts of the network driver's sources, which nvidia-peermem needs."""
    if not driver.rdma.enabled:
        return [], []
    sources = volume_mount("mlnx-ofed-usr-src", f"{_MOFED}/usr/src", propagation=FROM_HOST)
    if driver.rdma.use_host_mofed:
        return [host_volume("mlnx-ofed-usr-src", path_under(driver.host_root, "/usr/src"))], [
            sources
        ]
    pod = [
        host_volume("mlnx-ofed-usr-src", f"{_MOFED}/usr/src", "DirectoryOrCreate"),
        host_volume("run-mellanox-drivers", _MOFED, "DirectoryOrCreate"),
    ]
    return pod, [volume_mount("run-mellanox-drivers", _MOFED, propagation=FROM_HOST), sources]


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
_PRE_STOP: Final = f"rm -f {READY_FILE} {DAEMONS_FILE}"


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
    timing = driver_probes(driver.startup_probe, driver.liveness_probe, driver.readiness_probe)
    return drop_empty({**container, **timing})


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
        **module_probes("nvidia_peermem"),
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
    return drop_empty({**container, **module_probes(module)})
