"""Device (`gpu.nvidia.com/v1`): a GPU as Kubernetes sees it. Sluice alone writes it.

The fields are declared in `libs.contracts.device`; their descriptions are here.
"""

from libs.contracts import device
from libs.policy.kinds.common import AGE, Kind, Metadata, PrinterColumn
from libs.policy.shapes import About, FieldDescriptions, PolicyStruct

_DESCRIPTIONS: FieldDescriptions = {
    device.DeviceSpec: {
        "node": About("The node of the GPU.", required=True),
        "index": About("The GPU's index in NVML.", required=True, minimum=0),
        "product": About("The GPU's model, as in the label nvidia.com/gpu.product."),
        "memory": About("The GPU's memory in MiB.", minimum=0),
    },
    device.DeviceStatus: {
        "uuid": About("The GPU's UUID."),
        "pci": About("The GPU's PCI address."),
        "serial": About("The serial number of the GPU's board."),
        "driver": About("The version of the loaded driver."),
        "compute_capability": About("The GPU's compute capability."),
        "health": About("The verdict on the GPU's health."),
        "mig": About("The GPU's MIG state."),
        "nvlink": About("The GPU's NVLinks."),
        "fabric": About("The NVLink fabric that the GPU belongs to."),
    },
    device.DeviceHealth: {
        "state": About("The state: ok, degraded, failed or unknown.", required=True),
        "reason": About("The reason in one word."),
        "message": About("What is wrong."),
        "remedy": About("What to do."),
        "since": About("Since when the GPU is in this state."),
    },
    device.DeviceMig: {
        "capable": About("Whether the GPU supports MIG."),
        "mode": About("Enabled or Disabled; empty without MIG."),
        "pending": About("The mode after the next reset of the GPU, if it differs."),
        "devices": About("The MIG devices of the GPU."),
    },
    device.MigDevice: {
        "uuid": About("The UUID of the MIG device.", required=True),
        "profile": About("The profile of the MIG device."),
        "gpu_instance": About("The id of the GPU instance.", minimum=0),
        "compute_instance": About("The id of the compute instance.", minimum=0),
        "memory": About("The memory of the MIG device in MiB.", minimum=0),
    },
    device.DeviceNvlink: {
        "links": About("The number of NVLinks.", minimum=0),
        "down": About("The numbers of the NVLinks that are not active."),
    },
    device.DeviceFabric: {
        "state": About("How far the registration with the fabric manager is."),
        "clique": About("UUID of the fabric's cluster and id of the clique."),
    },
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
    descriptions=_DESCRIPTIONS,
)
