"""The pod of a driver: image pull, gate, driver, extra kernel modules."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.contracts.paths import DRIVER_CONTAINER
from libs.policy.digest import DriverIdentity
from libs.policy.installation import DRIVER_ACCOUNT
from libs.policy.kinds.common import (
    ContainerSection,
    EnvVar,
    Probe,
)
from libs.policy.normal_form import DIGEST_VARIABLE, driver_variables, merge_env, rdma_env
from libs.policy.render.pod_fields import (
    BOTH_WAYS,
    CREATE,
    FROM_HOST,
    MODULE_CONFIG,
    ConfigFiles,
    JsonObject,
    downward_api_env,
    drop_empty,
    env_fields,
    host_volume,
    pod_tolerations,
    pull_secrets,
    resource_fields,
    volume_mount,
)
from libs.policy.render.rendered import SCRIPT_CONFIG_MAP, RenderSettings
from libs.policy.wanted import (
    DEFAULT_ARGUMENTS,
    DEFAULT_PRIORITY_CLASS,
    DEFAULT_PULL_POLICY,
    INSTALL_DIR,
    LIVENESS_PROBE,
    READINESS_PROBE,
    STARTUP_PROBE,
    WantedDriver,
)

GATE_DIR: Final = "/run/sluice/gate"
SCRIPT: Final = "/usr/local/bin/startup-probe.sh"
READY_FILE: Final = "/run/nvidia/validations/.driver-ctr-ready"
DAEMONS_FILE: Final = "/run/nvidia/validations/.driver-daemons-status"

_MOFED: Final = "/run/mellanox/drivers"
_WITHOUT_GPUS: Final = EnvVar(name="NVIDIA_VISIBLE_DEVICES", value="void")
"""Keeps a runtime that injects drivers, where one is the default, away from driver containers."""
_PRIVILEGED: Final = {"privileged": True, "seLinuxOptions": {"level": "s0"}}
_UNPRIVILEGED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
_LAST_LOG_LINES: Final = "FallbackToLogsOnError"
"""The pod's status says what a container that failed had logged last."""
_PEERMEM_PROBE: Final = ["nvidia-driver", "probe_nvidia_peermem"]
_PRE_STOP: Final = f"rm -f {READY_FILE} {DAEMONS_FILE}"
_MODULE_PROBE: Final = Probe(
    initial_delay_seconds=10, timeout_seconds=10, period_seconds=10, failure_threshold=120
)


def driver_pod(
    driver: WantedDriver,
    identity: DriverIdentity,
    settings: RenderSettings,
    images: Mapping[str, str],
    files: ConfigFiles,
    *,
    startup_taint: str = "",
) -> JsonObject:
    """Return the spec of a driver's pod.

    `driver` is normal; `images` are by part: `driver`, and `gds` and `gdrcopy` if enabled. The
    toleration of the startup taint is in no digest: it replaces no driver.
    """
    return drop_empty(
        {
            "hostPID": True,
            "hostNetwork": driver.host_network or None,
            "serviceAccountName": DRIVER_ACCOUNT,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": {DRIVER_LABEL: identity.label},
            "tolerations": pod_tolerations(driver.pods.tolerations, (startup_taint,)),
            "priorityClassName": driver.pods.priority_class_name or DEFAULT_PRIORITY_CLASS,
            "securityContext": driver.pods.security_context,
            "imagePullSecrets": pull_secrets(
                (*driver.image.image_pull_secrets, *settings.pull_secrets)
            ),
            "initContainers": _init_containers(driver, identity, settings, images["driver"]),
            "containers": _containers(driver, identity, images, files),
            "volumes": [*_volumes(driver), *files.volumes],
        }
    )


