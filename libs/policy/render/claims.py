"""The DeviceClasses by which claims ask for GPUs, with the names of NVIDIA's driver."""

from collections.abc import Iterator
from typing import Final

from libs.policy.render.rendered import MANAGED_BY, Operand, RenderedObject

DRIVER: Final = "gpu.nvidia.com"
DEVICE_CLASSES: Final = (DRIVER, "mig.nvidia.com")
DEVICE_CLASS_KIND: Final = "DeviceClass"
DEVICE_CLASS_GROUP: Final = "resource.k8s.io"
_RESOURCE: Final = "nvidia.com/gpu"


def render_device_classes() -> Iterator[RenderedObject]:
    """Render a class for whole GPUs and one for MIG devices.

    From Kubernetes 1.36 on, a pod that asks for the device plugin's resource gets a claim instead.
    """
    for name, kind in zip(DEVICE_CLASSES, ("gpu", "mig"), strict=True):
        expression = (
            f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
        )
        spec: dict[str, object] = {"selectors": [{"cel": {"expression": expression}}]}
        if name == DRIVER:
            spec["extendedResourceName"] = _RESOURCE
        yield RenderedObject(
            operand=Operand.DRA,
            object={
                "apiVersion": f"{DEVICE_CLASS_GROUP}/v1",
                "kind": DEVICE_CLASS_KIND,
                "metadata": {
                    "name": name,
                    "labels": {"app.kubernetes.io/managed-by": MANAGED_BY},
                },
                "spec": spec,
            },
        )
