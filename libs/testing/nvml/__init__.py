"""Stand-ins for NVIDIA's libraries NVML and libcuda, for machines without a GPU.

`library()` builds them from the C sources beside this file. A process that loads one as
`libnvidia-ml.so.1` or `libcuda.so.1` sees the machine in the file that the environment variable
`STAND_IN_NVML` names, and holds that machine's device files open while the library is initialised.
A container that has the driver's files by CDI finds the machine among its firmware.
"""

from libs.testing.nvml import profiles
from libs.testing.nvml.build import CUDA_NAME, NAME, NotBuilt, library
from libs.testing.nvml.codes import EventType, FabricState, RecoveryAction, Return
from libs.testing.nvml.cuda import CudaResult
from libs.testing.nvml.layout import STATE_IN_CONTAINERS, VARIABLE
from libs.testing.nvml.stand_in import StandIn, StandInGpu

__all__ = [
    "CUDA_NAME",
    "NAME",
    "STATE_IN_CONTAINERS",
    "VARIABLE",
    "CudaResult",
    "EventType",
    "FabricState",
    "NotBuilt",
    "RecoveryAction",
    "Return",
    "StandIn",
    "StandInGpu",
    "library",
    "profiles",
]
