"""Host volumes of driver pods."""

from typing import Final

import msgspec

from libs.policy.render.pod_fields import JsonObject, host_volume, path_under, volume_mount
from libs.policy.render.probes import SCRIPT, SCRIPT_CONFIG_MAP
from libs.policy.wanted import INSTALL_DIR, WantedDriver

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
