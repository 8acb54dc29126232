"""Where a driver's containers meet the host."""

from typing import Final

import msgspec

from libs.policy.rendering.parts import Part, host, mount, under
from libs.policy.rendering.probes import SCRIPT, SCRIPT_CONFIG_MAP
from libs.policy.wanted import INSTALL_DIR, WantedDriver

BOTH_WAYS: Final = "Bidirectional"
FROM_HOST: Final = "HostToContainer"
GATE_DIR: Final = "/run/sluice/gate"
_MOFED: Final = "/run/mellanox/drivers"

_OWN: Final = (
    mount("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager"),
    mount("run-nvidia-topologyd", "/run/nvidia-topologyd"),
    mount("host-os-release", "/host-etc/os-release", read_only=True),
    mount("sysfs-memory-online", "/sys/devices/system/memory/auto_online_blocks"),
    mount("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
    mount("nv-firmware", "/lib/firmware"),
    {
        "name": "driver-startup-probe-script",
        "mountPath": SCRIPT,
        "subPath": SCRIPT.rpartition("/")[2],
        "readOnly": True,
    },
)
"""What the driver's container alone sees."""


class Volumes(msgspec.Struct, frozen=True, kw_only=True):
    """The pod's volumes, and what each container sees of them."""

    pod: tuple[Part, ...]
    driver: tuple[Part, ...]
    beside: tuple[Part, ...]
    """Of the containers that load one module more."""


def volumes(driver: WantedDriver) -> Volumes:
    """Those that no ConfigMap of people's is behind."""
    root = driver.host_root
    script = {"name": SCRIPT_CONFIG_MAP, "defaultMode": 0o755}
    pod = [
        host("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
        host("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager", "DirectoryOrCreate"),
        host("run-nvidia-topologyd", "/run/nvidia-topologyd", "DirectoryOrCreate"),
        host("var-log", "/var/log"),
        host("dev-log", "/dev/log"),
        host("host-os-release", under(root, "/etc/os-release")),
        host("sysfs-memory-online", "/sys/devices/system/memory/auto_online_blocks"),
        host("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
        host("nv-firmware", under(driver.install_dir, "/lib/firmware"), "DirectoryOrCreate"),
        host("gate", GATE_DIR, "DirectoryOrCreate"),
        {"name": "driver-startup-probe-script", "configMap": script},
    ]
    shared = [mount("run-nvidia", "/run/nvidia", propagation=BOTH_WAYS)]
    if driver.install_dir != INSTALL_DIR:
        pod.append(host("driver-install-dir", driver.install_dir, "DirectoryOrCreate"))
        shared.append(mount("driver-install-dir", INSTALL_DIR, propagation=BOTH_WAYS))
    logs = [mount("var-log", "/var/log"), mount("dev-log", "/dev/log")]
    mofed_volumes, mofed = _mofed(driver)
    return Volumes(
        pod=(*pod, *mofed_volumes),
        driver=(*shared, *logs, *_OWN, *mofed),
        beside=(*shared, *logs, *mofed),
    )


def _mofed(driver: WantedDriver) -> tuple[list[Part], list[Part]]:
    """The network driver's sources, against which nvidia-peermem is built."""
    if not driver.rdma.enabled:
        return [], []
    sources = mount("mlnx-ofed-usr-src", f"{_MOFED}/usr/src", propagation=FROM_HOST)
    if driver.rdma.use_host_mofed:
        return [host("mlnx-ofed-usr-src", under(driver.host_root, "/usr/src"))], [sources]
    pod = [
        host("mlnx-ofed-usr-src", f"{_MOFED}/usr/src", "DirectoryOrCreate"),
        host("run-mellanox-drivers", _MOFED, "DirectoryOrCreate"),
    ]
    return pod, [mount("run-mellanox-drivers", _MOFED, propagation=FROM_HOST), sources]
