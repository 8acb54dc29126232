"""Pods of tests on real nodes."""

from typing import Any, Final

from libs.testing.realnodes.build import BUSYBOX_IMAGE

_SCRIPT: Final = "echo started; exec sleep 3600"


def pod(name: str, node: str) -> dict[str, Any]:
    """Return a pod of busybox on a node, which logs that it has started."""
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "command": ["sh", "-c", _SCRIPT],
        "imagePullPolicy": "Never",
        "resources": {"limits": {"memory": "32Mi", "cpu": "100m"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
        },
    }