def _init_containers(
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
        "env": env_fields([_WITHOUT_GPUS]),
        "securityContext": _UNPRIVILEGED,
    }
    pod_fields = {
        "NODE_NAME": "spec.nodeName",
        "POD_NAME": "metadata.name",
        "POD_UID": "metadata.uid",
        "SLUICE_DRIVER_LABEL": "metadata.labels['sluice.dev/driver']",
    }
    gate = {
        "name": "gate",
        "image": settings.images.driver,
        "imagePullPolicy": settings.pull_policy,
        "args": ["services.driver", "gate"],
        "env": [
            *downward_api_env(pod_fields),
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
    if not driver.rdma.enabled:
        return [pull, gate]
    wait = {**pull, "name": "network-driver", "command": ["sh", "-c", _network_wait(driver)]}
    if not driver.rdma.use_host_mofed:
        wait["volumeMounts"] = [volume_mount("run-mellanox-drivers", _MOFED, propagation=FROM_HOST)]
    return [pull, wait, gate]


def _network_wait(driver: WantedDriver) -> str:
    """Return the script that waits for the network driver, which nvidia-peermem is built with.

    A machine without such a network card has nothing to wait for.
    """
    is_ready, what = f"[ -f {_MOFED}/.driver-ready ]", f"{_MOFED}/.driver-ready to exist"
    if driver.rdma.use_host_mofed:
        is_ready, what = "grep -q '^mlx5_core ' /proc/modules", "mlx5_core to be loaded"
    return (
        "grep -qs 0x15b3 /sys/bus/pci/devices/*/vendor || exit 0;"
        f' until {is_ready}; do echo "waiting for {what}"; sleep 5; done'
    )


def _containers(
    driver: WantedDriver, identity: DriverIdentity, images: Mapping[str, str], files: ConfigFiles
) -> list[JsonObject]:
    """Return the containers that start once the gate is open."""
    driver_mounts, mounts = _mounts(driver)
    parameters = [mount for mount in files.mounts if mount["name"] == MODULE_CONFIG]
    containers = [_driver(driver, identity, images["driver"], [*driver_mounts, *files.mounts])]
    if driver.rdma.enabled:
        containers.append(_peermem(driver, images["driver"], [*mounts, *parameters]))
    if "gds" in images:
        containers.append(_extra_module("nvidia_fs", driver.gds, images["gds"], mounts))
    if "gdrcopy" in images:
        containers.append(_extra_module("gdrdrv", driver.gdrcopy, images["gdrcopy"], mounts))
    return containers


def _driver(
    driver: WantedDriver, identity: DriverIdentity, image: str, mounts: Sequence[JsonObject]
) -> JsonObject:
    """Return the driver's container, in which the policy's variables override the defaults.

    The driver writes the digest into its state file.
    """
    variables = merge_env(driver_variables(driver), below=[_WITHOUT_GPUS])
    pod_fields = {"NODE_NAME": "spec.nodeName", "NODE_IP": "status.hostIP"}
    for variable in variables:
        pod_fields.pop(variable.name, None)
    container = {
        "name": DRIVER_CONTAINER,
        "image": image,
        "imagePullPolicy": driver.image.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["nvidia-driver"],
        "args": list(driver.args or DEFAULT_ARGUMENTS),
        "env": [
            *downward_api_env(pod_fields),
            {"name": DIGEST_VARIABLE, "value": identity.install_digest},
            *env_fields(variables),
        ],
        "envFrom": [{"secretRef": {"name": driver.secret_env}}] if driver.secret_env else [],
        "resources": resource_fields(driver.resources),
        "securityContext": _PRIVILEGED,
        "volumeMounts": list(mounts),
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _PRE_STOP]}}},
        "terminationMessagePolicy": _LAST_LOG_LINES,
        "startupProbe": _probe(["sh", "-c", SCRIPT], STARTUP_PROBE, driver.startup_probe),
    }
    # The other probes exist only if the policy sets them: a restart interrupts the driver's users.
    if driver.liveness_probe:
        command = ["test", "-f", "/sys/module/nvidia/refcnt"]
        container["livenessProbe"] = _probe(command, LIVENESS_PROBE, driver.liveness_probe)
    if driver.readiness_probe:
        command = ["test", "-f", READY_FILE]
        container["readinessProbe"] = _probe(command, READINESS_PROBE, driver.readiness_probe)
    return drop_empty(container)


def _peermem(driver: WantedDriver, image: str, mounts: list[JsonObject]) -> JsonObject:
    return {
        "name": "nvidia-peermem-ctr",
        "image": image,
        "imagePullPolicy": driver.image.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["nvidia-driver"],
        "args": ["reload_nvidia_peermem"],
        # These variables locate the network driver that the container waits for.
        "env": env_fields((_WITHOUT_GPUS, *rdma_env(driver))),
        "securityContext": _PRIVILEGED,
        "volumeMounts": mounts,
        "terminationMessagePolicy": _LAST_LOG_LINES,
        # The vendor's own probe succeeds while no network driver is loaded: on a machine without
        # such a card the module is never loaded, and nothing is wrong.
        "startupProbe": _probe(_PEERMEM_PROBE, _MODULE_PROBE),
        "livenessProbe": _probe(_PEERMEM_PROBE, LIVENESS_PROBE, Probe(failure_threshold=1)),
    }


