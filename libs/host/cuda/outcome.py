"""What the process that computes tells about its GPU, and what that means."""

import json
from typing import Final

from libs.host.cuda.kernel import COUNT
from libs.host.cuda.port import Computation, CudaProblem

MAX_TEXT: Final = 300
"""Characters of a name or a detail."""

_PROBLEMS: Final = {
    2: CudaProblem.IN_USE,  # OUT_OF_MEMORY
    46: CudaProblem.IN_USE,  # DEVICE_UNAVAILABLE: another process has it, in exclusive mode
    100: CudaProblem.NOT_FOUND,  # NO_DEVICE
    101: CudaProblem.NOT_FOUND,  # INVALID_DEVICE
    221: CudaProblem.NO_COMPILER,  # JIT_COMPILER_NOT_FOUND
    222: CudaProblem.NO_COMPILER,  # UNSUPPORTED_PTX_VERSION
    802: CudaProblem.NOT_READY,  # SYSTEM_NOT_READY
    803: CudaProblem.VERSION_MISMATCH,  # SYSTEM_DRIVER_MISMATCH
}
"""By CUDA's error code."""


def judge(uuid: str, output: bytes, *, has_uvm: bool) -> Computation:
    """Return what the output of the process means; it may be cut off or empty."""
    try:
        outcome = json.loads(output)
        call, code = str(outcome["call"]), int(outcome["code"])
        name, device, wrong = str(outcome["name"]), str(outcome["device"]), int(outcome["wrong"])
    except (ValueError, KeyError, TypeError):
        return Computation(uuid=uuid, problem=CudaProblem.ENDED)
    if call == "dlopen":
        return Computation(uuid=uuid, problem=CudaProblem.NO_LIBRARY, detail=name[:MAX_TEXT])
    if code:
        problem = _PROBLEMS.get(code, CudaProblem.FAILED)
        if problem is CudaProblem.FAILED and call == "cuInit" and not has_uvm:
            problem = CudaProblem.NO_UVM_DEVICE
        detail = f"{call}: {name or 'error'} {code}"[:MAX_TEXT]
        return Computation(uuid=uuid, problem=problem, detail=detail)
    if device and not uuid.endswith(device):
        return Computation(uuid=uuid, problem=CudaProblem.OTHER_DEVICE, detail=device[:MAX_TEXT])
    if wrong:
        detail = f"wrong values: {wrong} of {COUNT}"
        return Computation(uuid=uuid, problem=CudaProblem.WRONG_RESULT, detail=detail)
    return Computation(uuid=uuid)
