"""The ResourceSlice of a node. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from services.driver.dra.devices import ClaimDevice
from services.driver.dra.resources import DRIVER, Node

MAX_DEVICES: Final = 128
"""Of one slice, by the API server's rules."""


def slice_name(node: Node) -> str:
    return f"{node.name}-{DRIVER}"


def slice_of(node: Node, devices: Iterable[ClaimDevice], *, version: str) -> dict[str, Any]:
    """Return the node's only slice; without devices nothing of the node is allocated."""
    return {
        "metadata": {
            "name": slice_name(node),
            # It ends with the Node.
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": node.name,
                    "uid": node.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(each, version) for each in devices],
        },
    }


def _device(device: ClaimDevice, version: str) -> dict[str, Any]:
    described = {
        "attributes": dict(device.attributes),
        "capacity": {name: {"value": value} for name, value in device.capacity.items()},
    }
    # The first version leaves room for devices of other shapes.
    return {"name": device.name, **({"basic": described} if version == "v1beta1" else described)}
