"""Device (`gpu.nvidia.com/v1`): a GPU as Kubernetes sees it. Sluice alone writes it.

The fields are declared and described in `libs.contracts.device`. What the API server checks of them
is here.
"""

from libs.contracts import device
from libs.policy.kinds.common import AGE, Kind, Metadata, PrinterColumn
from libs.policy.shapes import About, FieldDetails, PolicyStruct

_REQUIRED = About(required=True)
_FROM_ZERO = About(minimum=0)
_DETAILS: FieldDetails = {
    device.DeviceSpec: {
        "node": _REQUIRED,
        "index": About(required=True, minimum=0),
        "memory": _FROM_ZERO,
    },
    device.DeviceHealth: {"state": _REQUIRED},
    device.MigDevice: {
        "uuid": _REQUIRED,
        "gpu_instance": _FROM_ZERO,
        "compute_instance": _FROM_ZERO,
        "memory": _FROM_ZERO,
    },
    device.DeviceNvlink: {"links": _FROM_ZERO},
}


class Device(PolicyStruct, frozen=True, kw_only=True):
    """The identity of a Device."""

    metadata: Metadata = Metadata()


DEVICE = Kind(
    name=device.KIND,
    group=device.GROUP,
    version=device.VERSION,
    plural=device.PLURAL,
    singular="device",
    description="A GPU of a node. Created, updated and deleted by Sluice.",
    spec=device.DeviceSpec,
    spec_description="What identifies the GPU. Sluice writes it.",
    status=device.DeviceStatus,
    status_subresource=False,
    object_type=Device,
    columns=(
        PrinterColumn("Node", ".spec.node"),
        PrinterColumn("Index", ".spec.index", "integer"),
        PrinterColumn("Product", ".spec.product"),
        PrinterColumn("Memory", ".spec.memory", "integer"),
        PrinterColumn("Health", ".status.health.state"),
        PrinterColumn("MIG", ".status.mig.mode"),
        PrinterColumn("Reason", ".status.health.reason", wide=True),
        PrinterColumn("UUID", ".status.uuid", wide=True),
        PrinterColumn("PCI", ".status.pci", wide=True),
        PrinterColumn("Driver", ".status.driver", wide=True),
        AGE,
    ),
    details=_DETAILS,
)
