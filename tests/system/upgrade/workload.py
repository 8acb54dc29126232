"""What people run on the nodes: a service with GPUs, of which one pod at a time may be missing."""

from collections.abc import Mapping
from typing import Any, Final

from libs.testing.realnodes.build import BUSYBOX_IMAGE

RESOURCE: Final = "nvidia.com/gpu"

SERVICE: Final = "serve"
_LABELS: Final = {"app": SERVICE}
_OPEN: Final = "set -- /dev/nvidia[0-9]*; exec 3<$1"
SERVE: Final = f"{_OPEN}; trap 'exit 0' TERM; while :; do sleep 0.2; done"
"""Keeps the GPU open that the container was given."""
COMPUTE: Final = f"{_OPEN}; until [ -e /done ]; do sleep 0.2; done"
"""Keeps it open until the file is there."""


def container(resources: Mapping[str, Any], program: str = SERVE) -> dict[str, Any]:
    """Return a container of busybox with a GPU."""
    return {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "command": ["sh", "-c", program],
        "imagePullPolicy": "Never",
        "resources": resources,
    }


def service(replicas: int) -> list[dict[str, Any]]:
    """Return a Deployment with a pod per node that holds a GPU, and its disruption budget."""
    apart = {
        "labelSelector": {"matchLabels": _LABELS},
        "topologyKey": "kubernetes.io/hostname",
    }
    spec = {
        "containers": [container({"limits": {RESOURCE: 1}})],
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
