"""The state of a machine as the library and Python share it: one structure in a mapped file."""

import ctypes
import hashlib
from typing import Annotated

from libs.testing.nvml import abi, layout_gpu, layout_mig
from libs.testing.nvml.codes import ENUMS
from libs.testing.nvml.layout_gpu import Gpu
from libs.testing.nvml.structures import (
    I32,
    U32,
    U64,
    Text64,
    Text256,
    by_name,
    c_header,
    structure,
)

VARIABLE = "STAND_IN_NVML"
"""The environment variable that names the library's state file."""
STATE_IN_CONTAINERS = "gsp_stand_in.bin"
"""The state file among the driver's firmware, where the variable names no file: in containers that
have the driver's files by CDI."""

MAX_GPUS = 16
MAX_EVENTS = 64
MAX_FAULTS = 16
EVERY_GPU = 0xFFFFFFFF
NO_INSTANCE = 0xFFFFFFFF
FOREVER = 0xFFFFFFFFFFFFFFFF


@structure
class Event(ctypes.Structure):
    gpu: U32
    gpu_instance: U32
    compute_instance: U32
    type: U64
    data: U64


@structure
class Fault(ctypes.Structure):
    """A function that returns `result` instead of an answer."""

    function: Text64
    gpu: U32
    result: U32


@structure
class Machine(ctypes.Structure):
    layout: U64
    """`DIGEST`, by which the library recognises a file that it can read."""
    driver_loaded: U32
    driver_loads: U32
    one_lock: U32
    """Whether a call that hangs makes every other call wait."""
    cuda_version: I32
    driver_version: Text64
    library_version: Text64
    device_folder: Text256
    event_count: U64
    events: Annotated[ctypes.Array[Event], Event * MAX_EVENTS]
    fault_count: U32
    faults: Annotated[ctypes.Array[Fault], Fault * MAX_FAULTS]
    gpu_count: U32
    gpus: Annotated[ctypes.Array[Gpu], Gpu * MAX_GPUS]


_STRUCTURES = {
    **abi.STRUCTURES,
    **by_name(*layout_mig.STRUCTURES, *layout_gpu.STRUCTURES, Event, Fault, Machine),
}

_CONSTANTS = {
    "STATE_VARIABLE": f'"{VARIABLE}"',
    "STATE_IN_CONTAINERS": f'"/lib/firmware/nvidia/*/{STATE_IN_CONTAINERS}"',
    "MAX_GPUS": f"{MAX_GPUS}",
    "MAX_LINKS": f"{layout_gpu.MAX_LINKS}",
    "MAX_EVENTS": f"{MAX_EVENTS}",
    "MAX_INSTANCES": f"{layout_mig.MAX_INSTANCES}",
    "COMPUTE_SLICES": f"{layout_mig.COMPUTE_SLICES}",
    "EVERY_GPU": f"{EVERY_GPU:#x}u",
    "NO_INSTANCE": f"{NO_INSTANCE:#x}u",
}


def _declarations() -> str:
    return c_header(enums=ENUMS, constants=_CONSTANTS, structures=_STRUCTURES)


DIGEST = int.from_bytes(hashlib.sha256(_declarations().encode()).digest()[:8])


def header() -> str:
    """Return the C header of everything that the library shares with its callers and Python."""
    return f"{_declarations()}#define LAYOUT_DIGEST {DIGEST:#x}ULL\n"
