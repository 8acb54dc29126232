"""The Node and Lease objects that a kubelet writes for its machine. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.kube.views import format_micro_time, format_time

GPU = "nvidia.com/gpu"

KERNEL = "5.15.0-139-generic"

LEASES_IN = "kube-node-lease"

_HEALTHY = {
    "MemoryPressure": (
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}
_FEATURES = (
    *(f"cpu-cpuid.{word}" for word in ("AVX", "AVX2", "AVX512F", "AVX512VNNI", "AMXTILE", "FMA3")),
    *(
        f"cpu-cpuid.{word}"
        for word in ("GFNI", "HYPERVISOR", "IBPB", "SHA", "VAES", "VMX", "WBNOINVD")
    ),
    *(f"kernel-config.{word}" for word in ("NO_HZ", "NO_HZ_FULL")),
    *(f"kernel-version.{word}" for word in ("full", "major", "minor", "revision")),
    *(
        f"pci-{word}.present"
        for word in ("10de", "10de.sriov.capable", "15b3", "15b3.sriov.capable")
    ),
    *(
        f"system-os_release.{word}"
        for word in ("ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor")
    ),
    *(f"storage-{word}" for word in ("nonrotationaldisk", "nvme")),
    *(f"memory-{word}" for word in ("numa", "swap")),
    *(f"network-{word}" for word in ("sriov.capable", "sriov.configured")),
    "rdma.available",
    "rdma.capable",
)


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """`full` makes a Node as large as real ones are."""

    gpus: int = 8
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    kernel: str = KERNEL
    full: bool = False


def node(
    name: str, hardware: Hardware, *, ip: str, boot_id: str, now: float, kernel: str = ""
) -> dict[str, Any]:
    """Return the Node to register; `kernel` where it is not the hardware's own."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
    }
    if hardware.full:
        labels |= {
            "node.kubernetes.io/instance-type": "gpu-8x-large",
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": "region-1-a",
        }
        labels |= {f"feature.node.kubernetes.io/{feature}": "true" for feature in _FEATURES}
    counts = {
        "cpu": "192",
        "memory": "2113407800Ki",
        "ephemeral-storage": "920748296Ki",
        "pods": "110",
        GPU: str(hardware.gpus),
    }
    status: dict[str, Any] = {
        "addresses": [
            {"type": "InternalIP", "address": ip},
            {"type": "Hostname", "address": name},
        ],
        "capacity": counts,
        "allocatable": counts,
        "conditions": conditions(now=now),
        "nodeInfo": node_info(boot_id=boot_id, kernel=kernel or hardware.kernel, machine=name),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    }
    if hardware.full:
        status["images"] = [_image(number) for number in range(50)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels | hardware.labels,
            "annotations": {
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                **hardware.annotations,
            },
        },
        "spec": {},
        "status": status,
    }


def device_counts(
    counts: tuple[Mapping[str, int], Mapping[str, int]] | None,
) -> dict[str, dict[str, str]]:
    """Return the devices of a Node; nothing where no device plugin offered any."""
    if counts is None:
        return {}
    names = ("capacity", "allocatable")
    return {
        name: {GPU: "0"} | {resource: str(count) for resource, count in found.items()}
        for name, found in zip(names, counts, strict=True)
    }


def conditions(*, now: float, since: str = "") -> list[dict[str, Any]]:
    """Return the four conditions of a healthy kubelet, healthy since the given time."""
    times = {"lastHeartbeatTime": format_time(now), "lastTransitionTime": since or format_time(now)}
    return [
        {"type": kind, "status": status, "reason": reason, "message": message, **times}
        for kind, (status, reason, message) in _HEALTHY.items()
    ]


def node_info(*, boot_id: str, kernel: str, machine: str) -> dict[str, str]:
    return {
        "machineID": machine,
        "systemUUID": machine,
        "bootID": boot_id,
        "kernelVersion": kernel,
        "osImage": "Ubuntu 22.04.5 LTS",
        "containerRuntimeVersion": "containerd://1.7.24",
        "kubeletVersion": "v1.37.1",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def lease(
    name: str, *, node_uid: str, seconds: int, now: float, resource_version: str
) -> dict[str, Any]:
    """Return the node's Lease, fenced on the resourceVersion if there is one."""
    metadata: dict[str, Any] = {"name": name, "namespace": LEASES_IN}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    metadata["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
    ]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": seconds,
            "renewTime": format_micro_time(now),
        },
    }


def _image(number: int) -> dict[str, Any]:
    repository = f"registry.example/platform/team-{number % 7}/component-{number:02d}"
    digest = f"{number:02x}" * 32
    return {
        "names": [f"{repository}@sha256:{digest}", f"{repository}:v1.{number}.0"],
        "sizeBytes": 50_000_000 + 1_000_003 * number,
    }