def _extra_module(
    module: str, part: ContainerSection, image: str, mounts: list[JsonObject]
) -> JsonObject:
    """Return a container that loads an extra module from its own image."""
    name, command = {
        "nvidia_fs": ("nvidia-fs-ctr", "nvidia-gds-driver"),
        "gdrdrv": ("nvidia-gdrcopy-ctr", "nvidia-gdrcopy-driver"),
    }[module]
    script = (
        "until [ -d /run/nvidia/driver/usr/src ] && [ -d /sys/module/nvidia ]; do"
        f' echo "waiting for the driver"; sleep 10; done; exec {command} install'
    )
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": part.image_pull_policy or DEFAULT_PULL_POLICY,
        "command": ["bash", "-c"],
        "args": list(part.args) or [script],
        "env": env_fields(merge_env(part.env, below=[_WITHOUT_GPUS])),
        "resources": resource_fields(part.resources),
        "securityContext": _PRIVILEGED,
        "volumeMounts": mounts,
        "terminationMessagePolicy": _LAST_LOG_LINES,
    }
    return drop_empty({**container, **_module_probes(module)})


def _module_probes(module: str) -> JsonObject:
    command = ["test", "-d", f"/sys/module/{module}"]
    return {
        "startupProbe": _probe(command, _MODULE_PROBE),
        "livenessProbe": _probe(command, LIVENESS_PROBE),
    }


def _probe(command: list[str], defaults: Probe, overrides: Probe | None = None) -> JsonObject:
    fields = {**msgspec.to_builtins(defaults), **msgspec.to_builtins(overrides or Probe())}
    return {"exec": {"command": command}, **fields}


def _volumes(driver: WantedDriver) -> list[JsonObject]:
    """Return the pod's volumes, except those of the policy's ConfigMaps."""
    root = driver.host_root.rstrip("/")
    volumes = [
        host_volume("run-nvidia", "/run/nvidia", CREATE),
        host_volume("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager", CREATE),
        host_volume("run-nvidia-topologyd", "/run/nvidia-topologyd", CREATE),
        host_volume("var-log", "/var/log"),
        host_volume("dev-log", "/dev/log"),
        host_volume("host-os-release", f"{root}/etc/os-release"),
        # The folder, not the file for hot-plugged memory in it: not every kernel has that file, and
        # a pod does not start without what it mounts.
        host_volume("host-sys-devices-system", "/sys/devices/system", "Directory"),
        host_volume("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
        host_volume("nv-firmware", f"{driver.install_dir.rstrip('/')}/lib/firmware", CREATE),
        host_volume("gate", GATE_DIR, CREATE),
        {
            "name": "driver-startup-probe-script",
            "configMap": {"name": SCRIPT_CONFIG_MAP, "defaultMode": 0o755},
        },
    ]
    if driver.install_dir != INSTALL_DIR:
        volumes.append(host_volume("driver-install-dir", driver.install_dir, CREATE))
    if driver.rdma.enabled and driver.rdma.use_host_mofed:
        volumes.append(host_volume("mlnx-ofed-usr-src", f"{root}/usr/src"))
    elif driver.rdma.enabled:
        volumes.append(host_volume("mlnx-ofed-usr-src", f"{_MOFED}/usr/src", CREATE))
        volumes.append(host_volume("run-mellanox-drivers", _MOFED, CREATE))
    return volumes


def _mounts(driver: WantedDriver) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return the mounts of the driver container, and of containers that load extra modules."""
    shared = [volume_mount("run-nvidia", "/run/nvidia", propagation=BOTH_WAYS)]
    if driver.install_dir != INSTALL_DIR:
        shared.append(volume_mount("driver-install-dir", INSTALL_DIR, propagation=BOTH_WAYS))
    shared += [volume_mount("var-log", "/var/log"), volume_mount("dev-log", "/dev/log")]
    own = [
        volume_mount("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager"),
        volume_mount("run-nvidia-topologyd", "/run/nvidia-topologyd"),
        volume_mount("host-os-release", "/host-etc/os-release", read_only=True),
        volume_mount("host-sys-devices-system", "/sys/devices/system"),
        volume_mount("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
        volume_mount("nv-firmware", "/lib/firmware"),
        {
            **volume_mount("driver-startup-probe-script", SCRIPT, read_only=True),
            "subPath": SCRIPT.rpartition("/")[2],
        },
    ]
    # The sources of the network driver, which nvidia-peermem needs.
    mofed: list[JsonObject] = []
    if driver.rdma.enabled and not driver.rdma.use_host_mofed:
        mofed.append(volume_mount("run-mellanox-drivers", _MOFED, propagation=FROM_HOST))
    if driver.rdma.enabled:
        mofed.append(volume_mount("mlnx-ofed-usr-src", f"{_MOFED}/usr/src", propagation=FROM_HOST))
    return [*shared, *own, *mofed], [*shared, *mofed]
