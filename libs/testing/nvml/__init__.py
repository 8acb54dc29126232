"""A stand-in for NVIDIA's library NVML, for machines without a GPU.

`library()` builds it from the C sources beside this file. A process that loads it as
`libnvidia-ml.so.1` sees the machine in the file that the environment variable
`STAND_IN_NVML` names, and holds that machine's device files open while it is initialised.
"""

from libs.testing.nvml import profiles
from libs.testing.nvml.build import NAME, NotBuilt, library
from libs.testing.nvml.codes import EventType, FabricState, RecoveryAction, Return
from libs.testing.nvml.layout import VARIABLE
from libs.testing.nvml.stand_in import StandIn, StandInGpu

__all__ = [
    "NAME",
    "VARIABLE",
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
