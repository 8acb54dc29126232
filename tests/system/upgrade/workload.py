"""What people run on the nodes: a service with GPUs, of which one pod at a time may be missing."""

from typing import Any, Final

from libs.testing.realnodes.build import BUSYBOX_IMAGE

RESOURCE: Final = "nvidia.com/gpu"

SERVICE: Final = "serve"
_LABELS: Final = {"app": SERVICE}
_PROGRAM: Final = (
    "set -- /dev/nvidia[0-9]*; exec 3<$1; trap 'exit 0' TERM; while :; do sleep 0.2; done"
)
"""Keeps the GPU open that the device plugin gave the container."""


def service(replicas: int) -> list[dict[str, Any]]:
    """Return a Deployment with a pod per node that holds a GPU, and its disruption budget."""
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "command": ["sh", "-c", _PROGRAM],
        "imagePullPolicy": "Never",
        "resources": {"limits": {RESOURCE: 1}},
    }
    apart = {
        "labelSelector": {"matchLabels": _LABELS},
        "topologyKey": "kubernetes.io/hostname",
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 5,
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        },
    }
    metadata = {"name": SERVICE, "namespace": "default"}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": spec},
            },
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata,
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _LABELS}},
        },
    ]
